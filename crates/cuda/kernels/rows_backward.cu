// The gradients of embeddings and biases: sums by token and by column.

// For each token of the vocabulary, where it occurs: `count` minus its first position, and one more than its last.
// `ranges` must be zero before.
KERNEL token_ranges(const u32 *tokens, u32 *ranges, u32 count, u32 vocabulary) {
    u32 position = blockIdx.x * blockDim.x + threadIdx.x;
    if (position >= count || tokens[position] >= vocabulary) return;
    u32 *range = ranges + 2 * (u64)tokens[position];
    atomicMax(range, count - position);
    atomicMax(range + 1, position + 1);
}

// Blocks cover positions and columns. The first position of a token adds the rows of all its positions, in order.
template <u32 V>
DEVICE void add_by_token(const u32 *tokens, const u32 *ranges, const dtype *rows, dtype *table, u32 count, u32 vocabulary,
                         u32 width, u32 is_added) {
    __shared__ u32 found[32];
    u32 position = blockIdx.x, token = tokens[position];
    if (token >= vocabulary || ranges[2 * (u64)token] != count - position) return;
    u32 end = ranges[2 * (u64)token + 1], at = (blockIdx.y * blockDim.x + threadIdx.x) * V;
    bool is_used = at < width;
    float sum[V] = {};
    auto add = [&](const dtype *from) {
        Vec<V> values = load<V>(from);
#pragma unroll
        for (u32 i = 0; i < V; i++) sum[i] += to_float(values.at[i]);
    };
    dtype *to = table + (u64)token * width + at;
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
    if (is_used) store(to, sum);
}

KERNEL_PAIR(embed_backward, add_by_token,
            (const u32 *tokens, const u32 *ranges, const dtype *rows, dtype *table, u32 count, u32 vocabulary, u32 width,
             u32 is_added),
            tokens, ranges, rows, table, count, vocabulary, width, is_added)

// Blocks of 32 by 8 cover columns and parts of the rows; each writes its sums to `partial`, [parts, width].
template <u32 V> DEVICE void sum_columns(const dtype *x, float *partial, u32 rows, u32 width, u32 rows_per_part) {
    __shared__ float sums[8][32 * V];
    launch_dependents();
    u32 column = blockIdx.x * 32 * V, at = column + threadIdx.x * V;
    u64 begin = (u64)blockIdx.y * rows_per_part, end = begin + rows_per_part < rows ? begin + rows_per_part : rows;
    float sum[V] = {};
    if (at < width) {
#pragma unroll 4
        for (u64 row = begin + threadIdx.y; row < end; row += 8) {
            Vec<V> values = load<V>(x + row * width + at);
#pragma unroll
            for (u32 i = 0; i < V; i++) sum[i] += to_float(values.at[i]);
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

KERNEL_PAIR(__launch_bounds__(256) column_sums, sum_columns,
            (const dtype *x, float *partial, u32 rows, u32 width, u32 rows_per_part), x, partial, rows, width, rows_per_part)

// Adds `width` columns of `parts` rows, `stride` apart. Blocks of 32 by 32.
KERNEL __launch_bounds__(1024) sum_partials(const float *partial, dtype *out, u32 parts, u32 stride, u32 width) {
    __shared__ float sums[32][33];
    u32 column = blockIdx.x * 32 + threadIdx.x;
    float sum = 0;
    wait_for_previous_kernel();
    if (column < width)
#pragma unroll 4
        for (u32 part = threadIdx.y; part < parts; part += 32) sum += partial[(u64)part * stride + column];
    sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    sum = warp_sum(sums[threadIdx.x][threadIdx.y]);
    column = blockIdx.x * 32 + threadIdx.y;
    if (threadIdx.x == 0 && column < width) out[column] = to_dtype(sum);
}
