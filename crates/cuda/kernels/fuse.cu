// What joins two models through their KV caches, between the products: all paths of a fuser at once. A path is the keys or
// the values of a layer. Blocks go over the tokens of all sequences, then over the paths.
//
// Caches are [batch, heads, capacity, head_dim]; tables have the address of one for each path.

struct section {
    u32 heads, head_dim, capacity, start;
};

// Where number `at` of a token, all heads side by side, lies in a cache.
__device__ __forceinline__ u64 place(const section &of, u32 row, u32 length, u32 at) {
    u32 sequence = row / length, position = of.start + row % length, head = at / of.head_dim;
    return (((u64)sequence * of.heads + head) * of.capacity + position) * of.head_dim + at % of.head_dim;
}

__device__ __forceinline__ const number *cache_of(const u64 *table) {
    return reinterpret_cast<const number *>(table[blockIdx.y]);
}

// Puts what was heard of each token, and behind it what is there, into a row of `out`, [paths, rows, both widths].
extern "C" __global__ void fuse_join(const u64 *heard_table, const u64 *own_table, number *out, u32 length,
                                     u32 heard_heads, u32 heard_dim, u32 heard_capacity, u32 heard_start, u32 own_heads,
                                     u32 own_dim, u32 own_capacity, u32 own_start, u32 by_16_bytes) {
    section heard = {heard_heads, heard_dim, heard_capacity, heard_start};
    section own = {own_heads, own_dim, own_capacity, own_start};
    u32 heard_width = heard_heads * heard_dim, width = heard_width + own_heads * own_dim;
    const number *from_heard = cache_of(heard_table), *from_own = cache_of(own_table);
    number *to = out + ((u64)blockIdx.y * gridDim.x + blockIdx.x) * width;
    u32 step = by_16_bytes ? NUMBERS_IN_16_BYTES : 1;
    for (u32 at = threadIdx.x * step; at < width; at += blockDim.x * step) {
        const number *from = at < heard_width ? from_heard + place(heard, blockIdx.x, length, at)
                                              : from_own + place(own, blockIdx.x, length, at - heard_width);
        if (by_16_bytes) {
            store(to + at, loaded(from));
        } else {
            to[at] = *from;
        }
    }
}

// The RMS norm of each row of `x`, [paths, rows, width], with a weight a path: see norm.cuh. A bias, [paths, width], is
// added to `x` first where there is one; `x` as it then is goes to `copy` too where that is.
extern "C" __global__ void __launch_bounds__(1024, 1)
    fuse_norm(number *x, const number *bias, const number *weight, number *out, number *copy, u32 width, float epsilon) {
    u64 row = ((u64)blockIdx.y * gridDim.x + blockIdx.x) * width, path = (u64)blockIdx.y * width;
    norm_kept(x + row, weight + path, out + row, width, epsilon, [&](u32 at, numbers &values, float &sum) {
        if (bias) {
            numbers added = loaded(bias + path + at);
            values = each<NUMBERS_IN_16_BYTES>([&](u32 i) { return widened(values.at[i]) + widened(added.at[i]); });
            store(x + row + at, values);
        }
        if (copy) store(copy + row + at, values);
#pragma unroll
        for (int i = 0; i < NUMBERS_IN_16_BYTES; i++) sum += widened(values.at[i]) * widened(values.at[i]);
    });
}

// A thread reads again only what it wrote itself.
extern "C" __global__ void fuse_norm_any(number *x, const number *bias, const number *weight, number *out, number *copy,
                                         u32 width, float epsilon) {
    u64 row = ((u64)blockIdx.y * gridDim.x + blockIdx.x) * width, path = (u64)blockIdx.y * width;
    auto visit = [&](u32 at) {
        number value = x[row + at];
        if (bias) {
            value = narrowed(widened(value) + widened(bias[path + at]));
            x[row + at] = value;
        }
        if (copy) copy[row + at] = value;
        return widened(value);
    };
    norm_any(width, epsilon, visit, [&](u32 at, float scale) {
        out[row + at] = narrowed(widened(x[row + at]) * scale * widened(weight[path + at]));
    });
}

// Makes every number its gelu, the exact one.
extern "C" __global__ void fuse_gelu(number *x, u64 count, u32 by_16_bytes) {
    u64 thread = (u64)blockIdx.x * blockDim.x + threadIdx.x, threads = (u64)gridDim.x * blockDim.x;
    u64 done = by_16_bytes ? count / NUMBERS_IN_16_BYTES * NUMBERS_IN_16_BYTES : 0;
    for (u64 at = thread * NUMBERS_IN_16_BYTES; at < done; at += threads * NUMBERS_IN_16_BYTES) {
        numbers values = loaded(x + at);
#pragma unroll
        for (int i = 0; i < NUMBERS_IN_16_BYTES; i++) values.at[i] = gelu_of(values.at[i]);
        store(x + at, values);
    }
    for (u64 at = done + thread; at < count; at += threads) x[at] = gelu_of(x[at]);
}

// The weight of a head: rounded where the CPU rounds.
__device__ __forceinline__ float weight_of(number value, number bias) {
    float weight = widened(narrowed(widened(value) + widened(bias)));
    return widened(narrowed(1.0f / (1.0f + __expf(-weight))));
}

__device__ __forceinline__ number fused(number own, number value, number bias, float weight) {
    return narrowed(widened(own) + weight * widened(narrowed(widened(value) + widened(bias))));
}

// Adds to each head of each token in the caches its value, [paths, rows, width], times the sigmoid of its weight,
// [paths, rows, heads]. Biases, one a path, are added to both first.
extern "C" __global__ void fuse_add(const u64 *own_table, const number *values, const number *value_bias,
                                    const number *weights, const number *weight_bias, u32 length, u32 heads, u32 head_dim,
                                    u32 capacity, u32 start, u32 by_16_bytes) {
    section own = {heads, head_dim, capacity, start};
    number *cache = const_cast<number *>(cache_of(own_table));
    u64 row = (u64)blockIdx.y * gridDim.x + blockIdx.x, path = blockIdx.y;
    u32 width = heads * head_dim, step = by_16_bytes ? NUMBERS_IN_16_BYTES : 1;
    for (u32 at = threadIdx.x * step; at < width; at += blockDim.x * step) {
        u32 head = at / head_dim;
        float weight = weight_of(weights[row * heads + head], weight_bias[path * heads + head]);
        number *to = cache + place(own, blockIdx.x, length, at);
        const number *value = values + row * width + at, *bias = value_bias + path * width + at;
        if (by_16_bytes) {
            numbers there = loaded(to), added = loaded(value), biases = loaded(bias);
#pragma unroll
            for (int i = 0; i < NUMBERS_IN_16_BYTES; i++)
                there.at[i] = fused(there.at[i], added.at[i], biases.at[i], weight);
            store(to, there);
        } else {
            *to = fused(*to, *value, *bias, weight);
        }
    }
}
