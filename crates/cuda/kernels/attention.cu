// Causal attention that never stores the scores, for numbers and heads of any kind: products of f32 without tensor cores.
// HEAD_DIM, at most 256, is chosen when the text is compiled. So is WINDOW, the number of keys up to its own that a query
// sees, if not all.

#define ROWS 64
#define KEYS 64
#define THREADS 256
// Rows lie in shared memory as groups of four, with one group between them so that neighbours are in other banks.
#define PADDED ((HEAD_DIM + 3) / 4 * 4)
#define STRIDE (PADDED + 4)
#define SHARE_STRIDE (KEYS + 4)
#define COLUMN_GROUPS ((PADDED + 63) / 64)
#ifdef WINDOW
// The first tile of a block may have no key for its later rows. A finite value keeps the difference of two such values
// a number, and the first key that a row sees makes what came before it zero.
#define LOWEST (-1e30f)
#else
#define WINDOW 0
#define LOWEST (-__int_as_float(0x7f800000))
#endif

__device__ __forceinline__ float4 &four(float *row, u32 at) { return *reinterpret_cast<float4 *>(row + at); }

// Puts rows into shared memory; those after `rows`, and columns after HEAD_DIM, are zero.
__device__ __forceinline__ void load_rows(const number *from, u32 rows, float *to, u32 by_16_bytes) {
    if (HEAD_DIM % NUMBERS_IN_16_BYTES == 0 && by_16_bytes) {
        constexpr u32 GROUPS = HEAD_DIM / NUMBERS_IN_16_BYTES;
        for (u32 i = threadIdx.x; i < ROWS * GROUPS; i += THREADS) {
            u32 row = i / GROUPS, at = i % GROUPS * NUMBERS_IN_16_BYTES;
            numbers read = {};
            if (row < rows) read = loaded(from + (u64)row * HEAD_DIM + at);
#pragma unroll
            for (u32 j = 0; j < NUMBERS_IN_16_BYTES; j += 4)
                four(to, row * STRIDE + at + j) = make_float4(widened(read.at[j]), widened(read.at[j + 1]),
                                                              widened(read.at[j + 2]), widened(read.at[j + 3]));
        }
    } else {
        for (u32 i = threadIdx.x; i < ROWS * PADDED; i += THREADS) {
            u32 row = i / PADDED, at = i % PADDED;
            to[row * STRIDE + at] = row < rows && at < HEAD_DIM ? widened(from[(u64)row * HEAD_DIM + at]) : 0;
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

// A block has 64 queries of one head and goes over the keys by 64. A thread has four queries and, of each tile, four keys;
// of the result, four columns of every 64.
extern "C" __global__ void __launch_bounds__(THREADS)
    attention(const number *q, const number *k, const number *v, number *out, const u32 *start, u32 tokens, u32 heads,
              u32 kv_heads, u32 capacity, float scale, u32 by_16_bytes, float *logarithms) {
    extern __shared__ float4 shared[];
    float *queries = reinterpret_cast<float *>(shared);
    float *values = queries + ROWS * STRIDE;
    // The shares take the place of the keys they were made of.
    float *keys = values + KEYS * STRIDE, *shares = keys;

    u32 tx = threadIdx.x % 16, ty = threadIdx.x / 16;
    u32 sequence = blockIdx.x / heads, head = blockIdx.x % heads;
    // The tiles with the most keys come first.
    u32 first_query = (gridDim.y - 1 - blockIdx.y) * ROWS;
    u64 position = *start, length = position + tokens < capacity ? position + tokens : capacity;
    u64 seen_by_last = position + first_query + ROWS < length ? position + first_query + ROWS : length;
    u64 kv_row = (u64)(sequence * kv_heads + head / (heads / kv_heads)) * capacity;
    load_rows(q + ((u64)blockIdx.x * tokens + first_query) * HEAD_DIM, tokens - first_query, queries, by_16_bytes);

    float largest[4], sum[4];
    float4 result[4][COLUMN_GROUPS];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        largest[i] = LOWEST;
        sum[i] = 0;
#pragma unroll
        for (int c = 0; c < COLUMN_GROUPS; c++) result[i][c] = make_float4(0, 0, 0, 0);
    }

    u32 begin = 0;
    if (WINDOW && position + first_query >= WINDOW) begin = (u32)(position + first_query + 1 - WINDOW) / KEYS * KEYS;
    for (u32 first_key = begin; first_key < seen_by_last; first_key += KEYS) {
        __syncthreads();
        load_rows(k + (kv_row + first_key) * HEAD_DIM, (u32)(length - first_key), keys, by_16_bytes);
        load_rows(v + (kv_row + first_key) * HEAD_DIM, (u32)(length - first_key), values, by_16_bytes);
        __syncthreads();
        float score[4][4] = {};
#pragma unroll 4
        for (u32 at = 0; at < PADDED; at += 4) {
            float4 a[4], b[4];
#pragma unroll
            for (int i = 0; i < 4; i++) a[i] = four(queries, (ty * 4 + i) * STRIDE + at);
#pragma unroll
            for (int j = 0; j < 4; j++) b[j] = four(keys, (tx + 16 * j) * STRIDE + at);
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < 4; j++) score[i][j] = dot(a[i], b[j], score[i][j]);
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < 4; i++) {
            u64 row_position = position + first_query + ty * 4 + i;
            float most = largest[i], row_sum = 0;
#pragma unroll
            for (int j = 0; j < 4; j++) {
                u64 key = first_key + tx + 16 * j;
                bool is_seen = key <= row_position && key < length && (!WINDOW || key + WINDOW > row_position);
                score[i][j] = is_seen ? score[i][j] * scale : LOWEST;
                most = fmaxf(most, score[i][j]);
            }
            for (int distance = 8; distance > 0; distance /= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, distance));
            float kept = __expf(largest[i] - most);
#pragma unroll
            for (int j = 0; j < 4; j++) {
                float share = __expf(score[i][j] - most);
                shares[(ty * 4 + i) * SHARE_STRIDE + tx + 16 * j] = share;
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
        // Sixteen threads of one warp share a row, so the warp is all that waits.
        __syncwarp();
#pragma unroll 2
        for (u32 key = 0; key < KEYS; key += 4) {
            float4 share[4];
#pragma unroll
            for (int i = 0; i < 4; i++) share[i] = four(shares, (ty * 4 + i) * SHARE_STRIDE + key);
#pragma unroll
            for (int c = 0; c < COLUMN_GROUPS; c++) {
                u32 column = tx * 4 + 64 * c;
                if (column >= PADDED) continue;
                float4 rows[4];
#pragma unroll
                for (int j = 0; j < 4; j++) rows[j] = four(values, (key + j) * STRIDE + column);
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    add_scaled(result[i][c], share[i].x, rows[0]);
                    add_scaled(result[i][c], share[i].y, rows[1]);
                    add_scaled(result[i][c], share[i].z, rows[2]);
                    add_scaled(result[i][c], share[i].w, rows[3]);
                }
            }
        }
    }

#pragma unroll
    for (int i = 0; i < 4; i++) {
        for (int distance = 8; distance > 0; distance /= 2) sum[i] += __shfl_xor_sync(~0u, sum[i], distance);
        u32 query = first_query + ty * 4 + i;
        if (query >= tokens) continue;
        number *to = out + (((u64)sequence * tokens + query) * heads + head) * HEAD_DIM;
        float share = 1 / sum[i];
        // The logarithm of the sum of exponentials, if a gradient will need it.
        if (logarithms && tx == 0) logarithms[(u64)blockIdx.x * tokens + query] = largest[i] + logf(sum[i]);
#pragma unroll
        for (int c = 0; c < COLUMN_GROUPS; c++) {
            float columns[4] = {result[i][c].x, result[i][c].y, result[i][c].z, result[i][c].w};
#pragma unroll
            for (u32 j = 0; j < 4; j++) {
                u32 column = tx * 4 + 64 * c + j;
                if (column < HEAD_DIM) to[column] = narrowed(columns[j] * share);
            }
        }
    }
}
