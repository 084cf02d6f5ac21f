// RMS norms: each row divided by the root of its mean square, times a weight. A block a row, of whole warps.

// Groups of 16 bytes that a thread keeps in registers between the two steps.
#define KEPT 2

__device__ __forceinline__ float added_up_in_block(float value) {
    __shared__ float sums[32];
    value = sum_of_warp(value);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = value;
    __syncthreads();
    float sum = 0;
    for (u32 warp = 0; warp < blockDim.x / 32; warp++) sum += sums[warp];
    return sum;
}

// Norms a row of groups of 16 bytes, of which a thread has at most KEPT. `visit` changes what was read, if need be, and adds
// its squares to a sum.
template <class Visit>
__device__ __forceinline__ void norm_kept(const number *row, const number *weight, number *out, u32 width, float epsilon,
                                          Visit visit) {
    numbers kept[KEPT], weights[KEPT];
    float sum = 0;
#pragma unroll
    for (u32 i = 0; i < KEPT; i++) {
        u32 at = (i * blockDim.x + threadIdx.x) * NUMBERS_IN_16_BYTES;
        if (at < width) {
            kept[i] = loaded(row + at);
            weights[i] = loaded(weight + at);
        }
    }
#pragma unroll
    for (u32 i = 0; i < KEPT; i++) {
        u32 at = (i * blockDim.x + threadIdx.x) * NUMBERS_IN_16_BYTES;
        if (at < width) visit(at, kept[i], sum);
    }
    float scale = rsqrtf(added_up_in_block(sum) / width + epsilon);
#pragma unroll
    for (u32 i = 0; i < KEPT; i++) {
        u32 at = (i * blockDim.x + threadIdx.x) * NUMBERS_IN_16_BYTES;
        if (at < width)
            store(out + at, each<NUMBERS_IN_16_BYTES>([&](u32 j) {
                      return widened(kept[i].at[j]) * scale * widened(weights[i].at[j]);
                  }));
    }
}

// The same for rows of any width and at any place, which are read twice: first by `visit`, and then by `write` with the
// scale, number by number.
template <class Visit, class Write>
__device__ __forceinline__ void norm_any(u32 width, float epsilon, Visit visit, Write write) {
    float sum = 0;
    for (u32 at = threadIdx.x; at < width; at += blockDim.x) {
        float value = visit(at);
        sum += value * value;
    }
    float scale = rsqrtf(added_up_in_block(sum) / width + epsilon);
    for (u32 at = threadIdx.x; at < width; at += blockDim.x) write(at, scale);
}
