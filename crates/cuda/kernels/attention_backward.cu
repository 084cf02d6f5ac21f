// The gradients of causal attention without stored scores, for any dtype and head size: see attention_simt.cuh, and
// attention_backward_tensor.cu for the method.

// Queries and keys of a tile: fewer for large heads.
#define TILE (HEAD_DIM <= 128 ? 64 : 32)
// Rows per thread, and columns per thread in a tile of scores.
#define EACH (TILE / 16)
#define SCORE_STRIDE (TILE + 4)

#define GRADIENT_PARAMETERS                                                                                            \
    const dtype *q, const dtype *k, const dtype *v, const dtype *d_out, const float *lse, const float *delta,          \
        dtype *dq, dtype *dk, dtype *dv, const u32 *start, u32 tokens, u32 heads, u32 kv_heads, u32 capacity,          \
        float scale, u32 is_aligned

// The dot product of each row of `out` and its gradient, both [batch, tokens, heads * head_dim], into [batch, heads,
// tokens]. One warp per row.
KERNEL attention_delta(const dtype *out, const dtype *d_out, float *delta, u32 rows, u32 tokens, u32 heads) {
    u32 row = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    if (row >= rows) return;
    float sum = 0;
    for (u32 at = threadIdx.x % 32; at < HEAD_DIM; at += 32)
        sum += to_float(out[(u64)row * HEAD_DIM + at]) * to_float(d_out[(u64)row * HEAD_DIM + at]);
    sum = warp_sum(sum);
    u32 token = row / heads, head = row % heads, sequence = token / tokens;
    if (threadIdx.x % 32 == 0) delta[((u64)sequence * heads + head) * tokens + token % tokens] = sum;
}

// The probabilities of a tile and the gradients of its scores, keys by queries (BY_KEYS) or queries by keys.
template <bool BY_KEYS> struct Tile {
    float p[EACH][EACH] = {}, ds[EACH][EACH] = {};

    // `a` and `da` are the rows of the tile: keys and values or queries and their gradients; `b` and `db` the columns.
    DEVICE Tile(float *a, float *b, float *da, float *db, const float *lse, const float *delta, const Causal &causal,
                u32 first_query, u32 first_key, u32 tokens, float scale) {
        multiply_rows<2>(a, b, p);
        multiply_rows<2>(da, db, ds);
        u32 tx = threadIdx.x % 16, ty = threadIdx.x / 16;
#pragma unroll
        for (int i = 0; i < EACH; i++)
#pragma unroll
            for (int j = 0; j < EACH; j++) {
                u32 row = ty * EACH + i, column = tx + 16 * j, query = first_query + (BY_KEYS ? column : row);
                u64 key = first_key + (BY_KEYS ? row : column);
                bool is_visible = query < tokens && key < causal.length && key <= causal.position + query;
                p[i][j] = is_visible ? __expf(p[i][j] * scale - lse[query]) : 0;
                ds[i][j] = is_visible ? p[i][j] * (ds[i][j] - delta[query]) : 0;
            }
    }
    static DEVICE void store(float *to, const float (*scores)[EACH]) {
#pragma unroll
        for (int i = 0; i < EACH; i++)
#pragma unroll
            for (int j = 0; j < EACH; j++)
                to[(threadIdx.x / 16 * EACH + i) * SCORE_STRIDE + threadIdx.x % 16 + 16 * j] = scores[i][j];
    }
};

