// Attention of one new token over the cache, which it joins.
//
// A cluster of SPLITS blocks shares the positions of one key and value head, for up to HEADS of the query heads that use
// it; their parts meet in the shared memory of the first. A few lanes hold one position, 16 bytes each, so that a warp
// looks at several positions at once.
// Options: HEAD_DIM, and WINDOW, the number of the last positions that a query sees, if not all.

#ifndef WINDOW
#define WINDOW 0
#endif

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

    // Adds the partial results of lanes at this distance.
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
                for (u32 j = 0; j < PER; j += 4) {
                    if (threadIdx.x % LANES >= SHARING || column + j >= HEAD_DIM) continue;
                    const float *some = values[h][p] + j;
                    *reinterpret_cast<float4 *>(parts[h].values + column + j) =
                        make_float4(some[0], some[1], some[2], some[3]);
                }
            }
        }
    }
};

// A lane's share of a head that lies in shared memory.
__device__ __forceinline__ void take_share(const float *row, u32 p, float (&share)[PER]) {
    u32 column = (p * SHARING + threadIdx.x % SHARING) * PER;
#pragma unroll
    for (u32 j = 0; j < PER; j += 4) {
        if (HEAD_DIM % PER == 0 && column < HEAD_DIM) {
            float4 some = *reinterpret_cast<const float4 *>(row + column + j);
            share[j] = some.x, share[j + 1] = some.y, share[j + 2] = some.z, share[j + 3] = some.w;
            continue;
        }
#pragma unroll
        for (u32 k = j; k < j + 4; k++) share[k] = column + k < HEAD_DIM ? row[column + k] : 0.0f;
    }
}

// Numbers that lie widened in shared memory, as a lane would hold them from the cache.
__device__ __forceinline__ Held held_of(const float *row) {
    Held held;
#pragma unroll
    for (u32 p = 0; p < PIECES; p++) {
        float share[PER];
        take_share(row, p, share);
        held.piece[p] = pack(share);
    }
    return held;
}

// The positions that a lane has in flight.
struct Seen {
    Held key[AHEAD], value[AHEAD];
    bool there[AHEAD];

    // Loads those from `first` on that are before `end` and in the cache, which has `filled`.
    __device__ __forceinline__ void load(const number *keys, const number *values, u32 first, u32 end, u32 filled) {
#pragma unroll
        for (u32 n = 0; n < AHEAD; n++) {
            u32 index = first + n * POSITIONS;
            there[n] = index < end;
            key[n] = load_held(keys + (u64)index * HEAD_DIM, there[n] && index < filled);
            value[n] = load_held(values + (u64)index * HEAD_DIM, there[n] && index < filled);
        }
    }

    // Puts this token where it belongs.
    __device__ __forceinline__ void add_new(u32 first, u32 at, const float *new_key, const float *new_value) {
#pragma unroll
        for (u32 n = 0; n < AHEAD; n++) {
            if (first + n * POSITIONS != at) continue;
            key[n] = held_of(new_key);
            value[n] = held_of(new_value);
        }
    }
};

template <u32 HEADS>
__device__ __forceinline__ void look(Running<HEADS> &running, const Shared<HEADS> &shared, float scale,
                                     const Seen &seen) {
    float score[AHEAD][HEADS] = {};
#pragma unroll
    for (u32 h = 0; h < HEADS; h++) {
#pragma unroll
        for (u32 p = 0; p < PIECES; p++) {
            float query[PER];
            take_share(shared.token[h], p, query);
#pragma unroll
            for (u32 n = 0; n < AHEAD; n++) {
                float key[PER];
                unpack(seen.key[n].piece[p], key);
#pragma unroll
                for (u32 j = 0; j < PER; j++) score[n][h] += key[j] * query[j];
            }
        }
#pragma unroll
        for (u32 n = 0; n < AHEAD; n++) {
#pragma unroll
            for (u32 apart = SHARING / 2; apart > 0; apart /= 2) {
                score[n][h] += __shfl_xor_sync(ALL_LANES, score[n][h], apart);
            }
            score[n][h] *= scale;
        }
    }
#pragma unroll
    for (u32 h = 0; h < HEADS; h++) {
        float higher = running.most[h];
#pragma unroll
        for (u32 n = 0; n < AHEAD; n++) higher = seen.there[n] ? fmaxf(higher, score[n][h]) : higher;
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
            score[n][h] = seen.there[n] ? exp2f(score[n][h] - higher) : 0.0f;
            running.sum[h] += score[n][h];
        }
    }
