// Products of weights [rows, width] with up to VECTORS vectors on tensor cores, limited by reading the weights: bf16
// and f16, widths of a multiple of 16 bytes.
//
// A tile is 8 pairs of rows. The products sum over the width in any order, so each lane copies just the elements that
// its fragments need into a ring in shared memory, DEPTH steps ahead: lane 4 i + j has those of pair i, and of the
// vectors i, i + 8 and so on, from column 8 j of each 32 on.
//
// A block owns consecutive pairs. Its warps share the steps of all tiles evenly (stream-K); a warp's part of a tile
// that it shares with others is a piece, and pieces are added at the end. For LINEAR_ADD a cluster of SPLIT blocks also
// splits the width (split-K): a block only needs its part of the vectors.
// Options: VECTORS (8, 16 or 32), SPLIT, and those of decode_linear.cuh, where BATCH is for `any_linear`.

#if __CUDA_ARCH__ < 900
#undef SPLIT
#define SPLIT 1
#endif

// Elements of a row per step of a warp, and pairs of rows per tile.
constexpr u32 STEP = 64, TILE = 8;
constexpr u32 GROUPS = VECTORS / 8;
// The stride of a piece's rows, so that the lanes of a warp write to different banks.
constexpr u32 PIECE_ROW = VECTORS == 8 ? 8 : VECTORS + 8;
constexpr u32 PIECE = 2 * TILE * PIECE_ROW;

// A block's part of a product.
struct Share {
    u32 first_pair, pairs, tiles; // of rows
    u32 first, steps;             // of the width, in steps
    u32 row;                      // the stride of vectors in shared memory: different banks for all lanes
};

struct Buffers {
    packed *ring;   // [WARPS, DEPTH, 4, LANES]
    dtype *x;      // [VECTORS, row]
    dtype *norm;   // [row]
    float *pieces;  // of LINEAR_ADD [WARPS + tiles][2 TILE, PIECE_ROW], else two per warp, over the vectors
    float2 *others; // [SPLIT, tiles, OWNED]: the parts of all blocks of a cluster of the sums that this one writes
};

// Sums of a tile that one block of a cluster writes.
constexpr u32 OWNED = TILE * VECTORS / SPLIT;

template <u32 BLOCKS> DEVICE u32 split_rank() { return BLOCKS > 1 ? blockIdx.x % BLOCKS : 0; }

template <u32 BLOCKS> DEVICE u32 steps_before(u32 width, u32 rank) {
    return (width + STEP - 1) / STEP * rank / BLOCKS;
}

template <Kind kind, u32 BLOCKS> DEVICE Share share_of(const Work &work) {
    Share share;
    u64 pairs = Pairs<kind>{work}.count();
    u32 owner = blockIdx.x / BLOCKS, owners = gridDim.x / BLOCKS;
    share.first_pair = (u32)(pairs * owner / owners);
    share.pairs = (u32)(pairs * (owner + 1) / owners) - share.first_pair;
    share.tiles = (share.pairs + TILE - 1) / TILE;
    share.first = steps_before<BLOCKS>(work.width, split_rank<BLOCKS>());
    share.steps = steps_before<BLOCKS>(work.width, split_rank<BLOCKS>() + 1) - share.first;
    // For the largest part of the width, as the host computes it.
    share.row = ((work.width + STEP - 1) / STEP + BLOCKS - 1) / BLOCKS * STEP + STEP / 2;
    return share;
}

template <Kind kind> DEVICE Buffers buffers_of(const Share &share) {
    extern __shared__ packed shared[];
    Buffers buffers;
    buffers.ring = shared;
    buffers.x = reinterpret_cast<dtype *>(shared + WARPS * DEPTH * 4 * LANES);
    buffers.norm = buffers.x + VECTORS * share.row;
    buffers.pieces = reinterpret_cast<float *>(is_normed(kind) ? buffers.x : buffers.norm);
    buffers.others = reinterpret_cast<float2 *>(buffers.pieces + (WARPS + share.tiles) * PIECE);
    return buffers;
}

