// Gradients that are copied, added up by token or by column, added and scaled.

// From [batch, tokens, heads * head_dim] to [batch, heads, tokens, head_dim]: blocks go over tokens and batch.
extern "C" __global__ void split_rows_to_heads(const number *rows, number *heads_apart, u32 heads, u32 tokens,
                                               u32 head_dim, u32 by_16_bytes) {
    u64 sequence = blockIdx.y;
    u32 token = blockIdx.x, step = by_16_bytes ? NUMBERS_IN_16_BYTES : 1, width = heads * head_dim;
    const number *from = rows + (sequence * tokens + token) * width;
    for (u32 at = threadIdx.x * step; at < width; at += blockDim.x * step) {
        u32 head = at / head_dim;
        number *to = heads_apart + ((sequence * heads + head) * tokens + token) * head_dim + (at - head * head_dim);
        if (by_16_bytes) {
            store(to, loaded(from + at));
        } else {
            *to = from[at];
        }
    }
}

// Notes for each token of the vocabulary, in `places` that are zero before, where it comes first and last: `count` less the
// first position, and one more than the last.
extern "C" __global__ void note_tokens(const u32 *tokens, u32 *places, u32 count, u32 vocabulary) {
    u32 position = blockIdx.x * blockDim.x + threadIdx.x;
    if (position >= count || tokens[position] >= vocabulary) return;
    u32 *mine = places + 2 * (u64)tokens[position];
    atomicMax(mine, count - position);
    atomicMax(mine + 1, position + 1);
}

// Blocks go over positions and columns. The first position of a token adds up the rows of all, in their order.
template <u32 V>
__device__ __forceinline__ void add_by_token(const u32 *tokens, const u32 *places, const number *rows, number *table,
                                             u32 count, u32 vocabulary, u32 width, u32 is_added) {
    __shared__ u32 found[32];
    u32 position = blockIdx.x, token = tokens[position];
    if (token >= vocabulary || places[2 * (u64)token] != count - position) return;
    u32 end = places[2 * (u64)token + 1], at = (blockIdx.y * blockDim.x + threadIdx.x) * V;
    bool is_used = at < width;
    float sum[V] = {};
    auto add = [&](const number *from) {
        Some<V> values = some<V>(from);
#pragma unroll
        for (u32 i = 0; i < V; i++) sum[i] += widened(values.at[i]);
    };
    number *to = table + (u64)token * width + at;
    if (is_used && is_added) add(to);
    if (is_used) add(rows + (u64)position * width + at);
    for (u32 base = position + 1; base < end; base += blockDim.x) {
        u32 other = base + threadIdx.x;
        u32 same = __ballot_sync(~0u, other < end && tokens[other] == token);
        __syncthreads();
        if (threadIdx.x % 32 == 0) found[threadIdx.x / 32] = same;
        __syncthreads();
        if (!is_used) continue;
        for (u32 warp = 0; warp < blockDim.x / 32; warp++)
            for (u32 rest = found[warp]; rest; rest &= rest - 1)
                add(rows + (u64)(base + warp * 32 + __ffs(rest) - 1) * width + at);
    }
    if (!is_used) return;
    put(to, sum);
}

PAIR(embed_backward, add_by_token,
     (const u32 *tokens, const u32 *places, const number *rows, number *table, u32 count, u32 vocabulary, u32 width,
      u32 is_added),
     tokens, places, rows, table, count, vocabulary, width, is_added)

// Blocks of 32 by 8 go over columns and parts of the rows; each leaves its sums in `partial`, [parts, width].
template <u32 V>
__device__ __forceinline__ void sums_of_columns(const number *x, float *partial, u32 rows, u32 width, u32 rows_a_part) {
    __shared__ float sums[8][32 * V];
    let_the_next_kernel_begin();
    u32 column = blockIdx.x * 32 * V, at = column + threadIdx.x * V;
    u64 begin = (u64)blockIdx.y * rows_a_part, end = begin + rows_a_part < rows ? begin + rows_a_part : rows;
    float sum[V] = {};
    if (at < width) {
#pragma unroll 4
        for (u64 row = begin + threadIdx.y; row < end; row += 8) {
            Some<V> values = some<V>(x + row * width + at);
#pragma unroll
            for (u32 i = 0; i < V; i++) sum[i] += widened(values.at[i]);
        }
    }
#pragma unroll
    for (u32 i = 0; i < V; i++) sums[threadIdx.y][i * 32 + threadIdx.x] = sum[i];
    __syncthreads();
    for (u32 i = threadIdx.y; i < V; i += 8) {
        float all = 0;
        for (u32 y = 0; y < 8; y++) all += sums[y][i * 32 + threadIdx.x];
        if (at < width) partial[(u64)blockIdx.y * width + at + i] = all;
    }
}

extern "C" __global__ void __launch_bounds__(256)
    column_sums(const number *x, float *partial, u32 rows, u32 width, u32 rows_a_part) {
    sums_of_columns<NUMBERS_IN_16_BYTES>(x, partial, rows, width, rows_a_part);
}
extern "C" __global__ void __launch_bounds__(256)
    column_sums_any(const number *x, float *partial, u32 rows, u32 width, u32 rows_a_part) {
    sums_of_columns<1>(x, partial, rows, width, rows_a_part);
}

// Adds up `width` columns of `parts` rows that lie `stride` apart. Blocks of 32 by 32.
extern "C" __global__ void __launch_bounds__(1024)
    sum_partials(const float *partial, number *out, u32 parts, u32 stride, u32 width) {
    __shared__ float sums[32][33];
    u32 column = blockIdx.x * 32 + threadIdx.x;
    float sum = 0;
    wait_for_the_kernel_before();
    if (column < width)
#pragma unroll 4
        for (u32 part = threadIdx.y; part < parts; part += 32) sum += partial[(u64)part * stride + column];
    sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    sum = sum_of_warp(sums[threadIdx.x][threadIdx.y]);
    column = blockIdx.x * 32 + threadIdx.y;
    if (threadIdx.x == 0 && column < width) out[column] = narrowed(sum);
}

// x += y and x *= factor, along memory; what is no whole group, and all where there are none, one by one.
template <typename Change>
__device__ __forceinline__ void change_all(number *x, const number *y, u64 count, u32 by_16_bytes, Change change) {
    u64 groups = by_16_bytes ? count / NUMBERS_IN_16_BYTES : 0, stride = (u64)gridDim.x * blockDim.x;
    u64 thread = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    for (u64 group = thread; group < groups; group += stride) {
        numbers values = loaded(x + group * NUMBERS_IN_16_BYTES), others = {};
        if (y) others = loaded(y + group * NUMBERS_IN_16_BYTES);
        store(x + group * NUMBERS_IN_16_BYTES, each<NUMBERS_IN_16_BYTES>([&](u32 i) {
                  return change(widened(values.at[i]), widened(others.at[i]));
              }));
    }
    for (u64 at = groups * NUMBERS_IN_16_BYTES + thread; at < count; at += stride)
        x[at] = narrowed(change(widened(x[at]), y ? widened(y[at]) : 0));
}

extern "C" __global__ void add(number *x, const number *y, u64 count, u32 by_16_bytes) {
    change_all(x, y, count, by_16_bytes, [](float a, float b) { return a + b; });
}
extern "C" __global__ void scale(number *x, float factor, u64 count, u32 by_16_bytes) {
    change_all(x, nullptr, count, by_16_bytes, [factor](float a, float) { return a * factor; });
}
