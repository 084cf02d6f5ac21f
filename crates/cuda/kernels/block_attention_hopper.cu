// Attention over blocks by the warpgroups' products of Hopper (sm_90a): bf16 and f16, heads of 64 or 128 numbers.
//
// A block has 128 queries, 64 a warpgroup, which keeps them in registers. Tiles of 64 keys and values come through a ring
// of stages: those of the list by the bulk copy engine, which one thread asks, and gathered columns by copies that all
// threads begin. Scores of the next tile are computed while the shares of this one are multiplied with its values, and
// the softmax of the next runs beside that product.

#define THREADS 256
#define STAGES 4
// Tiles that are on their way while one is computed with. A stage more is held, and one more is being left.
#define AHEAD (STAGES - 2)
// Rows of 64 numbers lie in shared memory as 128 bytes, eight of them swizzled together.
#define HALVES (HEAD_DIM / 64)
#define HALF_BYTES (KEYS * 128)
#define TILE_BYTES (HALVES * HALF_BYTES)
#define STAGE_BYTES (2 * TILE_BYTES)
// Chunks of 16 bytes in a row, and rows that all threads copy at once.
#define CHUNKS (HEAD_DIM / 8)
#define ROWS_AT_ONCE (THREADS / CHUNKS)
// A row's largest score is raised when another exceeds it by so much that shares would be 256 and more.
#define SLACK 8.0f

// What lies in shared memory behind the stages.
struct Board {
    u64 kept[STAGES][2][KEYS];
    u64 full[STAGES], gathered[STAGES], empty[STAGES];
    u32 words[STAGES];
    volatile float computed[THREADS];
};

// A lane has two of the 16 rows of its warp, eight apart; of a tile's scores, 16 of each row.
struct Softmax {
    float largest[2], sum[2], kept[2];
    bool is_raised;
};

// Scores to shares, f32 still. Where a largest score was raised, `kept` says what is left of former shares.
__device__ __forceinline__ void share(Softmax &rows, float (&score)[32], float scale, float slack) {
    float most[2];
#pragma unroll
    for (int r = 0; r < 2; r++) {
        most[r] = fmaxf(score[2 * r], score[2 * r + 1]);
#pragma unroll
        for (int n = 4; n < KEYS / 2; n += 4) most[r] = fmaxf(most[r], fmaxf(score[n + 2 * r], score[n + 2 * r + 1]));
    }
    rows.is_raised = __any_sync(~0u, most[0] > rows.largest[0] + slack || most[1] > rows.largest[1] + slack);
    if (rows.is_raised) {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            most[r] = fmaxf(most[r], __shfl_xor_sync(~0u, most[r], 1));
            most[r] = fmaxf(most[r], __shfl_xor_sync(~0u, most[r], 2));
            most[r] = fmaxf(most[r], rows.largest[r]);
            // A row that has seen no key yet has no largest score, and the difference of two infinities is no number.
            rows.kept[r] = most[r] == LOWEST ? 1 : power_of_two((rows.largest[r] - most[r]) * scale);
            rows.largest[r] = most[r];
            rows.sum[r] *= rows.kept[r];
        }
    }
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float shift = rows.largest[r] == LOWEST ? 0 : rows.largest[r] * scale;
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
            for (int i = 4 * n + 2 * r; i < 4 * n + 2 * r + 2; i++) {
                score[i] = power_of_two(fmaf(score[i], scale, -shift));
                rows.sum[r] += score[i];
            }
    }
}

// Four lanes have a word each of four chunks, and then a chunk each.
__device__ __forceinline__ void turn(u32 (&words)[4]) {
#pragma unroll
    for (int step = 1; step < 4; step *= 2)
#pragma unroll
        for (int i = 0; i < 4; i++)
            if ((i & step) == 0) {
                bool is_upper = threadIdx.x & step;
                u32 other = __shfl_xor_sync(~0u, is_upper ? words[i] : words[i + step], step);
                if (is_upper)
                    words[i] = other;
                else
                    words[i + step] = other;
            }
}

// All that a thread needs to know of its place.
struct Place {
    u32 ring, lane, warp, group, first_row;
};

