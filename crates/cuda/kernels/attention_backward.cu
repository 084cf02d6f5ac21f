// The gradients of causal attention without stored scores, for any dtype and head size: f32 products without tensor
// cores. HEAD_DIM, at most 256, is set at compile time. The text for tensor cores describes the computation.

// Queries and keys of a tile: fewer where the rows are long.
#define TILE (HEAD_DIM <= 128 ? 64 : 32)
#define THREADS 256
// The number of rows per thread, and of columns in a tile of products.
#define EACH (TILE / 16)
#define PADDED ((HEAD_DIM + 3) / 4 * 4)
#define STRIDE (PADDED + 4)
#define SHARE_STRIDE (TILE + 4)
#define COLUMN_GROUPS ((PADDED + 63) / 64)

__device__ __forceinline__ float4 &four(float *row, u32 at) { return *reinterpret_cast<float4 *>(row + at); }

// Puts rows that lie `distance` numbers apart into shared memory; those after `rows`, and columns after HEAD_DIM, are zero.
__device__ __forceinline__ void load_rows(const number *from, u64 distance, u64 rows, float *to, u32 by_16_bytes) {
    if (HEAD_DIM % NUMBERS_IN_16_BYTES == 0 && by_16_bytes) {
        constexpr u32 V = NUMBERS_IN_16_BYTES, GROUPS = HEAD_DIM / V > 0 ? HEAD_DIM / V : 1;
        for (u32 i = threadIdx.x; i < TILE * GROUPS; i += THREADS) {
            u32 row = i / GROUPS, at = i % GROUPS * V;
            numbers read = {};
            if (row < rows) read = loaded(from + row * distance + at);
#pragma unroll
            for (u32 j = 0; j < V; j += 4)
                four(to, row * STRIDE + at + j) = make_float4(widened(read.at[j]), widened(read.at[j + 1]),
                                                              widened(read.at[j + 2]), widened(read.at[j + 3]));
        }
    } else {
        for (u32 i = threadIdx.x; i < TILE * PADDED; i += THREADS) {
            u32 row = i / PADDED, at = i % PADDED;
            to[row * STRIDE + at] = row < rows && at < HEAD_DIM ? widened(from[row * distance + at]) : 0;
        }
    }
}

__device__ __forceinline__ float dot(float4 a, float4 b, float sum) {
    return fmaf(a.x, b.x, fmaf(a.y, b.y, fmaf(a.z, b.z, fmaf(a.w, b.w, sum))));
}

__device__ __forceinline__ void add_scaled(float4 &sum, float scale, float4 values) {
    sum.x = fmaf(scale, values.x, sum.x);
    sum.y = fmaf(scale, values.y, sum.y);
    sum.z = fmaf(scale, values.z, sum.z);
    sum.w = fmaf(scale, values.w, sum.w);
}

// The products of a thread's rows of `a` with its rows of `b`.
__device__ __forceinline__ void multiply_rows(float *a, float *b, float (*products)[EACH]) {
    u32 tx = threadIdx.x % 16, ty = threadIdx.x / 16;
#pragma unroll 2
    for (u32 at = 0; at < PADDED; at += 4) {
        float4 left[EACH], right[EACH];
#pragma unroll
        for (int i = 0; i < EACH; i++) left[i] = four(a, (ty * EACH + i) * STRIDE + at);
#pragma unroll
        for (int j = 0; j < EACH; j++) right[j] = four(b, (tx + 16 * j) * STRIDE + at);
#pragma unroll
        for (int i = 0; i < EACH; i++)
#pragma unroll
            for (int j = 0; j < EACH; j++) products[i][j] = dot(left[i], right[j], products[i][j]);
    }
}

// sums += parts * rows: a thread's rows of `parts`, and its columns of `rows`.
__device__ __forceinline__ void add_rows(float4 (*sums)[COLUMN_GROUPS], float *parts, float *rows) {
    u32 tx = threadIdx.x % 16, ty = threadIdx.x / 16;
#pragma unroll 2
    for (u32 at = 0; at < TILE; at += 4) {
        float4 part[EACH];
#pragma unroll
        for (int i = 0; i < EACH; i++) part[i] = four(parts, (ty * EACH + i) * SHARE_STRIDE + at);
#pragma unroll
        for (int c = 0; c < COLUMN_GROUPS; c++) {
            u32 column = tx * 4 + 64 * c;
            if (column >= PADDED) continue;
            float4 values[4];
#pragma unroll
            for (int j = 0; j < 4; j++) values[j] = four(rows, (at + j) * STRIDE + column);
#pragma unroll
            for (int i = 0; i < EACH; i++) {
                add_scaled(sums[i][c], part[i].x, values[0]);
                add_scaled(sums[i][c], part[i].y, values[1]);
                add_scaled(sums[i][c], part[i].z, values[2]);
                add_scaled(sums[i][c], part[i].w, values[3]);
            }
        }
    }
}

