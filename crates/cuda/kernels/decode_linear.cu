// Products of weights [rows, width] with up to BATCH vectors, bound by the reading of the weights.
//
// A block owns a run of pairs of rows. A pair is cut into `segments` along its width; a tile is one segment of one pair,
// and the warps of a block take its tiles in turn. Each lane fetches what it will itself multiply into a ring in shared
// memory, DEPTH copies ahead, and begins with that before the kernel ahead of this one is done.
// Options: BATCH (1, 2, 4 or 8), WARPS a block, DEPTH of the ring.

#define THREADS (WARPS * LANES)
// Numbers of a row that a warp takes at once.
#define CHUNK (LANES * PER)

enum Kind { NORM_LINEAR, LINEAR_ADD, NORM_GATE_UP };

struct Work {
    const number *x;       // [batch, width]
    const number *norm;    // [width]; none for LINEAR_ADD
    float epsilon;
    const number *weight;  // [rows, width], twice as many rows for NORM_GATE_UP
    const number *bias;    // [rows] likewise, or none
    number *out;           // [batch, rows]
    u32 batch, rows, width;
    u32 segments, segment; // how many, and how many chunks each
};

// How the rows are paired: neighbours, or a gate with its value.
template <Kind kind> struct Pairs {
    const Work &work;
    __device__ u32 count() const { return kind == NORM_GATE_UP ? work.rows : (work.rows + 1) / 2; }
    __device__ u32 first(u32 pair) const { return kind == NORM_GATE_UP ? pair : 2 * pair; }
    __device__ u32 second(u32 pair) const { return kind == NORM_GATE_UP ? work.rows + pair : 2 * pair + 1; }
    __device__ bool has_second(u32 pair) const { return kind == NORM_GATE_UP || 2 * pair + 1 < work.rows; }
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
    if (kind == NORM_GATE_UP) {
        float gate = rounded(one), up = rounded(two + bias_of(work, second));
        out[pair] = narrowed(gate / (1.0f + __expf(-gate)) * up);
        return;
    }
    out[first] = narrowed(before.one + one);
    if (pairs.has_second(pair)) out[second] = narrowed(before.two + (two + bias_of(work, second)));
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
    at.squares = reinterpret_cast<float *>(at.norm + (kind == LINEAR_ADD ? 0 : padded));
    at.partial = at.squares + BATCH * WARPS;
    return at;
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
            if (kind == LINEAR_ADD) continue;
            float wide[PER];
            unpack(values, wide);
#pragma unroll
            for (u32 j = 0; j < PER; j++) square[b] += wide[j] * wide[j];
        }
    }
    if (kind != LINEAR_ADD) {
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
        if (kind != LINEAR_ADD && work.segments == 1) {
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
        if (kind == LINEAR_ADD && item >= THREADS) mine = before<kind>(work, first_pair + pair, b);
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

    u32 padded = work.segments * work.segment * CHUNK;
    Places at = places<kind>(padded);
    u32 lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
    u64 pairs = Pairs<kind>{work}.count();
    u32 first_pair = (u32)(pairs * blockIdx.x / gridDim.x);
    u32 count = (u32)(pairs * (blockIdx.x + 1) / gridDim.x) - first_pair;
    u32 tiles = count * work.segments;

    if (kind != LINEAR_ADD) {
#pragma unroll 1
        for (u32 i = threadIdx.x * PER; i < padded; i += THREADS * PER) {
            u32 there = i < work.width;
            begin_copy(at.norm + i, work.norm + (there ? i : 0), there ? 16 : 0);
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
    // Fetched now, what the parts are added to is there when they are.
    Before mine = {};
    if (kind == LINEAR_ADD && threadIdx.x < count * BATCH && threadIdx.x % BATCH < work.batch) {
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
    if (kind == LINEAR_ADD || work.segments > 1) add_parts<kind>(at, work, first_pair, count, mine);
}

// The same for any width, one number at a time.
template <Kind kind> __device__ __forceinline__ void any_linear(Work work) {
    let_the_next_kernel_begin();
    wait_for_the_kernel_before();
    u32 skipped = blockIdx.y * BATCH;
    work.batch = min(work.batch - skipped, BATCH);
    work.x += (u64)skipped * work.width;
    work.out += (u64)skipped * work.rows;
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
    for (u32 b = 0; b < work.batch && kind != LINEAR_ADD; b++) {
        float scale = inverse_root(at, work, b);
        for (u32 i = threadIdx.x; i < work.width; i += THREADS) {
            float value = widened(at.x[b * padded + i]);
            at.x[b * padded + i] = narrowed(value * (scale * widened(work.norm[i])));
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
            finish<kind>(work, pair, b, one, two, kind == LINEAR_ADD ? before<kind>(work, pair, b) : Before{});
        }
    }
}

// Few registers for one vector, so that blocks of three kernels find room on a multiprocessor.
#define LEAST_BLOCKS (BATCH == 1 ? 1536 / THREADS : 1)

#define ENTRY(name, function, kind)                                                                                    \
    extern "C" __global__ void __launch_bounds__(THREADS, LEAST_BLOCKS)                                                \
        name(const number *x, const number *norm, float epsilon, const number *weight, const number *bias, number *out, \
             u32 batch, u32 rows, u32 width, u32 segments, u32 segment) {                                              \
        function<kind>({x, norm, epsilon, weight, bias, out, batch, rows, width, segments, segment});                  \
    }

ENTRY(norm_linear, linear, NORM_LINEAR)
ENTRY(linear_add, linear, LINEAR_ADD)
ENTRY(norm_gate_up, linear, NORM_GATE_UP)
ENTRY(any_norm_linear, any_linear, NORM_LINEAR)
ENTRY(any_linear_add, any_linear, LINEAR_ADD)
ENTRY(any_norm_gate_up, any_linear, NORM_GATE_UP)
