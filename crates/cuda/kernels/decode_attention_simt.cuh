// Decode attention without tensor cores, for every dtype and head size. A few lanes share a position, with 16-byte
// vectors each, so that a warp handles several positions at once. decode_attention_tensor.cuh has the same interface
// for tensor cores.

#ifndef ON_TENSOR_CORES

__device__ constexpr u32 next_power_of_two(u32 least) {
    u32 power = 1;
    while (power < least) power *= 2;
    return power;
}

constexpr u32 VECTORS = next_power_of_two((HEAD_DIM + VEC - 1) / VEC);
// Lanes per position, 16-byte vectors per lane and position, and positions per warp.
constexpr u32 SHARING = VECTORS < LANES ? VECTORS : LANES;
constexpr u32 PIECES = (HEAD_DIM + SHARING * VEC - 1) / (SHARING * VEC);
constexpr u32 POSITIONS = LANES / SHARING;
// Positions per lane that are in flight together.
constexpr u32 UNROLLED = PIECES == 1 ? 4 : 2;
// Positions that a warp handles at once.
constexpr u32 TILE = POSITIONS * UNROLLED;

DEVICE u32 lane_position(u32 tile) { return tile + threadIdx.x % LANES / SHARING; }
DEVICE u32 lane_column(u32 piece) { return (piece * SHARING + threadIdx.x % SHARING) * VEC; }

// A lane's part of a position.
struct Row {
    packed piece[PIECES];
};

DEVICE Row load_row(const dtype *row, bool is_there) {
    Row loaded;
#pragma unroll
    for (u32 p = 0; p < PIECES; p++) {
        u32 column = lane_column(p);
        if (HEAD_DIM % VEC == 0) {
            loaded.piece[p] = is_there && column < HEAD_DIM ? load_packed(row + column) : packed{};
        } else {
            vec_t values;
#pragma unroll
            for (u32 j = 0; j < VEC; j++)
                values.at[j] = is_there && column + j < HEAD_DIM ? row[column + j] : to_dtype(0.0f);
            loaded.piece[p] = *reinterpret_cast<packed *>(&values);
        }
    }
    return loaded;
}

// A lane's part of a head in shared memory.
DEVICE void load_shared(const float *row, u32 p, float (&values)[VEC]) {
    u32 column = lane_column(p);
#pragma unroll
    for (u32 j = 0; j < VEC; j += 4) {
        if (HEAD_DIM % VEC == 0 && column < HEAD_DIM) {
            float4 four = *reinterpret_cast<const float4 *>(row + column + j);
            values[j] = four.x, values[j + 1] = four.y, values[j + 2] = four.z, values[j + 3] = four.w;
            continue;
        }
#pragma unroll
        for (u32 k = j; k < j + 4; k++) values[k] = column + k < HEAD_DIM ? row[column + k] : 0.0f;
    }
}

// The same as a lane would load it from the cache.
DEVICE Row row_of(const float *row) {
    Row packed_row;
#pragma unroll
    for (u32 p = 0; p < PIECES; p++) {
        float values[VEC];
        load_shared(row, p, values);
        packed_row.piece[p] = pack(values);
    }
    return packed_row;
}

// The keys and values of a lane that are in flight.
struct Tile {
    Row key[UNROLLED], value[UNROLLED];
    bool is_there[UNROLLED];

    DEVICE void load(const Cache &cache, u32 tile) {
#pragma unroll
        for (u32 n = 0; n < UNROLLED; n++) {
            u32 index = lane_position(tile) + n * POSITIONS;
            is_there[n] = index < cache.end;
            key[n] = load_row(cache.keys + (u64)index * HEAD_DIM, cache.has(index));
            value[n] = load_row(cache.values + (u64)index * HEAD_DIM, cache.has(index));
        }
    }

    // Inserts the new token at its position.
    DEVICE void insert(u32 tile, u32 position, const float *new_key, const float *new_value) {
#pragma unroll
        for (u32 n = 0; n < UNROLLED; n++) {
            if (lane_position(tile) + n * POSITIONS != position) continue;
            key[n] = row_of(new_key);
            value[n] = row_of(new_value);
        }
    }
};

// The queries stay in shared memory.
struct Queries {
    const Shared *shared;
    DEVICE explicit Queries(const Shared &shared) : shared(&shared) {}
};

