// Causal attention that does not store the scores: see attention_simt.cuh. With WINDOW, a query sees only this number
// of keys, up to its own.

#define ROWS 64
#define KEYS 64
#ifdef WINDOW
// A block's first tile may have no key for its later rows. The value is finite, so that the difference of two of them
// is not NaN; the first visible key scales what came before to zero.
#define MASKED (-1e30f)
#else
#define WINDOW 0
#define MASKED NEG_INF
#endif

// A block has 64 queries of one head and iterates over tiles of 64 keys.
KERNEL __launch_bounds__(THREADS)
    attention(const dtype *q, const dtype *k, const dtype *v, dtype *out, const u32 *start, u32 tokens, u32 heads,
              u32 kv_heads, u32 capacity, float scale, u32 is_aligned, float *lse) {
    extern __shared__ float4 shared[];
    float *queries = reinterpret_cast<float *>(shared), *values = queries + ROWS * STRIDE, *keys = values + KEYS * STRIDE;
    QueryHead head(tokens, heads, kv_heads, capacity);
    Causal causal(start, tokens, capacity);
    u64 position = causal.position, length = causal.length;
    // The tiles with the most keys come first.
    u32 first_query = (gridDim.y - 1 - blockIdx.y) * ROWS;
    u64 visible = causal.visible((u64)first_query + ROWS);
    load_rows<ROWS>(q + head.query_row(first_query) * HEAD_DIM, Contiguous<u32>{tokens - first_query}, queries, is_aligned);

    OnlineSoftmax softmax(MASKED);
    u32 begin = 0;
    if (WINDOW && position + first_query >= WINDOW) begin = (u32)(position + first_query + 1 - WINDOW) / KEYS * KEYS;
    for (u32 first_key = begin; first_key < visible; first_key += KEYS) {
        __syncthreads();
        Contiguous<u32> source = {(u32)(length - first_key)};
        load_rows<KEYS>(k + (head.kv_row + first_key) * HEAD_DIM, source, keys, is_aligned);
        load_rows<KEYS>(v + (head.kv_row + first_key) * HEAD_DIM, source, values, is_aligned);
        __syncthreads();
        float score[4][4] = {};
        multiply_rows<4>(queries, keys, score);
        softmax.add<false>(score, keys, values, [&](int i) {
            u64 row_position = position + first_query + threadIdx.x / 16 * 4 + i;
            return [=](int j, float score) {
                u64 key = first_key + threadIdx.x % 16 + 16 * j;
                bool is_visible = key <= row_position && key < length && (!WINDOW || key + WINDOW > row_position);
                return is_visible ? score * scale : MASKED;
            };
        });
    }
    softmax.store(out, lse, head, first_query);
}
