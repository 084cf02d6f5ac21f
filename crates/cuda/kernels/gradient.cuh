
// What the kernels of gradients share: groups of any size, and sums that are always added up in the same order.

#define LOWEST (-__int_as_float(0x7f800000))
#define NOT_A_NUMBER __uint_as_float(0x7fffffffu)

// The number of values that are read and written at once: those of 16 bytes, or one at any address.
template <u32 V> struct alignas(V * sizeof(number)) Some {
    number at[V];
};

template <u32 V> __device__ __forceinline__ Some<V> some(const number *from) {
    return *reinterpret_cast<const Some<V> *>(from);
}
template <u32 V> __device__ __forceinline__ void put(number *to, const Some<V> &values) {
    *reinterpret_cast<Some<V> *>(to) = values;
}

__device__ __forceinline__ float sum_of_warp(float value) {
    for (int distance = 16; distance > 0; distance /= 2) value += __shfl_xor_sync(~0u, value, distance);
    return value;
}
__device__ __forceinline__ float largest_of_warp(float value) {
    for (int distance = 16; distance > 0; distance /= 2) value = fmaxf(value, __shfl_xor_sync(~0u, value, distance));
    return value;
}

// Over `blockDim.x` threads, of whole warps; `places`, one a warp, are used once.
__device__ __forceinline__ float sum_of_row(float value, float *places) {
    value = sum_of_warp(value);
    if (blockDim.x == 32) return value;
    if (threadIdx.x % 32 == 0) places[threadIdx.x / 32] = value;
    __syncthreads();
    value = places[0];
    for (u32 warp = 1; warp < blockDim.x / 32; warp++) value += places[warp];
    return value;
}
__device__ __forceinline__ float largest_of_row(float value, float *places) {
    value = largest_of_warp(value);
    if (blockDim.x == 32) return value;
    if (threadIdx.x % 32 == 0) places[threadIdx.x / 32] = value;
    __syncthreads();
    value = places[0];
    for (u32 warp = 1; warp < blockDim.x / 32; warp++) value = fmaxf(value, places[warp]);
    return value;
}

// A kernel that adds up what another leaves begins early, and waits for it; devices before Hopper launch it late.
__device__ __forceinline__ void allow_next() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
__device__ __forceinline__ void wait_for_last() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
