// The two ends of a decode step: a token becomes a vector, and logits become the next token.

// One block a sequence. A token beyond the vocabulary gives numbers that are none.
extern "C" __global__ void embed_step(const u32 *token, const number *table, number *x, u32 hidden, u32 vocab, u64 *border) {
    let_the_next_kernel_begin();
    stamp_border(border);
    u32 id = token[blockIdx.x];
    const number *from = table + (u64)id * hidden;
    number *to = x + (u64)blockIdx.x * hidden;
    for (u32 i = threadIdx.x; i < hidden; i += blockDim.x) {
        to[i] = id < vocab ? from[i] : narrowed(NOT_A_NUMBER);
    }
}

__device__ __forceinline__ u64 best_of_row(const number *row, u32 vocab) {
    u64 best = 0;
    u32 from = blockIdx.x * blockDim.x + threadIdx.x, apart = gridDim.x * blockDim.x;
    if (vocab % PER != 0) {
        for (u32 i = from; i < vocab; i += apart) best = larger(best, rank(widened(row[i]), i));
        return best;
    }
    for (u32 i = from; i < vocab / PER; i += apart) {
        float values[PER];
        unpack(load_packed(row + (u64)i * PER), values);
#pragma unroll
        for (u32 j = 0; j < PER; j++) best = larger(best, rank(values[j], i * PER + j));
    }
    return best;
}

// The result of the step: the token of each sequence, also stored in a list, and the next position.
__device__ __forceinline__ void settle(u64 *best, u32 *token, u32 *position, u32 *count, u32 *chosen, u32 room, u32 batch) {
    u32 step = *count;
    if (threadIdx.x < batch) {
        u64 found = atomicExch(best + threadIdx.x, 0ull);
        u32 id = found == 0 ? 0 : ~(u32)found;
        token[threadIdx.x] = id;
        if (step < room) chosen[(u64)step * batch + threadIdx.x] = id;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        *count = step + 1;
        *position += 1;
    }
}

// A grid of [blocks, batch]; `best` [batch] and `done` are zero before it and after it.
extern "C" __global__ void argmax_step(const number *logits, u32 vocab, u64 *best, u32 *done, u32 *token, u32 *position,
                                       u32 *count, u32 *chosen, u32 room, u64 *border) {
    __shared__ u64 of_warp[LANES];
    __shared__ bool is_last;
    let_the_next_kernel_begin();
    wait_for_the_kernel_before();
    stamp_border(border);
    u64 found = best_of_row(logits + (u64)blockIdx.y * vocab, vocab);
#pragma unroll
    for (u32 apart = LANES / 2; apart > 0; apart /= 2) found = larger(found, __shfl_xor_sync(ALL_LANES, found, apart));
    if (threadIdx.x % LANES == 0) of_warp[threadIdx.x / LANES] = found;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (u32 warp = 1; warp < blockDim.x / LANES; warp++) found = larger(found, of_warp[warp]);
        atomicMax(best + blockIdx.y, found);
        __threadfence();
        is_last = atomicAdd(done, 1u) == gridDim.x * gridDim.y - 1;
    }
    __syncthreads();
    if (!is_last) return;
    __threadfence();
    settle(best, token, position, count, chosen, room, gridDim.y);
    if (threadIdx.x == 0) *done = 0;
}
