// Causal attention that never stores the scores, by tensor cores: bf16 and f16, heads of HEAD_DIM numbers, a multiple of
// 16 up to 128, which is chosen when the text is compiled. Everything must be aligned to 16 bytes.
//
// A warp has 16 queries, whose numbers it keeps in registers, and goes over the keys by 64. While it computes with one
// tile of keys and values, the next one is on its way. Where there are few blocks, two warps share queries: one takes the
// even tiles and one the odd ones, and in the end their results are put together.

#define KEYS 64
#define CHUNKS (HEAD_DIM / 8)
// Rows lie an odd number of chunks of 16 bytes apart, so that eight of them are in different banks.
#define STRIDE ((CHUNKS + 1) * 16)
#define LOWEST (-__int_as_float(0x7f800000))

// Starts copying rows; those after `there` are zero.
template <int ROWS, int THREADS>
__device__ __forceinline__ void begin_rows(u32 to, const number *from, u64 there) {
#pragma unroll
    for (u32 i = 0; i < (ROWS * CHUNKS + THREADS - 1) / THREADS; i++) {
        u32 chunk = i * THREADS + threadIdx.x, row = chunk / CHUNKS, column = chunk % CHUNKS;
        if (ROWS * CHUNKS % THREADS != 0 && row >= ROWS) break;
        bool is_there = row < there;
        begin_copy(to + row * STRIDE + column * 16, from + (is_there ? (u64)row * HEAD_DIM + column * 8 : 0), is_there);
    }
}

// Of the 16 rows of a warp a lane has two, eight apart: row `lane / 4` and the one eight further.
struct Rows {
    float largest[2];
    float sum[2];
    float result[CHUNKS][4];
};

__device__ __forceinline__ void one_tile(Rows &rows, const Four *queries, u32 keys, u32 values, float scale,
                                         bool is_masked, const u64 *seen, u32 first_key) {
    u32 lane = threadIdx.x % 32;
    float score[KEYS / 8][4] = {};
    u32 key_address = keys + (lane % 8 + lane / 16 * 8) * STRIDE + lane / 8 % 2 * 16;
#pragma unroll
    for (int depth = 0; depth < HEAD_DIM / 16; depth++)
#pragma unroll
        for (int n = 0; n < KEYS / 16; n++) {
            Four b = matrices(key_address + n * 16 * STRIDE + depth * 32);
            multiply(score[2 * n], queries[depth], b.at[0], b.at[1]);
            multiply(score[2 * n + 1], queries[depth], b.at[2], b.at[3]);
        }
    if (is_masked) {
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                u64 key = first_key + n * 8 + lane % 4 * 2 + i % 2;
                if (key >= seen[i / 2]) score[n][i] = LOWEST;
            }
    }
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float most = rows.largest[r];
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++) most = fmaxf(most, fmaxf(score[n][2 * r], score[n][2 * r + 1]));
        most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
        most = fmaxf(most, __shfl_xor_sync(~0u, most, 2));
        // A row that has seen no key yet has no largest score, and the difference of two infinities is no number.
        float base = most == LOWEST ? 0 : most;
        float kept = power_of_two((rows.largest[r] - base) * scale), shift = base * scale;
        rows.largest[r] = most;
        rows.sum[r] *= kept;
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++) {
            score[n][2 * r] = power_of_two(fmaf(score[n][2 * r], scale, -shift));
            score[n][2 * r + 1] = power_of_two(fmaf(score[n][2 * r + 1], scale, -shift));
            rows.sum[r] += score[n][2 * r] + score[n][2 * r + 1];
        }
#pragma unroll
        for (int n = 0; n < CHUNKS; n++) {
            rows.result[n][2 * r] *= kept;
            rows.result[n][2 * r + 1] *= kept;
        }
    }
    u32 value_address = values + lane % 16 * STRIDE + lane / 16 * 16;
