// Attention of one new token over the KV cache, to which the kernel adds the token (flash decoding).
//
// A cluster of SPLITS blocks shares the positions of one key and value head, for up to HEADS of the query heads that
// use it. The partial results are merged in the shared memory of the first block.
// Options: HEAD_DIM; HEADS; SPLITS; WARPS per block; MAX_REGISTERS per thread; WINDOW, the number of the last positions
// that a query sees, if limited; ON_TENSOR_CORES.

#ifndef WINDOW
#define WINDOW 0
#endif

// Merges COUNT partial results of one head, `stride` apart, for one column.
struct Merged {
    float largest = MASKED, sum = 0.0f, value = 0.0f;
};
template <u32 COUNT> DEVICE Merged merged(const Partial *partials, u32 stride, u32 column) {
    Merged all;
#pragma unroll
    for (u32 n = 0; n < COUNT; n++) all.largest = fmaxf(all.largest, partials[n * stride].largest);
#pragma unroll
    for (u32 n = 0; n < COUNT; n++) {
        float weight = exp2f(partials[n * stride].largest - all.largest);
        all.sum += partials[n * stride].sum * weight;
        all.value += partials[n * stride].values[column] * weight;
    }
    return all;
}

DEVICE void attend(const Attention a) {
    extern __shared__ packed memory[];
    Shared &shared = *reinterpret_cast<Shared *>(memory);
    launch_dependents();
    // All blocks have started before one writes to another's memory.
    if (SPLITS > 1) cluster_arrive();
    u32 group = a.heads / a.kv_heads, bundles = (group + HEADS - 1) / HEADS;
    u32 kv_head = blockIdx.y / bundles, bundle = blockIdx.y % bundles, batch = blockIdx.z;
    u32 first_head = kv_head * group + bundle * HEADS, heads = min(HEADS, group - bundle * HEADS);
    u32 warp = threadIdx.x / LANES, rank = SPLITS > 1 ? cluster_rank() : 0;
    u32 position = *a.position;
    bool is_in_cache = position < a.capacity && position < a.positions;
    if (!is_in_cache) position = 0;
    // The last block has the new token, which is not in the cache yet.
    u32 total = position + 1;
    u32 oldest = WINDOW && total > WINDOW ? total - WINDOW : 0;
    u32 begin = oldest + (u32)((u64)(total - oldest) * rank / SPLITS);
    u32 end = oldest + (u32)((u64)(total - oldest) * (rank + 1) / SPLITS);
    bool has_new = rank == SPLITS - 1;
    u64 first = ((u64)batch * a.kv_heads + kv_head) * a.capacity * HEAD_DIM;
    Cache cache{a.keys + first, a.values + first, end, position};
    u32 tile = begin + warp * TILE;

    Tile loaded;
    loaded.load(cache, tile);
    // Earlier steps wrote these: all that a warp's first head needs but the head itself.
    Lanes lanes(a.is_interleaved);
    Pairs rope = load_rope(a, position);
    auto norm_of = [&](u32 job) { return job < HEADS ? a.query_norm : job == HEADS ? a.key_norm : nullptr; };
    Pairs norm = lanes.load(norm_of(warp));

    wait_for_previous_kernel();
    write_timestamp(a.timestamp);
    const dtype *token = a.qkv + (u64)batch * (a.heads + 2 * a.kv_heads) * HEAD_DIM;
    for (u32 job = warp; job < HEADS + (has_new ? 2 : 0); job += WARPS) {
        u32 head = job < HEADS ? first_head + job : a.heads + kv_head + (job - HEADS) * a.kv_heads;
        Pairs pairs = lanes.load(job < HEADS && job >= heads ? nullptr : token + (u64)head * HEAD_DIM);
        if (job != warp) norm = lanes.load(norm_of(job));
        bool is_normed = norm_of(job) != nullptr;
        prepare_head(pairs, is_normed, norm, a.epsilon, job <= HEADS, rope, lanes, shared.token[job]);
    }
    __syncthreads();
    if (has_new && is_in_cache && bundle == 0)
        for (u32 i = threadIdx.x; i < 2 * HEAD_DIM; i += THREADS) {
            u32 column = i % HEAD_DIM;
            dtype *to = i < HEAD_DIM ? a.keys : a.values;
            to[first + (u64)position * HEAD_DIM + column] = to_dtype(shared.token[HEADS + i / HEAD_DIM][column]);
        }

    Queries queries(shared);
    OnlineSoftmax softmax;
    while (tile < end) {
        if (has_new) loaded.insert(tile, position, shared.token[HEADS], shared.token[HEADS + 1]);
        u32 next = tile + WARPS * TILE;
        softmax.add(queries, a.scale * LOG2_E, loaded, cache, tile, next);
        tile = next;
    }
    softmax.store(shared.of_warp[warp]);
    __syncthreads();

    // A position beyond the cache gives NaN.
    auto write = [&](u32 i, const Merged &all) {
        float result = is_in_cache ? all.value / all.sum : QUIET_NAN;
        a.out[((u64)batch * a.heads + first_head) * HEAD_DIM + i] = to_dtype(result);
    };
    if (SPLITS > 1) cluster_wait();
    for (u32 i = threadIdx.x; i < heads * HEAD_DIM; i += THREADS) {
        u32 head = i / HEAD_DIM, column = i % HEAD_DIM;
        Merged all = merged<WARPS>(&shared.of_warp[0][head], HEADS, column);
        if (SPLITS == 1) {
            write(i, all);
            continue;
        }
        Partial *to = &shared.of_block[rank][head];
        store_in_first(to->values + column, all.value);
        if (column == 0) {
            store_in_first(&to->largest, all.largest);
            store_in_first(&to->sum, all.sum);
        }
    }
    if (SPLITS == 1) return;
    cluster_arrive();
    if (rank != 0) return;
    cluster_wait();
    for (u32 i = threadIdx.x; i < heads * HEAD_DIM; i += THREADS)
        write(i, merged<SPLITS>(&shared.of_block[0][i / HEAD_DIM], HEADS, i % HEAD_DIM));
}

#if SPLITS > 1
#define IN_CLUSTERS __cluster_dims__(SPLITS, 1, 1)
#else
#define IN_CLUSTERS
#endif

KERNEL __maxnreg__(MAX_REGISTERS) IN_CLUSTERS
    attention_step(const dtype *qkv, const dtype *query_norm, const dtype *key_norm, float epsilon, float scale,
                   const float *cosines, const float *sines, u32 positions, u32 is_interleaved, const u32 *position,
                   dtype *keys, dtype *values, u32 capacity, u32 heads, u32 kv_heads, dtype *out, u64 *timestamp) {
    attend({qkv, query_norm, key_norm, epsilon, scale, cosines, sines, positions, is_interleaved, position, keys, values,
            capacity, heads, kv_heads, out, timestamp});
}
