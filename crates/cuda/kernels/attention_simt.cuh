// Attention without tensor cores, forwards and backwards, in f32, for any dtype and heads of up to 256 elements. In a
// tile of scores each thread has EACH rows and as many columns; in a result it has four of every 64 columns.

#define THREADS 256
// Rows in shared memory are padded to groups of four and one more group, which avoids bank conflicts.
#define PADDED ((HEAD_DIM + 3) / 4 * 4)
#define STRIDE (PADDED + 4)
#define COLUMN_GROUPS ((PADDED + 63) / 64)

DEVICE float4 &four(float *row, u32 at) { return *reinterpret_cast<float4 *>(row + at); }

// Loads rows into shared memory. Missing rows, and columns beyond HEAD_DIM, are zero.
template <u32 ROWS, class Source>
DEVICE void load_rows(const dtype *from, const Source &source, float *to, u32 is_aligned) {
    if (HEAD_DIM % VEC == 0 && is_aligned) {
        constexpr u32 GROUPS = HEAD_DIM / VEC > 0 ? HEAD_DIM / VEC : 1;
        for (u32 i = threadIdx.x; i < ROWS * GROUPS; i += THREADS) {
            u32 row = i / GROUPS, at = i % GROUPS * VEC;
            Row found = source.find(row);
            vec_t read = {};
            if (found.is_there) read = load(from + found.begin + at);
#pragma unroll
            for (u32 j = 0; j < VEC; j += 4)
                four(to, row * STRIDE + at + j) = make_float4(to_float(read.at[j]), to_float(read.at[j + 1]),
                                                              to_float(read.at[j + 2]), to_float(read.at[j + 3]));
        }
    } else {
        for (u32 i = threadIdx.x; i < ROWS * PADDED; i += THREADS) {
            u32 row = i / PADDED, at = i % PADDED;
            Row found = source.find(row);
            to[row * STRIDE + at] = found.is_there && at < HEAD_DIM ? to_float(from[found.begin + at]) : 0;
        }
    }
}

DEVICE float dot(float4 a, float4 b, float sum) {
    return fmaf(a.x, b.x, fmaf(a.y, b.y, fmaf(a.z, b.z, fmaf(a.w, b.w, sum))));
}

DEVICE void add_scaled(float4 &sum, float scale, float4 values) {
    sum.x = fmaf(scale, values.x, sum.x);
    sum.y = fmaf(scale, values.y, sum.y);
    sum.z = fmaf(scale, values.z, sum.z);
    sum.w = fmaf(scale, values.w, sum.w);
}

// products += a b^T, for a thread's rows of both.
template <int UNROLLED, int EACH> DEVICE void multiply_rows(float *a, float *b, float (&products)[EACH][EACH]) {
    u32 tx = threadIdx.x % 16, ty = threadIdx.x / 16;
#pragma unroll UNROLLED
    for (u32 at = 0; at < PADDED; at += 4) {
        float4 left[EACH], right[EACH];
#pragma unroll
        for (int i = 0; i < EACH; i++) left[i] = four(a, (ty * EACH + i) * STRIDE + at);
#pragma unroll
        for (int j = 0; j < EACH; j++) right[j] = four(b, (tx + 16 * j) * STRIDE + at);
#pragma unroll
        for (int i = 0; i < EACH; i++)
#pragma unroll
            for (int j = 0; j < EACH; j++) products[i][j] = dot(left[i], right[j], products[i][j]);
    }
}

// sums += weights * rows, for a thread's rows of `weights`, which have TILE elements, and its columns of `rows`.
template <u32 TILE, int EACH> DEVICE void add_rows(float4 (&sums)[EACH][COLUMN_GROUPS], float *weights, float *rows) {
    u32 tx = threadIdx.x % 16, ty = threadIdx.x / 16;
#pragma unroll 2
    for (u32 at = 0; at < TILE; at += 4) {
        float4 weight[EACH];
#pragma unroll
        for (int i = 0; i < EACH; i++) weight[i] = four(weights, (ty * EACH + i) * (TILE + 4) + at);
#pragma unroll
        for (int c = 0; c < COLUMN_GROUPS; c++) {
            u32 column = tx * 4 + 64 * c;
            if (column >= PADDED) continue;
            float4 values[4];
#pragma unroll
            for (int j = 0; j < 4; j++) values[j] = four(rows, (at + j) * STRIDE + column);
#pragma unroll
            for (int i = 0; i < EACH; i++) {
                add_scaled(sums[i][c], weight[i].x, values[0]);
                add_scaled(sums[i][c], weight[i].y, values[1]);
                add_scaled(sums[i][c], weight[i].z, values[2]);
                add_scaled(sums[i][c], weight[i].w, values[3]);
            }
        }
    }
}

