// Attention of one new token over the cache, which it joins.
//
// A cluster of SPLITS blocks shares the positions of one key and value head, for up to HEADS of the query heads that use
// it; their parts meet in each other's shared memory. A few lanes hold one position, 16 bytes each, so that a warp looks
// at several positions at once.
// Option: HEAD_DIM.

#define WARPS 8
#define THREADS (WARPS * LANES)
#if __CUDA_ARCH__ >= 900
#define SPLITS 8
#else
#define SPLITS 1
#endif

__device__ constexpr u32 power_of_two(u32 least) {
    u32 power = 1;
    while (power < least) power *= 2;
    return power;
}

// Lanes that hold a position together, groups of 16 bytes that each holds of it, positions in a warp.
constexpr u32 SHARING = power_of_two((HEAD_DIM + PER - 1) / PER) < LANES ? power_of_two((HEAD_DIM + PER - 1) / PER) : LANES;
constexpr u32 PIECES = (HEAD_DIM + SHARING * PER - 1) / (SHARING * PER);
constexpr u32 POSITIONS = LANES / SHARING;
// Positions that a lane has in flight.
constexpr u32 AHEAD = PIECES == 1 ? 4 : 2;
// Values of one head that a lane of a warp holds when a warp takes a whole head.
constexpr u32 PAIRS_EACH = (HEAD_DIM / 2 + LANES - 1) / LANES;
constexpr float LOWEST = -1e30f;
constexpr float LOG2_E = 1.4426950408889634f;

struct Attention {
    const number *qkv;        // [batch, (heads + 2 kv_heads) * HEAD_DIM]
    const number *query_norm; // [HEAD_DIM], or none
    const number *key_norm;
    float epsilon, scale;
    const float *cosines, *sines; // [positions, HEAD_DIM / 2]
    u32 positions, in_pairs;
    const u32 *position;
    number *keys, *values;    // [batch, kv_heads, capacity, HEAD_DIM]
    u32 capacity, heads, kv_heads;
    number *out;              // [batch, heads * HEAD_DIM]
};

// A block's part of the attention of one head: the largest score, the sum of weights, the weighted values.
struct Part {
    float most, sum;
    float values[HEAD_DIM];
};

template <u32 HEADS> struct Shared {
    float query[HEADS][HEAD_DIM];
    float key[HEAD_DIM], value[HEAD_DIM];
    Part of_warp[WARPS][HEADS];
    Part of_block[HEADS];
};

__device__ __forceinline__ u32 rank_in_cluster() {
#if SPLITS > 1
    u32 rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
#else
    return 0;
#endif
}

__device__ __forceinline__ void meet() {
#if SPLITS > 1
    asm volatile("barrier.cluster.arrive.release.aligned;\n barrier.cluster.wait.acquire.aligned;" ::: "memory");
#else
    __syncthreads();
#endif
}

// A value in the same place of another block of the cluster.
__device__ __forceinline__ float of_other(const float *place, u32 rank) {
#if SPLITS > 1
    u32 here = (u32)__cvta_generic_to_shared(place), there;
    float value;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(here), "r"(rank));
    asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(value) : "r"(there));
    return value;
#else
    return *place;
#endif
}

// Lays one head of this token into shared memory: normed, turned and rounded as if it had been stored. One warp does.
__device__ __forceinline__ void take_head(const number *from, const number *norm, bool turns, const Attention &a, u32 at,
                                          float *to) {
    u32 lane = threadIdx.x % LANES;
    u32 apart = a.in_pairs ? 1 : HEAD_DIM / 2, step = a.in_pairs ? 2 : 1;
    float first[PAIRS_EACH], second[PAIRS_EACH], square = 0.0f;
#pragma unroll
    for (u32 j = 0; j < PAIRS_EACH; j++) {
        u32 i = lane + j * LANES;
        bool there = i < HEAD_DIM / 2;
        first[j] = there ? widened(from[i * step]) : 0.0f;
        second[j] = there ? widened(from[i * step + apart]) : 0.0f;
        square += first[j] * first[j] + second[j] * second[j];
    }
    float scale = norm ? rsqrtf(warp_sum(square) / HEAD_DIM + a.epsilon) : 1.0f;
#pragma unroll
    for (u32 j = 0; j < PAIRS_EACH; j++) {
        u32 i = lane + j * LANES;
        if (i >= HEAD_DIM / 2) break;
        float one = first[j], two = second[j];
        if (norm) {
            one *= scale * widened(norm[i * step]);
            two *= scale * widened(norm[i * step + apart]);
        }
        if (turns) {
            float cosine = a.cosines[(u64)at * (HEAD_DIM / 2) + i], sine = a.sines[(u64)at * (HEAD_DIM / 2) + i];
            float turned = one * cosine - two * sine;
            two = two * cosine + one * sine;
            one = turned;
        }
        to[i * step] = rounded(one);
        to[i * step + apart] = rounded(two);
    }
}