__device__ __forceinline__ void store_row(number *to, const float4 *sums, float scale) {
#pragma unroll
    for (int c = 0; c < COLUMN_GROUPS; c++) {
        float columns[4] = {sums[c].x, sums[c].y, sums[c].z, sums[c].w};
#pragma unroll
        for (u32 j = 0; j < 4; j++) {
            u32 column = threadIdx.x % 16 * 4 + 64 * c + j;
            if (column < HEAD_DIM) to[column] = narrowed(columns[j] * scale);
        }
    }
}

#define GRADIENT_PARAMETERS                                                                                            \
    const number *q, const number *k, const number *v, const number *d_out, const float *logarithms,                   \
        const float *dots, number *dq, number *dk, number *dv, const u32 *start, u32 tokens, u32 heads, u32 kv_heads,  \
        u32 capacity, float scale, u32 by_16_bytes

// The product of each row of `out` and its gradient, both [batch, tokens, heads * head_dim], into [batch, heads,
// tokens]. One warp per row.
extern "C" __global__ void attention_dots(const number *out, const number *d_out, float *dots, u32 rows, u32 tokens,
                                          u32 heads) {
    u32 row = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    if (row >= rows) return;
    float sum = 0;
    for (u32 at = threadIdx.x % 32; at < HEAD_DIM; at += 32)
        sum += widened(out[(u64)row * HEAD_DIM + at]) * widened(d_out[(u64)row * HEAD_DIM + at]);
    sum = sum_of_warp(sum);
    u32 token = row / heads, head = row % heads, sequence = token / tokens;
    if (threadIdx.x % 32 == 0) dots[((u64)sequence * heads + head) * tokens + token % tokens] = sum;
}

// Shares and gradients of scores of one tile, keys by queries (`BY_KEYS`) or queries by keys.
template <bool BY_KEYS>
__device__ __forceinline__ void parts_of(float (*share)[EACH], float (*slope)[EACH], const float *logarithms,
                                         const float *dots, u64 position, u32 query, u32 first_key, u32 tokens,
                                         u64 length, float scale) {
    u32 tx = threadIdx.x % 16, ty = threadIdx.x / 16;
#pragma unroll
    for (int i = 0; i < EACH; i++)
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            u32 row = ty * EACH + i, column = tx + 16 * j;
            u32 of_query = query + (BY_KEYS ? column : row);
            u64 key = first_key + (BY_KEYS ? row : column);
            bool is_seen = of_query < tokens && key < length && key <= position + of_query;
            float part = is_seen ? __expf(share[i][j] * scale - logarithms[of_query]) : 0;
            share[i][j] = part;
            slope[i][j] = is_seen ? part * (slope[i][j] - dots[of_query]) : 0;
        }
}

__device__ __forceinline__ void leave_parts(float *to, const float (*parts)[EACH]) {
#pragma unroll
    for (int i = 0; i < EACH; i++)
#pragma unroll
        for (int j = 0; j < EACH; j++)
            to[(threadIdx.x / 16 * EACH + i) * SHARE_STRIDE + threadIdx.x % 16 + 16 * j] = parts[i][j];
}

