// Products of weights [rows, width] with up to BATCH vectors (GEMV), limited by reading the weights.
//
// A block owns consecutive pairs of rows. A pair is split into `segments` along its width; a tile is one segment of one
// pair, and the warps of a block take turns at its tiles. Each lane copies the weights that it will multiply itself
// into a ring in shared memory, DEPTH copies ahead, and starts before the previous kernel is done.
// Options: BATCH (1, 2, 4 or 8), WARPS per block, DEPTH of the ring; WEIGHTS_FP8 for weights in e4m3 (see fp8.cuh),
// with SCALED_BLOCKS if a scale is not that of a whole row; ADALN for the kernels of adaptive layers.

#define THREADS (WARPS * LANES)

#if defined(WEIGHTS_FP8)
typedef code weight_type;
#define WEIGHTS_VEC 16
#else
typedef dtype weight_type;
#define WEIGHTS_VEC VEC
#endif

// Elements of a row per step of a warp.
#define CHUNK (LANES * WEIGHTS_VEC)
// 16-byte pieces of a vector for 16 bytes of weights.
#define PIECES (WEIGHTS_VEC / VEC)

#if defined(SCALED_BLOCKS)
// The weights of a slot are followed by a scale per lane and row.
#define SLOT (2 * LANES + 2 * LANES / 4)
#else
#define SLOT (2 * LANES)
#endif

// The last three are adaptive (adaLN): normalised vectors are scaled and shifted, and what is added is multiplied by a
// gate, all per vector.
enum Kind { NORM_LINEAR, LINEAR_ADD, NORM_GATE_UP, ADALN_LINEAR, ADD_GATED, ADALN_GATE_UP };

__device__ constexpr bool is_normed(Kind kind) { return kind != LINEAR_ADD && kind != ADD_GATED; }
__device__ constexpr bool is_gate_up(Kind kind) { return kind == NORM_GATE_UP || kind == ADALN_GATE_UP; }
__device__ constexpr bool is_modulated(Kind kind) { return kind == ADALN_LINEAR || kind == ADALN_GATE_UP; }

struct Work {
    const dtype *x;    // [batch, width]
    const dtype *norm; // [width]; null without a norm, or for ones
    float epsilon;
    const weight_type *weight; // [rows, width], twice as many rows for gate and up
    const dtype *bias;         // [rows] likewise, or null
    dtype *out;                // [batch, rows]
    u32 batch, rows, width;
    u32 segments, segment; // per row, and chunks per segment
    u64 *timestamp;
    // Per vector: shift and scale [width], or shift, scale and gate [rows]; and the stride from one vector to the next.
    const dtype *modulation;
    u32 modulation_stride;

    // Further vectors belong to the next row of blocks.
    DEVICE void skip(u32 vectors) {
        u32 skipped = blockIdx.y * vectors;
        batch = min(batch - skipped, vectors);
        x += (u64)skipped * width;
        out += (u64)skipped * rows;
        modulation += (u64)skipped * modulation_stride;
    }
};

#define WORK_PARAMETERS                                                                                                \
    const dtype *x, const dtype *norm, float epsilon, const weight_type *weight, const dtype *bias, dtype *out,        \
        u32 batch, u32 rows, u32 width, u32 segments, u32 segment, u64 *timestamp
#define THIS_WORK x, norm, epsilon, weight, bias, out, batch, rows, width, segments, segment, timestamp

// The pairs of rows: neighbours, or a row of gate and one of up.
template <Kind kind> struct Pairs {
    const Work &work;
    __device__ u32 count() const { return is_gate_up(kind) ? work.rows : (work.rows + 1) / 2; }
    __device__ u32 first(u32 pair) const { return is_gate_up(kind) ? pair : 2 * pair; }
    __device__ u32 second(u32 pair) const { return is_gate_up(kind) ? work.rows + pair : 2 * pair + 1; }
    __device__ bool has_second(u32 pair) const { return is_gate_up(kind) || 2 * pair + 1 < work.rows; }
};