// The first step of a warp, counted over all tiles.
DEVICE u32 warp_first(u32 tiles, u32 steps, u32 warp) { return tiles * steps * warp / WARPS; }

// The warp that has a step.
DEVICE u32 warp_of(u32 tiles, u32 steps, u32 unit) {
    return ((unit + 1) * WARPS - 1) / (tiles * steps);
}

// A warp's copies of weights, step by step.
template <Kind kind> struct StepFetch {
    const Work &work;
    const Share &share;
    u32 left, step, pair, column;
    const dtype *one, *two;
    bool has_one, has_two;

    DEVICE void enter() {
        Pairs<kind> pairs{work};
        u32 real = share.first_pair + pair;
        has_one = pair < share.pairs;
        has_two = has_one && pairs.has_second(real);
        one = work.weight + (has_one ? (u64)pairs.first(real) * work.width : 0);
        two = work.weight + (has_two ? (u64)pairs.second(real) * work.width : 0);
        column = (share.first + step) * STEP + threadIdx.x % 4 * VEC;
    }

    DEVICE void begin(u32 unit, u32 end) {
        left = end - unit;
        step = share.steps ? unit % share.steps : 0;
        pair = (share.steps ? unit / share.steps : 0) * TILE + threadIdx.x % LANES / 4;
        enter();
    }

    DEVICE void next(packed *slot) {
        if (left) {
            left--;
#pragma unroll
            for (u32 half = 0; half < 2; half++) {
                u32 at = column + half * (STEP / 2);
                bool is_there = at < work.width;
                cp_async(slot + half * 2 * LANES, one + (is_there ? at : 0), is_there && has_one);
                cp_async(slot + (half * 2 + 1) * LANES, two + (is_there ? at : 0), is_there && has_two);
            }
            column += STEP;
            if (++step == share.steps) {
                step = 0;
                pair += TILE;
                enter();
            }
        }
        cp_async_commit();
    }
};

// Starts to copy this block's part of a vector, padded with zeros, with one warp.
DEVICE void begin_vector(const Share &share, const dtype *from, u32 width, bool is_there, dtype *to) {
    u32 first = share.first * STEP;
    for (u32 i = threadIdx.x % LANES * VEC; i < share.steps * STEP; i += LANES * VEC) {
        bool is_real = is_there && first + i < width;
        cp_async(to + i, from + (is_real ? first + i : 0), is_real);
    }
}

// Normalises a vector in shared memory; each lane reads what it copied itself.
DEVICE void norm_vector(const Share &share, const Work &work, dtype *x, const dtype *norm) {
    float square = 0.0f;
#pragma unroll 2
    for (u32 i = threadIdx.x % LANES * VEC; i < share.steps * STEP; i += LANES * VEC) {
        float wide[VEC];
        unpack(load_packed(x + i), wide);
#pragma unroll
        for (u32 j = 0; j < VEC; j++) square += wide[j] * wide[j];
    }
    float scale = rsqrtf(warp_sum(square) / (float)work.width + work.epsilon);
#pragma unroll 2
    for (u32 i = threadIdx.x % LANES * VEC; i < share.steps * STEP; i += LANES * VEC) {
        float wide[VEC], weight[VEC];
        unpack(load_packed(x + i), wide);
        unpack(load_packed(norm + i), weight);
#pragma unroll
        for (u32 j = 0; j < VEC; j++) wide[j] *= scale * weight[j];
        store_packed(x + i, pack(wide));
    }
}

