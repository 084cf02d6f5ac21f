// RMS norm: each row divided by the root of its mean square, times a weight.

// Groups of 16 bytes that a thread keeps in registers between the two steps.
#define KEPT 2

__device__ __forceinline__ float added_up_in_block(float value) {
    __shared__ float sums[32];
    for (int distance = 16; distance > 0; distance /= 2) value += __shfl_xor_sync(~0u, value, distance);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = value;
    __syncthreads();
    float sum = 0;
    for (u32 warp = 0; warp < blockDim.x / 32; warp++) sum += sums[warp];
    return sum;
}

__device__ __forceinline__ float square_sum(const numbers &values) {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < NUMBERS_IN_16_BYTES; i++) sum += widened(values.at[i]) * widened(values.at[i]);
    return sum;
}

__device__ __forceinline__ numbers scaled(const numbers &values, const numbers &weight, float scale) {
    numbers result;
#pragma unroll
    for (int i = 0; i < NUMBERS_IN_16_BYTES; i++)
        result.at[i] = narrowed(widened(values.at[i]) * scale * widened(weight.at[i]));
    return result;
}

// A block a row, of whole warps. Rows are groups of 16 bytes, and a thread has at most KEPT of them.
extern "C" __global__ void __launch_bounds__(1024, 1)
    rms_norm(const number *x, const number *weight, number *out, u32 width, float epsilon) {
    wait_for_the_kernel_before();
    const number *row = x + (u64)blockIdx.x * width;
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
    for (u32 i = 0; i < KEPT; i++)
        if ((i * blockDim.x + threadIdx.x) * NUMBERS_IN_16_BYTES < width) sum += square_sum(kept[i]);
    float scale = rsqrtf(added_up_in_block(sum) / width + epsilon);
#pragma unroll
    for (u32 i = 0; i < KEPT; i++) {
        u32 at = (i * blockDim.x + threadIdx.x) * NUMBERS_IN_16_BYTES;
        if (at < width) store(out + (u64)blockIdx.x * width + at, scaled(kept[i], weights[i], scale));
    }
}

// The same for rows of any width and at any place, which are read twice.
extern "C" __global__ void rms_norm_any(const number *x, const number *weight, number *out, u32 width, float epsilon) {
    wait_for_the_kernel_before();
    const number *row = x + (u64)blockIdx.x * width;
    float sum = 0;
    for (u32 at = threadIdx.x; at < width; at += blockDim.x) sum += widened(row[at]) * widened(row[at]);
    float scale = rsqrtf(added_up_in_block(sum) / width + epsilon);
    for (u32 at = threadIdx.x; at < width; at += blockDim.x)
        out[(u64)blockIdx.x * width + at] = narrowed(widened(row[at]) * scale * widened(weight[at]));
}

// Adds the norm of each row of x to the row of `out`. A block a row, which is read twice.
extern "C" __global__ void rms_norm_add(const number *x, const number *weight, number *out, u32 width, float epsilon) {
    wait_for_the_kernel_before();
    const number *row = x + (u64)blockIdx.x * width;
    number *to = out + (u64)blockIdx.x * width;
    float sum = 0;
    for (u32 at = threadIdx.x; at < width; at += blockDim.x) sum += widened(row[at]) * widened(row[at]);
    float scale = rsqrtf(added_up_in_block(sum) / width + epsilon);
    for (u32 at = threadIdx.x; at < width; at += blockDim.x)
        to[at] = narrowed(widened(to[at]) + widened(row[at]) * scale * widened(weight[at]));
}
