// Products of weights [rows, width] with up to VECTORS vectors on tensor cores, bound by the reading of the weights: in
// bf16 and f16, for widths of whole 16 bytes. This text stands after mma.cuh and decode_linear.cuh.
//
// A tile is 8 pairs of rows. The products add up over the width in any order, so each lane copies into a ring in shared
// memory, DEPTH steps ahead, just the numbers that the tensor cores want from it: lane 4 i + j has those of pair i, and of
// the vectors i, i + 8 and so on, from column 8 j of each 32 on.
//
// A block owns a run of pairs. Its warps share all steps of all tiles evenly, one behind the other; what a warp has of a
// tile that it shares with others is a piece, and pieces are added up at the end. For additions a cluster of SPLIT blocks
// also shares the width: a block needs only its part of the vectors.
// Options: VECTORS (8, 16 or 32), SPLIT, and those of decode_linear.cuh, where BATCH is what `any_linear` takes at once.

#if __CUDA_ARCH__ < 900
#undef SPLIT
#define SPLIT 1
#endif

// Numbers of a row that a warp takes at once, and pairs of rows of a tile.
constexpr u32 STEP = 64, TILE = 8;
constexpr u32 GROUPS = VECTORS / 8;
// From one row of a piece to the next, so that the lanes of a warp write to different banks.
constexpr u32 PIECE_ROW = VECTORS == 8 ? 8 : VECTORS + 8;
constexpr u32 PIECE = 2 * TILE * PIECE_ROW;

// The part of a product that a block does.
struct Share {
    u32 first_pair, pairs, tiles; // of rows
    u32 first, steps;             // of the width, in steps
    u32 row;                      // from one vector to the next in shared memory: different banks for all lanes
};

struct Room {
    packed *ring;   // [WARPS, DEPTH, 4, LANES]
    number *x;      // [VECTORS, row]
    number *norm;   // [row]
    float *pieces;  // of additions [WARPS + tiles][2 TILE, PIECE_ROW], else two of each warp where the vectors were
    float2 *others; // [SPLIT, tiles, OWNED]: what all blocks of a cluster have of the sums that this one writes
};

// Sums of a tile that a block of a cluster writes.
constexpr u32 OWNED = TILE * VECTORS / SPLIT;

template <u32 BLOCKS> __device__ __forceinline__ u32 split_rank() { return BLOCKS > 1 ? blockIdx.x % BLOCKS : 0; }

template <u32 BLOCKS> __device__ __forceinline__ u32 steps_before(u32 width, u32 rank) {
    return (width + STEP - 1) / STEP * rank / BLOCKS;
}

template <Kind kind, u32 BLOCKS> __device__ __forceinline__ Share share_of(const Work &work) {
    Share share;
    u64 pairs = Pairs<kind>{work}.count();
    u32 owner = blockIdx.x / BLOCKS, owners = gridDim.x / BLOCKS;
    share.first_pair = (u32)(pairs * owner / owners);
    share.pairs = (u32)(pairs * (owner + 1) / owners) - share.first_pair;
    share.tiles = (share.pairs + TILE - 1) / TILE;
    share.first = steps_before<BLOCKS>(work.width, split_rank<BLOCKS>());
    share.steps = steps_before<BLOCKS>(work.width, split_rank<BLOCKS>() + 1) - share.first;
    // The largest part of the width, as the host reckons.
    share.row = ((work.width + STEP - 1) / STEP + BLOCKS - 1) / BLOCKS * STEP + STEP / 2;
    return share;
}

template <Kind kind> __device__ __forceinline__ Room room_of(const Share &share) {
    extern __shared__ packed shared[];
    Room room;
    room.ring = shared;
    room.x = reinterpret_cast<number *>(shared + WARPS * DEPTH * 4 * LANES);
    room.norm = room.x + VECTORS * share.row;
    room.pieces = reinterpret_cast<float *>(is_normed(kind) ? room.x : room.norm);
    room.others = reinterpret_cast<float2 *>(room.pieces + (WARPS + share.tiles) * PIECE);
    return room;
}

