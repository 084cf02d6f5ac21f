// Products of weights [rows, width] with up to BATCH vectors, bound by the reading of the weights.
//
// A block owns a run of pairs of rows. A pair is cut into `segments` along its width; a tile is one segment of one pair,
// and the warps of a block take its tiles in turn. Each lane fetches what it will itself multiply into a ring in shared
// memory, DEPTH copies ahead, and begins with that before the kernel ahead of this one is done.
// Options: BATCH (1, 2, 4 or 8), WARPS a block, DEPTH of the ring. This text stands before those with the entries.

#define THREADS (WARPS * LANES)
// Numbers of a row that a warp takes at once.
#define CHUNK (LANES * PER)

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
    const number *weight;  // [rows, width], twice as many rows for gates
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
        out[pair] = narrowed(gate / (1.0f + __expf(-gate)) * up);
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
    packed *ring;   // [WARPS, DEPTH, 2, LANES]
    float *squares; // [BATCH, WARPS]
    float *partial; // [pairs of the block, segments, 2, BATCH]
};

template <Kind kind> __device__ __forceinline__ Places places(u32 padded) {
    extern __shared__ packed shared[];
    Places at;
    at.ring = shared;
    at.x = reinterpret_cast<number *>(shared + WARPS * DEPTH * 2 * LANES);
    at.norm = at.x + BATCH * padded;
    at.squares = reinterpret_cast<float *>(at.norm + (is_normed(kind) ? padded : 0));
    at.partial = at.squares + BATCH * WARPS;
    return at;
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
        float sum = warp_sum(square[b]);
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
            store_packed(at.x + b * padded + i, values);
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
                unpack(load_packed(at.x + b * padded + i), wide);
                unpack(load_packed(at.norm + i), weight);
#pragma unroll
                for (u32 j = 0; j < PER; j++) wide[j] *= scale * weight[j];
                if (is_adapted(kind)) adapt(work, b, i, wide);
                store_packed(at.x + b * padded + i, pack(wide));
            }
        }
    }
    __syncthreads();
}

// A warp's way through its tiles, fetching.
template <Kind kind> struct Feed {
    const Work &work;
    u32 first_pair, tiles, tile, chunk;
    const number *one, *two;
    u32 column, two_bytes;

    __device__ __forceinline__ void enter(u32 next) {
        tile = next;
        chunk = 0;
        Pairs<kind> pairs{work};
        u32 pair = first_pair + tile / work.segments;
        column = (tile % work.segments) * work.segment * CHUNK + threadIdx.x % LANES * PER;
        one = work.weight + (u64)pairs.first(pair) * work.width;
        two_bytes = pairs.has_second(pair) ? 16 : 0;
        two = two_bytes ? work.weight + (u64)pairs.second(pair) * work.width : one;
    }

    __device__ __forceinline__ void fetch(packed *slot) {
        if (tile < tiles) {
            u32 there = column < work.width;
            u32 from = there ? column : 0;
            begin_copy(slot, one + from, there ? 16 : 0);
            begin_copy(slot + LANES, two + from, there ? two_bytes : 0);
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
        float one = warp_sum(sum[0][b]), two = warp_sum(sum[1][b]);
        if (is_normed(kind) && work.segments == 1) {
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
    Places at = places<kind>(padded);
    u32 lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
    u64 pairs = Pairs<kind>{work}.count();
    u32 first_pair = (u32)(pairs * blockIdx.x / gridDim.x);
    u32 count = (u32)(pairs * (blockIdx.x + 1) / gridDim.x) - first_pair;
    u32 tiles = count * work.segments;

    if (is_normed(kind)) {
#pragma unroll 1
        for (u32 i = threadIdx.x * PER; i < padded; i += THREADS * PER) {
            u32 there = i < work.width;
            if (is_adapted(kind) && !work.norm) store_packed(at.norm + i, ones());
            else begin_copy(at.norm + i, work.norm + (there ? i : 0), there ? 16 : 0);
        }
        end_of_copies();
    }
    packed *ring = at.ring + warp * DEPTH * 2 * LANES + lane;
    Feed<kind> feed{work, first_pair, tiles};
    feed.enter(warp);
    // Short texts come out of the instruction cache sooner.
#pragma unroll 1
    for (u32 slot = 0; slot < DEPTH; slot++) feed.fetch(ring + slot * 2 * LANES);

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
            packed *place = ring + slot * 2 * LANES;
            float one[PER], two[PER];
            unpack(place[0], one);
            unpack(place[LANES], two);
            slot = slot + 1 == DEPTH ? 0 : slot + 1;
#pragma unroll
            for (u32 b = 0; b < BATCH; b++) {
                float wide[PER];
                unpack(load_packed(x + b * padded), wide);
#pragma unroll
                for (u32 j = 0; j < PER; j++) {
                    sum[0][b] += one[j] * wide[j];
                    sum[1][b] += two[j] * wide[j];
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
    Places at = places<kind>(padded);

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
        const number *first = work.weight + (u64)pairs.first(pair) * work.width;
        bool has_second = pairs.has_second(pair);
        const number *second = has_second ? work.weight + (u64)pairs.second(pair) * work.width : first;
        for (u32 b = 0; b < work.batch; b++) {
            float one = 0.0f, two = 0.0f;
            for (u32 i = lane; i < work.width; i += LANES) {
                float value = widened(at.x[b * padded + i]);
                one += widened(first[i]) * value;
                two += widened(second[i]) * value;
            }
            one = warp_sum(one);
            two = warp_sum(two);
            if (lane != 0) continue;
            finish<kind>(work, pair, b, one, two, is_normed(kind) ? Before{} : before<kind>(work, pair, b));
        }
    }
}
