// How a warp looks at 16 positions at once on tensor cores, in bf16 or f16, for heads of 64 or 128 numbers and up to eight
// queries that share a key. This text stands after decode_look.cuh.
//
// The products add up over the numbers of a head and over positions, in any order. So each lane fetches, 16 bytes at a
// time, just the numbers that the tensor cores want from it: lane 4 i + j has numbers of the keys i and i + 8, and of the
// values 2 j, 2 j + 1, 2 j + 8 and 2 j + 9.

#ifdef ON_TENSOR_CORES

// Positions that a warp takes at once.
constexpr u32 TILE = 16;
constexpr u32 KEY_PIECES = HEAD_DIM / 32, VALUE_PIECES = HEAD_DIM / 64;
static_assert(HEAD_DIM == 64 || HEAD_DIM == 128, "tensor cores take heads of 64 or 128 numbers");

__device__ __forceinline__ u32 lane_row() { return threadIdx.x % LANES / 4; }
__device__ __forceinline__ u32 lane_column() { return threadIdx.x % 4; }
// Where the pieces of a lane begin in a head, and which of the tile's positions its values are of.
__device__ __forceinline__ u32 key_column(u32 piece) { return piece * 32 + lane_column() * 8; }
__device__ __forceinline__ u32 value_column(u32 piece) { return piece * 64 + lane_row() * 8; }
__device__ __forceinline__ u32 value_row(u32 i) { return lane_column() * 2 + i % 2 + i / 2 * 8; }

__device__ __forceinline__ packed packed_from(const float *row) {
    float values[PER];
#pragma unroll
    for (u32 j = 0; j < PER; j++) values[j] = row[j];
    return pack(values);
}

// The positions that a lane has in flight.
struct Seen {
    packed key[2][KEY_PIECES], value[4][VALUE_PIECES];

    __device__ __forceinline__ void load_keys(const Cached &cached, u32 tile) {
#pragma unroll
        for (u32 i = 0; i < 2; i++) {
            u32 index = tile + lane_row() + i * 8;
            const number *row = cached.keys + (u64)index * HEAD_DIM;
            bool there = cached.has(index);
#pragma unroll
            for (u32 p = 0; p < KEY_PIECES; p++) key[i][p] = there ? load_packed(row + key_column(p)) : packed{};
        }
    }

    __device__ __forceinline__ void load_values(const Cached &cached, u32 tile) {
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            u32 index = tile + value_row(i);
            const number *row = cached.values + (u64)index * HEAD_DIM;
            bool there = cached.has(index);
#pragma unroll
            for (u32 p = 0; p < VALUE_PIECES; p++) value[i][p] = there ? load_packed(row + value_column(p)) : packed{};
        }
    }

    __device__ __forceinline__ void load(const Cached &cached, u32 tile) {
        load_keys(cached, tile);
        load_values(cached, tile);
    }

    // Puts this token where it belongs.
    __device__ __forceinline__ void add_new(u32 tile, u32 at, const float *new_key, const float *new_value) {
        if (at - tile >= TILE) return;
#pragma unroll
        for (u32 i = 0; i < 2; i++) {
            if (tile + lane_row() + i * 8 != at) continue;
#pragma unroll
            for (u32 p = 0; p < KEY_PIECES; p++) key[i][p] = packed_from(new_key + key_column(p));
        }
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            if (tile + value_row(i) != at) continue;
#pragma unroll
            for (u32 p = 0; p < VALUE_PIECES; p++) value[i][p] = packed_from(new_value + value_column(p));
        }
    }
};

// What the tensor cores want of the queries: a lane has numbers of one head.
template <u32 HEADS> struct Queries {
    packed piece[KEY_PIECES];

    __device__ __forceinline__ void take(const Shared<HEADS> &shared) {
#pragma unroll
        for (u32 p = 0; p < KEY_PIECES; p++) {
            piece[p] = lane_row() < HEADS ? packed_from(shared.token[lane_row()] + key_column(p)) : packed{};
        }
    }
};