// The steps of a warp, of those of all tiles one behind the other.
__device__ __forceinline__ u32 warp_first(u32 tiles, u32 steps, u32 warp) { return tiles * steps * warp / WARPS; }

// The warp that has a step.
__device__ __forceinline__ u32 warp_of(u32 tiles, u32 steps, u32 unit) {
    return ((unit + 1) * WARPS - 1) / (tiles * steps);
}

// A warp's way through its steps, fetching.
template <Kind kind> struct Fetch {
    const Work &work;
    const Share &share;
    u32 left, step, pair, column;
    const number *one, *two;
    bool has_one, has_two;

    __device__ __forceinline__ void enter() {
        Pairs<kind> pairs{work};
        u32 real = share.first_pair + pair;
        has_one = pair < share.pairs;
        has_two = has_one && pairs.has_second(real);
        one = work.weight + (has_one ? (u64)pairs.first(real) * work.width : 0);
        two = work.weight + (has_two ? (u64)pairs.second(real) * work.width : 0);
        column = (share.first + step) * STEP + threadIdx.x % 4 * PER;
    }

    __device__ __forceinline__ void begin(u32 unit, u32 end) {
        left = end - unit;
        step = share.steps ? unit % share.steps : 0;
        pair = (share.steps ? unit / share.steps : 0) * TILE + threadIdx.x % LANES / 4;
        enter();
    }

    __device__ __forceinline__ void fetch(packed *slot) {
        if (left) {
            left--;
#pragma unroll
            for (u32 half = 0; half < 2; half++) {
                u32 at = column + half * (STEP / 2);
                bool there = at < work.width;
                begin_copy(slot + half * 2 * LANES, one + (there ? at : 0), there && has_one ? 16 : 0);
                begin_copy(slot + (half * 2 + 1) * LANES, two + (there ? at : 0), there && has_two ? 16 : 0);
            }
            column += STEP;
            if (++step == share.steps) {
                step = 0;
                pair += TILE;
                enter();
            }
        }
        end_of_copies();
    }
};

// Begins to copy this block's part of a vector, with zeros behind it. A warp takes a whole vector.
__device__ __forceinline__ void begin_vector(const Share &share, const number *from, u32 width, bool there, number *to) {
    u32 first = share.first * STEP;
    for (u32 i = threadIdx.x % LANES * PER; i < share.steps * STEP; i += LANES * PER) {
        bool is_real = there && first + i < width;
        begin_copy(to + i, from + (is_real ? first + i : 0), is_real ? 16 : 0);
    }
}

// Norms a vector that lies in shared memory; each lane reads what it copied itself.
__device__ __forceinline__ void norm_vector(const Share &share, const Work &work, number *x, const number *norm) {
    float square = 0.0f;
#pragma unroll 2
    for (u32 i = threadIdx.x % LANES * PER; i < share.steps * STEP; i += LANES * PER) {
        float wide[PER];
        unpack(load_packed(x + i), wide);
#pragma unroll
        for (u32 j = 0; j < PER; j++) square += wide[j] * wide[j];
    }
    float scale = rsqrtf(sum_of_warp(square) / (float)work.width + work.epsilon);
#pragma unroll 2
    for (u32 i = threadIdx.x % LANES * PER; i < share.steps * STEP; i += LANES * PER) {
        float wide[PER], weight[PER];
        unpack(load_packed(x + i), wide);
        unpack(load_packed(norm + i), weight);
#pragma unroll
        for (u32 j = 0; j < PER; j++) wide[j] *= scale * weight[j];
        store_packed(x + i, pack(wide));
    }
}