#if defined(WEIGHTS_FP8)
template <Kind kind> DEVICE const float *scales_of(const Work &work) {
    return scales_after(work.weight, (u64)(is_gate_up(kind) ? 2 : 1) * work.rows * work.width);
}
#endif

template <Kind kind> DEVICE float weight_at(const Work &work, u32 row, u32 column) {
    weight_type weight = work.weight[(u64)row * work.width + column];
#if defined(SCALED_BLOCKS)
    u64 before = (u64)row * scales_per_row(work.width, SCALED);
    return rounded(decode_fp8(weight) * scales_of<kind>(work)[before + column / SCALED]);
#elif defined(WEIGHTS_FP8)
    return decode_fp8(weight) * scales_of<kind>(work)[row];
#else
    return to_float(weight);
#endif
}

DEVICE float bias_of(const Work &work, u32 row) {
    return work.bias ? to_float(work.bias[row]) : 0.0f;
}

// The old values that the results of a pair of rows are added to.
struct Old {
    float one, two;
};

template <Kind kind> DEVICE Old load_old(const Work &work, u32 pair, u32 b) {
    Pairs<kind> pairs{work};
    const dtype *out = work.out + (u64)b * work.rows;
    return {to_float(out[pairs.first(pair)]), pairs.has_second(pair) ? to_float(out[pairs.second(pair)]) : 0.0f};
}

// Writes the results of a pair of rows for one vector of the batch.
template <Kind kind>
DEVICE void finish(const Work &work, u32 pair, u32 b, float one, float two, Old old = {}) {
    Pairs<kind> pairs{work};
    dtype *out = work.out + (u64)b * work.rows;
    u32 first = pairs.first(pair), second = pairs.second(pair);
    one += bias_of(work, first);
    if (is_gate_up(kind)) {
        float gate = rounded(one), up = rounded(two + bias_of(work, second));
        out[pair] = to_dtype(silu(gate) * up);
        return;
    }
    if (pairs.has_second(pair)) two += bias_of(work, second);
    if (kind == ADD_GATED) {
        const dtype *gate = work.modulation + (u64)b * work.modulation_stride + 2 * work.rows;
        one = to_float(gate[first]) * rounded(one);
        if (pairs.has_second(pair)) two = to_float(gate[second]) * rounded(two);
    }
    out[first] = to_dtype(old.one + one);
    if (pairs.has_second(pair)) out[second] = to_dtype(old.two + two);
}

// The shared memory of a block.
struct Memory {
    dtype *x;       // [BATCH, padded]
    dtype *norm;    // [padded]
    packed *ring;   // [WARPS, DEPTH, SLOT]: weights [2, LANES], and their scales if those are per block
    float *squares; // [BATCH, WARPS]
    float *scales;  // [pairs of the block, 2] if scales are per row
    float *partial; // [pairs of the block, segments, 2, BATCH]
};

