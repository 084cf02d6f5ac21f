// Attention over blocks by tensor cores: see attention_tensor.cuh.
//
// A warp has 16 of the 128 queries of a block, whose numbers it keeps in registers. While it computes with one tile of keys
// and values, the next one is on its way.

#define THREADS 256
#define TILE (KEYS * STRIDE)

__device__ __forceinline__ void mask(float (&score)[KEYS / 8][4], u32 row, u32 key, const Rule &rule) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
        Seen seen = seen_by(row + 8 * r, rule);
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
            for (int i = 0; i < 2; i++) score[n][2 * r + i] = is_seen(seen, key + n * 8 + i) ? score[n][2 * r + i] : LOWEST;
    }
}

// `bits` are of the columns and of 32 rows, of which `row` is one.
__device__ __forceinline__ void mask_columns(float (&score)[KEYS / 8][4], u32 row, const u32 *bits) {
#pragma unroll
    for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            u32 kept = bits[n * 8 + i] >> row;
            score[n][i] = kept & 1 ? score[n][i] : LOWEST;
            score[n][2 + i] = kept & 256 ? score[n][2 + i] : LOWEST;
        }
}

// `scale` is that of the scores times the logarithm of e to the base of two.
extern "C" __global__ void __launch_bounds__(THREADS, HEAD_DIM > 64 ? 1 : 2) block_attention_tensor(BLOCK_PARAMETERS) {
    extern __shared__ uint4 shared[];
    // Which rows keep a gathered column, by 32 rows, for each of two tiles.
    __shared__ u32 kept[2][ROWS / 32][KEYS];
    u32 here = (u32)__cvta_generic_to_shared(shared);
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    Rule rule = {tokens, is_causal, half_window, global};
    Work work = works[blockIdx.y];
    u32 sequence = blockIdx.x / heads, head = blockIdx.x % heads, first_row = work.block * ROWS;
    u64 kv_row = (u64)(sequence * kv_heads + head / (heads / kv_heads)) * capacity;
    u32 count = tiles_of(work);

    u32 next_word = work.words[0];
    auto begin = [&](u32 tile) {
        u32 to = here + tile % 2 * 2 * TILE;
        Source source = source_of(tile, next_word, work, columns, tokens);
        begin_rows<KEYS, THREADS>(to, k + kv_row * HEAD_DIM, source);
        begin_rows<KEYS, THREADS>(to + TILE, v + kv_row * HEAD_DIM, source);
        if (tile >= work.tiles) {
            u32 first = source.first;
            for (u32 i = threadIdx.x; i < KEYS * ROWS / 32; i += THREADS) {
                u32 column = i / (ROWS / 32), part = i % (ROWS / 32);
                const u32 *bits = reinterpret_cast<const u32 *>(column_rows + ((u64)work.first_column + first) * 2) + i;
                kept[tile % 2][part][column] = first + column < work.columns ? *bits : 0;
            }
        }
    };

    // The queries lie for a moment where the second tile will.
    u32 query_place = here + 2 * TILE;
    const number *query_rows = q + ((u64)blockIdx.x * tokens + first_row) * HEAD_DIM;
    begin_rows<ROWS, THREADS>(query_place, query_rows, Source{nullptr, 0, tokens - first_row});
    end_of_copies();
    if (count > 0) begin(0);
    end_of_copies();
    wait_for_copies<1>();
    __syncthreads();
    Four queries[HEAD_DIM / 16];
#pragma unroll
    for (int depth = 0; depth < HEAD_DIM / 16; depth++)
        queries[depth] = matrices(query_place + (warp * 16 + lane % 16) * STRIDE + depth * 32 + lane / 16 * 16);
    __syncthreads();

    Attended rows = {{LOWEST, LOWEST}, {0, 0}, {}};
    u32 warp_row = first_row + warp * 16;
    for (u32 tile = 0; tile < count; tile++) {
        u32 word = next_word;
        if (tile + 1 < work.tiles) next_word = tile == 0 ? work.words[1] : tile_word(tiles, work, tile + 1, rule);
        if (tile + 1 < count) begin(tile + 1);
        end_of_copies();
        wait_for_copies<1>();
        __syncthreads();
        u32 place = here + tile % 2 * 2 * TILE, first_key = (word >> 1) * KEYS;
        bool is_gathered = tile >= work.tiles;
        Part part = is_gathered ? SOME : word & 1 ? part_of(warp_row, warp_row + 15, first_key, rule) : ALL;
        if (part != NOTHING && warp_row < tokens) {
            float score[KEYS / 8][4] = {};
#pragma unroll
            for (int depth = 0; depth < HEAD_DIM / 16; depth++)
                dots_of<KEYS / 8>(score, queries[depth], place + as_columns(lane), depth);
            if (is_gathered)
                mask_columns(score, warp % 2 * 16 + lane / 4, &kept[tile % 2][warp / 2][lane % 4 * 2]);
            else if (part == SOME)
                mask(score, warp_row + lane / 4, first_key + lane % 4 * 2, rule);
            rows.add(score, place + TILE, scale);
        }
        __syncthreads();
    }

#pragma unroll
    for (int r = 0; r < 2; r++) {
        float sum = rows.total(r);
        u32 row = warp_row + lane / 4 + r * 8;
        if (row >= tokens) continue;
        number *to = out + (((u64)sequence * tokens + row) * heads + head) * HEAD_DIM + lane % 4 * 2;
        // A row that keeps nothing gives zeros.
        store_rows(to, rows.result, r, sum > 0 ? 1 / sum : 0);
    }
}
