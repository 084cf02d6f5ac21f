// Products of weights [rows, width] with up to BATCH vectors, bound by the reading of the weights.
//
// A block owns a run of pairs of rows. A pair is cut into `segments` along its width; a tile is one segment of one pair,
// and the warps of a block take its tiles in turn. Each lane fetches what it will itself multiply into a ring in shared
// memory, DEPTH copies ahead, and begins with that before the kernel ahead of this one is done.
// Options: BATCH (1, 2, 4 or 8), WARPS a block, DEPTH of the ring; WEIGHTS_FP8 for weights in e4m3 (see fp8.cuh), with
// SCALED_BLOCKS if a scale is not that of a whole row. This text stands before those with the entries.

#define THREADS (WARPS * LANES)

#if defined(WEIGHTS_FP8)
typedef code weight_type;
#define WEIGHTS_PER 16
#else
typedef number weight_type;
#define WEIGHTS_PER PER
#endif

// Numbers of a row that a warp takes at once.
#define CHUNK (LANES * WEIGHTS_PER)
// 16 bytes of a vector for 16 bytes of weights.
#define PIECES (WEIGHTS_PER / PER)

#if defined(SCALED_BLOCKS)
// Behind the weights of a slot, a scale for each lane and row.
#define SLOT (2 * LANES + 2 * LANES / 4)
#else
#define SLOT (2 * LANES)
#endif

// The last three are adapted: what is normed is scaled and shifted, and what is added goes through a gate, each vector by
// numbers of its own.
enum Kind { NORM_LINEAR, LINEAR_ADD, NORM_GATE_UP, ADAPT_LINEAR, ADD_GATED, ADAPT_GATE_UP };

__device__ constexpr bool is_normed(Kind kind) { return kind != LINEAR_ADD && kind != ADD_GATED; }
__device__ constexpr bool is_gate_up(Kind kind) { return kind == NORM_GATE_UP || kind == ADAPT_GATE_UP; }
__device__ constexpr bool is_adapted(Kind kind) { return kind == ADAPT_LINEAR || kind == ADAPT_GATE_UP; }

struct Work {
    const number *x;       // [batch, width]
    const number *norm;    // [width]; none where nothing is normed, or by ones
    float epsilon;
    const weight_type *weight; // [rows, width], twice as many rows for gates
    const number *bias;    // [rows] likewise, or none
    number *out;           // [batch, rows]
    u32 batch, rows, width;
    u32 segments, segment; // how many, and how many chunks each
    // Of each vector: shift and scale [width], or behind two rows as wide as the result a gate [rows].
    const number *adapt;
    u32 adapt_width;       // from one vector's to the next
    u64 *border;           // where the time is written, or none
};

// How the rows are paired: neighbours, or a gate with its value.
template <Kind kind> struct Pairs {
    const Work &work;
    __device__ u32 count() const { return is_gate_up(kind) ? work.rows : (work.rows + 1) / 2; }
    __device__ u32 first(u32 pair) const { return is_gate_up(kind) ? pair : 2 * pair; }
    __device__ u32 second(u32 pair) const { return is_gate_up(kind) ? work.rows + pair : 2 * pair + 1; }
    __device__ bool has_second(u32 pair) const { return is_gate_up(kind) || 2 * pair + 1 < work.rows; }
};

#if defined(WEIGHTS_FP8)
template <Kind kind> __device__ __forceinline__ const float *scales_of(const Work &work) {
    return scales_behind(work.weight, (u64)(is_gate_up(kind) ? 2 : 1) * work.rows * work.width);
}
#endif

template <Kind kind> __device__ __forceinline__ float weight_at(const Work &work, u32 row, u32 column) {
    weight_type weight = work.weight[(u64)row * work.width + column];
#if defined(SCALED_BLOCKS)
    u64 before = (u64)row * scales_of_row(work.width, SCALED);
    return rounded(widened_code(weight) * scales_of<kind>(work)[before + column / SCALED]);
#elif defined(WEIGHTS_FP8)
    return widened_code(weight) * scales_of<kind>(work)[row];
#else
    return widened(weight);
#endif
}

__device__ __forceinline__ float bias_of(const Work &work, u32 row) {
    return work.bias ? widened(work.bias[row]) : 0.0f;
}

// What a pair of rows is added to.
struct Before {
    float one, two;
};

