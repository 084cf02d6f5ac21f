// Block-sparse attention on tensor cores: see attention_tensor.cuh. A warp keeps 16 of a block's 128 queries in
// registers; the next tile of keys and values is loaded during the computation.

#define THREADS 256
#define TILE (KEYS * STRIDE)

DEVICE void mask(float (*score)[4], u32 row, u32 key, const Rule &rule) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
        Visible visible = visible_to(row + 8 * r, rule);
#pragma unroll
        for (int i = 0; i < KEYS / 4; i++) {
            float &of = score[i / 2][2 * r + i % 2];
            of = is_visible(visible, key + i / 2 * 8 + i % 2) ? of : NEG_INF;
        }
    }
}

// `bits` has a word per column for 32 rows, of which `row` is one.
DEVICE void mask_columns(float (*score)[4], u32 row, const u32 *bits) {
#pragma unroll
    for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            u32 kept = bits[n * 8 + i] >> row;
            score[n][i] = kept & 1 ? score[n][i] : NEG_INF;
            score[n][2 + i] = kept & 256 ? score[n][2 + i] : NEG_INF;
        }
}

// `scale` includes log2(e).
KERNEL __launch_bounds__(THREADS, HEAD_DIM > 64 ? 1 : 2) block_attention_tensor(BLOCK_PARAMETERS) {
    extern __shared__ uint4 shared[];
    // The rows that keep each gathered column, 32 per word, for two tiles.
    __shared__ u32 column_bits[2][ROWS / 32][KEYS];
    u32 here = shared_address(shared), lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    Rule rule = {tokens, is_causal, half_window, global};
    Work work = works[blockIdx.y];
    QueryHead head(tokens, heads, kv_heads, capacity);
    u32 first_row = work.block * ROWS, count = tiles_of(work);

    u32 next_word = work.words[0];
    auto begin = [&](u32 tile) {
        u32 to = here + tile % 2 * 2 * TILE;
        Source source = source_of(tile, next_word, work, columns, tokens);
        load_rows<KEYS, THREADS>(to, k + head.kv_row * HEAD_DIM, source);
        load_rows<KEYS, THREADS>(to + TILE, v + head.kv_row * HEAD_DIM, source);
        if (tile < work.tiles) return;
        const u32 *bits = reinterpret_cast<const u32 *>(column_rows + ((u64)work.first_column + source.first) * 2);
        for (u32 i = threadIdx.x; i < KEYS * ROWS / 32; i += THREADS) {
            u32 column = i / (ROWS / 32), part = i % (ROWS / 32);
            column_bits[tile % 2][part][column] = source.first + column < work.columns ? bits[i] : 0;
        }
    };

    // The queries are loaded where the second tile will be.
    u32 query_tile = here + 2 * TILE;
    load_rows<ROWS, THREADS>(query_tile, q + head.query_row(first_row) * HEAD_DIM, Source{nullptr, 0, tokens - first_row});
    cp_async_commit();
    if (count > 0) begin(0);
    cp_async_commit();
    cp_async_wait<1>();
    __syncthreads();
    Fragment queries[DEPTHS];
    load_left(queries, query_tile + warp * 16 * STRIDE);
    __syncthreads();

    OnlineSoftmax softmax;
    u32 warp_row = first_row + warp * 16;
    for (u32 tile = 0; tile < count; tile++) {
        u32 word = next_word;
        if (tile + 1 < work.tiles) next_word = tile == 0 ? work.words[1] : tile_word(tiles, work, tile + 1, rule);
        if (tile + 1 < count) begin(tile + 1);
        cp_async_commit();
        cp_async_wait<1>();
        __syncthreads();
        u32 keys = here + tile % 2 * 2 * TILE, first_key = (word >> 1) * KEYS;
        bool is_gathered = tile >= work.tiles;
        Part part = is_gathered ? SOME : word & 1 ? part_of(warp_row, warp_row + 15, first_key, rule) : ALL;
        if (part != NOTHING && warp_row < tokens)
            softmax.add_tile<KEYS>(queries, keys, keys + TILE, scale, [&](float(*score)[4]) {
                if (is_gathered)
                    mask_columns(score, warp % 2 * 16 + lane / 4, &column_bits[tile % 2][warp / 2][lane % 4 * 2]);
                else if (part == SOME)
                    mask(score, warp_row + lane / 4, first_key + lane % 4 * 2, rule);
            });
        __syncthreads();
    }
    softmax.store(out, nullptr, head, warp_row, scale);
}
