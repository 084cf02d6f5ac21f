// The gradients of causal attention without stored scores, on tensor cores: see attention_tensor.cuh.
//
// As in FlashAttention-2, the probabilities p are computed again from the logarithms of the sums of exponentials
// (`lse`) that the forward pass has left. The gradient of a score is p * (dp - delta), where `delta` is the dot product
// of the query's result and its gradient. One kernel owns keys and iterates over the queries of all heads of the group
// that see them; the other owns queries and iterates over keys. So every sum is added in one place, in one order.

#define KEYS 64
// Queries per step of the first kernel: fewer if a warp's sums fill its registers.
#define QUERIES (HEAD_DIM <= 64 ? 64 : 32)
#define THREADS 128

#define GRADIENT_PARAMETERS                                                                                            \
    const dtype *q, const dtype *k, const dtype *v, const dtype *d_out, const float *lse, const float *delta,          \
        dtype *dq, dtype *dk, dtype *dv, const u32 *start, u32 tokens, u32 heads, u32 kv_heads, u32 capacity,          \
        float scale

// A block has 64 keys of one head, and a warp 16 of them. Every position of the cache gets a gradient.
KERNEL __launch_bounds__(THREADS, HEAD_DIM <= 64 ? 3 : 2) attention_backward_keys(GRADIENT_PARAMETERS) {
    constexpr u32 KEY_TILE = KEYS * STRIDE, QUERY_TILE = QUERIES * STRIDE, STEP = 2 * QUERY_TILE + 2 * QUERIES * 4;
    constexpr bool IS_KEPT = HEAD_DIM <= 64;
    extern __shared__ uint4 shared[];
    u32 keys = shared_address(shared), values = keys + KEY_TILE, first_step = keys + 2 * KEY_TILE;
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    u32 sequence = blockIdx.x / kv_heads, kv_head = blockIdx.x % kv_heads, group = heads / kv_heads;
    u32 first_key = blockIdx.y * KEYS;
    Causal causal(start, tokens, capacity);
    u64 position = causal.position, length = causal.length;
    // Earlier queries do not see these keys.
    u64 visible_from = first_key > position ? (first_key - position) / QUERIES * QUERIES : 0;
    u32 first_query = visible_from < tokens ? (u32)visible_from : tokens;
    u32 tiles = first_key < length ? (tokens - first_query + QUERIES - 1) / QUERIES : 0, steps = tiles * group;
    u64 kv_row = (u64)blockIdx.x * capacity + first_key;
    auto begin_step = [&](u32 step) {
        u32 head = kv_head * group + step / tiles, query = first_query + step % tiles * QUERIES;
        u32 to = first_step + step % 2 * STEP, count = tokens - query, at = threadIdx.x % QUERIES;
        u64 row = ((u64)sequence * heads + head) * tokens + query;
        load_rows<QUERIES, THREADS>(to, q + row * HEAD_DIM, Contiguous<u64>{count});
        const dtype *d_outs = d_out + out_index(sequence, query, head, tokens, heads);
        load_rows<QUERIES, THREADS>(to + QUERY_TILE, d_outs, Contiguous<u64>{count, (u64)heads * HEAD_DIM});
        if (threadIdx.x < 2 * QUERIES) {
            const float *from = (threadIdx.x < QUERIES ? lse : delta) + row;
            cp_async<4>(to + 2 * QUERY_TILE + threadIdx.x * 4, from + (at < count ? at : 0), at < count);
        }
    };

    float d_keys[CHUNKS][4] = {}, d_values[CHUNKS][4] = {};
    Fragment kept_keys[IS_KEPT ? DEPTHS : 1], kept_values[IS_KEPT ? DEPTHS : 1];
    u32 left = warp * 16 * STRIDE + left_offset(lane);
    if (steps > 0) {
        load_rows<KEYS, THREADS>(keys, k + kv_row * HEAD_DIM, Contiguous<u64>{length - first_key});
        load_rows<KEYS, THREADS>(values, v + kv_row * HEAD_DIM, Contiguous<u64>{length - first_key});
        begin_step(0);
        cp_async_commit();
    }
    for (u32 step = 0; step < steps; step++) {
        if (step + 1 < steps) begin_step(step + 1);
        cp_async_commit();
        cp_async_wait<1>();
        __syncthreads();
        if (IS_KEPT && step == 0) {
#pragma unroll
            for (int depth = 0; depth < DEPTHS; depth++) {
                kept_keys[IS_KEPT ? depth : 0] = ldmatrix(keys + left + depth * 32);
                kept_values[IS_KEPT ? depth : 0] = ldmatrix(values + left + depth * 32);
            }
        }
        u32 queries = first_step + step % 2 * STEP, query = first_query + step % tiles * QUERIES;
        u32 warp_key = first_key + warp * 16;
        if (warp_key < position + query + QUERIES && warp_key < length) {
            float p[QUERIES / 8][4] = {}, ds[QUERIES / 8][4] = {};
#pragma unroll
            for (int depth = 0; depth < DEPTHS; depth++) {
                Fragment key = IS_KEPT ? kept_keys[IS_KEPT ? depth : 0] : ldmatrix(keys + left + depth * 32);
                mma_transposed<QUERIES / 8>(p, key, queries, depth);
            }
#pragma unroll
            for (int depth = 0; depth < DEPTHS; depth++) {
                Fragment value = IS_KEPT ? kept_values[IS_KEPT ? depth : 0] : ldmatrix(values + left + depth * 32);
                mma_transposed<QUERIES / 8>(ds, value, queries + QUERY_TILE, depth);
            }
            bool is_masked = warp_key + 15 > position + query || query + QUERIES > tokens;
            const float *lse_of = reinterpret_cast<const float *>(reinterpret_cast<const char *>(shared) + (queries - keys) +
                                                                  2 * QUERY_TILE);
#pragma unroll
            for (int n = 0; n < QUERIES / 8; n++) {
                u32 column = n * 8 + lane % 4 * 2;
                float2 lse2 = *reinterpret_cast<const float2 *>(lse_of + column);
                float2 delta2 = *reinterpret_cast<const float2 *>(lse_of + QUERIES + column);
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    float shift = (i % 2 ? lse2.y : lse2.x) * LOG2_E;
                    float probability = exp2_approx(fmaf(p[n][i], scale * LOG2_E, -shift));
                    if (is_masked) {
                        u32 of_query = query + column + i % 2;
                        u64 key = warp_key + lane / 4 + i / 2 * 8;
                        if (key > position + of_query || of_query >= tokens) probability = 0;
                    }
                    p[n][i] = probability;
                    ds[n][i] = probability * (ds[n][i] - (i % 2 ? delta2.y : delta2.x));
                }
            }
#pragma unroll
            for (int depth = 0; depth < QUERIES / 16; depth++) {
                mma_sums(d_values, p, queries + QUERY_TILE, depth);
                mma_sums(d_keys, ds, queries, depth);
            }
        }
        __syncthreads();
    }
