// Block-sparse attention with WGMMA (sm_90a): bf16 and f16, heads of 64 or 128 elements.
//
// A block has 128 queries, 64 per warpgroup, in registers. Tiles of 64 keys and values pass through a ring of stages:
// listed tiles by TMA loads of one thread, gathered columns by cp.async of all threads. The scores of the next tile are
// computed while the probabilities of this one are multiplied with its values, and the softmax of the next overlaps
// that product.

#define THREADS 256
#define STAGES 4
// Tiles in flight during the computation. One more stage is in use, and one is being released.
#define AHEAD (STAGES - 2)
// Rows in shared memory are split into 128 bytes, 64 elements; eight of them are swizzled together.
#define HALVES (HEAD_DIM / 64)
#define HALF_BYTES (KEYS * 128)
#define TILE_BYTES (HALVES * HALF_BYTES)
#define STAGE_BYTES (2 * TILE_BYTES)
// 16-byte chunks per row, and rows that all threads copy at once.
#define CHUNKS (HEAD_DIM / 8)
#define ROWS_AT_ONCE (THREADS / CHUNKS)
// A row's largest score is only raised if another exceeds it by so much that probabilities would reach 256.
#define SLACK 8.0f

// Shared memory after the stages: the rows that keep gathered columns, the mbarriers, and the tiles' words.
struct Board {
    u64 kept[STAGES][2][KEYS];
    u64 full[STAGES], gathered[STAGES], empty[STAGES];
    u32 words[STAGES];
    volatile float computed[THREADS];
};

// A lane has two of its warp's 16 rows, eight apart, and 16 scores of each row in a tile.
struct Softmax {
    float largest[2], sum[2], kept[2];
    bool is_raised;
};

// Turns scores into probabilities. If a largest score is raised, `kept` rescales what came before.
DEVICE void exponentiate(Softmax &rows, float (&score)[32], float scale, float slack) {
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
            // A row that has not seen a key yet has no largest score, and the difference of two infinities is NaN.
            rows.kept[r] = most[r] == NEG_INF ? 1 : exp2_approx((rows.largest[r] - most[r]) * scale);
            rows.largest[r] = most[r];
            rows.sum[r] *= rows.kept[r];
        }
    }
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float shift = rows.largest[r] == NEG_INF ? 0 : rows.largest[r] * scale;
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
            for (int i = 4 * n + 2 * r; i < 4 * n + 2 * r + 2; i++) {
                score[i] = exp2_approx(fmaf(score[i], scale, -shift));
                rows.sum[r] += score[i];
            }
    }
}

// Transposes four words of four lanes: from one word of each chunk to one chunk.
DEVICE void transpose(u32 (&words)[4]) {
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

// The position of a thread: the address of the ring, its lane, warp and warpgroup, and the warpgroup's first row.
struct Thread {
    u32 ring, lane, warp, group, first_row;

    DEVICE u32 stage(u32 stage) const { return ring + stage * STAGE_BYTES; }
    DEVICE u32 barrier(const u64 (Board::*of)[STAGES], u32 stage) const {
        const Board *board = nullptr;
        return ring + STAGES * STAGE_BYTES + (u32)reinterpret_cast<u64>(&(board->*of)[stage]);
    }
    // Lets the stage be filled again.
    DEVICE void release(u32 stage) const {
        __syncwarp();
        if (lane == 0) mbarrier_arrive(barrier(&Board::empty, stage));
    }
};

// Masks scores by the rule, or by the bits of gathered columns.
DEVICE void mask(float (&score)[32], const Thread &thread, u32 first_key, const Rule &rule) {
    u32 row = thread.first_row + thread.warp % 4 * 16 + thread.lane / 4, key = first_key + thread.lane % 4 * 2;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        Visible visible = visible_to(row + 8 * r, rule);
#pragma unroll
        for (int i = 0; i < KEYS / 4; i++) {
            float &of = score[4 * (i / 2) + 2 * r + i % 2];
            of = is_visible(visible, key + i / 2 * 8 + i % 2) ? of : NEG_INF;
        }
    }
}
DEVICE void mask_columns(float (&score)[32], const Thread &thread, const Board &board, u32 stage) {
    u32 row = thread.warp % 4 * 16 + thread.lane / 4;
    const uint4 *bits = reinterpret_cast<const uint4 *>(board.kept[stage][thread.group]) + thread.lane % 4;
#pragma unroll
    for (int n = 0; n < KEYS / 8; n++) {
        uint4 two = bits[4 * n];
        u32 kept[2] = {(row < 32 ? two.x : two.y) >> row % 32, (row < 32 ? two.z : two.w) >> row % 32};
#pragma unroll
        for (int i = 0; i < 2; i++) {
            score[4 * n + i] = kept[i] & 1 ? score[4 * n + i] : NEG_INF;
            score[4 * n + 2 + i] = kept[i] & 256 ? score[4 * n + 2 + i] : NEG_INF;
        }
    }
}

