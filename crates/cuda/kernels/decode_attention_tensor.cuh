// Decode attention on tensor cores, 16 positions at once: bf16 and f16, heads of 64 or 128 elements, and up to eight
// queries that share a key.
//
// The products sum over the elements of a head and over positions, in any order. So each lane loads, 16 bytes at a
// time, just the elements that its fragments need: lane 4 i + j has elements of the keys i and i + 8, and of the values
// 2 j, 2 j + 1, 2 j + 8 and 2 j + 9.

#ifdef ON_TENSOR_CORES

// Positions that a warp handles at once.
constexpr u32 TILE = 16;
constexpr u32 KEY_PIECES = HEAD_DIM / 32, VALUE_PIECES = HEAD_DIM / 64;
static_assert(HEAD_DIM == 64 || HEAD_DIM == 128, "only heads of 64 or 128 elements are supported");

DEVICE u32 lane_row() { return threadIdx.x % LANES / 4; }
DEVICE u32 lane_column() { return threadIdx.x % 4; }
// The first element of a lane's pieces, and the positions of its values in the tile.
DEVICE u32 key_column(u32 piece) { return piece * 32 + lane_column() * 8; }
DEVICE u32 value_column(u32 piece) { return piece * 64 + lane_row() * 8; }
DEVICE u32 value_row(u32 i) { return lane_column() * 2 + i % 2 + i / 2 * 8; }

DEVICE packed packed_from(const float *row) {
    float values[VEC];
#pragma unroll
    for (u32 j = 0; j < VEC; j++) values[j] = row[j];
    return pack(values);
}

// The keys and values of a lane that are in flight.
struct Tile {
    packed key[2][KEY_PIECES], value[4][VALUE_PIECES];

    DEVICE void load_keys(const Cache &cache, u32 tile) {
#pragma unroll
        for (u32 i = 0; i < 2; i++) {
            u32 index = tile + lane_row() + i * 8;
            const dtype *row = cache.keys + (u64)index * HEAD_DIM;
            bool is_there = cache.has(index);
#pragma unroll
            for (u32 p = 0; p < KEY_PIECES; p++) key[i][p] = is_there ? load_packed(row + key_column(p)) : packed{};
        }
    }

    DEVICE void load_values(const Cache &cache, u32 tile) {
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            u32 index = tile + value_row(i);
            const dtype *row = cache.values + (u64)index * HEAD_DIM;
            bool is_there = cache.has(index);
#pragma unroll
            for (u32 p = 0; p < VALUE_PIECES; p++) value[i][p] = is_there ? load_packed(row + value_column(p)) : packed{};
        }
    }

    DEVICE void load(const Cache &cache, u32 tile) {
        load_keys(cache, tile);
        load_values(cache, tile);
    }

    // Inserts the new token at its position.
    DEVICE void insert(u32 tile, u32 position, const float *new_key, const float *new_value) {
        if (position - tile >= TILE) return;
#pragma unroll
        for (u32 i = 0; i < 2; i++) {
            if (tile + lane_row() + i * 8 != position) continue;
#pragma unroll
            for (u32 p = 0; p < KEY_PIECES; p++) key[i][p] = packed_from(new_key + key_column(p));
        }
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            if (tile + value_row(i) != position) continue;
#pragma unroll
            for (u32 p = 0; p < VALUE_PIECES; p++) value[i][p] = packed_from(new_value + value_column(p));
        }
    }
};

// The query fragments: a lane has elements of one head.
struct Queries {
    packed piece[KEY_PIECES];

    DEVICE explicit Queries(const Shared &shared) {
#pragma unroll
        for (u32 p = 0; p < KEY_PIECES; p++)
            piece[p] = lane_row() < HEADS ? packed_from(shared.token[lane_row()] + key_column(p)) : packed{};
    }
};

// Transposes a matrix of 8 by 8, of which a lane has two neighbours of a row.
DEVICE u32 transposed(u32 two) {
    u32 result;
    asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(result) : "r"(two));
    return result;
}

