// Attention on tensor cores, forwards and backwards: bf16 and f16, heads of a multiple of 16 up to 128 elements.
// Everything must be aligned to 16 bytes.

#define CHUNKS (HEAD_DIM / 8)
#define DEPTHS (HEAD_DIM / 16)
// Rows in shared memory are an odd number of 16-byte chunks apart, which avoids bank conflicts.
#define STRIDE ((CHUNKS + 1) * 16)

// Starts copying rows to shared memory. Missing rows are zero.
template <int ROWS, int THREADS, class Source> DEVICE void load_rows(u32 to, const dtype *from, const Source &source) {
#pragma unroll
    for (u32 i = 0; i < (ROWS * CHUNKS + THREADS - 1) / THREADS; i++) {
        u32 chunk = i * THREADS + threadIdx.x, row = chunk / CHUNKS, column = chunk % CHUNKS;
        if (ROWS * CHUNKS % THREADS != 0 && row >= ROWS) break;
        Row found = source.find(row);
        cp_async(to + row * STRIDE + column * 16, from + (found.is_there ? found.begin + column * 8 : 0), found.is_there);
    }
}

// A lane's address for `ldmatrix` of 16 rows: as the left factor, as a right factor that is transposed, and as a right
// factor.
DEVICE u32 left_offset(u32 lane) { return lane % 16 * STRIDE + lane / 16 * 16; }
DEVICE u32 transposed_offset(u32 lane) { return (lane % 8 + lane / 16 * 8) * STRIDE + lane / 8 % 2 * 16; }
DEVICE u32 right_offset(u32 lane) { return lane % 16 * STRIDE + lane / 16 * 16; }

// The left factor of 16 rows in shared memory, in steps of 16 columns.
DEVICE void load_left(Fragment (&left)[DEPTHS], u32 rows) {
#pragma unroll
    for (int depth = 0; depth < DEPTHS; depth++) left[depth] = ldmatrix(rows + left_offset(threadIdx.x % 32) + depth * 32);
}

// result += left right^T at one depth: 16 by 8 N.
template <int N> DEVICE void mma_transposed(float (*result)[4], const Fragment &left, u32 right, int depth) {
#pragma unroll
    for (int n = 0; n < N / 2; n++) {
        Fragment b = ldmatrix(right + transposed_offset(threadIdx.x % 32) + n * 16 * STRIDE + depth * 32);
        mma(result[2 * n], left, b.at[0], b.at[1]);
        mma(result[2 * n + 1], left, b.at[2], b.at[3]);
    }
}
template <int N> DEVICE void mma_transposed(float (*result)[4], const Fragment (&left)[DEPTHS], u32 right) {
#pragma unroll
    for (int depth = 0; depth < DEPTHS; depth++) mma_transposed<N>(result, left[depth], right, depth);
}

// result += left right at one depth, with the sums of another product as the left factor: 16 by HEAD_DIM.
DEVICE void mma_sums(float (*result)[4], const float (*sums)[4], u32 right, int depth) {
    const float(*s)[4] = sums + 2 * depth;
    Fragment left = {pack2(s[0][0], s[0][1]), pack2(s[0][2], s[0][3]), pack2(s[1][0], s[1][1]), pack2(s[1][2], s[1][3])};
    right += depth * 16 * STRIDE + right_offset(threadIdx.x % 32);
#pragma unroll
    for (int n = 0; n < CHUNKS; n += 2) {
        Fragment b = ldmatrix<true>(right + n * 16);
        mma(result[n], left, b.at[0], b.at[1]);
        mma(result[n + 1], left, b.at[2], b.at[3]);
    }
}

DEVICE void store_row(dtype *to, const float (*result)[4], int r, float scale) {
#pragma unroll
    for (int n = 0; n < CHUNKS; n++)
        *reinterpret_cast<u32 *>(to + n * 8) = pack2(result[n][2 * r] * scale, result[n][2 * r + 1] * scale);
}

// The attention so far of a warp's 16 queries. A lane has two of them: row `lane / 4` and the one eight further.
struct OnlineSoftmax {
    float largest[2] = {NEG_INF, NEG_INF}, sum[2] = {}, result[CHUNKS][4] = {};

    // Adds a tile of keys and values in shared memory. `mask` sets masked scores to -inf.
    template <int KEYS, class Mask>
    DEVICE void add_tile(const Fragment (&queries)[DEPTHS], u32 keys, u32 values, float scale, Mask mask) {
        float score[KEYS / 8][4] = {};
        mma_transposed<KEYS / 8>(score, queries, keys);
        mask(score);
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float most = largest[r];
#pragma unroll
            for (int n = 0; n < KEYS / 8; n++) most = fmaxf(most, fmaxf(score[n][2 * r], score[n][2 * r + 1]));
            most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
            most = fmaxf(most, __shfl_xor_sync(~0u, most, 2));
            // A row that has not seen a key yet has no largest score, and the difference of two infinities is NaN.
            float base = most == NEG_INF ? 0 : most;
            float kept = exp2_approx((largest[r] - base) * scale), shift = base * scale;
            largest[r] = most;
            sum[r] *= kept;
#pragma unroll
            for (int n = 0; n < KEYS / 8; n++) {
                score[n][2 * r] = exp2_approx(fmaf(score[n][2 * r], scale, -shift));
                score[n][2 * r + 1] = exp2_approx(fmaf(score[n][2 * r + 1], scale, -shift));
                sum[r] += score[n][2 * r] + score[n][2 * r + 1];
            }
#pragma unroll
            for (int n = 0; n < CHUNKS; n++) {
                result[n][2 * r] *= kept;
                result[n][2 * r + 1] *= kept;
            }
        }
#pragma unroll
        for (int depth = 0; depth < KEYS / 16; depth++) mma_sums(result, score, values, depth);
    }

    // Writes the results of the 16 queries from `first` on, and the logarithms of their sums of exponentials unless
    // `lse` is null. A query without keys gives zeros.
    DEVICE void store(dtype *out, float *lse, const QueryHead &head, u32 first, float scale) const {
        u32 lane = threadIdx.x % 32;
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float total = sum[r] + __shfl_xor_sync(~0u, sum[r], 1);
            total += __shfl_xor_sync(~0u, total, 2);
            u32 query = first + lane / 4 + r * 8;
            if (query >= head.tokens) continue;
            if (lse && lane % 4 == 0) lse[head.query_row(query)] = (largest[r] * scale + __log2f(total)) * 0.6931471805599453f;
            store_row(out + head.out(query) + lane % 4 * 2, result, r, total > 0 ? 1 / total : 0);
        }
    }
};