KERNEL __launch_bounds__(THREADS, HEAD_DIM > 64 ? 1 : 2)
    block_attention_hopper(const __grid_constant__ TensorMap key_map, const __grid_constant__ TensorMap value_map,
                           BLOCK_PARAMETERS) {
    extern __shared__ uint4 shared[];
    u32 ring = (shared_address(shared) + 1023) / 1024 * 1024;
    char *board_address = reinterpret_cast<char *>(shared) + (ring - shared_address(shared)) + STAGES * STAGE_BYTES;
    Board &board = *reinterpret_cast<Board *>(board_address);
    Rule rule = {tokens, is_causal, half_window, global};
    Work work = works[blockIdx.y];
    QueryHead head(tokens, heads, kv_heads, capacity);
    u32 kv_head = head.sequence * kv_heads + head.head / (heads / kv_heads), group = threadIdx.x / 128;
    Thread thread = {ring, threadIdx.x % 32, threadIdx.x / 32, group, work.block * ROWS + group * 64};
    u32 count = tiles_of(work);

    if (threadIdx.x == 0) {
        for (u32 stage = 0; stage < STAGES; stage++) {
            mbarrier_init(thread.barrier(&Board::full, stage), 1);
            mbarrier_init(thread.barrier(&Board::gathered, stage), THREADS);
            mbarrier_init(thread.barrier(&Board::empty, stage), THREADS / 32);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();

    // The next gathered columns that this thread copies.
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

    // Starts to fill the stage of a listed tile once it is released, with one thread. The next word is read early.
    auto load_listed = [&](u32 tile) {
        u32 stage = tile % STAGES, to = thread.stage(stage), full = thread.barrier(&Board::full, stage);
        u32 word = next_word, key = (word >> 1) * KEYS;
        if (tile + 1 < work.tiles) next_word = tile == 0 ? work.words[1] : tile_word(tiles, work, tile + 1, rule);
        if (tile >= STAGES) mbarrier_wait(thread.barrier(&Board::empty, stage), (tile / STAGES - 1) % 2);
        board.words[stage] = word;
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(full), "r"(STAGE_BYTES) : "memory");
#pragma unroll
        for (u32 half = 0; half < HALVES; half++) {
            tma_load(to + half * HALF_BYTES, key_map, half * 64, key, kv_head, full);
            tma_load(to + TILE_BYTES + half * HALF_BYTES, value_map, half * 64, key, kv_head, full);
        }
    };
    // The same for gathered columns, with all threads.
    auto load_gathered = [&](u32 tile) {
        u32 stage = tile % STAGES, to = thread.stage(stage), chunk = threadIdx.x % CHUNKS;
        if (tile >= STAGES) mbarrier_wait(thread.barrier(&Board::empty, stage), (tile / STAGES - 1) % 2);
#pragma unroll
        for (u32 i = 0; i < KEYS / ROWS_AT_ONCE; i++) {
            u32 row = threadIdx.x / CHUNKS + i * ROWS_AT_ONCE;
            bool is_there = next_columns[i] != ~0u;
            u64 from = ((u64)kv_head * capacity + (is_there ? next_columns[i] : 0)) * HEAD_DIM + chunk * 8;
            u32 at = to + chunk / 8 * HALF_BYTES + row * 128 + (chunk % 8 ^ row % 8) * 16;
            cp_async(at, k + from, is_there);
            cp_async(at + TILE_BYTES, v + from, is_there);
        }
        if (threadIdx.x < 2 * KEYS) {
            u32 at = (tile - work.tiles) * KEYS + threadIdx.x / 2;
            bool is_there = at < work.columns;
            const u64 *from = column_rows + (is_there ? ((u64)work.first_column + at) * 2 + threadIdx.x % 2 : 0);
            u32 kept = shared_address(&board.kept[stage][threadIdx.x % 2][threadIdx.x / 2]);
            cp_async<8>(kept, from, is_there);
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
    // Waits for this thread's part of a gathered tile, and reports its arrival.
    auto settle = [&](u32 tile) {
        if (tile < work.tiles || tile >= count) return;
        cp_async_commit();
        cp_async_wait<0>();
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        mbarrier_arrive(thread.barrier(&Board::gathered, tile % STAGES));
    };

    look_up(0);
#pragma unroll
    for (u32 tile = 0; tile < AHEAD; tile++) load(tile);

    // Rows beyond the end are zero, and not written.
    u32 row = thread.first_row + thread.warp % 4 * 16 + thread.lane / 4;
    u32 queries[HEAD_DIM / 16][4];
    const dtype *from = q + head.query_row(row) * HEAD_DIM + thread.lane % 4 * 2;
#pragma unroll
    for (int depth = 0; depth < HEAD_DIM / 16; depth++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            bool is_there = row + i % 2 * 8 < tokens;
            const dtype *two = from + i % 2 * 8 * HEAD_DIM + depth * 16 + i / 2 * 8;
            queries[depth][i] = is_there ? *reinterpret_cast<const u32 *>(two) : 0;
        }
    settle(0);

    float slack = SLACK / scale;
    u32 tile = 0;
    Part part = NOTHING;
    // Visits each tile once: starts to load a later one, waits for this one, and returns whether these rows see any of
    // it. It may wait for the release of the tile two before, so only the previous tile may still be held.
    auto visit = [&]() {
        u32 stage = tile % STAGES;
        if (tile + AHEAD + 1 < work.tiles) {
            if (threadIdx.x == 0) load_listed(tile + AHEAD);
        } else {
            settle(tile + 1);
            load(tile + AHEAD);
        }
        if (tile >= work.tiles) {
            mbarrier_wait(thread.barrier(&Board::gathered, stage), (tile - work.tiles) / STAGES % 2);
            part = SOME;
        } else {
            mbarrier_wait(thread.barrier(&Board::full, stage), tile / STAGES % 2);
            u32 word = board.words[stage];
            part = word & 1 ? part_of(thread.first_row, thread.first_row + 63, (word >> 1) * KEYS, rule) : ALL;
        }
        return part != NOTHING && thread.first_row < tokens;
    };
    // Finds the next tile that these rows see any of. No tile may be held.
    auto find = [&]() {
        while (tile < count) {
            if (visit()) return true;
            thread.release(tile++ % STAGES);
        }
        return false;
    };
    float score[32], result[HALVES][32] = {};
    u32 probabilities[KEYS / 16][4];
    Softmax rows = {{NEG_INF, NEG_INF}, {0, 0}, {1, 1}, false};
    auto begin_scores = [&](u32 stage) {
        u32 keys = thread.stage(stage) / 16;
#pragma unroll
        for (int depth = 0; depth < HEAD_DIM / 16; depth++)
            wgmma<0>(score, queries[depth], wgmma_descriptor(keys + (depth / 4 * HALF_BYTES + depth % 4 * 32) / 16), depth > 0);
        wgmma_commit();
    };
    auto begin_results = [&](u32 stage) {
        u32 values = (thread.stage(stage) + TILE_BYTES) / 16;
#pragma unroll
        for (int depth = 0; depth < KEYS / 16; depth++)
#pragma unroll
            for (int half = 0; half < HALVES; half++)
                wgmma<1>(result[half], probabilities[depth],
                         wgmma_descriptor(values + (half * HALF_BYTES + depth * 16 * 128) / 16), 1);
        wgmma_commit();
    };
    auto mask_and_exponentiate = [&](u32 tile) {
        u32 stage = tile % STAGES;
        if (tile >= work.tiles)
            mask_columns(score, thread, board, stage);
        else if (part == SOME)
            mask(score, thread, (board.words[stage] >> 1) * KEYS, rule);
        exponentiate(rows, score, scale, slack);
    };
    auto pack = [&]() {
#pragma unroll
        for (int i = 0; i < KEYS / 4; i++) probabilities[i / 4][i % 4] = pack2(score[2 * i], score[2 * i + 1]);
    };

    auto rescale = [&]() {
        if (!rows.is_raised) return;
#pragma unroll
        for (int half = 0; half < HALVES; half++)
#pragma unroll
            for (int i = 0; i < 32; i++) result[half][i] *= rows.kept[i / 2 % 2];
    };
    auto end_results = [&]() {
        wgmma_wait<0>();
#pragma unroll
        for (int half = 0; half < HALVES; half++) fence_registers(result[half]);
    };

    while (find()) {
        wgmma_fence();
        begin_scores(tile % STAGES);
        wgmma_wait<0>();
        fence_registers(score);
        mask_and_exponentiate(tile);
        rescale();
        pack();
        u32 held = tile++;
        while (tile < count && visit()) {
            wgmma_fence();
            begin_scores(tile % STAGES);
            begin_results(held % STAGES);
            wgmma_wait<1>();
            fence_registers(score);
            mask_and_exponentiate(tile);
            // A store that needs the sums keeps the compiler from computing the exponentials after the wait.
            board.computed[threadIdx.x] = rows.sum[0] + rows.sum[1];
            end_results();
            thread.release(held % STAGES);
            rescale();
            pack();
            held = tile++;
        }
        wgmma_fence();
        begin_results(held % STAGES);
        end_results();
        thread.release(held % STAGES);
        // These rows see nothing of this tile.
        if (tile < count) thread.release(tile++ % STAGES);
    }

#pragma unroll
    for (int r = 0; r < 2; r++) {
        float sum = rows.sum[r];
        sum += __shfl_xor_sync(~0u, sum, 1);
        sum += __shfl_xor_sync(~0u, sum, 2);
        // A row without keys gives zeros.
        float inverse = sum > 0 ? 1 / sum : 0;
        dtype *to = out + head.out(row + 8 * r) + thread.lane % 4 * 8;
#pragma unroll
        for (int n = 0; n < CHUNKS; n += 4) {
            u32 words[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float *two = result[n / 8] + (n + i) % 8 * 4 + 2 * r;
                words[i] = pack2(two[0] * inverse, two[1] * inverse);
            }
            transpose(words);
            uint4 chunk = make_uint4(words[0], words[1], words[2], words[3]);
            if (row + 8 * r < tokens) *reinterpret_cast<uint4 *>(to + n * 8) = chunk;
        }
    }
}
