// How a warp looks at positions one number after another, for every type and head size. A few lanes hold one position, 16
// bytes each, so that a warp looks at several positions at once.
// This text stands after decode_heads.cuh; decode_look_tensor.cuh has the same names for tensor cores.

#ifndef ON_TENSOR_CORES

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
// Positions that a warp takes at once.
constexpr u32 TILE = POSITIONS * AHEAD;

// The first position of a lane.
__device__ __forceinline__ u32 lane_first(u32 tile) { return tile + threadIdx.x % LANES / SHARING; }

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
            most[h] = NO_SCORE;
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

    __device__ __forceinline__ void put(Part *parts) {
#pragma unroll
        for (u32 apart = SHARING; apart < LANES; apart *= 2) join(apart);
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

    // Loads those that are before the end and in the cache.
    __device__ __forceinline__ void load(const Cached &cached, u32 tile) {
#pragma unroll
        for (u32 n = 0; n < AHEAD; n++) {
            u32 index = lane_first(tile) + n * POSITIONS;
            there[n] = index < cached.end;
            key[n] = load_held(cached.keys + (u64)index * HEAD_DIM, cached.has(index));
            value[n] = load_held(cached.values + (u64)index * HEAD_DIM, cached.has(index));
        }
    }

    // Puts this token where it belongs.
    __device__ __forceinline__ void add_new(u32 tile, u32 at, const float *new_key, const float *new_value) {
#pragma unroll
        for (u32 n = 0; n < AHEAD; n++) {
            if (lane_first(tile) + n * POSITIONS != at) continue;
            key[n] = held_of(new_key);
            value[n] = held_of(new_value);
        }
    }
};

// The queries stay where they are.
template <u32 HEADS> struct Queries {
    const Shared<HEADS> *shared;
    __device__ __forceinline__ void take(const Shared<HEADS> &from) { shared = &from; }
};

// Adds what a tile gives to what was seen, and fetches the next.
template <u32 HEADS>
__device__ __forceinline__ void look(Running<HEADS> &running, const Queries<HEADS> &queries, float scale, Seen &seen,
                                     const Cached &cached, u32, u32 next) {
    float score[AHEAD][HEADS] = {};
#pragma unroll
    for (u32 h = 0; h < HEADS; h++) {
#pragma unroll
        for (u32 p = 0; p < PIECES; p++) {
            float query[PER];
            take_share(queries.shared->token[h], p, query);
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
    seen.load(cached, next);
}

#endif