template <Kind kind>
__device__ __forceinline__ void take_vectors(const Room &room, const Work &work, const Share &share) {
    u32 warp = threadIdx.x / LANES;
    for (u32 b = warp; b < VECTORS; b += WARPS) {
        begin_vector(share, work.x + (u64)b * work.width, work.width, b < work.batch, room.x + b * share.row);
    }
    end_of_copies();
    wait_for_copies<0>();
    // All threads copied the norm.
    if (is_normed(kind)) __syncthreads();
    for (u32 b = warp; b < work.batch && is_normed(kind); b += WARPS) {
        norm_vector(share, work, room.x + b * share.row, room.norm);
    }
    __syncthreads();
}

// Adds a step of a tile: 16 rows by 64 columns.
__device__ __forceinline__ void add_step(float (&sum)[GROUPS][4], const packed *slot, const number *x, u32 row) {
#pragma unroll
    for (u32 half = 0; half < 2; half++) {
        packed one = slot[half * 2 * LANES], two = slot[(half * 2 + 1) * LANES];
#pragma unroll
        for (u32 n = 0; n < GROUPS; n++) {
            packed vector = load_packed(x + n * 8 * row + half * (STEP / 2));
#pragma unroll
            for (u32 word = 0; word < 4; word += 2) {
                multiply(sum[n], {one.word[word], two.word[word], one.word[word + 1], two.word[word + 1]},
                         vector.word[word], vector.word[word + 1]);
            }
        }
    }
}

