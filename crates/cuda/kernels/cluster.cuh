// Thread block clusters. Before Hopper there are none, and a block is its own cluster.

DEVICE u32 cluster_rank() {
    u32 rank = 0;
#if __CUDA_ARCH__ >= 900
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
#endif
    return rank;
}

// The two halves of a barrier of the cluster: writes before the first are visible after the second.
DEVICE void cluster_arrive() {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#else
    __syncthreads();
#endif
}
DEVICE void cluster_wait() {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}

// The address of a shared variable in another block of the cluster.
DEVICE u32 map_shared(const void *local, u32 rank) {
    u32 address = (u32)__cvta_generic_to_shared(local);
#if __CUDA_ARCH__ >= 900
    asm volatile("mapa.shared::cluster.u32 %0, %0, %1;" : "+r"(address) : "r"(rank));
#endif
    return address;
}
