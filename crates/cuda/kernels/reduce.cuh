// Reductions over the `blockDim.x` threads of a row, whole warps, always in the same order. `scratch` has a float per
// warp and serves one reduction.
template <bool IS_SUM> DEVICE float row_reduce(float value, float *scratch) {
    value = IS_SUM ? warp_sum(value) : warp_max(value);
    if (blockDim.x == 32) return value;
    if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = value;
    __syncthreads();
    value = IS_SUM ? 0 : NEG_INF;
    for (u32 warp = 0; warp < blockDim.x / 32; warp++) value = IS_SUM ? value + scratch[warp] : fmaxf(value, scratch[warp]);
    return value;
}
DEVICE float row_sum(float value, float *scratch) { return row_reduce<true>(value, scratch); }
DEVICE float row_max(float value, float *scratch) { return row_reduce<false>(value, scratch); }