template <Kind kind> DEVICE Memory memory(u32 padded, u32 pairs) {
    extern __shared__ packed shared[];
    Memory at;
    at.ring = shared;
    at.x = reinterpret_cast<dtype *>(shared + WARPS * DEPTH * SLOT);
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

// The index of a vector's element in shared memory: the first piece of every lane comes before the second.
DEVICE u32 index_of(u32 i) {
#if defined(WEIGHTS_FP8)
    u32 in_chunk = i % CHUNK, lane = in_chunk / WEIGHTS_VEC, piece = in_chunk % WEIGHTS_VEC / VEC;
    return i - in_chunk + (piece * LANES + lane) * VEC;
#else
    return i;
#endif
}

// The weights of a 16-byte piece. `scale` is that of the first lane. Published block scales are not powers of two, so
// the weights are rounded as in a dequantised matrix.
DEVICE void unpack_weights(const packed &values, u32 piece, const float *scale, float (&out)[VEC]) {
#if defined(WEIGHTS_FP8)
#pragma unroll
    for (u32 i = 0; i < VEC / 4; i++) decode_fp8x4(values.word[piece * (VEC / 4) + i], out + 4 * i);
#if defined(SCALED_BLOCKS)
#pragma unroll
    for (u32 i = 0; i < VEC; i++) out[i] = rounded(out[i] * scale[threadIdx.x % LANES]);
#endif
#else
    unpack(values, out);
#endif
}

// Multiplies the sums of a pair of rows by the scales of the rows.
DEVICE void scale_sums(const Memory &at, u32 pair, float &one, float &two) {
#if defined(WEIGHTS_FP8) && !defined(SCALED_BLOCKS)
    one *= at.scales[2 * pair];
    two *= at.scales[2 * pair + 1];
#endif
}

// Adds up the threads' sums of squares of each vector.
DEVICE void share_squares(const Memory &at, const float (&square)[BATCH]) {
#pragma unroll
    for (u32 b = 0; b < BATCH; b++) {
        float sum = warp_sum(square[b]);
        if (threadIdx.x % LANES == 0) at.squares[b * WARPS + threadIdx.x / LANES] = sum;
    }
    __syncthreads();
}

DEVICE float inverse_root(const Memory &at, const Work &work, u32 b) {
    float sum = 0.0f;
#pragma unroll
    for (u32 warp = 0; warp < WARPS; warp++) sum += at.squares[b * WARPS + warp];
    return rsqrtf(sum / (float)work.width + work.epsilon);
}

// A normalised value, scaled and shifted.
DEVICE float modulated(float value, float shift, float scale) {
    return rounded(value) * (1.0f + scale) + shift;
}

DEVICE void modulate(const Work &work, u32 b, u32 i, float (&wide)[VEC]) {
    if (b >= work.batch || i >= work.width) return;
    const dtype *from = work.modulation + (u64)b * work.modulation_stride + i;
    float shift[VEC], scale[VEC];
    unpack(load_packed(from), shift);
    unpack(load_packed(from + work.width), scale);
#pragma unroll
    for (u32 j = 0; j < VEC; j++) wide[j] = modulated(wide[j], shift[j], scale[j]);
}

// Loads the vectors into shared memory, padded with zeros, and normalises them.
template <Kind kind> DEVICE void load_vectors(const Memory &at, const Work &work, u32 padded) {
    float square[BATCH] = {};
#pragma unroll
    for (u32 b = 0; b < BATCH; b++) {
#pragma unroll 1
        for (u32 i = threadIdx.x * VEC; i < padded; i += THREADS * VEC) {
            packed values = {};
            if (b < work.batch && i < work.width) values = load_packed(work.x + (u64)b * work.width + i);
            store_packed(at.x + b * padded + index_of(i), values);
            if (!is_normed(kind)) continue;
            float wide[VEC];
            unpack(values, wide);
#pragma unroll
            for (u32 j = 0; j < VEC; j++) square[b] += wide[j] * wide[j];
        }
    }
    if (is_normed(kind)) {
        share_squares(at, square);
        // The norm's weights were the first copies, by the threads that use them.
        cp_async_wait<DEPTH>();
#pragma unroll
        for (u32 b = 0; b < BATCH; b++) {
            float scale = inverse_root(at, work, b);
#pragma unroll 1
            for (u32 i = threadIdx.x * VEC; i < padded; i += THREADS * VEC) {
                float wide[VEC], weight[VEC];
                unpack(load_packed(at.x + b * padded + index_of(i)), wide);
                unpack(load_packed(at.norm + i), weight);
#pragma unroll
                for (u32 j = 0; j < VEC; j++) wide[j] *= scale * weight[j];
                if (is_modulated(kind)) modulate(work, b, i, wide);
                store_packed(at.x + b * padded + index_of(i), pack(wide));
            }
        }
    }
    __syncthreads();
}

// A warp's copies of weights, tile by tile.
template <Kind kind> struct Fetch {
    const Work &work;
    u32 first_pair, tiles, tile, chunk;
    const weight_type *one, *two;
    u32 column;
    bool has_two;
#if defined(SCALED_BLOCKS)
    const float *one_scales, *two_scales;
#endif

    DEVICE void enter(u32 first) {
        tile = first;
        chunk = 0;
        Pairs<kind> pairs{work};
        u32 pair = first_pair + tile / work.segments;
        column = (tile % work.segments) * work.segment * CHUNK + threadIdx.x % LANES * WEIGHTS_VEC;
        one = work.weight + (u64)pairs.first(pair) * work.width;
        has_two = pairs.has_second(pair);
        two = has_two ? work.weight + (u64)pairs.second(pair) * work.width : one;
#if defined(SCALED_BLOCKS)
        u32 each = scales_per_row(work.width, SCALED);
        one_scales = scales_of<kind>(work) + (u64)pairs.first(pair) * each;
        two_scales = has_two ? scales_of<kind>(work) + (u64)pairs.second(pair) * each : one_scales;
#endif
    }

    DEVICE void next(packed *slot) {
        if (tile < tiles) {
            bool is_there = column < work.width;
            u32 from = is_there ? column : 0;
            cp_async(slot, one + from, is_there);
            cp_async(slot + LANES, two + from, is_there && has_two);
#if defined(SCALED_BLOCKS)
            u32 lane = threadIdx.x % LANES;
            float *scales = reinterpret_cast<float *>(slot - lane + 2 * LANES) + lane;
            cp_async<4>(scales, one_scales + from / SCALED, is_there);
            cp_async<4>(scales + LANES, two_scales + from / SCALED, is_there && has_two);
#endif
            column += CHUNK;
            if (++chunk == work.segment) enter(tile + WARPS);
        }
        cp_async_commit();
    }
};

// Adds the lanes' sums, and writes the pair's results or stores them as partial sums.
template <Kind kind>
DEVICE void settle(const Memory &at, const Work &work, u32 first_pair, u32 tile,
                                       float (&sum)[2][BATCH]) {
    u32 lane = threadIdx.x % LANES;
#pragma unroll
    for (u32 b = 0; b < BATCH; b++) {
        float one = warp_sum(sum[0][b]), two = warp_sum(sum[1][b]);
        if (is_normed(kind) && work.segments == 1) {
            scale_sums(at, tile, one, two);
            if (lane == b && b < work.batch) finish<kind>(work, first_pair + tile, b, one, two);
        } else if (lane == b) {
            at.partial[(tile * 2) * BATCH + b] = one;
            at.partial[(tile * 2 + 1) * BATCH + b] = two;
        }
    }
}

// Adds the partial sums of each pair.
template <Kind kind>
DEVICE void add_partials(const Memory &at, const Work &work, u32 first_pair, u32 count, Old old) {
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
        if (!is_normed(kind) && item >= THREADS) old = load_old<kind>(work, first_pair + pair, b);
        finish<kind>(work, first_pair + pair, b, one, two, old);
    }
}