template <Kind kind> __device__ __forceinline__ Before before(const Work &work, u32 pair, u32 b) {
    Pairs<kind> pairs{work};
    const number *out = work.out + (u64)b * work.rows;
    return {widened(out[pairs.first(pair)]), pairs.has_second(pair) ? widened(out[pairs.second(pair)]) : 0.0f};
}

// Writes what the sums of a pair of rows come to, for one vector of the batch.
template <Kind kind>
__device__ __forceinline__ void finish(const Work &work, u32 pair, u32 b, float one, float two, Before before = {}) {
    Pairs<kind> pairs{work};
    number *out = work.out + (u64)b * work.rows;
    u32 first = pairs.first(pair), second = pairs.second(pair);
    one += bias_of(work, first);
    if (is_gate_up(kind)) {
        float gate = rounded(one), up = rounded(two + bias_of(work, second));
        out[pair] = narrowed(silu(gate) * up);
        return;
    }
    if (pairs.has_second(pair)) two += bias_of(work, second);
    if (kind == ADD_GATED) {
        const number *gate = work.adapt + (u64)b * work.adapt_width + 2 * work.rows;
        one = widened(gate[first]) * rounded(one);
        if (pairs.has_second(pair)) two = widened(gate[second]) * rounded(two);
    }
    out[first] = narrowed(before.one + one);
    if (pairs.has_second(pair)) out[second] = narrowed(before.two + two);
}

// Where things lie in a block's shared memory.
struct Places {
    number *x;      // [BATCH, padded]
    number *norm;   // [padded]
    packed *ring;   // [WARPS, DEPTH, SLOT]: weights [2, LANES], and their scales if blocks have some
    float *squares; // [BATCH, WARPS]
    float *scales;  // [pairs of the block, 2] where rows have a scale
    float *partial; // [pairs of the block, segments, 2, BATCH]
};

template <Kind kind> __device__ __forceinline__ Places places(u32 padded, u32 pairs) {
    extern __shared__ packed shared[];
    Places at;
    at.ring = shared;
    at.x = reinterpret_cast<number *>(shared + WARPS * DEPTH * SLOT);
    at.norm = at.x + BATCH * padded;
    at.squares = reinterpret_cast<float *>(at.norm + (is_normed(kind) ? padded : 0));
    at.scales = at.squares + BATCH * WARPS;
#if defined(WEIGHTS_FP8) && !defined(SCALED_BLOCKS)
    at.partial = at.scales + 2 * pairs;
#else
    at.partial = at.scales;
#endif
    return at;
}

// Where numbers of a vector lie: a piece of every lane is followed by the next piece of every lane.
__device__ __forceinline__ u32 place_of(u32 i) {
#if defined(WEIGHTS_FP8)
    u32 in_chunk = i % CHUNK, lane = in_chunk / WEIGHTS_PER, piece = in_chunk % WEIGHTS_PER / PER;
    return i - in_chunk + (piece * LANES + lane) * PER;
#else
    return i;
#endif
}

// The weights of a piece of 16 bytes. `scale` is the first lane's, of one of the rows. Scales of published blocks are no
// powers of two: the weights are rounded as they are in a dequantised matrix.
__device__ __forceinline__ void unpack_weights(const packed &values, u32 piece, const float *scale, float (&out)[PER]) {
#if defined(WEIGHTS_FP8)
#pragma unroll
    for (u32 i = 0; i < PER / 4; i++) widen_codes(values.word[piece * (PER / 4) + i], out + 4 * i);
#if defined(SCALED_BLOCKS)
#pragma unroll
    for (u32 i = 0; i < PER; i++) out[i] = rounded(out[i] * scale[threadIdx.x % LANES]);
#endif
#else
    unpack(values, out);
#endif
}

// The sums of a pair of rows of the block, times the scales of the rows.
__device__ __forceinline__ void scale_sums(const Places &at, u32 pair, float &one, float &two) {
#if defined(WEIGHTS_FP8) && !defined(SCALED_BLOCKS)
    one *= at.scales[2 * pair];
    two *= at.scales[2 * pair + 1];
#endif
}

__device__ __forceinline__ packed ones() {
    float values[PER];
#pragma unroll
    for (u32 j = 0; j < PER; j++) values[j] = 1.0f;
    return pack(values);
}

