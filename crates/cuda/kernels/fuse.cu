// The elementwise parts of a cache-to-cache fuser, for all paths at once. A path is the keys or the values of a layer.
// Blocks cover the tokens of all sequences, and the paths.
//
// Caches are [batch, heads, capacity, head_dim]; a table has the address of one cache per path.

struct Section {
    u32 heads, head_dim, capacity, start;
    DEVICE u32 width() const { return heads * head_dim; }
    // The index in a cache of element `at` of a token whose heads are merged.
    DEVICE u64 index(u32 row, u32 length, u32 at) const {
        u32 sequence = row / length, position = start + row % length, head = at / head_dim;
        return (((u64)sequence * heads + head) * capacity + position) * head_dim + at % head_dim;
    }
};

DEVICE dtype *cache_of(const u64 *table) { return reinterpret_cast<dtype *>(table[blockIdx.y]); }

// Concatenates each token's heads of the source and of the receiver into a row of `out`, [paths, rows, both widths].
KERNEL fuse_join(const u64 *source_table, const u64 *own_table, dtype *out, u32 length, u32 source_heads, u32 source_dim,
                 u32 source_capacity, u32 source_start, u32 own_heads, u32 own_dim, u32 own_capacity, u32 own_start,
                 u32 is_aligned) {
    Section source = {source_heads, source_dim, source_capacity, source_start};
    Section own = {own_heads, own_dim, own_capacity, own_start};
    u32 source_width = source.width(), width = source_width + own.width();
    const dtype *from_source = cache_of(source_table), *from_own = cache_of(own_table);
    dtype *to = out + ((u64)blockIdx.y * gridDim.x + blockIdx.x) * width;
    u32 step = is_aligned ? VEC : 1;
    for (u32 at = threadIdx.x * step; at < width; at += blockDim.x * step) {
        const dtype *from = at < source_width ? from_source + source.index(blockIdx.x, length, at)
                                              : from_own + own.index(blockIdx.x, length, at - source_width);
        if (is_aligned)
            store(to + at, load(from));
        else
            to[at] = *from;
    }
}

// The RMS norm of each row of `x`, [paths, rows, width], with a weight per path: see norm.cuh. The bias, [paths,
// width], is added to `x` first, and the sum is also written to `copy`; both may be null.
KERNEL __launch_bounds__(1024, 1)
    fuse_norm(dtype *x, const dtype *bias, const dtype *weight, dtype *out, dtype *copy, u32 width, float epsilon) {
    u64 row = ((u64)blockIdx.y * gridDim.x + blockIdx.x) * width, path = (u64)blockIdx.y * width;
    norm_kept(x + row, weight + path, out + row, width, epsilon, [&](u32 at, vec_t &values, float &sum) {
        if (bias) {
            vec_t added = load(bias + path + at);
            values = make_vec<VEC>([&](u32 i) { return to_float(values.at[i]) + to_float(added.at[i]); });
            store(x + row + at, values);
        }
        if (copy) store(copy + row + at, values);
#pragma unroll
        for (int i = 0; i < VEC; i++) sum += to_float(values.at[i]) * to_float(values.at[i]);
    });
}

// A thread only reads again what it wrote itself.
KERNEL fuse_norm_any(dtype *x, const dtype *bias, const dtype *weight, dtype *out, dtype *copy, u32 width, float epsilon) {
    u64 row = ((u64)blockIdx.y * gridDim.x + blockIdx.x) * width, path = (u64)blockIdx.y * width;
    auto visit = [&](u32 at) {
        dtype value = x[row + at];
        if (bias) {
            value = to_dtype(to_float(value) + to_float(bias[path + at]));
            x[row + at] = value;
        }
        if (copy) copy[row + at] = value;
        return to_float(value);
    };
    norm_any(width, epsilon, visit, [&](u32 at, float scale) {
        out[row + at] = to_dtype(to_float(x[row + at]) * scale * to_float(weight[path + at]));
    });
}

KERNEL fuse_gelu(dtype *x, u64 count, u32 is_aligned) {
    map_elements(x, count, 0, is_aligned, [](float value, u64) { return gelu(value); });
}

// Adds to each head of each token in the caches its value, [paths, rows, width], times the sigmoid of its gate,
// [paths, rows, heads]. A bias per path is added to both first. Every step is rounded as on the CPU.
KERNEL fuse_add(const u64 *own_table, const dtype *values, const dtype *value_bias, const dtype *gates,
                const dtype *gate_bias, u32 length, u32 heads, u32 head_dim, u32 capacity, u32 start, u32 is_aligned) {
    Section own = {heads, head_dim, capacity, start};
    u64 row = (u64)blockIdx.y * gridDim.x + blockIdx.x, path = blockIdx.y;
    u32 width = own.width(), step = is_aligned ? VEC : 1;
    for (u32 at = threadIdx.x * step; at < width; at += blockDim.x * step) {
        u32 head = at / head_dim;
        float gate = rounded(to_float(gates[row * heads + head]) + to_float(gate_bias[path * heads + head]));
        float weight = rounded(1.0f / (1.0f + __expf(-gate)));
        auto fused = [=](dtype old, dtype value, dtype bias) {
            return to_float(old) + weight * rounded(to_float(value) + to_float(bias));
        };
        dtype *to = cache_of(own_table) + own.index(blockIdx.x, length, at);
        const dtype *value = values + row * width + at, *bias = value_bias + path * width + at;
        if (is_aligned) {
            vec_t old = load(to), added = load(value), biases = load(bias);
            store(to, make_vec<VEC>([&](u32 i) { return fused(old.at[i], added.at[i], biases.at[i]); }));
        } else {
            *to = to_dtype(fused(*to, *value, *bias));
        }
    }
}