template <Kind kind> DEVICE void linear(Work work) {
    launch_dependents();
    work.skip(BATCH);

    u32 padded = work.segments * work.segment * CHUNK;
    u32 lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
    u64 pairs = Pairs<kind>{work}.count();
    u32 first_pair = (u32)(pairs * blockIdx.x / gridDim.x);
    u32 count = (u32)(pairs * (blockIdx.x + 1) / gridDim.x) - first_pair;
    u32 tiles = count * work.segments;
    Memory at = memory<kind>(padded, count);

    if (is_normed(kind)) {
#pragma unroll 1
        for (u32 i = threadIdx.x * VEC; i < padded; i += THREADS * VEC) {
            bool is_there = i < work.width;
            if (is_modulated(kind) && !work.norm) store(at.norm + i, make_vec<VEC>([](u32) { return 1.0f; }));
            else cp_async(at.norm + i, work.norm + (is_there ? i : 0), is_there);
        }
        cp_async_commit();
    }
    packed *ring = at.ring + warp * DEPTH * SLOT + lane;
    Fetch<kind> fetch{work, first_pair, tiles};
    fetch.enter(warp);
    // Short code misses the instruction cache less.
#pragma unroll 1
    for (u32 slot = 0; slot < DEPTH; slot++) fetch.next(ring + slot * SLOT);
#if defined(WEIGHTS_FP8) && !defined(SCALED_BLOCKS)
    for (u32 i = threadIdx.x; i < 2 * count; i += THREADS) {
        Pairs<kind> rows{work};
        u32 pair = first_pair + i / 2;
        bool is_there = i % 2 == 0 || rows.has_second(pair);
        at.scales[i] = is_there ? scales_of<kind>(work)[i % 2 == 0 ? rows.first(pair) : rows.second(pair)] : 0.0f;
    }
#endif

    wait_for_previous_kernel();
    write_timestamp(work.timestamp);
    // Loaded early, so that the old values are there when the sums are.
    Old old = {};
    if (!is_normed(kind) && threadIdx.x < count * BATCH && threadIdx.x % BATCH < work.batch) {
        old = load_old<kind>(work, first_pair + threadIdx.x / BATCH, threadIdx.x % BATCH);
    }
    load_vectors<kind>(at, work, padded);

    u32 slot = 0;
    for (u32 tile = warp; tile < tiles; tile += WARPS) {
        float sum[2][BATCH] = {};
        const dtype *x = at.x + (tile % work.segments) * work.segment * CHUNK + lane * VEC;
        for (u32 chunk = 0; chunk < work.segment; chunk++, x += CHUNK) {
            cp_async_wait<DEPTH - 1>();
            packed *place = ring + slot * SLOT;
            const float *scales = reinterpret_cast<const float *>(place - lane + 2 * LANES);
            packed first = place[0], second = place[LANES];
            slot = slot + 1 == DEPTH ? 0 : slot + 1;
#pragma unroll
            for (u32 piece = 0; piece < PIECES; piece++) {
                float one[VEC], two[VEC];
                unpack_weights(first, piece, scales, one);
                unpack_weights(second, piece, scales + LANES, two);
#pragma unroll
                for (u32 b = 0; b < BATCH; b++) {
                    float wide[VEC];
                    unpack(load_packed(x + b * padded + piece * LANES * VEC), wide);
#pragma unroll
                    for (u32 j = 0; j < VEC; j++) {
                        sum[0][b] += one[j] * wide[j];
                        sum[1][b] += two[j] * wide[j];
                    }
                }
            }
            fetch.next(place);
        }
        settle<kind>(at, work, first_pair, tile, sum);
    }
    if (!is_normed(kind) || work.segments > 1) add_partials<kind>(at, work, first_pair, count, old);
}