// The sum of squares of each vector, from what each thread adds up.
__device__ __forceinline__ void share_squares(const Places &at, const float (&square)[BATCH]) {
#pragma unroll
    for (u32 b = 0; b < BATCH; b++) {
        float sum = sum_of_warp(square[b]);
        if (threadIdx.x % LANES == 0) at.squares[b * WARPS + threadIdx.x / LANES] = sum;
    }
    __syncthreads();
}

__device__ __forceinline__ float inverse_root(const Places &at, const Work &work, u32 b) {
    float sum = 0.0f;
#pragma unroll
    for (u32 warp = 0; warp < WARPS; warp++) sum += at.squares[b * WARPS + warp];
    return rsqrtf(sum / (float)work.width + work.epsilon);
}

// What was normed, scaled and shifted.
__device__ __forceinline__ float adapted(float value, float shift, float scale) {
    return rounded(value) * (1.0f + scale) + shift;
}

__device__ __forceinline__ void adapt(const Work &work, u32 b, u32 i, float (&wide)[PER]) {
    if (b >= work.batch || i >= work.width) return;
    const number *from = work.adapt + (u64)b * work.adapt_width + i;
    float shift[PER], scale[PER];
    unpack(load_packed(from), shift);
    unpack(load_packed(from + work.width), scale);
#pragma unroll
    for (u32 j = 0; j < PER; j++) wide[j] = adapted(wide[j], shift[j], scale[j]);
}

// Puts the vectors into shared memory, normed where the kind says so, with zeros behind them.
template <Kind kind> __device__ __forceinline__ void take_vectors(const Places &at, const Work &work, u32 padded) {
    float square[BATCH] = {};
#pragma unroll
    for (u32 b = 0; b < BATCH; b++) {
#pragma unroll 1
        for (u32 i = threadIdx.x * PER; i < padded; i += THREADS * PER) {
            packed values = {};
            if (b < work.batch && i < work.width) values = load_packed(work.x + (u64)b * work.width + i);
            store_packed(at.x + b * padded + place_of(i), values);
            if (!is_normed(kind)) continue;
            float wide[PER];
            unpack(values, wide);
#pragma unroll
            for (u32 j = 0; j < PER; j++) square[b] += wide[j] * wide[j];
        }
    }
    if (is_normed(kind)) {
        share_squares(at, square);
        // The norm's weights were fetched first, by the threads that need them.
        wait_for_copies<DEPTH>();
#pragma unroll
        for (u32 b = 0; b < BATCH; b++) {
            float scale = inverse_root(at, work, b);
#pragma unroll 1
            for (u32 i = threadIdx.x * PER; i < padded; i += THREADS * PER) {
                float wide[PER], weight[PER];
                unpack(load_packed(at.x + b * padded + place_of(i)), wide);
                unpack(load_packed(at.norm + i), weight);
#pragma unroll
                for (u32 j = 0; j < PER; j++) wide[j] *= scale * weight[j];
                if (is_adapted(kind)) adapt(work, b, i, wide);
                store_packed(at.x + b * padded + place_of(i), pack(wide));
            }
        }
    }
    __syncthreads();
}

// A warp's way through its tiles, fetching.
template <Kind kind> struct Feed {
    const Work &work;
    u32 first_pair, tiles, tile, chunk;
    const weight_type *one, *two;
    u32 column, two_bytes;
#if defined(SCALED_BLOCKS)
    const float *one_scales, *two_scales;
#endif

    __device__ __forceinline__ void enter(u32 next) {
        tile = next;
        chunk = 0;
        Pairs<kind> pairs{work};
        u32 pair = first_pair + tile / work.segments;
        column = (tile % work.segments) * work.segment * CHUNK + threadIdx.x % LANES * WEIGHTS_PER;
        one = work.weight + (u64)pairs.first(pair) * work.width;
        two_bytes = pairs.has_second(pair) ? 16 : 0;
        two = two_bytes ? work.weight + (u64)pairs.second(pair) * work.width : one;
#if defined(SCALED_BLOCKS)
        u32 each = scales_of_row(work.width, SCALED);
        one_scales = scales_of<kind>(work) + (u64)pairs.first(pair) * each;
        two_scales = two_bytes ? scales_of<kind>(work) + (u64)pairs.second(pair) * each : one_scales;
#endif
    }

    __device__ __forceinline__ void fetch(packed *slot) {
        if (tile < tiles) {
            u32 there = column < work.width;
            u32 from = there ? column : 0;
            begin_copy(slot, one + from, there ? 16 : 0);
            begin_copy(slot + LANES, two + from, there ? two_bytes : 0);
#if defined(SCALED_BLOCKS)
            u32 lane = threadIdx.x % LANES;
            float *scales = reinterpret_cast<float *>(slot - lane + 2 * LANES) + lane;
            begin_small_copy(scales, one_scales + from / SCALED, there ? 4 : 0);
            begin_small_copy(scales + LANES, two_scales + from / SCALED, there && two_bytes ? 4 : 0);
#endif
            column += CHUNK;
            if (++chunk == work.segment) enter(tile + WARPS);
        }
        end_of_copies();
    }
};