template <Kind kind>
DEVICE void load_vectors(const Buffers &buffers, const Work &work, const Share &share) {
    u32 warp = threadIdx.x / LANES;
    for (u32 b = warp; b < VECTORS; b += WARPS) {
        begin_vector(share, work.x + (u64)b * work.width, work.width, b < work.batch, buffers.x + b * share.row);
    }
    cp_async_commit();
    cp_async_wait<0>();
    // All threads have copied the norm.
    if (is_normed(kind)) __syncthreads();
    for (u32 b = warp; b < work.batch && is_normed(kind); b += WARPS) {
        norm_vector(share, work, buffers.x + b * share.row, buffers.norm);
    }
    __syncthreads();
}

// Adds a step of a tile: 16 rows by 64 columns.
DEVICE void add_step(float (&sum)[GROUPS][4], const packed *slot, const dtype *x, u32 row) {
#pragma unroll
    for (u32 half = 0; half < 2; half++) {
        packed one = slot[half * 2 * LANES], two = slot[(half * 2 + 1) * LANES];
#pragma unroll
        for (u32 n = 0; n < GROUPS; n++) {
            packed vector = load_packed(x + n * 8 * row + half * (STEP / 2));
#pragma unroll
            for (u32 word = 0; word < 4; word += 2) {
                mma(sum[n], {one.word[word], two.word[word], one.word[word + 1], two.word[word + 1]},
                         vector.word[word], vector.word[word + 1]);
            }
        }
    }
}

// Writes a tile that one warp has computed alone.
template <Kind kind>
DEVICE void finish_tile(const Work &work, const Share &share, u32 tile,
                                            const float (&sum)[GROUPS][4]) {
    u32 pair = tile * TILE + threadIdx.x % LANES / 4;
    if (pair >= share.pairs) return;
#pragma unroll
    for (u32 n = 0; n < GROUPS; n++) {
#pragma unroll
        for (u32 j = 0; j < 2; j++) {
            u32 b = n * 8 + threadIdx.x % 4 * 2 + j;
            if (b < work.batch) finish<kind>(work, share.first_pair + pair, b, sum[n][j], sum[n][2 + j]);
        }
    }
}

DEVICE void put_piece(float *piece, const float (&sum)[GROUPS][4]) {
    float *to = piece + threadIdx.x % LANES / 4 * PIECE_ROW + threadIdx.x % 4 * 2;
#pragma unroll
    for (u32 n = 0; n < GROUPS; n++) {
        *reinterpret_cast<float2 *>(to + n * 8) = make_float2(sum[n][0], sum[n][1]);
        *reinterpret_cast<float2 *>(to + TILE * PIECE_ROW + n * 8) = make_float2(sum[n][2], sum[n][3]);
    }
}

// Writes to the same variable of another block of the cluster.
DEVICE void store_in(u32 rank, float2 *local, float2 value) {
#if SPLIT > 1
    asm volatile("st.shared::cluster.v2.f32 [%0], {%1, %2};" ::"r"(map_shared(local, rank)), "f"(value.x), "f"(value.y)
                 : "memory");
#endif
}

// One sum of a tile. Consecutive indices belong to consecutive pairs.
struct Item {
    u32 pair, b;
    DEVICE Item(u32 tile, u32 index) : pair(tile * TILE + index % TILE), b(index / TILE) {}
    DEVICE bool is_real(const Work &work, const Share &share) const {
        return pair < share.pairs && b < work.batch;
    }
};

// Adds the pieces that these warps have of one sum of a tile.
template <Kind kind>
DEVICE float2 sum_of_pieces(const Buffers &buffers, const Share &share, u32 tile, u32 index, u32 first,
                                                u32 last) {
    float2 sum = make_float2(0.0f, 0.0f);
    for (u32 warp = first; warp <= last; warp++) {
        u32 begin = warp_first(share.tiles, share.steps, warp);
        if (begin == warp_first(share.tiles, share.steps, warp + 1)) continue;
        u32 slot = is_normed(kind) ? warp * 2 + (begin > tile * share.steps) : warp + tile;
        const float *piece = buffers.pieces + slot * PIECE + index % TILE * PIECE_ROW + index / TILE;
        sum.x += piece[0];
        sum.y += piece[TILE * PIECE_ROW];
    }
    return sum;
}