// A block has a tile of keys of one head. Every position of the cache gets a gradient.
extern "C" __global__ void __launch_bounds__(THREADS, 1) attention_backward_keys(GRADIENT_PARAMETERS) {
    extern __shared__ float4 shared[];
    float *keys = reinterpret_cast<float *>(shared), *values = keys + TILE * STRIDE, *queries = values + TILE * STRIDE;
    float *slopes = queries + TILE * STRIDE, *shares = slopes + TILE * STRIDE, *scores = shares + TILE * SHARE_STRIDE;
    u32 sequence = blockIdx.x / kv_heads, kv_head = blockIdx.x % kv_heads, group = heads / kv_heads;
    u32 first_key = blockIdx.y * TILE;
    u64 position = *start, length = position + tokens < capacity ? position + tokens : capacity;
    u64 seen_from = first_key > position ? (first_key - position) / TILE * TILE : 0;
    u64 kv_row = (u64)blockIdx.x * capacity + first_key, there = first_key < length ? length - first_key : 0;
    load_rows(k + kv_row * HEAD_DIM, HEAD_DIM, there, keys, by_16_bytes);
    load_rows(v + kv_row * HEAD_DIM, HEAD_DIM, there, values, by_16_bytes);
    float4 d_keys[EACH][COLUMN_GROUPS] = {}, d_values[EACH][COLUMN_GROUPS] = {};
    for (u32 head = kv_head * group; there > 0 && head < (kv_head + 1) * group; head++)
        for (u64 query = seen_from; query < tokens; query += TILE) {
            u64 first_row = ((u64)sequence * heads + head) * tokens;
            __syncthreads();
            load_rows(q + (first_row + query) * HEAD_DIM, HEAD_DIM, tokens - query, queries, by_16_bytes);
            load_rows(d_out + (((u64)sequence * tokens + query) * heads + head) * HEAD_DIM, (u64)heads * HEAD_DIM,
                      tokens - query, slopes, by_16_bytes);
            __syncthreads();
            float share[EACH][EACH] = {}, slope[EACH][EACH] = {};
            multiply_rows(keys, queries, share);
            multiply_rows(values, slopes, slope);
            parts_of<true>(share, slope, logarithms + first_row, dots + first_row, position, (u32)query, first_key, tokens,
                           length, scale);
            leave_parts(shares, share);
            leave_parts(scores, slope);
            // Sixteen threads of one warp share a row, so the warp is all that waits.
            __syncwarp();
            add_rows(d_values, shares, slopes);
            add_rows(d_keys, scores, queries);
        }
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        u32 row = threadIdx.x / 16 * EACH + i;
        if (first_key + row >= capacity) continue;
        store_row(dk + (kv_row + row) * HEAD_DIM, d_keys[i], scale);
        store_row(dv + (kv_row + row) * HEAD_DIM, d_values[i], 1);
    }
}

// A block has a tile of queries of one head.
extern "C" __global__ void __launch_bounds__(THREADS, 1) attention_backward_queries(GRADIENT_PARAMETERS) {
    extern __shared__ float4 shared[];
    float *keys = reinterpret_cast<float *>(shared), *values = keys + TILE * STRIDE, *queries = values + TILE * STRIDE;
    float *slopes = queries + TILE * STRIDE, *scores = slopes + TILE * STRIDE;
    u32 sequence = blockIdx.x / heads, head = blockIdx.x % heads;
    // The tiles with the most keys come first.
    u32 query = (gridDim.y - 1 - blockIdx.y) * TILE;
    u64 position = *start, length = position + tokens < capacity ? position + tokens : capacity;
    u64 seen = position + query + TILE < length ? position + query + TILE : length;
    u64 kv_row = (u64)(sequence * kv_heads + head / (heads / kv_heads)) * capacity;
    u64 first_row = (u64)blockIdx.x * tokens;
    load_rows(q + (first_row + query) * HEAD_DIM, HEAD_DIM, tokens - query, queries, by_16_bytes);
    load_rows(d_out + (((u64)sequence * tokens + query) * heads + head) * HEAD_DIM, (u64)heads * HEAD_DIM, tokens - query,
              slopes, by_16_bytes);
    float4 d_queries[EACH][COLUMN_GROUPS] = {};
    for (u32 first_key = 0; first_key < seen; first_key += TILE) {
        __syncthreads();
        load_rows(k + (kv_row + first_key) * HEAD_DIM, HEAD_DIM, length - first_key, keys, by_16_bytes);
        load_rows(v + (kv_row + first_key) * HEAD_DIM, HEAD_DIM, length - first_key, values, by_16_bytes);
        __syncthreads();
        float share[EACH][EACH] = {}, slope[EACH][EACH] = {};
        multiply_rows(queries, keys, share);
        multiply_rows(slopes, values, slope);
        parts_of<false>(share, slope, logarithms + first_row, dots + first_row, position, query, first_key, tokens, length,
                        scale);
        leave_parts(scores, slope);
        __syncwarp();
        add_rows(d_queries, scores, keys);
    }
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        u32 row = query + threadIdx.x / 16 * EACH + i;
        if (row < tokens) store_row(dq + (first_row + row) * HEAD_DIM, d_queries[i], scale);
    }
}