// A block has a tile of keys of one head. Every position of the cache gets a gradient.
KERNEL __launch_bounds__(THREADS, 1) attention_backward_keys(GRADIENT_PARAMETERS) {
    extern __shared__ float4 shared[];
    float *keys = reinterpret_cast<float *>(shared), *values = keys + TILE * STRIDE, *queries = values + TILE * STRIDE;
    float *d_outs = queries + TILE * STRIDE, *p = d_outs + TILE * STRIDE, *ds = p + TILE * SCORE_STRIDE;
    u32 sequence = blockIdx.x / kv_heads, kv_head = blockIdx.x % kv_heads, group = heads / kv_heads;
    u32 first_key = blockIdx.y * TILE;
    Causal causal(start, tokens, capacity);
    // Earlier queries do not see these keys.
    u64 first_query = first_key > causal.position ? (first_key - causal.position) / TILE * TILE : 0;
    u64 kv_row = (u64)blockIdx.x * capacity + first_key, count = first_key < causal.length ? causal.length - first_key : 0;
    load_rows<TILE>(k + kv_row * HEAD_DIM, Contiguous<u64>{count}, keys, is_aligned);
    load_rows<TILE>(v + kv_row * HEAD_DIM, Contiguous<u64>{count}, values, is_aligned);
    float4 d_keys[EACH][COLUMN_GROUPS] = {}, d_values[EACH][COLUMN_GROUPS] = {};
    for (u32 head = kv_head * group; count > 0 && head < (kv_head + 1) * group; head++)
        for (u64 query = first_query; query < tokens; query += TILE) {
            u64 first_row = ((u64)sequence * heads + head) * tokens;
            __syncthreads();
            load_rows<TILE>(q + (first_row + query) * HEAD_DIM, Contiguous<u64>{tokens - query}, queries, is_aligned);
            load_rows<TILE>(d_out + out_index(sequence, query, head, tokens, heads),
                            Contiguous<u64>{tokens - query, (u64)heads * HEAD_DIM}, d_outs, is_aligned);
            __syncthreads();
            Tile<true> tile(keys, queries, values, d_outs, lse + first_row, delta + first_row, causal, (u32)query, first_key,
                            tokens, scale);
            tile.store(p, tile.p);
            tile.store(ds, tile.ds);
            // The sixteen threads of a row are in one warp.
            __syncwarp();
            add_rows<TILE>(d_values, p, d_outs);
            add_rows<TILE>(d_keys, ds, queries);
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
KERNEL __launch_bounds__(THREADS, 1) attention_backward_queries(GRADIENT_PARAMETERS) {
    extern __shared__ float4 shared[];
    float *keys = reinterpret_cast<float *>(shared), *values = keys + TILE * STRIDE, *queries = values + TILE * STRIDE;
    float *d_outs = queries + TILE * STRIDE, *ds = d_outs + TILE * STRIDE;
    QueryHead head(tokens, heads, kv_heads, capacity);
    Causal causal(start, tokens, capacity);
    // The tiles with the most keys come first.
    u32 query = (gridDim.y - 1 - blockIdx.y) * TILE;
    u64 visible = causal.visible((u64)query + TILE), first_row = head.query_row(0);
    load_rows<TILE>(q + (first_row + query) * HEAD_DIM, Contiguous<u64>{tokens - query}, queries, is_aligned);
    load_rows<TILE>(d_out + head.out(query), Contiguous<u64>{tokens - query, (u64)heads * HEAD_DIM}, d_outs, is_aligned);
    float4 d_queries[EACH][COLUMN_GROUPS] = {};
    for (u32 first_key = 0; first_key < visible; first_key += TILE) {
        __syncthreads();
        Contiguous<u64> source = {causal.length - first_key};
        load_rows<TILE>(k + (head.kv_row + first_key) * HEAD_DIM, source, keys, is_aligned);
        load_rows<TILE>(v + (head.kv_row + first_key) * HEAD_DIM, source, values, is_aligned);
        __syncthreads();
        Tile<false> tile(queries, keys, d_outs, values, lse + first_row, delta + first_row, causal, query, first_key, tokens,
                         scale);
        tile.store(ds, tile.ds);
        __syncwarp();
        add_rows<TILE>(d_queries, ds, keys);
    }
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        u32 row = query + threadIdx.x / 16 * EACH + i;
        if (row < tokens) store_row(dq + (first_row + row) * HEAD_DIM, d_queries[i], scale);
    }
}