// The lower or the upper halves of two words.
DEVICE u32 lower(u32 one, u32 two) { return __byte_perm(one, two, 0x5410); }
DEVICE u32 upper(u32 one, u32 two) { return __byte_perm(one, two, 0x7632); }

// The attention so far of a warp's positions. A lane has two heads: eight of every 64 weighted values, and the sum of
// the weights of its own positions.
struct OnlineSoftmax {
    float largest[2] = {MASKED, MASKED}, sum[2] = {}, values[VALUE_PIECES][4][4] = {};

    DEVICE void raise(u32 j, float higher) {
        float kept = exp2f(largest[j] - higher);
        largest[j] = higher;
        sum[j] *= kept;
#pragma unroll
        for (u32 i = 0; i < VALUE_PIECES * 4; i++) {
            values[i / 4][i % 4][j] *= kept;
            values[i / 4][i % 4][2 + j] *= kept;
        }
    }

    // Adds a tile, and loads the next.
    DEVICE void add(const Queries &queries, float scale, Tile &loaded, const Cache &cache, u32 tile, u32 next) {
        float half[2][4] = {}, score[4];
#pragma unroll
        for (u32 i = 0; i < KEY_PIECES * 2; i++) {
            const packed &one = loaded.key[0][i / 2], &two = loaded.key[1][i / 2], &query = queries.piece[i / 2];
            u32 word = i % 2 * 2;
            mma(half[i % 2], {one.word[word], two.word[word], one.word[word + 1], two.word[word + 1]}, query.word[word],
                query.word[word + 1]);
        }
        loaded.load_keys(cache, next);
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            bool is_there = tile + lane_row() + i / 2 * 8 < cache.end;
            score[i] = is_there ? (half[0][i] + half[1][i]) * scale : MASKED;
        }
#pragma unroll
        for (u32 j = 0; j < 2; j++) {
            float higher = fmaxf(largest[j], fmaxf(score[j], score[2 + j]));
#pragma unroll
            for (u32 delta = 4; delta < LANES; delta *= 2) higher = fmaxf(higher, __shfl_xor_sync(~0u, higher, delta));
            raise(j, higher);
            // The weights are rounded as they are multiplied with values, so that they add up to one.
            score[j] = rounded(exp2f(score[j] - higher));
            score[2 + j] = rounded(exp2f(score[2 + j] - higher));
            sum[j] += score[j] + score[2 + j];
        }
        u32 weights[2] = {transposed(pack2(score[0], score[1])), transposed(pack2(score[2], score[3]))};
#pragma unroll
        for (u32 i = 0; i < VALUE_PIECES * 4; i++) {
            u32 piece = i / 4, word = i % 4, v[4];
#pragma unroll
            for (u32 n = 0; n < 4; n++) v[n] = loaded.value[n][piece].word[word];
            mma(values[piece][word], {lower(v[0], v[1]), upper(v[0], v[1]), lower(v[2], v[3]), upper(v[2], v[3])}, weights[0],
                weights[1]);
        }
        loaded.load_values(cache, next);
    }

    DEVICE void store(Partial *partials) {
#pragma unroll
        for (u32 j = 0; j < 2; j++) {
            u32 head = lane_column() * 2 + j;
#pragma unroll
            for (u32 delta = 4; delta < LANES; delta *= 2) sum[j] += __shfl_xor_sync(~0u, sum[j], delta);
            if (head >= HEADS) continue;
            if (lane_row() == 0) {
                partials[head].largest = largest[j];
                partials[head].sum = sum[j];
            }
#pragma unroll
            for (u32 p = 0; p < VALUE_PIECES; p++) {
                float4 *to = reinterpret_cast<float4 *>(partials[head].values + value_column(p));
                const float(*v)[4] = values[p];
                to[0] = make_float4(v[0][j], v[0][2 + j], v[1][j], v[1][2 + j]);
                to[1] = make_float4(v[2][j], v[2][2 + j], v[3][j], v[3][2 + j]);
            }
        }
    }
};

#endif