// What a lane holds of a position.
struct Held {
    packed piece[PIECES];
};

__device__ __forceinline__ Held load_held(const number *row, bool there) {
    Held held;
#pragma unroll
    for (u32 p = 0; p < PIECES; p++) {
        u32 column = (p * SHARING + threadIdx.x % SHARING) * PER;
        if (HEAD_DIM % PER == 0) {
            held.piece[p] = there && column < HEAD_DIM ? load_packed(row + column) : packed{};
        } else {
            numbers some;
#pragma unroll
            for (u32 j = 0; j < PER; j++) some.at[j] = there && column + j < HEAD_DIM ? row[column + j] : narrowed(0.0f);
            held.piece[p] = *reinterpret_cast<packed *>(&some);
        }
    }
    return held;
}

// The attention of a lane's positions so far, for each head.
template <u32 HEADS> struct Running {
    float most[HEADS], sum[HEADS], values[HEADS][PIECES][PER];

    __device__ __forceinline__ void begin() {
#pragma unroll
        for (u32 h = 0; h < HEADS; h++) {
            most[h] = LOWEST;
            sum[h] = 0.0f;
#pragma unroll
            for (u32 p = 0; p < PIECES; p++) {
#pragma unroll
                for (u32 j = 0; j < PER; j++) values[h][p][j] = 0.0f;
            }
        }
    }

    // Adds what was seen by those whose lanes are so far apart.
    __device__ __forceinline__ void join(u32 apart) {
#pragma unroll
        for (u32 h = 0; h < HEADS; h++) {
            float other = __shfl_xor_sync(ALL_LANES, most[h], apart);
            float higher = fmaxf(most[h], other);
            float mine = exp2f(most[h] - higher), theirs = exp2f(other - higher);
            most[h] = higher;
            sum[h] = sum[h] * mine + __shfl_xor_sync(ALL_LANES, sum[h], apart) * theirs;
#pragma unroll
            for (u32 p = 0; p < PIECES; p++) {
#pragma unroll
                for (u32 j = 0; j < PER; j++) {
                    float value = __shfl_xor_sync(ALL_LANES, values[h][p][j], apart);
                    values[h][p][j] = values[h][p][j] * mine + value * theirs;
                }
            }
        }
    }

    __device__ __forceinline__ void put(Part *parts) const {
#pragma unroll
        for (u32 h = 0; h < HEADS; h++) {
            if (threadIdx.x % LANES == 0) {
                parts[h].most = most[h];
                parts[h].sum = sum[h];
            }
#pragma unroll
            for (u32 p = 0; p < PIECES; p++) {
                u32 column = (p * SHARING + threadIdx.x % SHARING) * PER;
#pragma unroll
                for (u32 j = 0; j < PER; j++) {
                    if (threadIdx.x % LANES < SHARING && column + j < HEAD_DIM) {
                        parts[h].values[column + j] = values[h][p][j];
                    }
                }
            }
        }
    }
};

// A lane's share of the queries, as it meets its share of the keys.
template <u32 HEADS> __device__ __forceinline__ void take_queries(const Shared<HEADS> &shared, float scale,
                                                                  float (&query)[HEADS][PIECES][PER]) {
#pragma unroll
    for (u32 h = 0; h < HEADS; h++) {
#pragma unroll
        for (u32 p = 0; p < PIECES; p++) {
            u32 column = (p * SHARING + threadIdx.x % SHARING) * PER;
#pragma unroll
            for (u32 j = 0; j < PER; j++) query[h][p][j] = column + j < HEAD_DIM ? shared.query[h][column + j] * scale : 0.0f;
        }
    }
}

