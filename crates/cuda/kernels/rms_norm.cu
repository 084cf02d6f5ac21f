// RMS norms of rows: see norm.cuh.

extern "C" __global__ void __launch_bounds__(1024, 1)
    rms_norm(const number *x, const number *weight, number *out, u32 width, float epsilon) {
    wait_for_the_kernel_before();
    u64 row = (u64)blockIdx.x * width;
    norm_kept(x + row, weight, out + row, width, epsilon, [](u32, const numbers &values, float &sum) {
        float squares = 0;
#pragma unroll
        for (int i = 0; i < NUMBERS_IN_16_BYTES; i++) squares += widened(values.at[i]) * widened(values.at[i]);
        sum += squares;
    });
}

extern "C" __global__ void rms_norm_any(const number *x, const number *weight, number *out, u32 width, float epsilon) {
    wait_for_the_kernel_before();
    const number *row = x + (u64)blockIdx.x * width;
    number *to = out + (u64)blockIdx.x * width;
    norm_any(width, epsilon, [=](u32 at) { return widened(row[at]); }, [=](u32 at, float scale) {
        to[at] = narrowed(widened(row[at]) * scale * widened(weight[at]));
    });
}

// Adds the norm of each row of x to the row of `out`.
extern "C" __global__ void rms_norm_add(const number *x, const number *weight, number *out, u32 width, float epsilon) {
    wait_for_the_kernel_before();
    const number *row = x + (u64)blockIdx.x * width;
    number *to = out + (u64)blockIdx.x * width;
    norm_any(width, epsilon, [=](u32 at) { return widened(row[at]); }, [=](u32 at, float scale) {
        to[at] = narrowed(widened(to[at]) + widened(row[at]) * scale * widened(weight[at]));
    });
}