#pragma unroll
    for (int depth = 0; depth < KEYS / 16; depth++) {
        const float *low = score[2 * depth], *high = score[2 * depth + 1];
        Four shares = {pair(low[0], low[1]), pair(low[2], low[3]), pair(high[0], high[1]), pair(high[2], high[3])};
#pragma unroll
        for (int n = 0; n < CHUNKS; n += 2) {
            Four b = matrices_transposed(value_address + depth * 16 * STRIDE + n * 16);
            multiply(rows.result[n], shares, b.at[0], b.at[1]);
            multiply(rows.result[n + 1], shares, b.at[2], b.at[3]);
        }
    }
}

// Adds what other warps found about the same rows. They hand it over in shared memory, a place a number and thread.
template <int THREADS> __device__ __forceinline__ void put_together(Rows &rows, float *places, bool is_giving, float scale) {
    float *mine = places + threadIdx.x % THREADS;
    if (is_giving) {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            mine[r * THREADS] = rows.largest[r];
            mine[(2 + r) * THREADS] = rows.sum[r];
        }
#pragma unroll
        for (int n = 0; n < CHUNKS; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) mine[(4 + n * 4 + i) * THREADS] = rows.result[n][i];
    }
    __syncthreads();
    if (is_giving) return;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float other = mine[r * THREADS], most = fmaxf(rows.largest[r], other);
        float kept = power_of_two((rows.largest[r] - most) * scale), added = power_of_two((other - most) * scale);
        rows.largest[r] = most;
        rows.sum[r] = rows.sum[r] * kept + mine[(2 + r) * THREADS] * added;
#pragma unroll
        for (int n = 0; n < CHUNKS; n++)
#pragma unroll
            for (int i = 2 * r; i < 2 * r + 2; i++)
                rows.result[n][i] = rows.result[n][i] * kept + mine[(4 + n * 4 + i) * THREADS] * added;
    }
}