#pragma unroll
    for (u32 n = 0; n < AHEAD; n++) {
#pragma unroll
        for (u32 p = 0; p < PIECES; p++) {
            float value[PER];
            unpack(seen.value[n].piece[p], value);
#pragma unroll
            for (u32 h = 0; h < HEADS; h++) {
#pragma unroll
                for (u32 j = 0; j < PER; j++) running.values[h][p][j] += score[n][h] * value[j];
            }
        }
    }
}

// Combines the partial results of one head at this distance, for one of the values; also the measures of the whole.
template <u32 COUNT>
__device__ __forceinline__ float joined(const Part *parts, u32 apart, u32 column, float *most, float *sum) {
    float higher = LOWEST, weights = 0.0f, total = 0.0f;
#pragma unroll
    for (u32 n = 0; n < COUNT; n++) higher = fmaxf(higher, parts[n * apart].most);
#pragma unroll
    for (u32 n = 0; n < COUNT; n++) {
        float share = exp2f(parts[n * apart].most - higher);
        weights += parts[n * apart].sum * share;
        total += parts[n * apart].values[column] * share;
    }
    *most = higher;
    *sum = weights;
    return total;
}

template <u32 HEADS> __device__ __forceinline__ void attend(const Attention a) {
    extern __shared__ packed memory[];
    Shared<HEADS> &shared = *reinterpret_cast<Shared<HEADS> *>(memory);
    let_the_next_kernel_begin();
    // By the time that another block's memory is written, all have begun.
    arrive();
    u32 group = a.heads / a.kv_heads, bundles = (group + HEADS - 1) / HEADS;
    u32 kv_head = blockIdx.y / bundles, bundle = blockIdx.y % bundles, batch = blockIdx.z;
    u32 first_head = kv_head * group + bundle * HEADS, heads = min(HEADS, group - bundle * HEADS);
    u32 warp = threadIdx.x / LANES, rank = rank_in_cluster();
    u32 at = *a.position;
    bool has_room = at < a.capacity && at < a.positions;
    if (!has_room) at = 0;
    // The last block has this token, which is not in the cache yet.
    u32 total = at + 1;
    u32 oldest = WINDOW && total > WINDOW ? total - WINDOW : 0;
    u32 begin = oldest + (u32)((u64)(total - oldest) * rank / SPLITS);
    u32 end = oldest + (u32)((u64)(total - oldest) * (rank + 1) / SPLITS);
    bool has_new = rank == SPLITS - 1;
    u64 head_at = ((u64)batch * a.kv_heads + kv_head) * a.capacity * HEAD_DIM;
    const number *keys = a.keys + head_at, *values = a.values + head_at;
    u32 first = begin + warp * POSITIONS * AHEAD + threadIdx.x % LANES / SHARING;

    Seen seen;
    seen.load(keys, values, first, end, at);
    // Earlier steps wrote these, and all that the first head of a warp needs is known but the head.
    Lanes lanes(a.in_pairs);
    Pairs turn = load_turn(a, at);
    auto norm_of = [&](u32 job) { return job < HEADS ? a.query_norm : job == HEADS ? a.key_norm : nullptr; };
    Pairs norm = lanes.load(norm_of(warp));

    wait_for_the_kernel_before();
    stamp_border(a.border);
    const number *token = a.qkv + (u64)batch * (a.heads + 2 * a.kv_heads) * HEAD_DIM;
    for (u32 job = warp; job < HEADS + (has_new ? 2 : 0); job += WARPS) {
        u32 head = job < HEADS ? first_head + job : a.heads + kv_head + (job - HEADS) * a.kv_heads;
        Pairs taken = lanes.load(job < HEADS && job >= heads ? nullptr : token + (u64)head * HEAD_DIM);
        if (job != warp) norm = lanes.load(norm_of(job));
        bool is_normed = norm_of(job) != nullptr;
        take_head(taken, is_normed, norm, a.epsilon, job <= HEADS, turn, lanes, shared.token[job]);
    }
    __syncthreads();
    if (has_new && has_room && bundle == 0) {
        for (u32 i = threadIdx.x; i < 2 * HEAD_DIM; i += THREADS) {
            u32 column = i % HEAD_DIM;
            number *cache = i < HEAD_DIM ? a.keys : a.values;
            cache[head_at + (u64)at * HEAD_DIM + column] = narrowed(shared.token[HEADS + i / HEAD_DIM][column]);
        }
    }

    Running<HEADS> running;
    running.begin();
    // A warp goes on as long as its first lane has something to look at.
    while (first - threadIdx.x % LANES / SHARING < end) {
        if (has_new) seen.add_new(first, at, shared.token[HEADS], shared.token[HEADS + 1]);
        look<HEADS>(running, shared, a.scale * LOG2_E, seen);
        first += WARPS * POSITIONS * AHEAD;
        seen.load(keys, values, first, end, at);
    }
#pragma unroll
    for (u32 apart = SHARING; apart < LANES; apart *= 2) running.join(apart);
    running.put(shared.of_warp[warp]);
    __syncthreads();

    wait_for_all();
    for (u32 i = threadIdx.x; i < heads * HEAD_DIM; i += THREADS) {
        u32 head = i / HEAD_DIM, column = i % HEAD_DIM;
        float most, sum;
        float part = joined<WARPS>(&shared.of_warp[0][head], HEADS, column, &most, &sum);
        Part *to = &shared.of_block[rank][head];
        tell_first(to->values + column, part);
        if (column == 0) {
            tell_first(&to->most, most);
            tell_first(&to->sum, sum);
        }
    }
    arrive();
    if (rank != 0) return;
    wait_for_all();
    for (u32 i = threadIdx.x; i < heads * HEAD_DIM; i += THREADS) {
        u32 head = i / HEAD_DIM, column = i % HEAD_DIM;
        float most, sum;
        float whole = joined<SPLITS>(&shared.of_block[0][head], HEADS, column, &most, &sum);
        // A position that there is no room for gives numbers that are none.
        float result = has_room ? whole / sum : __uint_as_float(0x7fffffffu);
        a.out[((u64)batch * a.heads + first_head + head) * HEAD_DIM + column] = narrowed(result);
    }
}

#if SPLITS > 1
#define IN_CLUSTERS __cluster_dims__(SPLITS, 1, 1)
#else
#define IN_CLUSTERS
#endif

// `most` registers a thread: two blocks of the kernels around it shall find room beside one of these.
#define ENTRY(name, count, most)                                                                                       \
    extern "C" __global__ void __maxnreg__(most) IN_CLUSTERS name(                                                     \
        const number *qkv, const number *query_norm, const number *key_norm, float epsilon, float scale,               \
        const float *cosines, const float *sines, u32 positions, u32 in_pairs, const u32 *position, number *keys,      \
        number *values, u32 capacity, u32 heads, u32 kv_heads, number *out, u64 *border) {                             \
        attend<count>({qkv, query_norm, key_norm, epsilon, scale, cosines, sines, positions, in_pairs, position, keys, \
                       values, capacity, heads, kv_heads, out, border});                                               \
    }

ENTRY(attention_step_1, 1, 96)
ENTRY(attention_step_2, 2, 96)
ENTRY(attention_step_4, 4, 128)
ENTRY(attention_step_8, 8, 255)
