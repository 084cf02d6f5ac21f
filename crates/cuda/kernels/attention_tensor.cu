// Causal attention that does not store the scores, on tensor cores: see attention_tensor.cuh.
//
// A warp keeps 16 queries in registers and iterates over tiles of 64 keys; the next tile is loaded during the
// computation. If there are few blocks, two warps share queries: one takes the even tiles and one the odd ones, and
// their results are merged.

#define KEYS 64

// Merges the results of warps with the same queries, through shared memory.
template <int THREADS> DEVICE void merge(OnlineSoftmax &softmax, float *shared, bool is_giving, float scale) {
    float *mine = shared + threadIdx.x % THREADS;
    if (is_giving) {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            mine[r * THREADS] = softmax.largest[r];
            mine[(2 + r) * THREADS] = softmax.sum[r];
        }
#pragma unroll
        for (int i = 0; i < CHUNKS * 4; i++) mine[(4 + i) * THREADS] = softmax.result[i / 4][i % 4];
    }
    __syncthreads();
    if (is_giving) return;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float other = mine[r * THREADS], most = fmaxf(softmax.largest[r], other);
        float kept = exp2_approx((softmax.largest[r] - most) * scale), added = exp2_approx((other - most) * scale);
        softmax.largest[r] = most;
        softmax.sum[r] = softmax.sum[r] * kept + mine[(2 + r) * THREADS] * added;
#pragma unroll
        for (int n = 0; n < CHUNKS; n++)
#pragma unroll
            for (int i = 2 * r; i < 2 * r + 2; i++)
                softmax.result[n][i] = softmax.result[n][i] * kept + mine[(4 + n * 4 + i) * THREADS] * added;
    }
}

#define ATTENTION_PARAMETERS                                                                                           \
    const dtype *q, const dtype *k, const dtype *v, dtype *out, const u32 *start, u32 tokens, u32 heads, u32 kv_heads, \
        u32 capacity, float scale, float *lse
#define ATTENTION_ARGUMENTS q, k, v, out, start, tokens, heads, kv_heads, capacity, scale, lse

// WARPS warps have 16 queries each. SPLIT times as many share the queries and have other keys. `scale` includes
// log2(e).
template <int WARPS, int SPLIT> DEVICE void attend(ATTENTION_PARAMETERS) {
    wait_for_previous_kernel();
    constexpr int ROWS = WARPS * 16, THREADS = WARPS * SPLIT * 32;
    // Keys of all warps, and their bytes.
    constexpr u32 STEP = KEYS * SPLIT, TILE = STEP * STRIDE;
    extern __shared__ uint4 shared[];
    u32 here = shared_address(shared);
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32 % WARPS, part = threadIdx.x / 32 / WARPS;
    QueryHead head(tokens, heads, kv_heads, capacity);
    Causal causal(start, tokens, capacity);
    u64 length = causal.length;
    // The tiles with the most keys come first.
    u32 first_query = (gridDim.y - 1 - blockIdx.y) * ROWS;
    u32 steps = (u32)((causal.visible((u64)first_query + ROWS) + STEP - 1) / STEP);
    const dtype *keys = k + head.kv_row * HEAD_DIM, *values = v + head.kv_row * HEAD_DIM;

    // The queries are loaded where the second tile will be.
    u32 query_tile = here + 2 * TILE;
    load_rows<ROWS, THREADS>(query_tile, q + head.query_row(first_query) * HEAD_DIM, Contiguous<u64>{tokens - first_query});
    cp_async_commit();
    load_rows<STEP, THREADS>(here, keys, Contiguous<u64>{length});
    load_rows<STEP, THREADS>(here + TILE, values, Contiguous<u64>{length});
    cp_async_commit();
    cp_async_wait<1>();
    __syncthreads();
    Fragment queries[DEPTHS];
    load_left(queries, query_tile + warp * 16 * STRIDE);
    __syncthreads();

    OnlineSoftmax softmax;
    u64 warp_position = causal.position + first_query + warp * 16, row_position = warp_position + lane / 4;
    u64 visible[2] = {row_position + 1 < length ? row_position + 1 : length,
                      row_position + 9 < length ? row_position + 9 : length};
    for (u32 step = 0; step < steps; step++) {
        if (step + 1 < steps) {
            u64 next = (step + 1) * STEP;
            u32 next_tile = here + (step + 1) % 2 * 2 * TILE;
            load_rows<STEP, THREADS>(next_tile, keys + next * HEAD_DIM, Contiguous<u64>{length - next});
            load_rows<STEP, THREADS>(next_tile + TILE, values + next * HEAD_DIM, Contiguous<u64>{length - next});
        }
        cp_async_commit();
        cp_async_wait<1>();
        __syncthreads();
        u32 first_key = step * STEP + part * KEYS, tile = here + step % 2 * 2 * TILE + part * KEYS * STRIDE;
        bool is_masked = first_key + KEYS > warp_position + 1 || first_key + KEYS > length;
        if (first_key <= warp_position + 15 && first_key < length)
            softmax.add_tile<KEYS>(queries, tile, tile + TILE, scale, [&](float(*score)[4]) {
                if (!is_masked) return;
#pragma unroll
                for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
                    for (int i = 0; i < 4; i++) {
                        u64 key = first_key + n * 8 + lane % 4 * 2 + i % 2;
                        if (key >= visible[i / 2]) score[n][i] = NEG_INF;
                    }
            });
        __syncthreads();
    }
    if (SPLIT > 1) {
        merge<WARPS * 32>(softmax, reinterpret_cast<float *>(shared), part > 0, scale);
        if (part > 0) return;
    }
    softmax.store(out, lse, head, first_query + warp * 16, scale);
}

// Named by the queries of a block.
KERNEL __launch_bounds__(256, 1) attention_of_64_split(ATTENTION_PARAMETERS) { attend<4, 2>(ATTENTION_ARGUMENTS); }
KERNEL __launch_bounds__(128, HEAD_DIM > 96 ? 3 : 4) attention_of_64(ATTENTION_PARAMETERS) {
    attend<4, 1>(ATTENTION_ARGUMENTS);
}
KERNEL __launch_bounds__(256, HEAD_DIM > 64 ? 1 : 2) attention_of_128(ATTENTION_PARAMETERS) {
    attend<8, 1>(ATTENTION_ARGUMENTS);
}
