// The gradients of an RMS norm. Each block writes its sums of the weight's gradient to `partial`, [blocks, width];
// `sum_partials` adds those.

#define NORM_PARAMETERS                                                                                                \
    const dtype *x, const dtype *weight, const dtype *dy, dtype *dx, float *partial, u32 rows, u32 width,              \
        u32 is_added, float epsilon

// Sums of x^2 and of x * weight * dy of one row, over the threads that share it. `scratch` may be used again two rows
// later, when all threads have read it.
struct Sums {
    float square = 0, product = 0;

    DEVICE void add(float x, float weight, float dy) {
        square += x * x;
        product += x * weight * dy;
    }
    DEVICE void reduce(float2 *scratch) {
        square = warp_sum(square);
        product = warp_sum(product);
        if (blockDim.x == 32) return;
        float2 *team = scratch + threadIdx.y * (blockDim.x / 32);
        if (threadIdx.x % 32 == 0) team[threadIdx.x / 32] = make_float2(square, product);
        // Barrier 0 is that of the block.
        asm volatile("bar.sync %0, %1;" ::"r"(threadIdx.y + 1), "r"(blockDim.x) : "memory");
        square = team[0].x;
        product = team[0].y;
        for (u32 warp = 1; warp < blockDim.x / 32; warp++) {
            square += team[warp].x;
            product += team[warp].y;
        }
    }
};

// The inverse root of the mean square, and the gradient's part along x.
struct Scales {
    float scale, along;
    DEVICE Scales(const Sums &sums, u32 width, float epsilon)
        : scale(rsqrtf(sums.square / width + epsilon)), along(scale * scale * (sums.product / width)) {}
    DEVICE float gradient(float x, float weight, float dy) const { return scale * (weight * dy - x * along); }
};

// A thread's vectors of one row.
template <u32 KEPT> struct Part {
    vec_t x[KEPT], dy[KEPT], dx[KEPT];
};

template <u32 KEPT>
DEVICE Part<KEPT> load_part(const dtype *x, const dtype *dy, const dtype *dx, u64 row, u32 rows, u32 width, u32 is_added) {
    Part<KEPT> part;
#pragma unroll
    for (u32 k = 0; k < KEPT; k++) {
        u32 at = (k * blockDim.x + threadIdx.x) * VEC;
        if (at >= width || row >= rows) continue;
        part.x[k] = load(x + row * width + at);
        part.dy[k] = load(dy + row * width + at);
        if (is_added) part.dx[k] = load(dx + row * width + at);
    }
    return part;
}

// A row has `blockDim.x` threads with at most KEPT 16-byte vectors each, and a block has `blockDim.y` rows at a time.
template <u32 KEPT> DEVICE void norm_backward(NORM_PARAMETERS) {
    __shared__ float2 scratch[2][32];
    extern __shared__ float columns[];
    launch_dependents();
    vec_t weights[KEPT];
    float sums[KEPT][VEC] = {};
    u64 stride = (u64)gridDim.x * blockDim.y, row = (u64)blockIdx.x * blockDim.y + threadIdx.y;
    Part<KEPT> part;
    if (KEPT == 1) part = load_part<KEPT>(x, dy, dx, row, rows, width, is_added);
#pragma unroll
    for (u32 k = 0; k < KEPT; k++) {
        u32 at = (k * blockDim.x + threadIdx.x) * VEC;
        if (at < width) weights[k] = load(weight + at);
    }
    for (u32 parity = 0; row < rows; row += stride, parity ^= 1) {
        // If there are registers for two rows, the next one is loaded early.
        Part<KEPT> next;
        if (KEPT == 1)
            next = load_part<KEPT>(x, dy, dx, row + stride, rows, width, is_added);
        else
            part = load_part<KEPT>(x, dy, dx, row, rows, width, is_added);
        Sums total;
#pragma unroll
        for (u32 k = 0; k < KEPT; k++) {
            if ((k * blockDim.x + threadIdx.x) * VEC >= width) continue;
#pragma unroll
            for (u32 i = 0; i < VEC; i++)
                total.add(to_float(part.x[k].at[i]), to_float(weights[k].at[i]), to_float(part.dy[k].at[i]));
        }
        total.reduce(scratch[parity]);
        Scales scales(total, width, epsilon);
#pragma unroll
        for (u32 k = 0; k < KEPT; k++) {
            u32 at = (k * blockDim.x + threadIdx.x) * VEC;
            if (at >= width) continue;
            store(dx + row * width + at, make_vec<VEC>([&](u32 i) {
                      float value = to_float(part.x[k].at[i]), d_value = to_float(part.dy[k].at[i]);
                      float gradient = scales.gradient(value, to_float(weights[k].at[i]), d_value);
                      sums[k][i] += d_value * value * scales.scale;
                      return is_added ? gradient + to_float(part.dx[k].at[i]) : gradient;
                  }));
        }
        if (KEPT == 1) part = next;
    }
#pragma unroll
    for (u32 k = 0; k < KEPT; k++) {
        u32 at = (k * blockDim.x + threadIdx.x) * VEC;
        if (at >= width) continue;
#pragma unroll
        for (u32 i = 0; i < VEC; i++) columns[threadIdx.y * width + at + i] = sums[k][i];
    }
    __syncthreads();
    for (u32 at = threadIdx.y * blockDim.x + threadIdx.x; at < width; at += blockDim.x * blockDim.y) {
        float sum = 0;
        for (u32 team = 0; team < blockDim.y; team++) sum += columns[team * width + at];
        partial[(u64)blockIdx.x * width + at] = sum;
    }
}

KERNEL __launch_bounds__(768, 1) rms_norm_backward_1(NORM_PARAMETERS) {
    norm_backward<1>(x, weight, dy, dx, partial, rows, width, is_added, epsilon);
}
KERNEL __launch_bounds__(1024, 1) rms_norm_backward_2(NORM_PARAMETERS) {
    norm_backward<2>(x, weight, dy, dx, partial, rows, width, is_added, epsilon);
}

// For rows of any width and alignment, which are read twice, with one block per row at a time.
KERNEL __launch_bounds__(256) rms_norm_backward_any(NORM_PARAMETERS) {
    __shared__ float2 scratch[2][32];
    launch_dependents();
    float *sums = partial + (u64)blockIdx.x * width;
    for (u32 at = threadIdx.x; at < width; at += blockDim.x) sums[at] = 0;
    u32 parity = 0;
    for (u64 row = blockIdx.x; row < rows; row += gridDim.x, parity ^= 1) {
        const dtype *row_x = x + row * width, *row_dy = dy + row * width;
        dtype *row_dx = dx + row * width;
        Sums total;
        for (u32 at = threadIdx.x; at < width; at += blockDim.x)
            total.add(to_float(row_x[at]), to_float(weight[at]), to_float(row_dy[at]));
        total.reduce(scratch[parity]);
        Scales scales(total, width, epsilon);
        for (u32 at = threadIdx.x; at < width; at += blockDim.x) {
            float value = to_float(row_x[at]), d_value = to_float(row_dy[at]);
            float gradient = scales.gradient(value, to_float(weight[at]), d_value);
            row_dx[at] = to_dtype(is_added ? gradient + to_float(row_dx[at]) : gradient);
            sums[at] += d_value * value * scales.scale;
        }
    }
}
