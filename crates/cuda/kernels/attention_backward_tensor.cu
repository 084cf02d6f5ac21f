// The gradients of causal attention without stored scores, by tensor cores: see attention_tensor.cuh.
//
// Shares are computed again, from the logarithm of each row's sum that the forward pass has left. One kernel has the keys
// and goes over the queries that see them, of all heads of the group, the other has the queries and goes over the keys: so
// that everything is added up in one place and in one order. The gradient of a score is share * (slope - dot), where `dots`
// are the products of each row's result and its gradient.

#define KEYS 64
// Queries that the kernel of keys takes at a time: few where a warp's sums fill its registers.
#define QUERIES (HEAD_DIM <= 64 ? 64 : 32)
#define THREADS 128
#define DEPTHS (HEAD_DIM / 16)
#define LOG2_E 1.4426950408889634f

__device__ __forceinline__ void begin_float(u32 to, const float *from, bool is_there) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(is_there ? 4 : 0));
}

#define GRADIENT_PARAMETERS                                                                                            \
    const number *q, const number *k, const number *v, const number *d_out, const float *logarithms,                   \
        const float *dots, number *dq, number *dk, number *dv, const u32 *start, u32 tokens, u32 heads, u32 kv_heads,  \
        u32 capacity, float scale

// A block has 64 keys of one head, a warp 16 of them. Every position of the cache gets a gradient.
extern "C" __global__ void __launch_bounds__(THREADS, HEAD_DIM <= 64 ? 3 : 2)
    attention_backward_keys(GRADIENT_PARAMETERS) {
    constexpr u32 KEY_TILE = KEYS * STRIDE, QUERY_TILE = QUERIES * STRIDE, STEP = 2 * QUERY_TILE + 2 * QUERIES * 4;
    constexpr bool IS_KEPT = HEAD_DIM <= 64;
    extern __shared__ uint4 shared[];
    u32 keys = (u32)__cvta_generic_to_shared(shared), values = keys + KEY_TILE, first_step = keys + 2 * KEY_TILE;
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    u32 sequence = blockIdx.x / kv_heads, kv_head = blockIdx.x % kv_heads, group = heads / kv_heads;
    u32 first_key = blockIdx.y * KEYS;
    u64 position = *start, length = position + tokens < capacity ? position + tokens : capacity;
    // Queries before do not see these keys.
    u64 seen_from = first_key > position ? (first_key - position) / QUERIES * QUERIES : 0;
    u32 first_query = seen_from < tokens ? (u32)seen_from : tokens;
    u32 tiles = first_key < length ? (tokens - first_query + QUERIES - 1) / QUERIES : 0, steps = tiles * group;
    u64 kv_row = (u64)blockIdx.x * capacity + first_key;
    auto begin_step = [&](u32 step) {
        u32 head = kv_head * group + step / tiles, query = first_query + step % tiles * QUERIES;
        u32 place = first_step + step % 2 * STEP, there = tokens - query, at = threadIdx.x % QUERIES;
        u64 row = ((u64)sequence * heads + head) * tokens + query;
        begin_rows<QUERIES, THREADS>(place, q + row * HEAD_DIM, InTurn<u64>{there});
        const number *slopes = d_out + (((u64)sequence * tokens + query) * heads + head) * HEAD_DIM;
        begin_rows<QUERIES, THREADS>(place + QUERY_TILE, slopes, InTurn<u64>{there, (u64)heads * HEAD_DIM});
        if (threadIdx.x < 2 * QUERIES) {
            const float *from = (threadIdx.x < QUERIES ? logarithms : dots) + row;
            begin_float(place + 2 * QUERY_TILE + threadIdx.x * 4, from + (at < there ? at : 0), at < there);
        }
    };

    float d_keys[CHUNKS][4] = {}, d_values[CHUNKS][4] = {};
    Four kept_keys[IS_KEPT ? DEPTHS : 1], kept_values[IS_KEPT ? DEPTHS : 1];
    u32 left = warp * 16 * STRIDE + as_left(lane);
    if (steps > 0) {
        begin_rows<KEYS, THREADS>(keys, k + kv_row * HEAD_DIM, InTurn<u64>{length - first_key});
        begin_rows<KEYS, THREADS>(values, v + kv_row * HEAD_DIM, InTurn<u64>{length - first_key});
        begin_step(0);
        end_of_copies();
    }
    for (u32 step = 0; step < steps; step++) {
        if (step + 1 < steps) begin_step(step + 1);
        end_of_copies();
        wait_for_copies<1>();
        __syncthreads();
        if (IS_KEPT && step == 0) {
#pragma unroll
            for (int depth = 0; depth < DEPTHS; depth++) {
                kept_keys[IS_KEPT ? depth : 0] = matrices(keys + left + depth * 32);
                kept_values[IS_KEPT ? depth : 0] = matrices(values + left + depth * 32);
            }
        }
        u32 place = first_step + step % 2 * STEP, query = first_query + step % tiles * QUERIES;
        u32 warp_key = first_key + warp * 16;
        if (warp_key < position + query + QUERIES && warp_key < length) {
            float share[QUERIES / 8][4] = {}, slope[QUERIES / 8][4] = {};
#pragma unroll
            for (int depth = 0; depth < DEPTHS; depth++) {
                Four key = IS_KEPT ? kept_keys[IS_KEPT ? depth : 0] : matrices(keys + left + depth * 32);
                dots_of<QUERIES / 8>(share, key, place + as_columns(lane), depth);
            }
#pragma unroll
            for (int depth = 0; depth < DEPTHS; depth++) {
                Four value = IS_KEPT ? kept_values[IS_KEPT ? depth : 0] : matrices(values + left + depth * 32);
                dots_of<QUERIES / 8>(slope, value, place + QUERY_TILE + as_columns(lane), depth);
            }
            bool is_masked = warp_key + 15 > position + query || query + QUERIES > tokens;
            const float *numbers_of = reinterpret_cast<const float *>(reinterpret_cast<const char *>(shared) +
                                                                      (place - keys) + 2 * QUERY_TILE);
#pragma unroll
            for (int n = 0; n < QUERIES / 8; n++) {
                u32 column = n * 8 + lane % 4 * 2;
                float2 logarithm = *reinterpret_cast<const float2 *>(numbers_of + column);
                float2 dot = *reinterpret_cast<const float2 *>(numbers_of + QUERIES + column);
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    float shift = (i % 2 ? logarithm.y : logarithm.x) * LOG2_E;
                    float part = power_of_two(fmaf(share[n][i], scale * LOG2_E, -shift));
                    if (is_masked) {
                        u32 of_query = query + column + i % 2;
                        u64 key = warp_key + lane / 4 + i / 2 * 8;
                        if (key > position + of_query || of_query >= tokens) part = 0;
                    }
                    share[n][i] = part;
                    slope[n][i] = part * (slope[n][i] - (i % 2 ? dot.y : dot.x));
                }
            }
#pragma unroll
            for (int depth = 0; depth < QUERIES / 16; depth++) {
                u32 right = place + depth * 16 * STRIDE + as_rows(lane);
                add_product(d_values, as_factor(share + 2 * depth), right + QUERY_TILE);
                add_product(d_keys, as_factor(slope + 2 * depth), right);
            }
        }
        __syncthreads();
    }
