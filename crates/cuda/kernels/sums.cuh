// Sums and largest values over the threads that share a row, always added up in the same order.

// Over `blockDim.x` threads, of whole warps; `places`, one a warp, are used once.
template <bool IS_SUM> __device__ __forceinline__ float over_row(float value, float *places) {
    value = IS_SUM ? sum_of_warp(value) : largest_of_warp(value);
    if (blockDim.x == 32) return value;
    if (threadIdx.x % 32 == 0) places[threadIdx.x / 32] = value;
    __syncthreads();
    value = places[0];
    for (u32 warp = 1; warp < blockDim.x / 32; warp++) value = IS_SUM ? value + places[warp] : fmaxf(value, places[warp]);
    return value;
}
__device__ __forceinline__ float sum_of_row(float value, float *places) { return over_row<true>(value, places); }
__device__ __forceinline__ float largest_of_row(float value, float *places) { return over_row<false>(value, places); }

// Rows of a causal softmax: row r of a matrix is of query r % tokens, which sees the keys up to start + query.
__device__ __forceinline__ u32 keys_seen(u64 row, u32 tokens, u32 keys, const u32 *start) {
    // Rows are fewer than 2^31, and a division of 32 bits is a short one.
    u64 seen = (u64)*start + (u32)row % tokens + 1;
    return seen < keys ? (u32)seen : keys;
}
