// Attention over blocks for numbers and heads of any kind: see attention_plain.cuh.

#define HALF (ROWS / 2)

// A block of threads has half a block of queries of one head.
extern "C" __global__ void __launch_bounds__(THREADS) block_attention(BLOCK_PARAMETERS, u32 by_16_bytes) {
    extern __shared__ float4 shared[];
    float *queries = reinterpret_cast<float *>(shared);
    float *values = queries + HALF * STRIDE;
    // The shares take the place of the keys they were made of.
    float *keys = values + KEYS * STRIDE, *shares = keys;

    u32 tx = threadIdx.x % 16, ty = threadIdx.x / 16, half = blockIdx.y % 2;
    Rule rule = {tokens, is_causal, half_window, global};
    Work work = works[blockIdx.y / 2];
    u32 sequence = blockIdx.x / heads, head = blockIdx.x % heads, first_row = work.block * ROWS + half * HALF;
    if (first_row >= tokens) return;
    u64 kv_row = (u64)(sequence * kv_heads + head / (heads / kv_heads)) * capacity;
    const number *query_rows = q + ((u64)blockIdx.x * tokens + first_row) * HEAD_DIM;
    load_rows<HALF>(query_rows, Source{nullptr, 0, tokens - first_row}, queries, by_16_bytes);

    Attended rows;
    rows.begin(LOWEST);
    u32 count = tiles_of(work);
    for (u32 tile = 0; tile < count; tile++) {
        bool is_gathered = tile >= work.tiles;
        u32 word = is_gathered ? 0 : tile_word(tiles, work, tile, rule), first_key = (word >> 1) * KEYS;
        if (word & 1 && part_of(first_row, first_row + HALF - 1, first_key, rule) == NOTHING) continue;
        Source source = source_of(tile, word, work, columns, tokens);
        __syncthreads();
        load_rows<KEYS>(k + kv_row * HEAD_DIM, source, keys, by_16_bytes);
        load_rows<KEYS>(v + kv_row * HEAD_DIM, source, values, by_16_bytes);
        __syncthreads();
        float score[4][4] = {};
        multiply_rows<4>(queries, keys, score);
        u64 kept_by[4];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            u32 at = source.first + tx + 16 * j;
            bool is_there = is_gathered && at < work.columns;
            kept_by[j] = is_there ? column_rows[((u64)work.first_column + at) * 2 + half] : 0;
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < 4; i++) {
            Seen seen = seen_by(first_row + ty * 4 + i, rule);
#pragma unroll
            for (int j = 0; j < 4; j++) {
                u32 key = first_key + tx + 16 * j;
                bool is_kept = is_gathered ? kept_by[j] >> (ty * 4 + i) & 1 : !(word & 1) || is_seen(seen, key);
                score[i][j] = is_kept ? score[i][j] * scale : LOWEST;
            }
            rows.share<true>(i, score[i], shares);
        }
        // Sixteen threads of one warp share a row, so the warp is all that waits.
        __syncwarp();
        add_rows<KEYS>(rows.result, shares, values);
    }

#pragma unroll
    for (int i = 0; i < 4; i++) {
        float sum = rows.total(i);
        u32 row = first_row + ty * 4 + i;
        if (row >= tokens) continue;
        number *to = out + (((u64)sequence * tokens + row) * heads + head) * HEAD_DIM;
        // A row that keeps nothing gives zeros.
        store_row(to, rows.result[i], sum > 0 ? 1 / sum : 0);
    }
}