// The attention so far of a lane's positions, for each head.
struct OnlineSoftmax {
    float largest[HEADS], sum[HEADS] = {}, values[HEADS][PIECES][VEC] = {};

    DEVICE OnlineSoftmax() {
#pragma unroll
        for (u32 h = 0; h < HEADS; h++) largest[h] = MASKED;
    }

    // Adds a tile, and loads the next.
    DEVICE void add(const Queries &queries, float scale, Tile &loaded, const Cache &cache, u32, u32 next) {
        float score[UNROLLED][HEADS] = {};
#pragma unroll
        for (u32 h = 0; h < HEADS; h++) {
#pragma unroll
            for (u32 p = 0; p < PIECES; p++) {
                float query[VEC];
                load_shared(queries.shared->token[h], p, query);
#pragma unroll
                for (u32 n = 0; n < UNROLLED; n++) {
                    float key[VEC];
                    unpack(loaded.key[n].piece[p], key);
#pragma unroll
                    for (u32 j = 0; j < VEC; j++) score[n][h] += key[j] * query[j];
                }
            }
#pragma unroll
            for (u32 n = 0; n < UNROLLED; n++) {
#pragma unroll
                for (u32 delta = SHARING / 2; delta > 0; delta /= 2) score[n][h] += __shfl_xor_sync(~0u, score[n][h], delta);
                score[n][h] *= scale;
            }
        }
#pragma unroll
        for (u32 h = 0; h < HEADS; h++) {
            float higher = largest[h];
#pragma unroll
            for (u32 n = 0; n < UNROLLED; n++) higher = loaded.is_there[n] ? fmaxf(higher, score[n][h]) : higher;
            float kept = exp2f(largest[h] - higher);
            largest[h] = higher;
            sum[h] *= kept;
#pragma unroll
            for (u32 i = 0; i < PIECES * VEC; i++) values[h][i / VEC][i % VEC] *= kept;
#pragma unroll
            for (u32 n = 0; n < UNROLLED; n++) {
                score[n][h] = loaded.is_there[n] ? exp2f(score[n][h] - higher) : 0.0f;
                sum[h] += score[n][h];
            }
        }
#pragma unroll
        for (u32 n = 0; n < UNROLLED; n++)
#pragma unroll
            for (u32 p = 0; p < PIECES; p++) {
                float value[VEC];
                unpack(loaded.value[n].piece[p], value);
#pragma unroll
                for (u32 h = 0; h < HEADS; h++)
#pragma unroll
                    for (u32 j = 0; j < VEC; j++) values[h][p][j] += score[n][h] * value[j];
            }
        loaded.load(cache, next);
    }

    // Merges the partial results of lanes at this distance.
    DEVICE void merge(u32 delta) {
#pragma unroll
        for (u32 h = 0; h < HEADS; h++) {
            float other = __shfl_xor_sync(~0u, largest[h], delta), higher = fmaxf(largest[h], other);
            float mine = exp2f(largest[h] - higher), theirs = exp2f(other - higher);
            largest[h] = higher;
            sum[h] = sum[h] * mine + __shfl_xor_sync(~0u, sum[h], delta) * theirs;
#pragma unroll
            for (u32 i = 0; i < PIECES * VEC; i++) {
                float &value = values[h][i / VEC][i % VEC];
                float other_value = __shfl_xor_sync(~0u, value, delta);
                value = value * mine + other_value * theirs;
            }
        }
    }

    DEVICE void store(Partial *partials) {
#pragma unroll
        for (u32 delta = SHARING; delta < LANES; delta *= 2) merge(delta);
#pragma unroll
        for (u32 h = 0; h < HEADS; h++) {
            if (threadIdx.x % LANES == 0) {
                partials[h].largest = largest[h];
                partials[h].sum = sum[h];
            }
#pragma unroll
            for (u32 p = 0; p < PIECES; p++)
#pragma unroll
                for (u32 j = 0; j < VEC; j += 4) {
                    u32 column = lane_column(p) + j;
                    if (threadIdx.x % LANES >= SHARING || column >= HEAD_DIM) continue;
                    const float *v = values[h][p] + j;
                    *reinterpret_cast<float4 *>(partials[h].values + column) = make_float4(v[0], v[1], v[2], v[3]);
                }
        }
    }
};

#endif