// Adds the pieces of all tiles that no warp computed alone, and writes the results, or sends the sums to the block that
// does.
template <Kind kind, u32 BLOCKS>
DEVICE void add_pieces(const Buffers &buffers, const Work &work, const Share &share) {
    u32 lane = threadIdx.x % LANES;
    for (u32 tile = threadIdx.x / LANES; tile < share.tiles; tile += WARPS) {
        // Without steps, there are no pieces.
        u32 first = 1, last = 0;
        if (share.steps) {
            first = warp_of(share.tiles, share.steps, tile * share.steps);
            last = warp_of(share.tiles, share.steps, (tile + 1) * share.steps - 1);
        }
        if (is_normed(kind) && first == last) continue;
#pragma unroll 4
        for (u32 index = lane; index < TILE * VECTORS; index += LANES) {
            float2 sum = sum_of_pieces<kind>(buffers, share, tile, index, first, last);
            if (BLOCKS > 1) {
                float2 *to = buffers.others + (split_rank<BLOCKS>() * share.tiles + tile) * OWNED + index % OWNED;
                store_in(index / OWNED, to, sum);
                continue;
            }
            Item item(tile, index);
            if (!item.is_real(work, share)) continue;
            u32 pair = share.first_pair + item.pair;
            finish<kind>(work, pair, item.b, sum.x, sum.y, is_normed(kind) ? Old{} : load_old<kind>(work, pair, item.b));
        }
    }
}

// A sum that this block of a cluster writes.
template <u32 BLOCKS> DEVICE Item owned(u32 index) {
    return Item(index / OWNED, split_rank<BLOCKS>() * OWNED + index % OWNED);
}

// Adds the sums of all blocks of a cluster. `old` is what a thread's first sum is added to.
template <Kind kind, u32 BLOCKS>
DEVICE void add_others(const Buffers &buffers, const Work &work, const Share &share, Old old) {
    for (u32 index = threadIdx.x; index < share.tiles * OWNED; index += THREADS) {
        Item item = owned<BLOCKS>(index);
        if (!item.is_real(work, share)) continue;
        float one = 0.0f, two = 0.0f;
#pragma unroll
        for (u32 rank = 0; rank < BLOCKS; rank++) {
            float2 part = buffers.others[rank * share.tiles * OWNED + index];
            one += part.x;
            two += part.y;
        }
        if (index >= THREADS) old = load_old<kind>(work, share.first_pair + item.pair, item.b);
        finish<kind>(work, share.first_pair + item.pair, item.b, one, two, old);
    }
}

DEVICE void copy_sums(float (&to)[GROUPS][4], const float (&from)[GROUPS][4]) {
#pragma unroll
    for (u32 i = 0; i < GROUPS * 4; i++) to[i / 4][i % 4] = from[i / 4][i % 4];
}

// Multiplies a warp's steps. Pieces of LINEAR_ADD are stored at once; others overwrite the vectors when all warps are
// done, and a warp has at most two of them.
template <Kind kind>
DEVICE void multiply_tiles(const Buffers &buffers, const Work &work, const Share &share, StepFetch<kind> &fetch,
                                               packed *ring, u32 unit, u32 end) {
    u32 warp = threadIdx.x / LANES, lane = threadIdx.x % LANES, slot = 0;
    u32 tile = share.steps ? unit / share.steps : 0, step = unit - tile * share.steps, first_step = step;
    const dtype *x = buffers.x + lane / 4 * share.row + lane % 4 * VEC;
    float sum[GROUPS][4] = {}, head[GROUPS][4] = {};
    bool has_head = false, has_tail = false;
    for (; unit < end; unit++) {
        cp_async_wait<DEPTH - 1>();
        packed *weights = ring + slot * 4 * LANES;
        slot = slot + 1 == DEPTH ? 0 : slot + 1;
        add_step(sum, weights, x + step * STEP, share.row);
        fetch.next(weights);
        bool is_last = ++step == share.steps;
        if (!is_last && unit + 1 < end) continue;
        bool is_whole = is_last && first_step == 0;
        if (!is_normed(kind)) {
            put_piece(buffers.pieces + (warp + tile) * PIECE, sum);
        } else if (is_whole) {
            finish_tile<kind>(work, share, tile, sum);
        } else if (first_step > 0) {
            // Only a warp's first tile can lack its beginning.
            has_head = true;
            copy_sums(head, sum);
        } else {
            has_tail = true;
            break;
        }
        copy_sums(sum, {});
        step = first_step = 0;
        tile++;
    }
    __syncthreads();
    if (!is_normed(kind)) return;
    if (has_head) put_piece(buffers.pieces + (warp * 2 + 1) * PIECE, head);
    if (has_tail) put_piece(buffers.pieces + warp * 2 * PIECE, sum);
    __syncthreads();
}