#pragma unroll
    for (int r = 0; r < 2; r++) {
        u32 row = warp * 16 + lane / 4 + r * 8;
        if (first_key + row >= capacity) continue;
        u64 to = (kv_row + row) * HEAD_DIM + lane % 4 * 2;
        store_rows(dk + to, d_keys, r, scale);
        store_rows(dv + to, d_values, r, 1);
    }
}

// A block has 64 queries of one head, a warp 16 of them.
extern "C" __global__ void __launch_bounds__(THREADS, HEAD_DIM <= 64 ? 3 : 2)
    attention_backward_queries(GRADIENT_PARAMETERS) {
    constexpr u32 TILE = KEYS * STRIDE;
    extern __shared__ uint4 shared[];
    u32 here = (u32)__cvta_generic_to_shared(shared);
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    u32 sequence = blockIdx.x / heads, head = blockIdx.x % heads;
    // The tiles with the most keys come first.
    u32 first_query = (gridDim.y - 1 - blockIdx.y) * 64, there = tokens - first_query;
    u64 position = *start, length = position + tokens < capacity ? position + tokens : capacity;
    u64 seen_by_last = position + first_query + 64 < length ? position + first_query + 64 : length;
    u32 steps = (u32)((seen_by_last + KEYS - 1) / KEYS);
    u64 kv_row = (u64)(sequence * kv_heads + head / (heads / kv_heads)) * capacity;
    const number *keys = k + kv_row * HEAD_DIM, *values = v + kv_row * HEAD_DIM;

    // The queries and their slopes lie for a moment where the second tile will.
    u64 first_row = (u64)blockIdx.x * tokens + first_query;
    begin_rows<64, THREADS>(here + 2 * TILE, q + first_row * HEAD_DIM, InTurn<u64>{there});
    const number *slopes = d_out + (((u64)sequence * tokens + first_query) * heads + head) * HEAD_DIM;
    begin_rows<64, THREADS>(here + 3 * TILE, slopes, InTurn<u64>{there, (u64)heads * HEAD_DIM});
    end_of_copies();
    begin_rows<KEYS, THREADS>(here, keys, InTurn<u64>{length});
    begin_rows<KEYS, THREADS>(here + TILE, values, InTurn<u64>{length});
    end_of_copies();
    float shift[2], dot[2];
#pragma unroll
    for (int r = 0; r < 2; r++) {
        u32 row = warp * 16 + lane / 4 + r * 8;
        shift[r] = row < there ? logarithms[first_row + row] * LOG2_E : 0;
        dot[r] = row < there ? dots[first_row + row] : 0;
    }
    wait_for_copies<1>();
    __syncthreads();
    Four queries[DEPTHS], query_slopes[DEPTHS];
    u32 left = here + 2 * TILE + warp * 16 * STRIDE + as_left(lane);
#pragma unroll
    for (int depth = 0; depth < DEPTHS; depth++) {
        queries[depth] = matrices(left + depth * 32);
        query_slopes[depth] = matrices(left + TILE + depth * 32);
    }
    __syncthreads();

    float d_queries[CHUNKS][4] = {};
    u64 warp_position = position + first_query + warp * 16, row_position = warp_position + lane / 4;
    for (u32 step = 0; step < steps; step++) {
        if (step + 1 < steps) {
            u64 next = (step + 1) * KEYS;
            u32 place = here + (step + 1) % 2 * 2 * TILE;
            begin_rows<KEYS, THREADS>(place, keys + next * HEAD_DIM, InTurn<u64>{length - next});
            begin_rows<KEYS, THREADS>(place + TILE, values + next * HEAD_DIM, InTurn<u64>{length - next});
        }
        end_of_copies();
        wait_for_copies<1>();
        __syncthreads();
        u32 first_key = step * KEYS, place = here + step % 2 * 2 * TILE;
        if (first_key <= warp_position + 15) {
            float share[KEYS / 8][4] = {}, slope[KEYS / 8][4] = {};
#pragma unroll
            for (int depth = 0; depth < DEPTHS; depth++)
                dots_of<KEYS / 8>(share, queries[depth], place + as_columns(lane), depth);
#pragma unroll
            for (int depth = 0; depth < DEPTHS; depth++)
                dots_of<KEYS / 8>(slope, query_slopes[depth], place + TILE + as_columns(lane), depth);
            bool is_masked = first_key + KEYS > warp_position + 1 || first_key + KEYS > length;
#pragma unroll
            for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    float part = power_of_two(fmaf(share[n][i], scale * LOG2_E, -shift[i / 2]));
                    if (is_masked) {
                        u64 key = first_key + n * 8 + lane % 4 * 2 + i % 2;
                        if (key > row_position + i / 2 * 8 || key >= length) part = 0;
                    }
                    slope[n][i] = part * (slope[n][i] - dot[i / 2]);
                }
#pragma unroll
            for (int depth = 0; depth < KEYS / 16; depth++)
                add_product(d_queries, as_factor(slope + 2 * depth), place + depth * 16 * STRIDE + as_rows(lane));
        }
        __syncthreads();
    }
#pragma unroll
    for (int r = 0; r < 2; r++) {
        u32 row = warp * 16 + lane / 4 + r * 8;
        if (row < there) store_rows(dq + (first_row + row) * HEAD_DIM + lane % 4 * 2, d_queries, r, scale);
    }
}
