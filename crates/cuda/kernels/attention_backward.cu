// The gradients of causal attention without stored scores, for any dtype and head size: see attention_plain.cuh. The text for
// tensor cores describes the computation.

// Queries and keys of a tile: fewer where the rows are long.
#define TILE (HEAD_DIM <= 128 ? 64 : 32)
// The number of rows per thread, and of columns in a tile of products.
#define EACH (TILE / 16)
#define SHARE_STRIDE (TILE + 4)

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
    load_rows<TILE>(k + kv_row * HEAD_DIM, InTurn<u64>{there}, keys, by_16_bytes);
    load_rows<TILE>(v + kv_row * HEAD_DIM, InTurn<u64>{there}, values, by_16_bytes);
    float4 d_keys[EACH][COLUMN_GROUPS] = {}, d_values[EACH][COLUMN_GROUPS] = {};
    for (u32 head = kv_head * group; there > 0 && head < (kv_head + 1) * group; head++)
        for (u64 query = seen_from; query < tokens; query += TILE) {
            u64 first_row = ((u64)sequence * heads + head) * tokens;
            __syncthreads();
            load_rows<TILE>(q + (first_row + query) * HEAD_DIM, InTurn<u64>{tokens - query}, queries, by_16_bytes);
            load_rows<TILE>(d_out + (((u64)sequence * tokens + query) * heads + head) * HEAD_DIM,
                            InTurn<u64>{tokens - query, (u64)heads * HEAD_DIM}, slopes, by_16_bytes);
            __syncthreads();
            float share[EACH][EACH] = {}, slope[EACH][EACH] = {};
            multiply_rows<2>(keys, queries, share);
            multiply_rows<2>(values, slopes, slope);
            parts_of<true>(share, slope, logarithms + first_row, dots + first_row, position, (u32)query, first_key, tokens,
                           length, scale);
            leave_parts(shares, share);
            leave_parts(scores, slope);
            // Sixteen threads of one warp share a row, so the warp is all that waits.
            __syncwarp();
            add_rows<TILE>(d_values, shares, slopes);
            add_rows<TILE>(d_keys, scores, queries);
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
    load_rows<TILE>(q + (first_row + query) * HEAD_DIM, InTurn<u64>{tokens - query}, queries, by_16_bytes);
    load_rows<TILE>(d_out + (((u64)sequence * tokens + query) * heads + head) * HEAD_DIM,
                    InTurn<u64>{tokens - query, (u64)heads * HEAD_DIM}, slopes, by_16_bytes);
    float4 d_queries[EACH][COLUMN_GROUPS] = {};
    for (u32 first_key = 0; first_key < seen; first_key += TILE) {
        __syncthreads();
        load_rows<TILE>(k + (kv_row + first_key) * HEAD_DIM, InTurn<u64>{length - first_key}, keys, by_16_bytes);
        load_rows<TILE>(v + (kv_row + first_key) * HEAD_DIM, InTurn<u64>{length - first_key}, values, by_16_bytes);
        __syncthreads();
        float share[EACH][EACH] = {}, slope[EACH][EACH] = {};
        multiply_rows<2>(queries, keys, share);
        multiply_rows<2>(slopes, values, slope);
        parts_of<false>(share, slope, logarithms + first_row, dots + first_row, position, query, first_key, tokens, length,
                        scale);
        leave_parts(scores, slope);
        __syncwarp();
        add_rows<TILE>(d_queries, scores, keys);
    }
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        u32 row = query + threadIdx.x / 16 * EACH + i;
        if (row < tokens) store_row(dq + (first_row + row) * HEAD_DIM, d_queries[i], scale);
    }
}