#pragma unroll
    for (int r = 0; r < 2; r++) {
        u32 row = warp * 16 + lane / 4 + r * 8;
        if (first_key + row >= capacity) continue;
        u64 to = (kv_row + row) * HEAD_DIM + lane % 4 * 2;
        store_row(dk + to, d_keys, r, scale);
        store_row(dv + to, d_values, r, 1);
    }
}

// A block has 64 queries of one head, and a warp 16 of them.
KERNEL __launch_bounds__(THREADS, HEAD_DIM <= 64 ? 3 : 2) attention_backward_queries(GRADIENT_PARAMETERS) {
    constexpr u32 TILE = KEYS * STRIDE;
    extern __shared__ uint4 shared[];
    u32 here = shared_address(shared), lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    QueryHead head(tokens, heads, kv_heads, capacity);
    Causal causal(start, tokens, capacity);
    u64 length = causal.length;
    // The tiles with the most keys come first.
    u32 first_query = (gridDim.y - 1 - blockIdx.y) * 64, count = tokens - first_query;
    u32 steps = (u32)((causal.visible((u64)first_query + 64) + KEYS - 1) / KEYS);
    const dtype *keys = k + head.kv_row * HEAD_DIM, *values = v + head.kv_row * HEAD_DIM;

    // The queries and the gradients of their results are loaded where the second tile will be.
    u64 first_row = head.query_row(first_query);
    load_rows<64, THREADS>(here + 2 * TILE, q + first_row * HEAD_DIM, Contiguous<u64>{count});
    load_rows<64, THREADS>(here + 3 * TILE, d_out + head.out(first_query), Contiguous<u64>{count, (u64)heads * HEAD_DIM});
    cp_async_commit();
    load_rows<KEYS, THREADS>(here, keys, Contiguous<u64>{length});
    load_rows<KEYS, THREADS>(here + TILE, values, Contiguous<u64>{length});
    cp_async_commit();
    float shift[2], row_delta[2];
#pragma unroll
    for (int r = 0; r < 2; r++) {
        u32 row = warp * 16 + lane / 4 + r * 8;
        shift[r] = row < count ? lse[first_row + row] * LOG2_E : 0;
        row_delta[r] = row < count ? delta[first_row + row] : 0;
    }
    cp_async_wait<1>();
    __syncthreads();
    Fragment queries[DEPTHS], d_outs[DEPTHS];
    load_left(queries, here + 2 * TILE + warp * 16 * STRIDE);
    load_left(d_outs, here + 3 * TILE + warp * 16 * STRIDE);
    __syncthreads();

    float d_queries[CHUNKS][4] = {};
    u64 warp_position = causal.position + first_query + warp * 16, row_position = warp_position + lane / 4;
    for (u32 step = 0; step < steps; step++) {
        if (step + 1 < steps) {
            u64 next = (step + 1) * KEYS;
            u32 next_tile = here + (step + 1) % 2 * 2 * TILE;
            load_rows<KEYS, THREADS>(next_tile, keys + next * HEAD_DIM, Contiguous<u64>{length - next});
            load_rows<KEYS, THREADS>(next_tile + TILE, values + next * HEAD_DIM, Contiguous<u64>{length - next});
        }
        cp_async_commit();
        cp_async_wait<1>();
        __syncthreads();
        u32 first_key = step * KEYS, tile = here + step % 2 * 2 * TILE;
        if (first_key <= warp_position + 15) {
            float p[KEYS / 8][4] = {}, ds[KEYS / 8][4] = {};
            mma_transposed<KEYS / 8>(p, queries, tile);
            mma_transposed<KEYS / 8>(ds, d_outs, tile + TILE);
            bool is_masked = first_key + KEYS > warp_position + 1 || first_key + KEYS > length;
#pragma unroll
            for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    float probability = exp2_approx(fmaf(p[n][i], scale * LOG2_E, -shift[i / 2]));
                    if (is_masked) {
                        u64 key = first_key + n * 8 + lane % 4 * 2 + i % 2;
                        if (key > row_position + i / 2 * 8 || key >= length) probability = 0;
                    }
                    ds[n][i] = probability * (ds[n][i] - row_delta[i / 2]);
                }
#pragma unroll
            for (int depth = 0; depth < KEYS / 16; depth++) mma_sums(d_queries, ds, tile, depth);
        }
        __syncthreads();
    }
#pragma unroll
    for (int r = 0; r < 2; r++) {
        u32 row = warp * 16 + lane / 4 + r * 8;
        if (row < count) store_row(dq + (first_row + row) * HEAD_DIM + lane % 4 * 2, d_queries, r, scale);
    }
}
