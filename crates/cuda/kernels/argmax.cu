// The index of the largest element of each row. Ties go to the lowest index, NaN is ignored, and a row of NaN gives 0.

// Blocks per row: a cluster where there are clusters, so that one launch is enough.
#if __CUDA_ARCH__ >= 900
#define CLUSTER 8
#define IN_CLUSTERS __cluster_dims__(CLUSTER)
#else
#define CLUSTER 1
#define IN_CLUSTERS
#endif
#define THREADS 1024

template <u32 V> DEVICE u64 thread_max(const dtype *row, u32 width, u32 thread, u32 threads) {
    float best = NEG_INF;
    u32 index = 0;
    bool is_found = false;
#pragma unroll 4
    for (u32 at = thread * V; at < width; at += threads * V) {
        Vec<V> values = load<V>(row + at);
#pragma unroll
        for (u32 i = 0; i < V; i++) {
            float value = to_float(values.at[i]);
            if (value > best || (!is_found && value == best)) {
                best = value;
                index = at + i;
                is_found = true;
            }
        }
    }
    return is_found ? argmax_key(best, index) : 0;
}

KERNEL IN_CLUSTERS __launch_bounds__(THREADS) argmax(const dtype *x, u32 *indices, u32 width, u32 is_aligned) {
    __shared__ u64 warp_keys[THREADS / 32];
    __shared__ u64 block_key;
    u64 row = blockIdx.x / CLUSTER;
    u32 block = blockIdx.x % CLUSTER, thread = block * THREADS + threadIdx.x;
    const dtype *from = x + row * width;
    u64 key = is_aligned ? thread_max<VEC>(from, width, thread, CLUSTER * THREADS)
                         : thread_max<1>(from, width, thread, CLUSTER * THREADS);
    key = warp_max(key);
    if (threadIdx.x % 32 == 0) warp_keys[threadIdx.x / 32] = key;
    __syncthreads();
    if (threadIdx.x < 32) {
        key = warp_max(warp_keys[threadIdx.x]);
        if (threadIdx.x == 0) block_key = key;
    }
    cluster_arrive();
    cluster_wait();
    if (block == 0 && threadIdx.x == 0) {
        for (u32 other = 1; other < CLUSTER; other++) {
            u64 other_key;
            asm volatile("ld.shared::cluster.u64 %0, [%1];" : "=l"(other_key) : "r"(map_shared(&block_key, other)) : "memory");
            key = max(key, other_key);
        }
        indices[row] = index_of_key(key);
    }
    // A block's shared memory must outlive the reads of the first one.
    cluster_arrive();
    cluster_wait();
}
