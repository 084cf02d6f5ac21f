// RMS norms of rows: see norm.cuh.

KERNEL __launch_bounds__(1024, 1) rms_norm(const dtype *x, const dtype *weight, dtype *out, u32 width, float epsilon) {
    wait_for_previous_kernel();
    u64 row = (u64)blockIdx.x * width;
    norm_kept(x + row, weight, out + row, width, epsilon, [](u32, const vec_t &values, float &sum) {
        float squares = 0;
#pragma unroll
        for (int i = 0; i < VEC; i++) squares += to_float(values.at[i]) * to_float(values.at[i]);
        sum += squares;
    });
}

template <bool IS_ADDED>
DEVICE void rms_norm_row(const dtype *x, const dtype *weight, dtype *out, u32 width, float epsilon) {
    wait_for_previous_kernel();
    const dtype *row = x + (u64)blockIdx.x * width;
    dtype *to = out + (u64)blockIdx.x * width;
    norm_any(width, epsilon, [=](u32 at) { return to_float(row[at]); }, [=](u32 at, float scale) {
        float normed = to_float(row[at]) * scale * to_float(weight[at]);
        to[at] = to_dtype(IS_ADDED ? to_float(to[at]) + normed : normed);
    });
}

KERNEL rms_norm_any(const dtype *x, const dtype *weight, dtype *out, u32 width, float epsilon) {
    rms_norm_row<false>(x, weight, out, width, epsilon);
}

// Adds the norm of each row to the row of `out`.
KERNEL rms_norm_add(const dtype *x, const dtype *weight, dtype *out, u32 width, float epsilon) {
    rms_norm_row<true>(x, weight, out, width, epsilon);
}