DEVICE void store_row(dtype *to, const float4 *sums, float scale) {
#pragma unroll
    for (int c = 0; c < COLUMN_GROUPS; c++) {
        float columns[4] = {sums[c].x, sums[c].y, sums[c].z, sums[c].w};
#pragma unroll
        for (u32 j = 0; j < 4; j++) {
            u32 column = threadIdx.x % 16 * 4 + 64 * c + j;
            if (column < HEAD_DIM) to[column] = to_dtype(columns[j] * scale);
        }
    }
}

// The attention so far of a thread's four queries of 64.
struct OnlineSoftmax {
    float largest[4], sum[4];
    float4 result[4][COLUMN_GROUPS];

    DEVICE explicit OnlineSoftmax(float lowest) : sum(), result() {
#pragma unroll
        for (int i = 0; i < 4; i++) largest[i] = lowest;
    }

    // Adds a tile of 64 values by their scores, which `masks(i)(j, score)` scales or masks. MAY_BE_EMPTY allows rows
    // that have not seen a key yet: their largest score is -inf, and the difference of two infinities is NaN. The
    // probabilities overwrite the keys.
    template <bool MAY_BE_EMPTY, class Masks> DEVICE void add(float (&score)[4][4], float *keys, float *values, Masks masks) {
        __syncthreads();
#pragma unroll
        for (int i = 0; i < 4; i++) {
            auto mask = masks(i);
#pragma unroll
            for (int j = 0; j < 4; j++) score[i][j] = mask(j, score[i][j]);
            add_scores<MAY_BE_EMPTY>(i, score[i], keys);
        }
        // The sixteen threads of a row are in one warp.
        __syncwarp();
        add_rows<64>(result, keys, values);
    }

    template <bool MAY_BE_EMPTY> DEVICE void add_scores(int i, const float (&score)[4], float *probabilities) {
        float most = largest[i], row_sum = 0;
#pragma unroll
        for (int j = 0; j < 4; j++) most = fmaxf(most, score[j]);
        for (int delta = 8; delta > 0; delta /= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, delta));
        float base = MAY_BE_EMPTY && most == NEG_INF ? 0 : most, kept = __expf(largest[i] - base);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            float probability = __expf(score[j] - base);
            probabilities[(threadIdx.x / 16 * 4 + i) * (64 + 4) + threadIdx.x % 16 + 16 * j] = probability;
            row_sum += probability;
        }
        largest[i] = most;
        sum[i] = sum[i] * kept + row_sum;
#pragma unroll
        for (int c = 0; c < COLUMN_GROUPS; c++) {
            result[i][c].x *= kept;
            result[i][c].y *= kept;
            result[i][c].z *= kept;
            result[i][c].w *= kept;
        }
    }

    // Writes the results of the queries from `first` on, and the logarithms of their sums of exponentials unless `lse`
    // is null. A query without keys gives zeros.
    DEVICE void store(dtype *out, float *lse, const QueryHead &head, u32 first) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            for (int delta = 8; delta > 0; delta /= 2) sum[i] += __shfl_xor_sync(~0u, sum[i], delta);
            u32 query = first + threadIdx.x / 16 * 4 + i;
            if (query >= head.tokens) continue;
            if (lse && threadIdx.x % 16 == 0) lse[head.query_row(query)] = largest[i] + logf(sum[i]);
            store_row(out + head.out(query), result[i], sum[i] > 0 ? 1 / sum[i] : 0);
        }
    }
};
