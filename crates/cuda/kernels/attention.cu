// Causal attention that never stores the scores: see attention_plain.cuh. WINDOW is the number of keys up to its own that
// a query sees, if not all.

#define ROWS 64
#define KEYS 64
#ifdef WINDOW
// The first tile of a block may have no key for its later rows. A finite value keeps the difference of two such values
// a number, and the first key that a row sees makes what came before it zero.
#define NO_SCORE (-1e30f)
#else
#define WINDOW 0
#define NO_SCORE LOWEST
#endif

// A block has 64 queries of one head and goes over the keys by 64.
extern "C" __global__ void __launch_bounds__(THREADS)
    attention(const number *q, const number *k, const number *v, number *out, const u32 *start, u32 tokens, u32 heads,
              u32 kv_heads, u32 capacity, float scale, u32 by_16_bytes, float *logarithms) {
    extern __shared__ float4 shared[];
    float *queries = reinterpret_cast<float *>(shared);
    float *values = queries + ROWS * STRIDE;
    // The shares take the place of the keys they were made of.
    float *keys = values + KEYS * STRIDE, *shares = keys;

    u32 tx = threadIdx.x % 16, ty = threadIdx.x / 16;
    u32 sequence = blockIdx.x / heads, head = blockIdx.x % heads;
    // The tiles with the most keys come first.
    u32 first_query = (gridDim.y - 1 - blockIdx.y) * ROWS;
    u64 position = *start, length = position + tokens < capacity ? position + tokens : capacity;
    u64 seen_by_last = position + first_query + ROWS < length ? position + first_query + ROWS : length;
    u64 kv_row = (u64)(sequence * kv_heads + head / (heads / kv_heads)) * capacity;
    const number *query_rows = q + ((u64)blockIdx.x * tokens + first_query) * HEAD_DIM;
    load_rows<ROWS>(query_rows, InTurn<u32>{tokens - first_query}, queries, by_16_bytes);

    Attended rows;
    rows.begin(NO_SCORE);
    u32 begin = 0;
    if (WINDOW && position + first_query >= WINDOW) begin = (u32)(position + first_query + 1 - WINDOW) / KEYS * KEYS;
    for (u32 first_key = begin; first_key < seen_by_last; first_key += KEYS) {
        __syncthreads();
        InTurn<u32> source = {(u32)(length - first_key)};
        load_rows<KEYS>(k + (kv_row + first_key) * HEAD_DIM, source, keys, by_16_bytes);
        load_rows<KEYS>(v + (kv_row + first_key) * HEAD_DIM, source, values, by_16_bytes);
        __syncthreads();
        float score[4][4] = {};
        multiply_rows<4>(queries, keys, score);
        __syncthreads();
#pragma unroll
        for (int i = 0; i < 4; i++) {
            u64 row_position = position + first_query + ty * 4 + i;
#pragma unroll
            for (int j = 0; j < 4; j++) {
                u64 key = first_key + tx + 16 * j;
                bool is_seen = key <= row_position && key < length && (!WINDOW || key + WINDOW > row_position);
                score[i][j] = is_seen ? score[i][j] * scale : NO_SCORE;
            }
            rows.share<false>(i, score[i], shares);
        }
        // Sixteen threads of one warp share a row, so the warp is all that waits.
        __syncwarp();
        add_rows<KEYS>(rows.result, shares, values);
    }

#pragma unroll
    for (int i = 0; i < 4; i++) {
        float sum = rows.total(i);
        u32 query = first_query + ty * 4 + i;
        if (query >= tokens) continue;
        number *to = out + (((u64)sequence * tokens + query) * heads + head) * HEAD_DIM;
        float share = 1 / sum;
        // The logarithm of the sum of exponentials, if a gradient will need it.
        if (logarithms && tx == 0) logarithms[(u64)blockIdx.x * tokens + query] = rows.largest[i] + logf(sum);
        store_row(to, rows.result[i], share);
    }
}