// Adds all lanes' sums, and writes the pair's results or keeps them as a part.
template <Kind kind>
__device__ __forceinline__ void settle(const Places &at, const Work &work, u32 first_pair, u32 tile,
                                       float (&sum)[2][BATCH]) {
    u32 lane = threadIdx.x % LANES;
#pragma unroll
    for (u32 b = 0; b < BATCH; b++) {
        float one = sum_of_warp(sum[0][b]), two = sum_of_warp(sum[1][b]);
        if (is_normed(kind) && work.segments == 1) {
            scale_sums(at, tile, one, two);
            if (lane == b && b < work.batch) finish<kind>(work, first_pair + tile, b, one, two);
        } else if (lane == b) {
            at.partial[(tile * 2) * BATCH + b] = one;
            at.partial[(tile * 2 + 1) * BATCH + b] = two;
        }
    }
}

// Adds the parts of each pair.
template <Kind kind>
__device__ __forceinline__ void add_parts(const Places &at, const Work &work, u32 first_pair, u32 count, Before mine) {
    __syncthreads();
    for (u32 item = threadIdx.x; item < count * BATCH; item += THREADS) {
        u32 pair = item / BATCH, b = item % BATCH;
        if (b >= work.batch) continue;
        float one = 0.0f, two = 0.0f;
#pragma unroll 4
        for (u32 segment = 0; segment < work.segments; segment++) {
            const float *part = at.partial + (pair * work.segments + segment) * 2 * BATCH + b;
            one += part[0];
            two += part[BATCH];
        }
        scale_sums(at, pair, one, two);
        if (!is_normed(kind) && item >= THREADS) mine = before<kind>(work, first_pair + pair, b);
        finish<kind>(work, first_pair + pair, b, one, two, mine);
    }
}

template <Kind kind> __device__ __forceinline__ void linear(Work work) {
    let_the_next_kernel_begin();
    // Further vectors are for the next row of blocks.
    u32 skipped = blockIdx.y * BATCH;
    work.batch = min(work.batch - skipped, BATCH);
    work.x += (u64)skipped * work.width;
    work.out += (u64)skipped * work.rows;
    work.adapt += (u64)skipped * work.adapt_width;

    u32 padded = work.segments * work.segment * CHUNK;
    u32 lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
    u64 pairs = Pairs<kind>{work}.count();
    u32 first_pair = (u32)(pairs * blockIdx.x / gridDim.x);
    u32 count = (u32)(pairs * (blockIdx.x + 1) / gridDim.x) - first_pair;
    u32 tiles = count * work.segments;
    Places at = places<kind>(padded, count);

    if (is_normed(kind)) {
#pragma unroll 1
        for (u32 i = threadIdx.x * PER; i < padded; i += THREADS * PER) {
            u32 there = i < work.width;
            if (is_adapted(kind) && !work.norm) store_packed(at.norm + i, ones());
            else begin_copy(at.norm + i, work.norm + (there ? i : 0), there ? 16 : 0);
        }
        end_of_copies();
    }
    packed *ring = at.ring + warp * DEPTH * SLOT + lane;
    Feed<kind> feed{work, first_pair, tiles};
    feed.enter(warp);
    // Short texts come out of the instruction cache sooner.
#pragma unroll 1
    for (u32 slot = 0; slot < DEPTH; slot++) feed.fetch(ring + slot * SLOT);
#if defined(WEIGHTS_FP8) && !defined(SCALED_BLOCKS)
    for (u32 i = threadIdx.x; i < 2 * count; i += THREADS) {
        Pairs<kind> rows{work};
        u32 pair = first_pair + i / 2;
        bool is_there = i % 2 == 0 || rows.has_second(pair);
        at.scales[i] = is_there ? scales_of<kind>(work)[i % 2 == 0 ? rows.first(pair) : rows.second(pair)] : 0.0f;
    }
#endif

    wait_for_the_kernel_before();
    stamp_border(work.border);
    // Fetched now, what the parts are added to is there when they are.
    Before mine = {};
    if (!is_normed(kind) && threadIdx.x < count * BATCH && threadIdx.x % BATCH < work.batch) {
        mine = before<kind>(work, first_pair + threadIdx.x / BATCH, threadIdx.x % BATCH);
    }
    take_vectors<kind>(at, work, padded);

    u32 slot = 0;
    for (u32 tile = warp; tile < tiles; tile += WARPS) {
        float sum[2][BATCH] = {};
        const number *x = at.x + (tile % work.segments) * work.segment * CHUNK + lane * PER;
        for (u32 chunk = 0; chunk < work.segment; chunk++, x += CHUNK) {
            wait_for_copies<DEPTH - 1>();
            packed *place = ring + slot * SLOT;
            const float *scales = reinterpret_cast<const float *>(place - lane + 2 * LANES);
            packed first = place[0], second = place[LANES];
            slot = slot + 1 == DEPTH ? 0 : slot + 1;
#pragma unroll
            for (u32 piece = 0; piece < PIECES; piece++) {
                float one[PER], two[PER];
                unpack_weights(first, piece, scales, one);
                unpack_weights(second, piece, scales + LANES, two);
#pragma unroll
                for (u32 b = 0; b < BATCH; b++) {
                    float wide[PER];
                    unpack(load_packed(x + b * padded + piece * LANES * PER), wide);
#pragma unroll
                    for (u32 j = 0; j < PER; j++) {
                        sum[0][b] += one[j] * wide[j];
                        sum[1][b] += two[j] * wide[j];
                    }
                }
            }
            feed.fetch(place);
        }
        settle<kind>(at, work, first_pair, tile, sum);
    }
    if (!is_normed(kind) || work.segments > 1) add_parts<kind>(at, work, first_pair, count, mine);
}