template <u32 HEADS>
__device__ __forceinline__ void look(Running<HEADS> &running, const float (&query)[HEADS][PIECES][PER],
                                     const Held (&keys)[AHEAD], const Held (&values)[AHEAD], const bool (&there)[AHEAD]) {
    float score[AHEAD][HEADS];
#pragma unroll
    for (u32 n = 0; n < AHEAD; n++) {
#pragma unroll
        for (u32 h = 0; h < HEADS; h++) score[n][h] = 0.0f;
#pragma unroll
        for (u32 p = 0; p < PIECES; p++) {
            float key[PER];
            unpack(keys[n].piece[p], key);
#pragma unroll
            for (u32 h = 0; h < HEADS; h++) {
#pragma unroll
                for (u32 j = 0; j < PER; j++) score[n][h] += key[j] * query[h][p][j];
            }
        }
#pragma unroll
        for (u32 h = 0; h < HEADS; h++) {
#pragma unroll
            for (u32 apart = SHARING / 2; apart > 0; apart /= 2) {
                score[n][h] += __shfl_xor_sync(ALL_LANES, score[n][h], apart);
            }
        }
    }
#pragma unroll
    for (u32 h = 0; h < HEADS; h++) {
        float higher = running.most[h];
#pragma unroll
        for (u32 n = 0; n < AHEAD; n++) higher = there[n] ? fmaxf(higher, score[n][h]) : higher;
        float kept = exp2f(running.most[h] - higher);
        running.most[h] = higher;
        running.sum[h] *= kept;
#pragma unroll
        for (u32 p = 0; p < PIECES; p++) {
#pragma unroll
            for (u32 j = 0; j < PER; j++) running.values[h][p][j] *= kept;
        }
#pragma unroll
        for (u32 n = 0; n < AHEAD; n++) {
            score[n][h] = there[n] ? exp2f(score[n][h] - higher) : 0.0f;
            running.sum[h] += score[n][h];
        }
    }
#pragma unroll
    for (u32 n = 0; n < AHEAD; n++) {
#pragma unroll
        for (u32 p = 0; p < PIECES; p++) {
            float value[PER];
            unpack(values[n].piece[p], value);
#pragma unroll
            for (u32 h = 0; h < HEADS; h++) {
#pragma unroll
                for (u32 j = 0; j < PER; j++) running.values[h][p][j] += score[n][h] * value[j];
            }
        }
    }
}

// Numbers that lie widened in shared memory, as a lane would hold them from the cache.
__device__ __forceinline__ Held held_of(const float *row) {
    Held held;
#pragma unroll
    for (u32 p = 0; p < PIECES; p++) {
        u32 column = (p * SHARING + threadIdx.x % SHARING) * PER;
        float some[PER];
#pragma unroll
        for (u32 j = 0; j < PER; j++) some[j] = column + j < HEAD_DIM ? row[column + j] : 0.0f;
        held.piece[p] = pack(some);
    }
    return held;
}

// Puts parts together: `of(part, n)` reads a float of the n-th.
template <u32 COUNT, typename Of> __device__ __forceinline__ float joined(Of of, u32 value, float *most, float *sum) {
    float higher = LOWEST, weights = 0.0f, total = 0.0f;
#pragma unroll
    for (u32 n = 0; n < COUNT; n++) higher = fmaxf(higher, of(n, 0));
#pragma unroll
    for (u32 n = 0; n < COUNT; n++) {
        float share = exp2f(of(n, 0) - higher);
        weights += of(n, 1) * share;
        total += of(n, 2 + value) * share;
    }
    *most = higher;
    *sum = weights;
    return total;
}

