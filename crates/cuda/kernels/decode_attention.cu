// Attention of one new token over the cache, which it joins.
//
// A cluster of SPLITS blocks shares the positions of one key and value head, for up to TOGETHER of the query heads that
// use it; their parts meet in the shared memory of the first.
// Options: HEAD_DIM; TOGETHER; SPLITS; WARPS of a block; REGISTERS of a thread at most; WINDOW, the number of the last
// positions that a query sees, if not all; ON_TENSOR_CORES.

#ifndef WINDOW
#define WINDOW 0
#endif

// Combines the partial results of one head at this distance, for one of the values; also the measures of the whole.
template <u32 COUNT>
__device__ __forceinline__ float joined(const Part *parts, u32 apart, u32 column, float *most, float *sum) {
    float higher = NO_SCORE, weights = 0.0f, total = 0.0f;
#pragma unroll
    for (u32 n = 0; n < COUNT; n++) higher = fmaxf(higher, parts[n * apart].most);
#pragma unroll
    for (u32 n = 0; n < COUNT; n++) {
        float share = exp2f(parts[n * apart].most - higher);
        weights += parts[n * apart].sum * share;
        total += parts[n * apart].values[column] * share;
    }
    *most = higher;
    *sum = weights;
    return total;
}

template <u32 HEADS> __device__ __forceinline__ void attend(const Attention a) {
    extern __shared__ packed memory[];
    Shared<HEADS> &shared = *reinterpret_cast<Shared<HEADS> *>(memory);
    let_the_next_kernel_begin();
    // By the time that another block's memory is written, all have begun.
    if (SPLITS > 1) arrive();
    u32 group = a.heads / a.kv_heads, bundles = (group + HEADS - 1) / HEADS;
    u32 kv_head = blockIdx.y / bundles, bundle = blockIdx.y % bundles, batch = blockIdx.z;
    u32 first_head = kv_head * group + bundle * HEADS, heads = min(HEADS, group - bundle * HEADS);
    u32 warp = threadIdx.x / LANES, rank = rank_in_cluster();
    u32 at = *a.position;
    bool has_room = at < a.capacity && at < a.positions;
    if (!has_room) at = 0;
    // The last block has this token, which is not in the cache yet.
    u32 total = at + 1;
    u32 oldest = WINDOW && total > WINDOW ? total - WINDOW : 0;
    u32 begin = oldest + (u32)((u64)(total - oldest) * rank / SPLITS);
    u32 end = oldest + (u32)((u64)(total - oldest) * (rank + 1) / SPLITS);
    bool has_new = rank == SPLITS - 1;
    u64 head_at = ((u64)batch * a.kv_heads + kv_head) * a.capacity * HEAD_DIM;
    Cached cached{a.keys + head_at, a.values + head_at, end, at};
    u32 tile = begin + warp * TILE;

    Seen seen;
    seen.load(cached, tile);
    // Earlier steps wrote these, and all that the first head of a warp needs is known but the head.
    Lanes lanes(a.in_pairs);
    Pairs turn = load_turn(a, at);
    auto norm_of = [&](u32 job) { return job < HEADS ? a.query_norm : job == HEADS ? a.key_norm : nullptr; };
    Pairs norm = lanes.load(norm_of(warp));

    wait_for_the_kernel_before();
    stamp_border(a.border);
    const number *token = a.qkv + (u64)batch * (a.heads + 2 * a.kv_heads) * HEAD_DIM;
    for (u32 job = warp; job < HEADS + (has_new ? 2 : 0); job += WARPS) {
        u32 head = job < HEADS ? first_head + job : a.heads + kv_head + (job - HEADS) * a.kv_heads;
        Pairs taken = lanes.load(job < HEADS && job >= heads ? nullptr : token + (u64)head * HEAD_DIM);
        if (job != warp) norm = lanes.load(norm_of(job));
        bool is_normed = norm_of(job) != nullptr;
        take_head(taken, is_normed, norm, a.epsilon, job <= HEADS, turn, lanes, shared.token[job]);
    }
    __syncthreads();
    if (has_new && has_room && bundle == 0) {
        for (u32 i = threadIdx.x; i < 2 * HEAD_DIM; i += THREADS) {
            u32 column = i % HEAD_DIM;
            number *cache = i < HEAD_DIM ? a.keys : a.values;
            cache[head_at + (u64)at * HEAD_DIM + column] = narrowed(shared.token[HEADS + i / HEAD_DIM][column]);
        }
    }

    Queries<HEADS> queries;
    queries.take(shared);
    Running<HEADS> running;
    running.begin();
    while (tile < end) {
        if (has_new) seen.add_new(tile, at, shared.token[HEADS], shared.token[HEADS + 1]);
        u32 next = tile + WARPS * TILE;
        look<HEADS>(running, queries, a.scale * LOG2_E, seen, cached, tile, next);
        tile = next;
    }
    running.put(shared.of_warp[warp]);
    __syncthreads();

    // A position that there is no room for gives numbers that are none.
    auto write = [&](u32 i, float whole, float sum) {
        float result = has_room ? whole / sum : NOT_A_NUMBER;
        a.out[((u64)batch * a.heads + first_head) * HEAD_DIM + i] = narrowed(result);
    };
    if (SPLITS > 1) wait_for_all();
    for (u32 i = threadIdx.x; i < heads * HEAD_DIM; i += THREADS) {
        u32 head = i / HEAD_DIM, column = i % HEAD_DIM;
        float most, sum;
        float part = joined<WARPS>(&shared.of_warp[0][head], HEADS, column, &most, &sum);
        if (SPLITS == 1) {
            write(i, part, sum);
            continue;
        }
        Part *to = &shared.of_block[rank][head];
        tell_first(to->values + column, part);
        if (column == 0) {
            tell_first(&to->most, most);
            tell_first(&to->sum, sum);
        }
    }
    if (SPLITS == 1) return;
    arrive();
    if (rank != 0) return;
    wait_for_all();
    for (u32 i = threadIdx.x; i < heads * HEAD_DIM; i += THREADS) {
        u32 head = i / HEAD_DIM, column = i % HEAD_DIM;
        float most, sum;
        float whole = joined<SPLITS>(&shared.of_block[0][head], HEADS, column, &most, &sum);
        write(i, whole, sum);
    }
}

#if SPLITS > 1
#define IN_CLUSTERS __cluster_dims__(SPLITS, 1, 1)
#else
#define IN_CLUSTERS
#endif

extern "C" __global__ void __maxnreg__(REGISTERS) IN_CLUSTERS
    attention_step(const number *qkv, const number *query_norm, const number *key_norm, float epsilon, float scale,
                   const float *cosines, const float *sines, u32 positions, u32 in_pairs, const u32 *position,
                   number *keys, number *values, u32 capacity, u32 heads, u32 kv_heads, number *out, u64 *border) {
    attend<TOGETHER>({qkv, query_norm, key_norm, epsilon, scale, cosines, sines, positions, in_pairs, position, keys,
                      values, capacity, heads, kv_heads, out, border});
}
