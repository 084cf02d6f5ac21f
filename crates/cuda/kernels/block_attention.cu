// Block-sparse attention for any dtype and head size: see attention_simt.cuh.

#define HALF (ROWS / 2)

// A thread block has half a block of queries of one head.
KERNEL __launch_bounds__(THREADS) block_attention(BLOCK_PARAMETERS, u32 is_aligned) {
    extern __shared__ float4 shared[];
    float *queries = reinterpret_cast<float *>(shared), *values = queries + HALF * STRIDE, *keys = values + KEYS * STRIDE;
    u32 tx = threadIdx.x % 16, ty = threadIdx.x / 16, half = blockIdx.y % 2;
    Rule rule = {tokens, is_causal, half_window, global};
    Work work = works[blockIdx.y / 2];
    QueryHead head(tokens, heads, kv_heads, capacity);
    u32 first_row = work.block * ROWS + half * HALF;
    if (first_row >= tokens) return;
    load_rows<HALF>(q + head.query_row(first_row) * HEAD_DIM, Source{nullptr, 0, tokens - first_row}, queries, is_aligned);

    OnlineSoftmax softmax(NEG_INF);
    u32 count = tiles_of(work);
    for (u32 tile = 0; tile < count; tile++) {
        bool is_gathered = tile >= work.tiles;
        u32 word = is_gathered ? 0 : tile_word(tiles, work, tile, rule), first_key = (word >> 1) * KEYS;
        if (word & 1 && part_of(first_row, first_row + HALF - 1, first_key, rule) == NOTHING) continue;
        Source source = source_of(tile, word, work, columns, tokens);
        __syncthreads();
        load_rows<KEYS>(k + head.kv_row * HEAD_DIM, source, keys, is_aligned);
        load_rows<KEYS>(v + head.kv_row * HEAD_DIM, source, values, is_aligned);
        __syncthreads();
        float score[4][4] = {};
        multiply_rows<4>(queries, keys, score);
        u64 column_bits[4];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            u32 at = source.first + tx + 16 * j;
            bool is_there = is_gathered && at < work.columns;
            column_bits[j] = is_there ? column_rows[((u64)work.first_column + at) * 2 + half] : 0;
        }
        softmax.add<true>(score, keys, values, [&](int i) {
            Visible visible = visible_to(first_row + ty * 4 + i, rule);
            return [=, &column_bits](int j, float score) {
                u32 key = first_key + tx + 16 * j;
                bool is_kept = is_gathered ? column_bits[j] >> (ty * 4 + i) & 1 : !(word & 1) || is_visible(visible, key);
                return is_kept ? score * scale : NEG_INF;
            };
        });
    }
    softmax.store(out, nullptr, head, first_row);
}