// The same for any width, one element at a time.
template <Kind kind> DEVICE void any_linear(Work work) {
    launch_dependents();
    wait_for_previous_kernel();
    write_timestamp(work.timestamp);
    work.skip(BATCH);
    u32 padded = work.segments * work.segment * CHUNK;
    Memory at = memory<kind>(padded, 0);

    float square[BATCH] = {};
#pragma unroll
    for (u32 b = 0; b < BATCH; b++) {
        for (u32 i = threadIdx.x; i < work.width && b < work.batch; i += THREADS) {
            dtype value = work.x[(u64)b * work.width + i];
            at.x[b * padded + i] = value;
            square[b] += to_float(value) * to_float(value);
        }
    }
    share_squares(at, square);
    for (u32 b = 0; b < work.batch && is_normed(kind); b++) {
        float scale = inverse_root(at, work, b);
        for (u32 i = threadIdx.x; i < work.width; i += THREADS) {
            float value = to_float(at.x[b * padded + i]) * (scale * (work.norm ? to_float(work.norm[i]) : 1.0f));
            if (is_modulated(kind)) {
                const dtype *from = work.modulation + (u64)b * work.modulation_stride + i;
                value = modulated(value, to_float(from[0]), to_float(from[work.width]));
            }
            at.x[b * padded + i] = to_dtype(value);
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
                float value = to_float(at.x[b * padded + i]);
                one += weight_at<kind>(work, first, i) * value;
                two += weight_at<kind>(work, second, i) * value;
            }
            one = warp_sum(one);
            two = warp_sum(two);
            if (lane != 0) continue;
            finish<kind>(work, pair, b, one, two, is_normed(kind) ? Old{} : load_old<kind>(work, pair, b));
        }
    }
}
