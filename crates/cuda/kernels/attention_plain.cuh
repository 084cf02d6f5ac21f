// What attention without tensor cores shares, over whole and partial tiles and backwards: products of f32 for numbers and
// heads of any kind. HEAD_DIM, at most 256, is chosen when the text is compiled. A thread has EACH rows and, of each tile,
// as many columns of products; of a result, four columns of every 64.

#define THREADS 256
// Rows lie in shared memory as groups of four, with one group between them so that neighbours are in other banks.
#define PADDED ((HEAD_DIM + 3) / 4 * 4)
#define STRIDE (PADDED + 4)
#define COLUMN_GROUPS ((PADDED + 63) / 64)

__device__ __forceinline__ float4 &four(float *row, u32 at) { return *reinterpret_cast<float4 *>(row + at); }

// Puts rows into shared memory, as `source` finds them. Those that are not there, and columns after HEAD_DIM, are zero.
template <u32 ROWS, class Source>
__device__ __forceinline__ void load_rows(const number *from, const Source &source, float *to, u32 by_16_bytes) {
    if (HEAD_DIM % NUMBERS_IN_16_BYTES == 0 && by_16_bytes) {
        constexpr u32 V = NUMBERS_IN_16_BYTES, GROUPS = HEAD_DIM / V > 0 ? HEAD_DIM / V : 1;
        for (u32 i = threadIdx.x; i < ROWS * GROUPS; i += THREADS) {
            u32 row = i / GROUPS, at = i % GROUPS * V;
            Found found = source.find(row);
            numbers read = {};
            if (found.is_there) read = loaded(from + found.begin + at);
#pragma unroll
            for (u32 j = 0; j < V; j += 4)
                four(to, row * STRIDE + at + j) = make_float4(widened(read.at[j]), widened(read.at[j + 1]),
                                                              widened(read.at[j + 2]), widened(read.at[j + 3]));
        }
    } else {
        for (u32 i = threadIdx.x; i < ROWS * PADDED; i += THREADS) {
            u32 row = i / PADDED, at = i % PADDED;
            Found found = source.find(row);
            to[row * STRIDE + at] = found.is_there && at < HEAD_DIM ? widened(from[found.begin + at]) : 0;
        }
    }
}

__device__ __forceinline__ float dot(float4 a, float4 b, float sum) {
    return fmaf(a.x, b.x, fmaf(a.y, b.y, fmaf(a.z, b.z, fmaf(a.w, b.w, sum))));
}

__device__ __forceinline__ void add_scaled(float4 &sum, float scale, float4 values) {
    sum.x = fmaf(scale, values.x, sum.x);
    sum.y = fmaf(scale, values.y, sum.y);
    sum.z = fmaf(scale, values.z, sum.z);
    sum.w = fmaf(scale, values.w, sum.w);
}

// The products of a thread's rows of `a` with its rows of `b`.
template <int UNROLLED, int EACH>
__device__ __forceinline__ void multiply_rows(float *a, float *b, float (&products)[EACH][EACH]) {
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

// sums += parts * rows: a thread's rows of `parts`, of TILE numbers each, and its columns of `rows`.
template <u32 TILE, int EACH>
__device__ __forceinline__ void add_rows(float4 (&sums)[EACH][COLUMN_GROUPS], float *parts, float *rows) {
    u32 tx = threadIdx.x % 16, ty = threadIdx.x / 16;
#pragma unroll 2
    for (u32 at = 0; at < TILE; at += 4) {
        float4 part[EACH];
#pragma unroll
        for (int i = 0; i < EACH; i++) part[i] = four(parts, (ty * EACH + i) * (TILE + 4) + at);
#pragma unroll
        for (int c = 0; c < COLUMN_GROUPS; c++) {
            u32 column = tx * 4 + 64 * c;
            if (column >= PADDED) continue;
            float4 values[4];
#pragma unroll
            for (int j = 0; j < 4; j++) values[j] = four(rows, (at + j) * STRIDE + column);
#pragma unroll
            for (int i = 0; i < EACH; i++) {
                add_scaled(sums[i][c], part[i].x, values[0]);
                add_scaled(sums[i][c], part[i].y, values[1]);
                add_scaled(sums[i][c], part[i].z, values[2]);
                add_scaled(sums[i][c], part[i].w, values[3]);
            }
        }
    }
}

__device__ __forceinline__ void store_row(number *to, const float4 *sums, float scale) {
#pragma unroll
    for (int c = 0; c < COLUMN_GROUPS; c++) {
        float columns[4] = {sums[c].x, sums[c].y, sums[c].z, sums[c].w};
#pragma unroll
        for (u32 j = 0; j < 4; j++) {
            u32 column = threadIdx.x % 16 * 4 + 64 * c + j;
            if (column < HEAD_DIM) to[column] = narrowed(columns[j] * scale);
        }
    }
}

// The attention of a thread's queries so far.
struct Attended {
    float largest[4], sum[4];
    float4 result[4][COLUMN_GROUPS];

    __device__ __forceinline__ void begin(float lowest) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            largest[i] = lowest;
            sum[i] = 0;
#pragma unroll
            for (int c = 0; c < COLUMN_GROUPS; c++) result[i][c] = make_float4(0, 0, 0, 0);
        }
    }

    // Turns the scores of one row and a tile of 64 keys into shares. Where a row may have seen no key yet, it has no largest
    // score, and the difference of two infinities is no number.
    template <bool MAY_BE_EMPTY> __device__ __forceinline__ void share(int i, const float (&score)[4], float *shares) {
        float most = largest[i], row_sum = 0;
#pragma unroll
        for (int j = 0; j < 4; j++) most = fmaxf(most, score[j]);
        for (int distance = 8; distance > 0; distance /= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, distance));
        float base = MAY_BE_EMPTY && most == LOWEST ? 0 : most, kept = __expf(largest[i] - base);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            float share = __expf(score[j] - base);
            shares[(threadIdx.x / 16 * 4 + i) * (64 + 4) + threadIdx.x % 16 + 16 * j] = share;
            row_sum += share;
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

    // The sum of a row's shares.
    __device__ __forceinline__ float total(int i) {
        for (int distance = 8; distance > 0; distance /= 2) sum[i] += __shfl_xor_sync(~0u, sum[i], distance);
        return sum[i];
    }
};
