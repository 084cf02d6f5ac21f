// Attention over blocks for numbers and heads of any kind: products of f32 without tensor cores. HEAD_DIM, at most 256, is
// chosen when the text is compiled.

#define THREADS 256
#define HALF (ROWS / 2)
// Rows lie in shared memory as groups of four, with one group between them so that neighbours are in other banks.
#define PADDED ((HEAD_DIM + 3) / 4 * 4)
#define STRIDE (PADDED + 4)
#define SHARE_STRIDE (KEYS + 4)
#define COLUMN_GROUPS ((PADDED + 63) / 64)

__device__ __forceinline__ float4 &four(float *row, u32 at) { return *reinterpret_cast<float4 *>(row + at); }

// Puts 64 rows into shared memory; those that are not there, and columns after HEAD_DIM, are zero.
__device__ __forceinline__ void load_rows(const number *from, const Source &source, float *to, u32 by_16_bytes) {
    if (HEAD_DIM % NUMBERS_IN_16_BYTES == 0 && by_16_bytes) {
        constexpr u32 GROUPS = HEAD_DIM / NUMBERS_IN_16_BYTES;
        for (u32 i = threadIdx.x; i < KEYS * GROUPS; i += THREADS) {
            u32 row = i / GROUPS, at = i % GROUPS * NUMBERS_IN_16_BYTES, there = row_of(source, row);
            numbers read = {};
            if (there != ~0u) read = loaded(from + (u64)there * HEAD_DIM + at);
#pragma unroll
            for (u32 j = 0; j < NUMBERS_IN_16_BYTES; j += 4)
                four(to, row * STRIDE + at + j) = make_float4(widened(read.at[j]), widened(read.at[j + 1]),
                                                              widened(read.at[j + 2]), widened(read.at[j + 3]));
        }
    } else {
        for (u32 i = threadIdx.x; i < KEYS * PADDED; i += THREADS) {
            u32 row = i / PADDED, at = i % PADDED, there = row_of(source, row);
            to[row * STRIDE + at] = there != ~0u && at < HEAD_DIM ? widened(from[(u64)there * HEAD_DIM + at]) : 0;
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

// A block of threads has half a block of queries of one head. A thread has four queries and, of each tile, four keys; of the
// result, four columns of every 64.
extern "C" __global__ void __launch_bounds__(THREADS) block_attention(BLOCK_PARAMETERS, u32 by_16_bytes) {
    extern __shared__ float4 shared[];
    float *queries = reinterpret_cast<float *>(shared);
    float *values = queries + HALF * STRIDE;
    // The shares take the place of the keys they were made of.
    float *keys = values + KEYS * STRIDE, *shares = keys;

    u32 tx = threadIdx.x % 16, ty = threadIdx.x / 16, half = blockIdx.y % 2;
    Rule rule = {tokens, is_causal, half_window, global};
    Work work = works[blockIdx.y / 2];
    u32 sequence = blockIdx.x / heads, head = blockIdx.x % heads, first_row = work.block * ROWS + half * HALF;
    if (first_row >= tokens) return;
    u64 kv_row = (u64)(sequence * kv_heads + head / (heads / kv_heads)) * capacity;
    load_rows(q + ((u64)blockIdx.x * tokens + first_row) * HEAD_DIM, {nullptr, 0, tokens - first_row}, queries, by_16_bytes);

    float largest[4], sum[4];
    float4 result[4][COLUMN_GROUPS];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        largest[i] = LOWEST;
        sum[i] = 0;
#pragma unroll
        for (int c = 0; c < COLUMN_GROUPS; c++) result[i][c] = make_float4(0, 0, 0, 0);
    }

    u32 count = tiles_of(work);
    for (u32 tile = 0; tile < count; tile++) {
        bool is_gathered = tile >= work.tiles;
        u32 word = is_gathered ? 0 : tile_word(tiles, work, tile, rule), first_key = (word >> 1) * KEYS;
        if (word & 1 && part_of(first_row, first_row + HALF - 1, first_key, rule) == NOTHING) continue;
        Source source = source_of(tile, word, work, columns, tokens);
        __syncthreads();
        load_rows(k + kv_row * HEAD_DIM, source, keys, by_16_bytes);
        load_rows(v + kv_row * HEAD_DIM, source, values, by_16_bytes);
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
        u64 kept_by[4];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            u32 at = source.first + tx + 16 * j;
            bool is_there = is_gathered && at < work.columns;
            kept_by[j] = is_there ? column_rows[((u64)work.first_column + at) * 2 + half] : 0;
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < 4; i++) {
            Seen seen = seen_by(first_row + ty * 4 + i, rule);
            float most = largest[i], row_sum = 0;
#pragma unroll
            for (int j = 0; j < 4; j++) {
                u32 key = first_key + tx + 16 * j;
                bool is_kept = is_gathered ? kept_by[j] >> (ty * 4 + i) & 1 : !(word & 1) || is_seen(seen, key);
                score[i][j] = is_kept ? score[i][j] * scale : LOWEST;
                most = fmaxf(most, score[i][j]);
            }
            for (int distance = 8; distance > 0; distance /= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, distance));
            // A row that has seen no key yet has no largest score, and the difference of two infinities is no number.
            float base = most == LOWEST ? 0 : most, kept = __expf(largest[i] - base);
#pragma unroll
            for (int j = 0; j < 4; j++) {
                float share = __expf(score[i][j] - base);
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
        u32 row = first_row + ty * 4 + i;
        if (row >= tokens) continue;
        number *to = out + (((u64)sequence * tokens + row) * heads + head) * HEAD_DIM;
        // A row that keeps nothing gives zeros.
        float share = sum[i] > 0 ? 1 / sum[i] : 0;
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
