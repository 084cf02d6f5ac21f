// Causal attention that never stores the scores, by tensor cores: see attention_tensor.cuh.
//
// A warp has 16 queries, whose numbers it keeps in registers, and goes over the keys by 64. While it computes with one
// tile of keys and values, the next one is on its way. Where there are few blocks, two warps share queries: one takes the
// even tiles and one the odd ones, and in the end their results are put together.

#define KEYS 64

__device__ __forceinline__ void one_tile(Attended &rows, const Four *queries, u32 keys, u32 values, float scale,
                                         bool is_masked, const u64 *seen, u32 first_key) {
    u32 lane = threadIdx.x % 32;
    float score[KEYS / 8][4] = {};
#pragma unroll
    for (int depth = 0; depth < HEAD_DIM / 16; depth++)
        dots_of<KEYS / 8>(score, queries[depth], keys + as_columns(lane), depth);
    if (is_masked) {
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                u64 key = first_key + n * 8 + lane % 4 * 2 + i % 2;
                if (key >= seen[i / 2]) score[n][i] = LOWEST;
            }
    }
    rows.add(score, values, scale);
}

// Adds what other warps found about the same rows. They hand it over in shared memory, a place a number and thread.
template <int THREADS> __device__ __forceinline__ void put_together(Attended &rows, float *places, bool is_giving, float scale) {
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
    begin_rows<ROWS, THREADS>(query_place, q + ((u64)blockIdx.x * tokens + first_query) * HEAD_DIM,
                              InTurn<u64>{tokens - first_query});
    end_of_copies();
    begin_rows<STEP, THREADS>(here, keys, InTurn<u64>{length});
    begin_rows<STEP, THREADS>(here + TILE, values, InTurn<u64>{length});
    end_of_copies();
    wait_for_copies<1>();
    __syncthreads();
    Four queries[HEAD_DIM / 16];
#pragma unroll
    for (int depth = 0; depth < HEAD_DIM / 16; depth++)
        queries[depth] = matrices(query_place + (warp * 16 + lane % 16) * STRIDE + depth * 32 + lane / 16 * 16);
    __syncthreads();

    Attended rows = {{LOWEST, LOWEST}, {0, 0}, {}};
    u64 warp_position = position + first_query + warp * 16;
    u64 row_position = warp_position + lane / 4;
    u64 seen[2] = {row_position + 1 < length ? row_position + 1 : length,
                   row_position + 9 < length ? row_position + 9 : length};
    for (u32 step = 0; step < steps; step++) {
        if (step + 1 < steps) {
            u64 next = (step + 1) * STEP;
            u32 next_place = here + (step + 1) % 2 * 2 * TILE;
            begin_rows<STEP, THREADS>(next_place, keys + next * HEAD_DIM, InTurn<u64>{length - next});
            begin_rows<STEP, THREADS>(next_place + TILE, values + next * HEAD_DIM, InTurn<u64>{length - next});
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
        float sum = rows.total(r);
        u32 query = first_query + warp * 16 + lane / 4 + r * 8;
        if (query >= tokens) continue;
        number *to = out + (((u64)sequence * tokens + query) * heads + head) * HEAD_DIM + lane % 4 * 2;
        float share = 1 / sum;
        // The logarithm of the sum of exponentials, if a gradient will need it.
        if (logarithms && lane % 4 == 0)
            logarithms[(u64)blockIdx.x * tokens + query] = (rows.largest[r] * scale + __log2f(sum)) * 0.6931471805599453f;
        store_rows(to, rows.result, r, share);
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
