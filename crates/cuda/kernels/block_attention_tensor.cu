// Attention over blocks by tensor cores: bf16 and f16, heads of HEAD_DIM numbers, a multiple of 16 up to 128, which is
// chosen when the text is compiled. Everything must be aligned to 16 bytes.
//
// A warp has 16 of the 128 queries of a block, whose numbers it keeps in registers. While it computes with one tile of keys
// and values, the next one is on its way.

#define THREADS 256
#define CHUNKS (HEAD_DIM / 8)
// Rows lie an odd number of chunks of 16 bytes apart, so that eight of them are in different banks.
#define STRIDE ((CHUNKS + 1) * 16)
#define TILE (KEYS * STRIDE)

// Starts copying rows; those that are not there are zero.
template <int COUNT> __device__ __forceinline__ void begin_rows(u32 to, const number *from, const Source &source) {
#pragma unroll
    for (u32 i = 0; i < (COUNT * CHUNKS + THREADS - 1) / THREADS; i++) {
        u32 chunk = i * THREADS + threadIdx.x, row = chunk / CHUNKS, column = chunk % CHUNKS;
        if (COUNT * CHUNKS % THREADS != 0 && row >= COUNT) break;
        u32 at = row_of(source, row);
        bool is_there = at != ~0u;
        begin_copy(to + row * STRIDE + column * 16, from + (is_there ? (u64)at * HEAD_DIM + column * 8 : 0), is_there);
    }
}

// Of the 16 rows of a warp a lane has two, eight apart: row `lane / 4` and the one eight further.
struct Result {
    float largest[2];
    float sum[2];
    float result[CHUNKS][4];
};

__device__ __forceinline__ void compute_scores(float (&score)[KEYS / 8][4], const Four *queries, u32 keys) {
    u32 lane = threadIdx.x % 32;
    u32 place = keys + (lane % 8 + lane / 16 * 8) * STRIDE + lane / 8 % 2 * 16;
#pragma unroll
    for (int depth = 0; depth < HEAD_DIM / 16; depth++)
#pragma unroll
        for (int n = 0; n < KEYS / 16; n++) {
            Four b = matrices(place + n * 16 * STRIDE + depth * 32);
            multiply(score[2 * n], queries[depth], b.at[0], b.at[1]);
            multiply(score[2 * n + 1], queries[depth], b.at[2], b.at[3]);
        }
}

__device__ __forceinline__ void add_values(Result &rows, float (&score)[KEYS / 8][4], u32 values, float scale) {
    u32 lane = threadIdx.x % 32;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float most = rows.largest[r];
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++) most = fmaxf(most, fmaxf(score[n][2 * r], score[n][2 * r + 1]));
        most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
        most = fmaxf(most, __shfl_xor_sync(~0u, most, 2));
        // A row that has seen no key yet has no largest score, and the difference of two infinities is no number.
        float base = most == LOWEST ? 0 : most;
        float kept = power_of_two((rows.largest[r] - base) * scale), shift = base * scale;
        rows.largest[r] = most;
        rows.sum[r] *= kept;
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++) {
            score[n][2 * r] = power_of_two(fmaf(score[n][2 * r], scale, -shift));
            score[n][2 * r + 1] = power_of_two(fmaf(score[n][2 * r + 1], scale, -shift));
            rows.sum[r] += score[n][2 * r] + score[n][2 * r + 1];
        }
#pragma unroll
        for (int n = 0; n < CHUNKS; n++) {
            rows.result[n][2 * r] *= kept;
            rows.result[n][2 * r + 1] *= kept;
        }
    }
    u32 place = values + lane % 16 * STRIDE + lane / 16 * 16;
#pragma unroll
    for (int depth = 0; depth < KEYS / 16; depth++) {
        const float *low = score[2 * depth], *high = score[2 * depth + 1];
        Four shares = {pair(low[0], low[1]), pair(low[2], low[3]), pair(high[0], high[1]), pair(high[2], high[3])};
#pragma unroll
        for (int n = 0; n < CHUNKS; n += 2) {
            Four b = matrices_transposed(place + depth * 16 * STRIDE + n * 16);
            multiply(rows.result[n], shares, b.at[0], b.at[1]);
            multiply(rows.result[n + 1], shares, b.at[2], b.at[3]);
        }
    }
}

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
        begin_rows<KEYS>(to, k + kv_row * HEAD_DIM, source);
        begin_rows<KEYS>(to + TILE, v + kv_row * HEAD_DIM, source);
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
    begin_rows<ROWS>(query_place, query_rows, {nullptr, 0, tokens - first_row});
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

    Result rows = {{LOWEST, LOWEST}, {0, 0}, {}};
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
            compute_scores(score, queries, place);
            if (is_gathered)
                mask_columns(score, warp % 2 * 16 + lane / 4, &kept[tile % 2][warp / 2][lane % 4 * 2]);
            else if (part == SOME)
                mask(score, warp_row + lane / 4, first_key + lane % 4 * 2, rule);
            add_values(rows, score, place + TILE, scale);
        }
        __syncthreads();
    }

#pragma unroll
    for (int r = 0; r < 2; r++) {
        float sum = rows.sum[r];
        sum += __shfl_xor_sync(~0u, sum, 1);
        sum += __shfl_xor_sync(~0u, sum, 2);
        u32 row = warp_row + lane / 4 + r * 8;
        if (row >= tokens) continue;
        number *to = out + (((u64)sequence * tokens + row) * heads + head) * HEAD_DIM + lane % 4 * 2;
        // A row that keeps nothing gives zeros.
        float share = sum > 0 ? 1 / sum : 0;
#pragma unroll
        for (int n = 0; n < CHUNKS; n++)
            *reinterpret_cast<u32 *>(to + n * 8) = pair(rows.result[n][2 * r] * share, rows.result[n][2 * r + 1] * share);
    }
}
