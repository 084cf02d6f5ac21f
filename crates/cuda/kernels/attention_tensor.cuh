// What attention on tensor cores shares, over whole and partial tiles and backwards: bf16 and f16, heads of HEAD_DIM
// numbers, a multiple of 16 up to 128, which is chosen when the text is compiled. Everything must be aligned to 16 bytes.

#define CHUNKS (HEAD_DIM / 8)
// Rows lie an odd number of chunks of 16 bytes apart, so that eight of them are in different banks.
#define STRIDE ((CHUNKS + 1) * 16)

// Starts copying rows, as `source` finds them; those that are not there are zero.
template <int ROWS, int THREADS, class Source>
__device__ __forceinline__ void begin_rows(u32 to, const number *from, const Source &source) {
#pragma unroll
    for (u32 i = 0; i < (ROWS * CHUNKS + THREADS - 1) / THREADS; i++) {
        u32 chunk = i * THREADS + threadIdx.x, row = chunk / CHUNKS, column = chunk % CHUNKS;
        if (ROWS * CHUNKS % THREADS != 0 && row >= ROWS) break;
        Found found = source.find(row);
        const number *place = from + (found.is_there ? found.begin + column * 8 : 0);
        begin_copy(to + row * STRIDE + column * 16, place, found.is_there);
    }
}

// Where the lanes of a warp find 16 rows as a left factor, as a right one whose columns they are, and as a right one whose
// rows they are.
__device__ __forceinline__ u32 as_left(u32 lane) { return lane % 16 * STRIDE + lane / 16 * 16; }
__device__ __forceinline__ u32 as_columns(u32 lane) { return (lane % 8 + lane / 16 * 8) * STRIDE + lane / 8 % 2 * 16; }
__device__ __forceinline__ u32 as_rows(u32 lane) { return lane % 16 * STRIDE + lane / 16 * 16; }

// result += left * right transposed: 16 rows by 8 N.
template <int N> __device__ __forceinline__ void dots_of(float (*result)[4], const Four &left, u32 right, int depth) {
#pragma unroll
    for (int n = 0; n < N / 2; n++) {
        Four b = matrices(right + n * 16 * STRIDE + depth * 32);
        multiply(result[2 * n], left, b.at[0], b.at[1]);
        multiply(result[2 * n + 1], left, b.at[2], b.at[3]);
    }
}

// result += left * right: 16 rows by HEAD_DIM.
__device__ __forceinline__ void add_product(float (*result)[4], const Four &left, u32 right) {
#pragma unroll
    for (int n = 0; n < CHUNKS; n += 2) {
        Four b = matrices_transposed(right + n * 16);
        multiply(result[n], left, b.at[0], b.at[1]);
        multiply(result[n + 1], left, b.at[2], b.at[3]);
    }
}

// Sums of two neighbouring tiles of eight columns as a left factor.
__device__ __forceinline__ Four as_factor(const float (*sums)[4]) {
    return {pair(sums[0][0], sums[0][1]), pair(sums[0][2], sums[0][3]), pair(sums[1][0], sums[1][1]),
            pair(sums[1][2], sums[1][3])};
}

__device__ __forceinline__ void store_rows(number *to, const float (*result)[4], int r, float scale) {
#pragma unroll
    for (int n = 0; n < CHUNKS; n++)
        *reinterpret_cast<u32 *>(to + n * 8) = pair(result[n][2 * r] * scale, result[n][2 * r + 1] * scale);
}

// The attention of 16 queries of a warp so far. A lane has two of them, eight apart: row `lane / 4` and the one eight
// further.
struct Attended {
    float largest[2], sum[2], result[CHUNKS][4];

    // Adds what a tile of KEYS values gives, by the scores of their keys.
    template <int TILES>
    __device__ __forceinline__ void add(float (&score)[TILES][4], u32 values, float scale) {
        u32 lane = threadIdx.x % 32;
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float most = largest[r];
#pragma unroll
            for (int n = 0; n < TILES; n++) most = fmaxf(most, fmaxf(score[n][2 * r], score[n][2 * r + 1]));
            most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
            most = fmaxf(most, __shfl_xor_sync(~0u, most, 2));
            // A row that has seen no key yet has no largest score, and the difference of two infinities is no number.
            float base = most == LOWEST ? 0 : most;
            float kept = power_of_two((largest[r] - base) * scale), shift = base * scale;
            largest[r] = most;
            sum[r] *= kept;
#pragma unroll
            for (int n = 0; n < TILES; n++) {
                score[n][2 * r] = power_of_two(fmaf(score[n][2 * r], scale, -shift));
                score[n][2 * r + 1] = power_of_two(fmaf(score[n][2 * r + 1], scale, -shift));
                sum[r] += score[n][2 * r] + score[n][2 * r + 1];
            }
#pragma unroll
            for (int n = 0; n < CHUNKS; n++) {
                result[n][2 * r] *= kept;
                result[n][2 * r + 1] *= kept;
            }
        }
#pragma unroll
        for (int depth = 0; depth < TILES / 2; depth++)
            add_product(result, as_factor(score + 2 * depth), values + as_rows(lane) + depth * 16 * STRIDE);
    }

    // The sum of the shares of a row.
    __device__ __forceinline__ float total(int r) const {
        float all = sum[r];
        all += __shfl_xor_sync(~0u, all, 1);
        return all + __shfl_xor_sync(~0u, all, 2);
    }
};