template <u32 HEADS> __device__ __forceinline__ void attend(const Attention a) {
    extern __shared__ packed memory[];
    Shared<HEADS> &shared = *reinterpret_cast<Shared<HEADS> *>(memory);
    let_the_next_kernel_begin();
    u32 group = a.heads / a.kv_heads, bundles = (group + HEADS - 1) / HEADS;
    u32 kv_head = blockIdx.y / bundles, bundle = blockIdx.y % bundles, batch = blockIdx.z;
    u32 first_head = kv_head * group + bundle * HEADS, heads = min(HEADS, group - bundle * HEADS);
    u32 warp = threadIdx.x / LANES, rank = rank_in_cluster();
    u32 at = *a.position;
    bool has_room = at < a.capacity && at < a.positions;
    // The cache holds as many positions as this one's number.
    u32 filled = has_room ? at : 0;
    u32 begin = (u32)((u64)filled * rank / SPLITS), end = (u32)((u64)filled * (rank + 1) / SPLITS);
    u64 head_at = ((u64)batch * a.kv_heads + kv_head) * a.capacity * HEAD_DIM;
    const number *keys = a.keys + head_at, *values = a.values + head_at;
    u32 own = begin + warp * POSITIONS * AHEAD + threadIdx.x % LANES / SHARING;

    Held key[AHEAD], value[AHEAD];
    bool there[AHEAD];
    auto load = [&](u32 first) {
#pragma unroll
        for (u32 n = 0; n < AHEAD; n++) {
            u32 index = first + n * POSITIONS;
            there[n] = index < end;
            key[n] = load_held(keys + (u64)index * HEAD_DIM, there[n]);
            value[n] = load_held(values + (u64)index * HEAD_DIM, there[n]);
        }
    };
    // Earlier steps wrote these.
    load(own);

    wait_for_the_kernel_before();
    const number *token = a.qkv + (u64)batch * (a.heads + 2 * a.kv_heads) * HEAD_DIM;
    bool has_new = rank == SPLITS - 1 && has_room;
    u32 safe_at = has_room ? at : 0;
    for (u32 head = warp; head < HEADS; head += WARPS) {
        if (head < heads) {
            take_head(token + (u64)(first_head + head) * HEAD_DIM, a.query_norm, true, a, safe_at, shared.query[head]);
        } else {
            for (u32 i = threadIdx.x % LANES; i < HEAD_DIM; i += LANES) shared.query[head][i] = 0.0f;
        }
    }
    if (has_new && warp == WARPS - 2) {
        take_head(token + (u64)(a.heads + kv_head) * HEAD_DIM, a.key_norm, true, a, safe_at, shared.key);
    }
    if (has_new && warp == WARPS - 1) {
        take_head(token + (u64)(a.heads + a.kv_heads + kv_head) * HEAD_DIM, nullptr, false, a, safe_at, shared.value);
    }
    __syncthreads();
    if (has_new && bundle == 0) {
        for (u32 i = threadIdx.x; i < HEAD_DIM; i += THREADS) {
            a.keys[head_at + (u64)at * HEAD_DIM + i] = narrowed(shared.key[i]);
            a.values[head_at + (u64)at * HEAD_DIM + i] = narrowed(shared.value[i]);
        }
    }

    float query[HEADS][PIECES][PER];
    take_queries<HEADS>(shared, a.scale * LOG2_E, query);
    Running<HEADS> running;
    running.begin();
    // A warp goes on as long as its first lane has something to look at.
    for (u32 first = own; first - threadIdx.x % LANES / SHARING < end;) {
        look<HEADS>(running, query, key, value, there);
        first += WARPS * POSITIONS * AHEAD;
        load(first);
    }
    if (has_new && warp == 0) {
#pragma unroll
        for (u32 n = 0; n < AHEAD; n++) {
            there[n] = n == 0 && threadIdx.x % LANES < SHARING;
            key[n] = held_of(shared.key);
            value[n] = held_of(shared.value);
        }
        look<HEADS>(running, query, key, value, there);
    }
#pragma unroll
    for (u32 apart = SHARING; apart < LANES; apart *= 2) running.join(apart);
    running.put(shared.of_warp[warp]);
    __syncthreads();

    for (u32 i = threadIdx.x; i < HEADS * HEAD_DIM; i += THREADS) {
        u32 head = i / HEAD_DIM, column = i % HEAD_DIM;
        float most, sum;
        auto of = [&](u32 n, u32 what) { return (&shared.of_warp[n][head].most)[what]; };
        shared.of_block[head].values[column] = joined<WARPS>(of, column, &most, &sum);
        if (column == 0) {
            shared.of_block[head].most = most;
            shared.of_block[head].sum = sum;
        }
    }
    meet();
    for (u32 i = rank * THREADS + threadIdx.x; i < heads * HEAD_DIM; i += SPLITS * THREADS) {
        u32 head = i / HEAD_DIM, column = i % HEAD_DIM;
        float most, sum;
        auto of = [&](u32 n, u32 what) { return of_other(&shared.of_block[head].most + what, n); };
        float total = joined<SPLITS>(of, column, &most, &sum);
        // A position that there is no room for gives numbers that are none.
        float result = has_room ? total / sum : __uint_as_float(0x7fffffffu);
        a.out[((u64)batch * a.heads + first_head + head) * HEAD_DIM + column] = narrowed(result);
    }
    // Nobody leaves while another reads what it holds.
    meet();
}

#if SPLITS > 1
#define IN_CLUSTERS __cluster_dims__(SPLITS, 1, 1)
#else
#define IN_CLUSTERS
#endif

#define ENTRY(name, count)                                                                                             \
    extern "C" __global__ void __launch_bounds__(THREADS) IN_CLUSTERS name(                                            \
        const number *qkv, const number *query_norm, const number *key_norm, float epsilon, float scale,               \
        const float *cosines, const float *sines, u32 positions, u32 in_pairs, const u32 *position, number *keys,      \
        number *values, u32 capacity, u32 heads, u32 kv_heads, number *out) {                                          \
        attend<count>({qkv, query_norm, key_norm, epsilon, scale, cosines, sines, positions, in_pairs, position, keys, \
                       values, capacity, heads, kv_heads, out});                                                       \
    }

ENTRY(attention_step_1, 1)
ENTRY(attention_step_2, 2)
ENTRY(attention_step_4, 4)
ENTRY(attention_step_8, 8)
