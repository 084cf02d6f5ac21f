// The gradients of an RMS norm. Blocks go over the rows and leave their sums of the weight's gradient in `partial`,
// [blocks, width]; `sum_partials` adds those up.

#define NORM_PARAMETERS                                                                                                \
    const number *x, const number *weight, const number *dy, number *dx, float *partial, u32 rows, u32 width,          \
        u32 is_added, float epsilon

// Adds up two values over the threads that share a row. `places` are used again two rows later, when all have read them.
__device__ __forceinline__ float2 sums_of_team(float2 value, float2 *places) {
    value.x = sum_of_warp(value.x);
    value.y = sum_of_warp(value.y);
    if (blockDim.x == 32) return value;
    float2 *mine = places + threadIdx.y * (blockDim.x / 32);
    if (threadIdx.x % 32 == 0) mine[threadIdx.x / 32] = value;
    // Barrier 0 is that of the block.
    asm volatile("bar.sync %0, %1;" ::"r"(threadIdx.y + 1), "r"(blockDim.x) : "memory");
    value = mine[0];
    for (u32 warp = 1; warp < blockDim.x / 32; warp++) {
        value.x += mine[warp].x;
        value.y += mine[warp].y;
    }
    return value;
}

// What a thread has of one row.
template <u32 KEPT> struct Part {
    Some<NUMBERS_IN_16_BYTES> values[KEPT], slopes[KEPT], before[KEPT];
};

template <u32 KEPT>
__device__ __forceinline__ Part<KEPT> part_of(const number *x, const number *dy, const number *dx, u64 row, u32 rows,
                                              u32 width, u32 is_added) {
    constexpr u32 V = NUMBERS_IN_16_BYTES;
    Part<KEPT> part;
#pragma unroll
    for (u32 k = 0; k < KEPT; k++) {
        u32 at = (k * blockDim.x + threadIdx.x) * V;
        if (at >= width || row >= rows) continue;
        part.values[k] = some<V>(x + row * width + at);
        part.slopes[k] = some<V>(dy + row * width + at);
        if (is_added) part.before[k] = some<V>(dx + row * width + at);
    }
    return part;
}

// `blockDim.x` threads a row, at most KEPT groups of 16 bytes a thread; `blockDim.y` rows at a time.
template <u32 KEPT> __device__ __forceinline__ void norm_backward(NORM_PARAMETERS) {
    constexpr u32 V = NUMBERS_IN_16_BYTES;
    __shared__ float2 places[2][32];
    extern __shared__ float columns[];
    let_the_next_kernel_begin();
    Some<V> weights[KEPT];
    float sums[KEPT][V] = {};
    u64 stride = (u64)gridDim.x * blockDim.y, row = (u64)blockIdx.x * blockDim.y + threadIdx.y;
    Part<KEPT> part;
    if (KEPT == 1) part = part_of<KEPT>(x, dy, dx, row, rows, width, is_added);
#pragma unroll
    for (u32 k = 0; k < KEPT; k++) {
        u32 at = (k * blockDim.x + threadIdx.x) * V;
        if (at < width) weights[k] = some<V>(weight + at);
    }
    for (u32 parity = 0; row < rows; row += stride, parity ^= 1) {
        // The next row is on its way while this one is added up, where there are registers for both.
        Part<KEPT> next;
        if (KEPT == 1) {
            next = part_of<KEPT>(x, dy, dx, row + stride, rows, width, is_added);
        } else {
            part = part_of<KEPT>(x, dy, dx, row, rows, width, is_added);
        }
        float2 sum = make_float2(0, 0);
#pragma unroll
        for (u32 k = 0; k < KEPT; k++) {
            if ((k * blockDim.x + threadIdx.x) * V >= width) continue;
#pragma unroll
            for (u32 i = 0; i < V; i++) {
                float value = widened(part.values[k].at[i]);
                sum.x += value * value;
                sum.y += value * widened(weights[k].at[i]) * widened(part.slopes[k].at[i]);
            }
        }
        sum = sums_of_team(sum, places[parity]);
        float scale = rsqrtf(sum.x / width + epsilon), along = scale * scale * (sum.y / width);
#pragma unroll
        for (u32 k = 0; k < KEPT; k++) {
            u32 at = (k * blockDim.x + threadIdx.x) * V;
            if (at >= width) continue;
            Some<V> result;
#pragma unroll
            for (u32 i = 0; i < V; i++) {
                float value = widened(part.values[k].at[i]), slope = widened(part.slopes[k].at[i]);
                float gradient = scale * (widened(weights[k].at[i]) * slope - value * along);
                if (is_added) gradient += widened(part.before[k].at[i]);
                result.at[i] = narrowed(gradient);
                sums[k][i] += slope * value * scale;
            }
            put<V>(dx + row * width + at, result);
        }
        if (KEPT == 1) part = next;
    }
#pragma unroll
    for (u32 k = 0; k < KEPT; k++) {
        u32 at = (k * blockDim.x + threadIdx.x) * V;
        if (at >= width) continue;
#pragma unroll
        for (u32 i = 0; i < V; i++) columns[threadIdx.y * width + at + i] = sums[k][i];
    }
    __syncthreads();
    for (u32 at = threadIdx.y * blockDim.x + threadIdx.x; at < width; at += blockDim.x * blockDim.y) {
        float sum = 0;
        for (u32 team = 0; team < blockDim.y; team++) sum += columns[team * width + at];
        partial[(u64)blockIdx.x * width + at] = sum;
    }
}

extern "C" __global__ void __launch_bounds__(768, 1) rms_norm_backward_1(NORM_PARAMETERS) {
    norm_backward<1>(x, weight, dy, dx, partial, rows, width, is_added, epsilon);
}
extern "C" __global__ void __launch_bounds__(1024, 1) rms_norm_backward_2(NORM_PARAMETERS) {
    norm_backward<2>(x, weight, dy, dx, partial, rows, width, is_added, epsilon);
}

// The same for rows of any width and at any place, a block a row at a time, which is read twice.
extern "C" __global__ void __launch_bounds__(256) rms_norm_backward_any(NORM_PARAMETERS) {
    __shared__ float2 places[2][32];
    let_the_next_kernel_begin();
    float *sums = partial + (u64)blockIdx.x * width;
    for (u32 at = threadIdx.x; at < width; at += blockDim.x) sums[at] = 0;
    u32 parity = 0;
    for (u64 row = blockIdx.x; row < rows; row += gridDim.x) {
        float2 sum = make_float2(0, 0);
        for (u32 at = threadIdx.x; at < width; at += blockDim.x) {
            float value = widened(x[row * width + at]);
            sum.x += value * value;
            sum.y += value * widened(weight[at]) * widened(dy[row * width + at]);
        }
        sum = sums_of_team(sum, places[parity]);
        parity ^= 1;
        float scale = rsqrtf(sum.x / width + epsilon), along = scale * scale * (sum.y / width);
        for (u32 at = threadIdx.x; at < width; at += blockDim.x) {
            float value = widened(x[row * width + at]), slope = widened(dy[row * width + at]);
            float gradient = scale * (widened(weight[at]) * slope - value * along);
            if (is_added) gradient += widened(dx[row * width + at]);
            dx[row * width + at] = narrowed(gradient);
            sums[at] += slope * value * scale;
        }
    }
}