template <Kind kind, u32 BLOCKS> DEVICE void tensor_linear(Work work) {
    launch_dependents();
    // All blocks have started before one writes to another's memory.
    if (BLOCKS > 1) cluster_arrive();
    work.skip(VECTORS);

    Share share = share_of<kind, BLOCKS>(work);
    Buffers buffers = buffers_of<kind>(share);
    if (is_normed(kind)) {
        for (u32 i = threadIdx.x * VEC; i < share.steps * STEP; i += THREADS * VEC) {
            cp_async(buffers.norm + i, work.norm + (i < work.width ? i : 0), i < work.width);
        }
        cp_async_commit();
    }
    u32 warp = threadIdx.x / LANES;
    u32 unit = warp_first(share.tiles, share.steps, warp), end = warp_first(share.tiles, share.steps, warp + 1);
    packed *ring = buffers.ring + warp * DEPTH * 4 * LANES + threadIdx.x % LANES;
    StepFetch<kind> fetch{work, share};
    fetch.begin(unit, end);
#pragma unroll 1
    for (u32 slot = 0; slot < DEPTH; slot++) fetch.next(ring + slot * 4 * LANES);

    wait_for_previous_kernel();
    write_timestamp(work.timestamp);
    // Loaded early, so that the old values are there when the sums are.
    Old old = {};
    if (BLOCKS > 1 && threadIdx.x < share.tiles * OWNED) {
        Item item = owned<BLOCKS>(threadIdx.x);
        if (item.is_real(work, share)) old = load_old<kind>(work, share.first_pair + item.pair, item.b);
    }
    load_vectors<kind>(buffers, work, share);
    multiply_tiles<kind>(buffers, work, share, fetch, ring, unit, end);
    if (BLOCKS > 1) cluster_wait();
    add_pieces<kind, BLOCKS>(buffers, work, share);
    if (BLOCKS == 1) return;
    cluster_arrive();
    cluster_wait();
    add_others<kind, BLOCKS>(buffers, work, share, old);
}

#if SPLIT > 1
#define IN_CLUSTERS __cluster_dims__(SPLIT, 1, 1)
#else
#define IN_CLUSTERS
#endif
#define ALONE

#define ENTRY(name, clusters, function)                                                                                \
    KERNEL __launch_bounds__(THREADS, 2) clusters name(WORK_PARAMETERS) { function({THIS_WORK, nullptr, 0}); }

ENTRY(norm_linear, ALONE, (tensor_linear<NORM_LINEAR, 1>))
ENTRY(linear_add, IN_CLUSTERS, (tensor_linear<LINEAR_ADD, SPLIT>))
ENTRY(norm_gate_up, ALONE, (tensor_linear<NORM_GATE_UP, 1>))
ENTRY(any_norm_linear, ALONE, any_linear<NORM_LINEAR>)
ENTRY(any_linear_add, ALONE, any_linear<LINEAR_ADD>)
ENTRY(any_norm_gate_up, ALONE, any_linear<NORM_GATE_UP>)