// The same for any width, one number at a time.
template <Kind kind> __device__ __forceinline__ void any_linear(Work work) {
    let_the_next_kernel_begin();
    wait_for_the_kernel_before();
    stamp_border(work.border);
    u32 skipped = blockIdx.y * BATCH;
    work.batch = min(work.batch - skipped, BATCH);
    work.x += (u64)skipped * work.width;
    work.out += (u64)skipped * work.rows;
    work.adapt += (u64)skipped * work.adapt_width;
    u32 padded = work.segments * work.segment * CHUNK;
    Places at = places<kind>(padded, 0);

    float square[BATCH] = {};
#pragma unroll
    for (u32 b = 0; b < BATCH; b++) {
        for (u32 i = threadIdx.x; i < work.width && b < work.batch; i += THREADS) {
            number value = work.x[(u64)b * work.width + i];
            at.x[b * padded + i] = value;
            square[b] += widened(value) * widened(value);
        }
    }
    share_squares(at, square);
    for (u32 b = 0; b < work.batch && is_normed(kind); b++) {
        float scale = inverse_root(at, work, b);
        for (u32 i = threadIdx.x; i < work.width; i += THREADS) {
            float value = widened(at.x[b * padded + i]) * (scale * (work.norm ? widened(work.norm[i]) : 1.0f));
            if (is_adapted(kind)) {
                const number *from = work.adapt + (u64)b * work.adapt_width + i;
                value = adapted(value, widened(from[0]), widened(from[work.width]));
            }
            at.x[b * padded + i] = narrowed(value);
        }
    }
    __syncthreads();

    Pairs<kind> pairs{work};
    u32 lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
    for (u32 pair = blockIdx.x * WARPS + warp; pair < pairs.count(); pair += gridDim.x * WARPS) {
        u32 first = pairs.first(pair), second = pairs.has_second(pair) ? pairs.second(pair) : first;
        for (u32 b = 0; b < work.batch; b++) {
            float one = 0.0f, two = 0.0f;
            for (u32 i = lane; i < work.width; i += LANES) {
                float value = widened(at.x[b * padded + i]);
                one += weight_at<kind>(work, first, i) * value;
                two += weight_at<kind>(work, second, i) * value;
            }
            one = sum_of_warp(one);
            two = sum_of_warp(two);
            if (lane != 0) continue;
            finish<kind>(work, pair, b, one, two, is_normed(kind) ? Before{} : before<kind>(work, pair, b));
        }
    }
}
