// The index of the largest number of each row: the lowest index of several, 0 if there is no number.

// Blocks that share a row. They are a cluster, so that one launch is enough, where the architecture has clusters.
#if __CUDA_ARCH__ >= 900
#define BLOCKS_A_ROW 8
#define TOGETHER __cluster_dims__(BLOCKS_A_ROW)
#else
#define BLOCKS_A_ROW 1
#define TOGETHER
#endif
#define THREADS 1024

__device__ __forceinline__ u64 best_of_warp(u64 best) {
    for (int distance = 16; distance > 0; distance /= 2) best = larger(best, __shfl_xor_sync(~0u, best, distance));
    return best;
}

__device__ __forceinline__ u64 best_of_thread(const number *row, u32 width, u32 by_16_bytes, u32 thread, u32 threads) {
    float best = LOWEST;
    u32 index = 0;
    bool is_found = false;
    if (by_16_bytes) {
#pragma unroll 4
        for (u32 at = thread * NUMBERS_IN_16_BYTES; at < width; at += threads * NUMBERS_IN_16_BYTES) {
            numbers values = loaded(row + at);
#pragma unroll
            for (u32 i = 0; i < NUMBERS_IN_16_BYTES; i++) {
                float value = widened(values.at[i]);
                if (value > best || (!is_found && value == best)) {
                    best = value;
                    index = at + i;
                    is_found = true;
                }
            }
        }
    } else {
        for (u32 at = thread; at < width; at += threads) {
            float value = widened(row[at]);
            if (value > best || (!is_found && value == best)) {
                best = value;
                index = at;
                is_found = true;
            }
        }
    }
    return is_found ? rank(best, index) : 0;
}

__device__ __forceinline__ void wait_for_cluster() {
#if BLOCKS_A_ROW > 1
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
#else
    __syncthreads();
#endif
}

// The same location in the shared memory of the block with this rank in the cluster.
__device__ __forceinline__ u64 of_block(const u64 *place, u32 block) {
#if BLOCKS_A_ROW > 1
    u32 here = (u32)__cvta_generic_to_shared(place), there;
    u64 value;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(here), "r"(block));
    asm volatile("ld.shared::cluster.u64 %0, [%1];" : "=l"(value) : "r"(there) : "memory");
    return value;
#else
    return *place;
#endif
}

extern "C" __global__ void TOGETHER __launch_bounds__(THREADS)
    argmax(const number *x, u32 *indices, u32 width, u32 by_16_bytes) {
    __shared__ u64 bests[THREADS / 32];
    __shared__ u64 best_of_block;
    u64 row = blockIdx.x / BLOCKS_A_ROW;
    u32 block = blockIdx.x % BLOCKS_A_ROW;
    u64 best = best_of_thread(x + row * width, width, by_16_bytes, block * THREADS + threadIdx.x, BLOCKS_A_ROW * THREADS);
    best = best_of_warp(best);
    if (threadIdx.x % 32 == 0) bests[threadIdx.x / 32] = best;
    __syncthreads();
    if (threadIdx.x < 32) {
        best = best_of_warp(bests[threadIdx.x]);
        if (threadIdx.x == 0) best_of_block = best;
    }
    wait_for_cluster();
    if (block == 0 && threadIdx.x == 0) {
        for (u32 other = 1; other < BLOCKS_A_ROW; other++) best = larger(best, of_block(&best_of_block, other));
        indices[row] = best == 0 ? 0 : ~(u32)best;
    }
    // A block's shared memory is gone when it ends.
    wait_for_cluster();
}