// The attention of a warp's positions so far. A lane has two heads: the weighted values of 8 of their numbers from each
// 64, and the sum of weights of its own positions.
template <u32 HEADS> struct Running {
    float most[2], sum[2], values[VALUE_PIECES][4][4];

    __device__ __forceinline__ void begin() {
#pragma unroll
        for (u32 j = 0; j < 2; j++) most[j] = NO_SCORE, sum[j] = 0.0f;
#pragma unroll
        for (u32 i = 0; i < VALUE_PIECES * 16; i++) values[i / 16][i / 4 % 4][i % 4] = 0.0f;
    }

    // Goes over to a larger score of one of the heads.
    __device__ __forceinline__ void raise(u32 j, float higher) {
        float kept = exp2f(most[j] - higher);
        most[j] = higher;
        sum[j] *= kept;
#pragma unroll
        for (u32 i = 0; i < VALUE_PIECES * 4; i++) {
            values[i / 4][i % 4][j] *= kept;
            values[i / 4][i % 4][2 + j] *= kept;
        }
    }

    __device__ __forceinline__ void put(Part *parts) {
#pragma unroll
        for (u32 j = 0; j < 2; j++) {
            u32 head = lane_column() * 2 + j;
#pragma unroll
            for (u32 apart = 4; apart < LANES; apart *= 2) sum[j] += __shfl_xor_sync(ALL_LANES, sum[j], apart);
            if (head >= HEADS) continue;
            if (lane_row() == 0) {
                parts[head].most = most[j];
                parts[head].sum = sum[j];
            }
#pragma unroll
            for (u32 p = 0; p < VALUE_PIECES; p++) {
                float4 *to = reinterpret_cast<float4 *>(parts[head].values + value_column(p));
                const float(*v)[4] = values[p];
                to[0] = make_float4(v[0][j], v[0][2 + j], v[1][j], v[1][2 + j]);
                to[1] = make_float4(v[2][j], v[2][2 + j], v[3][j], v[3][2 + j]);
            }
        }
    }
};

// A matrix of 8 by 8, of which a lane has two neighbours of a row, with rows and columns exchanged.
__device__ __forceinline__ u32 transposed(u32 two) {
    u32 result;
    asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(result) : "r"(two));
    return result;
}

// The lower or the upper halves of two words.
__device__ __forceinline__ u32 lower(u32 one, u32 two) { return __byte_perm(one, two, 0x5410); }
__device__ __forceinline__ u32 upper(u32 one, u32 two) { return __byte_perm(one, two, 0x7632); }

// Adds what a tile gives to what was seen, and fetches the next.
template <u32 HEADS>
__device__ __forceinline__ void look(Running<HEADS> &running, const Queries<HEADS> &queries, float scale, Seen &seen,
                                     const Cached &cached, u32 tile, u32 next) {
    float half[2][4] = {}, score[4];
#pragma unroll
    for (u32 i = 0; i < KEY_PIECES * 2; i++) {
        const packed &one = seen.key[0][i / 2], &two = seen.key[1][i / 2], &query = queries.piece[i / 2];
        u32 word = i % 2 * 2;
        multiply(half[i % 2], {one.word[word], two.word[word], one.word[word + 1], two.word[word + 1]},
                 query.word[word], query.word[word + 1]);
    }
    seen.load_keys(cached, next);
#pragma unroll
    for (u32 i = 0; i < 4; i++) {
        bool there = tile + lane_row() + i / 2 * 8 < cached.end;
        score[i] = there ? (half[0][i] + half[1][i]) * scale : NO_SCORE;
    }
#pragma unroll
    for (u32 j = 0; j < 2; j++) {
        float higher = fmaxf(running.most[j], fmaxf(score[j], score[2 + j]));
#pragma unroll
        for (u32 apart = 4; apart < LANES; apart *= 2) {
            higher = fmaxf(higher, __shfl_xor_sync(ALL_LANES, higher, apart));
        }
        running.raise(j, higher);
        // The weights add up to one as they are multiplied with values.
        score[j] = rounded(exp2f(score[j] - higher));
        score[2 + j] = rounded(exp2f(score[2 + j] - higher));
        running.sum[j] += score[j] + score[2 + j];
    }
    u32 weights[2] = {transposed(pair(score[0], score[1])), transposed(pair(score[2], score[3]))};
#pragma unroll
    for (u32 i = 0; i < VALUE_PIECES * 4; i++) {
        u32 piece = i / 4, word = i % 4, of[4];
#pragma unroll
        for (u32 n = 0; n < 4; n++) of[n] = seen.value[n][piece].word[word];
        multiply(running.values[piece][word],
                 {lower(of[0], of[1]), upper(of[0], of[1]), lower(of[2], of[3]), upper(of[2], of[3])}, weights[0],
                 weights[1]);
    }
    seen.load_values(cached, next);
}

#endif