// WARPS have 16 queries each, and as often as SPLIT says others have the same and other keys.
template <int WARPS, int SPLIT>
__device__ __forceinline__ void attend(const number *q, const number *k, const number *v, number *out, const u32 *start,
                                       u32 tokens, u32 heads, u32 kv_heads, u32 capacity, float scale,
                                       float *logarithms) {
    wait_for_the_kernel_before();
    constexpr int ROWS = WARPS * 16, THREADS = WARPS * SPLIT * 32;
    // Keys of all warps together, and the bytes of as many.
    constexpr u32 STEP = KEYS * SPLIT, TILE = STEP * STRIDE;
    extern __shared__ uint4 shared[];
    u32 here = (u32)__cvta_generic_to_shared(shared);
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32 % WARPS, part = threadIdx.x / 32 / WARPS;
    u32 sequence = blockIdx.x / heads, head = blockIdx.x % heads;
    // The tiles with the most keys come first.
    u32 first_query = (gridDim.y - 1 - blockIdx.y) * ROWS;
    u64 position = *start, length = position + tokens < capacity ? position + tokens : capacity;
    u64 seen_by_last = position + first_query + ROWS < length ? position + first_query + ROWS : length;
    u32 steps = (u32)((seen_by_last + STEP - 1) / STEP);
    u64 kv_row = (u64)(sequence * kv_heads + head / (heads / kv_heads)) * capacity;
    const number *keys = k + kv_row * HEAD_DIM, *values = v + kv_row * HEAD_DIM;

    // The queries lie for a moment where the second tile will.
    u32 query_place = here + 2 * TILE;
    begin_rows<ROWS, THREADS>(query_place, q + ((u64)blockIdx.x * tokens + first_query) * HEAD_DIM, tokens - first_query);
    end_of_copies();
    begin_rows<STEP, THREADS>(here, keys, length);
    begin_rows<STEP, THREADS>(here + TILE, values, length);
    end_of_copies();
    wait_for_copies<1>();
    __syncthreads();
    Four queries[HEAD_DIM / 16];
#pragma unroll
    for (int depth = 0; depth < HEAD_DIM / 16; depth++)
        queries[depth] = matrices(query_place + (warp * 16 + lane % 16) * STRIDE + depth * 32 + lane / 16 * 16);
    __syncthreads();

    Rows rows = {{LOWEST, LOWEST}, {0, 0}, {}};
    u64 warp_position = position + first_query + warp * 16;
    u64 row_position = warp_position + lane / 4;
    u64 seen[2] = {row_position + 1 < length ? row_position + 1 : length,
                   row_position + 9 < length ? row_position + 9 : length};
    for (u32 step = 0; step < steps; step++) {
        if (step + 1 < steps) {
            u64 next = (step + 1) * STEP;
            u32 next_place = here + (step + 1) % 2 * 2 * TILE;
            begin_rows<STEP, THREADS>(next_place, keys + next * HEAD_DIM, length - next);
            begin_rows<STEP, THREADS>(next_place + TILE, values + next * HEAD_DIM, length - next);
        }
        end_of_copies();
        wait_for_copies<1>();
        __syncthreads();
        u32 first_key = step * STEP + part * KEYS, place = here + step % 2 * 2 * TILE + part * KEYS * STRIDE;
        bool is_masked = first_key + KEYS > warp_position + 1 || first_key + KEYS > length;
        if (first_key <= warp_position + 15 && first_key < length)
            one_tile(rows, queries, place, place + TILE, scale, is_masked, seen, first_key);
        __syncthreads();
    }
    if (SPLIT > 1) {
        put_together<WARPS * 32>(rows, reinterpret_cast<float *>(shared), part > 0, scale);
        if (part > 0) return;
    }

#pragma unroll
    for (int r = 0; r < 2; r++) {
        float sum = rows.sum[r];
        sum += __shfl_xor_sync(~0u, sum, 1);
        sum += __shfl_xor_sync(~0u, sum, 2);
        u32 query = first_query + warp * 16 + lane / 4 + r * 8;
        if (query >= tokens) continue;
        number *to = out + (((u64)sequence * tokens + query) * heads + head) * HEAD_DIM + lane % 4 * 2;
        float share = 1 / sum;
        // The logarithm of the sum of exponentials, if a gradient will need it.
        if (logarithms && lane % 4 == 0)
            logarithms[(u64)blockIdx.x * tokens + query] = (rows.largest[r] * scale + __log2f(sum)) * 0.6931471805599453f;
#pragma unroll
        for (int n = 0; n < CHUNKS; n++)
            *reinterpret_cast<u32 *>(to + n * 8) = pair(rows.result[n][2 * r] * share, rows.result[n][2 * r + 1] * share);
    }
}

#define ATTENTION_PARAMETERS                                                                                           \
    const number *q, const number *k, const number *v, number *out, const u32 *start, u32 tokens, u32 heads,           \
        u32 kv_heads, u32 capacity, float scale, float *logarithms

// By queries of a block. `scale` is that of the scores times the logarithm of e to the base of two.
extern "C" __global__ void __launch_bounds__(256, 1) attention_of_64_split(ATTENTION_PARAMETERS) {
    attend<4, 2>(q, k, v, out, start, tokens, heads, kv_heads, capacity, scale, logarithms);
}
extern "C" __global__ void __launch_bounds__(128, HEAD_DIM > 96 ? 3 : 4) attention_of_64(ATTENTION_PARAMETERS) {
    attend<4, 1>(q, k, v, out, start, tokens, heads, kv_heads, capacity, scale, logarithms);
}
extern "C" __global__ void __launch_bounds__(256, HEAD_DIM > 64 ? 1 : 2) attention_of_128(ATTENTION_PARAMETERS) {
    attend<8, 1>(q, k, v, out, start, tokens, heads, kv_heads, capacity, scale, logarithms);
}