__device__ __forceinline__ u32 stage_place(const Place &place, u32 stage) { return place.ring + stage * STAGE_BYTES; }
__device__ __forceinline__ u32 barrier(const Place &place, const u64 (Board::*of)[STAGES], u32 stage) {
    const Board *board = nullptr;
    return place.ring + STAGES * STAGE_BYTES + (u32)reinterpret_cast<u64>(&(board->*of)[stage]);
}

// Lets others fill the stage.
__device__ __forceinline__ void leave(const Place &place, u32 stage) {
    __syncwarp();
    if (place.lane == 0) arrive(barrier(place, &Board::empty, stage));
}

// Sets scores to nothing that the rows do not keep: by the rule, or by the bits of gathered columns.
__device__ __forceinline__ void mask(float (&score)[32], const Place &place, u32 first_key, const Rule &rule) {
    u32 row = place.first_row + place.warp % 4 * 16 + place.lane / 4, key = first_key + place.lane % 4 * 2;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        Seen seen = seen_by(row + 8 * r, rule);
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
            for (int i = 0; i < 2; i++)
                score[4 * n + 2 * r + i] = is_seen(seen, key + n * 8 + i) ? score[4 * n + 2 * r + i] : LOWEST;
    }
}
__device__ __forceinline__ void mask_columns(float (&score)[32], const Place &place, const Board &board, u32 stage) {
    u32 row = place.warp % 4 * 16 + place.lane / 4;
    const uint4 *bits = reinterpret_cast<const uint4 *>(board.kept[stage][place.group]) + place.lane % 4;
#pragma unroll
    for (int n = 0; n < KEYS / 8; n++) {
        uint4 two = bits[4 * n];
        u32 kept[2] = {(row < 32 ? two.x : two.y) >> row % 32, (row < 32 ? two.z : two.w) >> row % 32};
#pragma unroll
        for (int i = 0; i < 2; i++) {
            score[4 * n + i] = kept[i] & 1 ? score[4 * n + i] : LOWEST;
            score[4 * n + 2 + i] = kept[i] & 256 ? score[4 * n + 2 + i] : LOWEST;
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, HEAD_DIM > 64 ? 1 : 2)
    block_attention_hopper(const __grid_constant__ TensorMap key_map, const __grid_constant__ TensorMap value_map,
                           BLOCK_PARAMETERS) {
    extern __shared__ uint4 shared[];
    u32 ring = (address(shared) + 1023) / 1024 * 1024;
    char *behind = reinterpret_cast<char *>(shared) + (ring - address(shared)) + STAGES * STAGE_BYTES;
    Board &board = *reinterpret_cast<Board *>(behind);
    Rule rule = {tokens, is_causal, half_window, global};
    Work work = works[blockIdx.y];
    u32 sequence = blockIdx.x / heads, head = blockIdx.x % heads;
    u32 kv_head = sequence * kv_heads + head / (heads / kv_heads);
    u32 group = threadIdx.x / 128;
    Place place = {ring, threadIdx.x % 32, threadIdx.x / 32, group, work.block * ROWS + group * 64};
    u32 count = tiles_of(work);

    if (threadIdx.x == 0) {
        for (u32 stage = 0; stage < STAGES; stage++) {
            begin_barrier(barrier(place, &Board::full, stage), 1);
            begin_barrier(barrier(place, &Board::gathered, stage), THREADS);
            begin_barrier(barrier(place, &Board::empty, stage), THREADS / 32);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();

    // Of the columns that are gathered next, those whose rows this thread copies.
    u32 next_columns[KEYS / ROWS_AT_ONCE];
    auto look_up = [&](u32 tile) {
#pragma unroll
        for (u32 i = 0; i < KEYS / ROWS_AT_ONCE; i++) {
            u32 at = (tile - work.tiles) * KEYS + threadIdx.x / CHUNKS + i * ROWS_AT_ONCE;
            bool is_there = tile >= work.tiles && tile < count && at < work.columns;
            next_columns[i] = is_there ? columns[work.first_column + at] : ~0u;
        }
    };
    u32 next_word = work.words[0];

    // Begins to fill the stage of a tile, when all have left it: of the list, by one thread. What is looked up for the tile
    // after it takes its time.
    auto load_listed = [&](u32 tile) {
        u32 stage = tile % STAGES, to = stage_place(place, stage), full = barrier(place, &Board::full, stage);
        u32 word = next_word, key = (word >> 1) * KEYS;
        if (tile + 1 < work.tiles) next_word = tile == 0 ? work.words[1] : tile_word(tiles, work, tile + 1, rule);
        if (tile >= STAGES) wait_until(barrier(place, &Board::empty, stage), (tile / STAGES - 1) % 2);
        board.words[stage] = word;
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(full), "r"(STAGE_BYTES) : "memory");
#pragma unroll
        for (u32 half = 0; half < HALVES; half++) {
            begin_tile(to + half * HALF_BYTES, key_map, half * 64, key, kv_head, full);
            begin_tile(to + TILE_BYTES + half * HALF_BYTES, value_map, half * 64, key, kv_head, full);
        }
    };
    // Of gathered columns, by all threads.
    auto load_gathered = [&](u32 tile) {
        u32 stage = tile % STAGES, to = stage_place(place, stage), chunk = threadIdx.x % CHUNKS;
        if (tile >= STAGES) wait_until(barrier(place, &Board::empty, stage), (tile / STAGES - 1) % 2);
#pragma unroll
        for (u32 i = 0; i < KEYS / ROWS_AT_ONCE; i++) {
            u32 row = threadIdx.x / CHUNKS + i * ROWS_AT_ONCE;
            bool is_there = next_columns[i] != ~0u;
            u64 from = ((u64)kv_head * capacity + (is_there ? next_columns[i] : 0)) * HEAD_DIM + chunk * 8;
            u32 at = to + chunk / 8 * HALF_BYTES + row * 128 + (chunk % 8 ^ row % 8) * 16;
            begin_copy(at, k + from, is_there);
            begin_copy(at + TILE_BYTES, v + from, is_there);
        }
        if (threadIdx.x < 2 * KEYS) {
            u32 at = (tile - work.tiles) * KEYS + threadIdx.x / 2;
            bool is_there = at < work.columns;
            const u64 *from = column_rows + (is_there ? ((u64)work.first_column + at) * 2 + threadIdx.x % 2 : 0);
            u32 kept = address(&board.kept[stage][threadIdx.x % 2][threadIdx.x / 2]);
            asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(kept), "l"(from), "r"(is_there ? 8 : 0));
        }
    };
    auto load = [&](u32 tile) {
        if (tile < work.tiles) {
            if (threadIdx.x == 0) load_listed(tile);
        } else if (tile < count) {
            load_gathered(tile);
        }
        look_up(tile + 1);
    };
    // Says that this thread's part of a gathered tile is there.
    auto settle = [&](u32 tile) {
        if (tile < work.tiles || tile >= count) return;
        end_of_copies();
        wait_for_copies<0>();
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        arrive(barrier(place, &Board::gathered, tile % STAGES));
    };

    look_up(0);
#pragma unroll
    for (u32 tile = 0; tile < AHEAD; tile++) load(tile);

    // Rows that are not there are zero, and not written.
    u32 row = place.first_row + place.warp % 4 * 16 + place.lane / 4;
    u32 queries[HEAD_DIM / 16][4];
    const number *from = q + ((u64)blockIdx.x * tokens + row) * HEAD_DIM + place.lane % 4 * 2;
#pragma unroll
    for (int depth = 0; depth < HEAD_DIM / 16; depth++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            bool is_there = row + i % 2 * 8 < tokens;
            const number *two = from + i % 2 * 8 * HEAD_DIM + depth * 16 + i / 2 * 8;
            queries[depth][i] = is_there ? *reinterpret_cast<const u32 *>(two) : 0;
        }
    settle(0);

    float slack = SLACK / scale;
    u32 tile = 0;
    Part part = NOTHING;
    // Comes to a tile, once to each: begins to load a later one, waits for this one, and says whether these rows keep
    // something of it. It may wait until all have left the tile two before, so none but the one before may be held.
    auto visit = [&]() {
        u32 stage = tile % STAGES;
        if (tile + AHEAD + 1 < work.tiles) {
            if (threadIdx.x == 0) load_listed(tile + AHEAD);
        } else {
            settle(tile + 1);
            load(tile + AHEAD);
        }
        if (tile >= work.tiles) {
            wait_until(barrier(place, &Board::gathered, stage), (tile - work.tiles) / STAGES % 2);
            part = SOME;
        } else {
            wait_until(barrier(place, &Board::full, stage), tile / STAGES % 2);
            u32 word = board.words[stage];
            part = word & 1 ? part_of(place.first_row, place.first_row + 63, (word >> 1) * KEYS, rule) : ALL;
        }
        return part != NOTHING && place.first_row < tokens;
    };
    // Goes to the next tile that these rows keep something of. None may be held.
    auto find = [&]() {
        while (tile < count) {
            if (visit()) return true;
            leave(place, tile++ % STAGES);
        }
        return false;
    };
    float score[32], result[HALVES][32] = {};
    u32 shares[KEYS / 16][4];
    Softmax rows = {{LOWEST, LOWEST}, {0, 0}, {1, 1}, false};
    auto begin_scores = [&](u32 stage) {
        u32 keys = stage_place(place, stage) / 16;
#pragma unroll
        for (int depth = 0; depth < HEAD_DIM / 16; depth++)
            product<0>(score, queries[depth], matrix(keys + (depth / 4 * HALF_BYTES + depth % 4 * 32) / 16), depth > 0);
        end_of_products();
    };
    auto begin_results = [&](u32 stage) {
        u32 values = (stage_place(place, stage) + TILE_BYTES) / 16;
#pragma unroll
        for (int depth = 0; depth < KEYS / 16; depth++)
#pragma unroll
            for (int half = 0; half < HALVES; half++)
                product<1>(result[half], shares[depth], matrix(values + (half * HALF_BYTES + depth * 16 * 128) / 16), 1);
        end_of_products();
    };
    auto mask_and_share = [&](u32 tile) {
        u32 stage = tile % STAGES;
        if (tile >= work.tiles)
            mask_columns(score, place, board, stage);
        else if (part == SOME)
            mask(score, place, (board.words[stage] >> 1) * KEYS, rule);
        share(rows, score, scale, slack);
    };
    auto pack = [&]() {
#pragma unroll
        for (int i = 0; i < KEYS / 4; i++) shares[i / 4][i % 4] = pair(score[2 * i], score[2 * i + 1]);
    };

    auto rescale = [&]() {
        if (!rows.is_raised) return;
#pragma unroll
        for (int half = 0; half < HALVES; half++)
#pragma unroll
            for (int i = 0; i < 32; i++) result[half][i] *= rows.kept[i / 2 % 2];
    };
    auto end_results = [&]() {
        wait_for_products<0>();
#pragma unroll
        for (int half = 0; half < HALVES; half++) hold(result[half]);
    };

    while (find()) {
        begin_products();
        begin_scores(tile % STAGES);
        wait_for_products<0>();
        hold(score);
        mask_and_share(tile);
        rescale();
        pack();
        u32 held = tile++;
        while (tile < count && visit()) {
            begin_products();
            begin_scores(tile % STAGES);
            begin_results(held % STAGES);
            wait_for_products<1>();
            hold(score);
            mask_and_share(tile);
            // A store that needs the sums: else the powers would be computed behind the wait, and not beside the product.
            board.computed[threadIdx.x] = rows.sum[0] + rows.sum[1];
            end_results();
            leave(place, held % STAGES);
            rescale();
            pack();
            held = tile++;
        }
        begin_products();
        begin_results(held % STAGES);
        end_results();
        leave(place, held % STAGES);
        // The tile that these rows keep nothing of.
        if (tile < count) leave(place, tile++ % STAGES);
    }

#pragma unroll
    for (int r = 0; r < 2; r++) {
        float sum = rows.sum[r];
        sum += __shfl_xor_sync(~0u, sum, 1);
        sum += __shfl_xor_sync(~0u, sum, 2);
        // A row that keeps nothing gives zeros.
        float share = sum > 0 ? 1 / sum : 0;
        number *to = out + (((u64)sequence * tokens + row + 8 * r) * heads + head) * HEAD_DIM + place.lane % 4 * 8;
#pragma unroll
        for (int n = 0; n < CHUNKS; n += 4) {
            u32 words[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float *two = result[n / 8] + (n + i) % 8 * 4 + 2 * r;
                words[i] = pair(two[0] * share, two[1] * share);
            }
            turn(words);
            uint4 chunk = make_uint4(words[0], words[1], words[2], words[3]);
            if (row + 8 * r < tokens) *reinterpret_cast<uint4 *>(to + n * 8) = chunk;
        }
    }
}