// Writes a tile that a warp has alone.
template <Kind kind>
__device__ __forceinline__ void finish_tile(const Work &work, const Share &share, u32 tile,
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

__device__ __forceinline__ void put_piece(float *piece, const float (&sum)[GROUPS][4]) {
    float *to = piece + threadIdx.x % LANES / 4 * PIECE_ROW + threadIdx.x % 4 * 2;
#pragma unroll
    for (u32 n = 0; n < GROUPS; n++) {
        *reinterpret_cast<float2 *>(to + n * 8) = make_float2(sum[n][0], sum[n][1]);
        *reinterpret_cast<float2 *>(to + TILE * PIECE_ROW + n * 8) = make_float2(sum[n][2], sum[n][3]);
    }
}

// The two halves of a meeting of all blocks of the cluster.
__device__ __forceinline__ void arrive_in_cluster() {
#if SPLIT > 1
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#endif
}
__device__ __forceinline__ void wait_for_cluster() {
#if SPLIT > 1
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}

// Writes to the same place of another block of the cluster.
__device__ __forceinline__ void tell(float2 *place, u32 rank, float one, float two) {
#if SPLIT > 1
    u32 there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"((u32)__cvta_generic_to_shared(place)), "r"(rank));
    asm volatile("st.shared::cluster.v2.f32 [%0], {%1, %2};" ::"r"(there), "f"(one), "f"(two) : "memory");
#endif
}

// Which sum of a tile: neighbours are of the next pair.
struct Item {
    u32 pair, b;
    __device__ __forceinline__ Item(u32 tile, u32 index) : pair(tile * TILE + index % TILE), b(index / TILE) {}
    __device__ __forceinline__ bool is_real(const Work &work, const Share &share) const {
        return pair < share.pairs && b < work.batch;
    }
};

// Adds the pieces of one sum of a tile, which these warps have.
template <Kind kind>
__device__ __forceinline__ float2 sum_of_pieces(const Room &room, const Share &share, u32 tile, u32 index, u32 first,
                                                u32 last) {
    float2 sum = make_float2(0.0f, 0.0f);
    for (u32 warp = first; warp <= last; warp++) {
        u32 begin = warp_first(share.tiles, share.steps, warp);
        if (begin == warp_first(share.tiles, share.steps, warp + 1)) continue;
        u32 place = is_normed(kind) ? warp * 2 + (begin > tile * share.steps) : warp + tile;
        const float *piece = room.pieces + place * PIECE + index % TILE * PIECE_ROW + index / TILE;
        sum.x += piece[0];
        sum.y += piece[TILE * PIECE_ROW];
    }
    return sum;
}

// Adds the pieces of all tiles that no warp had alone, and writes what they come to, or tells the block that does.
template <Kind kind, u32 BLOCKS>
__device__ __forceinline__ void add_pieces(const Room &room, const Work &work, const Share &share) {
    u32 lane = threadIdx.x % LANES;
    for (u32 tile = threadIdx.x / LANES; tile < share.tiles; tile += WARPS) {
        // Without steps there are no pieces.
        u32 first = 1, last = 0;
        if (share.steps) {
            first = warp_of(share.tiles, share.steps, tile * share.steps);
            last = warp_of(share.tiles, share.steps, (tile + 1) * share.steps - 1);
        }
        if (is_normed(kind) && first == last) continue;
#pragma unroll 4
        for (u32 index = lane; index < TILE * VECTORS; index += LANES) {
            float2 sum = sum_of_pieces<kind>(room, share, tile, index, first, last);
            if (BLOCKS > 1) {
                float2 *place = room.others + (split_rank<BLOCKS>() * share.tiles + tile) * OWNED + index % OWNED;
                tell(place, index / OWNED, sum.x, sum.y);
                continue;
            }
            Item item(tile, index);
            if (!item.is_real(work, share)) continue;
            u32 pair = share.first_pair + item.pair;
            Before to = is_normed(kind) ? Before{} : before<kind>(work, pair, item.b);
            finish<kind>(work, pair, item.b, sum.x, sum.y, to);
        }
    }
}

// Which sum this block of a cluster writes.
template <u32 BLOCKS> __device__ __forceinline__ Item owned(u32 index) {
    return Item(index / OWNED, split_rank<BLOCKS>() * OWNED + index % OWNED);
}

// Adds what all blocks of a cluster have. What the first sum of a thread is added to is known already.
template <Kind kind, u32 BLOCKS>
__device__ __forceinline__ void add_others(const Room &room, const Work &work, const Share &share, Before mine) {
    for (u32 index = threadIdx.x; index < share.tiles * OWNED; index += THREADS) {
        Item item = owned<BLOCKS>(index);
        if (!item.is_real(work, share)) continue;
        float one = 0.0f, two = 0.0f;
#pragma unroll
        for (u32 rank = 0; rank < BLOCKS; rank++) {
            float2 part = room.others[rank * share.tiles * OWNED + index];
            one += part.x;
            two += part.y;
        }
        if (index >= THREADS) mine = before<kind>(work, share.first_pair + item.pair, item.b);
        finish<kind>(work, share.first_pair + item.pair, item.b, one, two, mine);
    }
}

__device__ __forceinline__ void copy_sums(float (&to)[GROUPS][4], const float (&from)[GROUPS][4]) {
#pragma unroll
    for (u32 i = 0; i < GROUPS * 4; i++) to[i / 4][i % 4] = from[i / 4][i % 4];
}

// Multiplies what a warp has. Pieces of additions go to their places at once; others replace the vectors when all warps
// are done, and a warp has two of them at most.
template <Kind kind>
__device__ __forceinline__ void multiply_tiles(const Room &room, const Work &work, const Share &share, Fetch<kind> &fetch,
                                               packed *ring, u32 unit, u32 end) {
    u32 warp = threadIdx.x / LANES, lane = threadIdx.x % LANES, slot = 0;
    u32 tile = share.steps ? unit / share.steps : 0, step = unit - tile * share.steps, first_step = step;
    const number *x = room.x + lane / 4 * share.row + lane % 4 * PER;
    float sum[GROUPS][4] = {}, head[GROUPS][4] = {};
    bool has_head = false, has_tail = false;
    for (; unit < end; unit++) {
        wait_for_copies<DEPTH - 1>();
        packed *place = ring + slot * 4 * LANES;
        slot = slot + 1 == DEPTH ? 0 : slot + 1;
        add_step(sum, place, x + step * STEP, share.row);
        fetch.fetch(place);
        bool is_last = ++step == share.steps;
        if (!is_last && unit + 1 < end) continue;
        bool is_whole = is_last && first_step == 0;
        if (!is_normed(kind)) {
            put_piece(room.pieces + (warp + tile) * PIECE, sum);
        } else if (is_whole) {
            finish_tile<kind>(work, share, tile, sum);
        } else if (first_step > 0) {
            // Only the first tile of a warp has no beginning.
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
    if (has_head) put_piece(room.pieces + (warp * 2 + 1) * PIECE, head);
    if (has_tail) put_piece(room.pieces + warp * 2 * PIECE, sum);
    __syncthreads();
}

template <Kind kind, u32 BLOCKS> __device__ __forceinline__ void tensor_linear(Work work) {
    let_the_next_kernel_begin();
    // By the time that another block's memory is written, all have begun.
    if (BLOCKS > 1) arrive_in_cluster();
    // Further vectors are for the next row of blocks.
    u32 skipped = blockIdx.y * VECTORS;
    work.batch = min(work.batch - skipped, VECTORS);
    work.x += (u64)skipped * work.width;
    work.out += (u64)skipped * work.rows;

    Share share = share_of<kind, BLOCKS>(work);
    Room room = room_of<kind>(share);
    if (is_normed(kind)) {
        for (u32 i = threadIdx.x * PER; i < share.steps * STEP; i += THREADS * PER) {
            begin_copy(room.norm + i, work.norm + (i < work.width ? i : 0), i < work.width ? 16 : 0);
        }
        end_of_copies();
    }
    u32 warp = threadIdx.x / LANES;
    u32 unit = warp_first(share.tiles, share.steps, warp), end = warp_first(share.tiles, share.steps, warp + 1);
    packed *ring = room.ring + warp * DEPTH * 4 * LANES + threadIdx.x % LANES;
    Fetch<kind> fetch{work, share};
    fetch.begin(unit, end);
#pragma unroll 1
    for (u32 slot = 0; slot < DEPTH; slot++) fetch.fetch(ring + slot * 4 * LANES);

    wait_for_the_kernel_before();
    stamp_border(work.border);
    // Fetched now, what the sums are added to is there when they are.
    Before mine = {};
    if (BLOCKS > 1 && threadIdx.x < share.tiles * OWNED) {
        Item item = owned<BLOCKS>(threadIdx.x);
        if (item.is_real(work, share)) mine = before<kind>(work, share.first_pair + item.pair, item.b);
    }
    take_vectors<kind>(room, work, share);
    multiply_tiles<kind>(room, work, share, fetch, ring, unit, end);
    if (BLOCKS > 1) wait_for_cluster();
    add_pieces<kind, BLOCKS>(room, work, share);
    if (BLOCKS == 1) return;
    arrive_in_cluster();
    wait_for_cluster();
    add_others<kind, BLOCKS>(room, work, share, mine);
}

#if SPLIT > 1
#define IN_CLUSTERS __cluster_dims__(SPLIT, 1, 1)
#else
#define IN_CLUSTERS
#endif
#define ALONE

#define ENTRY(name, clusters, function)                                                                                \
    extern "C" __global__ void __launch_bounds__(THREADS, 2) clusters                                                  \
        name(const number *x, const number *norm, float epsilon, const number *weight, const number *bias, number *out, \
             u32 batch, u32 rows, u32 width, u32 segments, u32 segment, u64 *border) {                                 \
        function({x, norm, epsilon, weight, bias, out, batch, rows, width, segments, segment, nullptr, 0, border});    \
    }

ENTRY(norm_linear, ALONE, (tensor_linear<NORM_LINEAR, 1>))
ENTRY(linear_add, IN_CLUSTERS, (tensor_linear<LINEAR_ADD, SPLIT>))
ENTRY(norm_gate_up, ALONE, (tensor_linear<NORM_GATE_UP, 1>))
ENTRY(any_norm_linear, ALONE, any_linear<NORM_LINEAR>)
ENTRY(any_linear_add, ALONE, any_linear<LINEAR_ADD>)
ENTRY(any_norm_gate_up, ALONE, any_linear<NORM_GATE_UP>)
