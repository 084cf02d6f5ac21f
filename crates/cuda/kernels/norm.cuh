// RMS norms: each row divided by the root of its mean square, times a weight. One block of whole warps per row.

// 16-byte vectors per thread that stay in registers between the two steps.
#define KEPT 2

// Normalises a row of at most KEPT vectors per thread. `visit` may change a vector, and adds its squares to a sum.
template <class Visit>
DEVICE void norm_kept(const dtype *row, const dtype *weight, dtype *out, u32 width, float epsilon, Visit visit) {
    __shared__ float scratch[32];
    vec_t kept[KEPT], weights[KEPT];
    float sum = 0;
#pragma unroll
    for (u32 i = 0; i < KEPT; i++) {
        u32 at = (i * blockDim.x + threadIdx.x) * VEC;
        if (at >= width) continue;
        kept[i] = load(row + at);
        weights[i] = load(weight + at);
    }
#pragma unroll
    for (u32 i = 0; i < KEPT; i++) {
        u32 at = (i * blockDim.x + threadIdx.x) * VEC;
        if (at < width) visit(at, kept[i], sum);
    }
    float scale = rsqrtf(row_sum(sum, scratch) / width + epsilon);
#pragma unroll
    for (u32 i = 0; i < KEPT; i++) {
        u32 at = (i * blockDim.x + threadIdx.x) * VEC;
        if (at >= width) continue;
        auto scaled = [&](u32 j) { return to_float(kept[i].at[j]) * scale * to_float(weights[i].at[j]); };
        store(out + at, make_vec<VEC>(scaled));
    }
}

// For rows of any width and alignment, which are read twice: `visit` gives an element, and `write` uses it and the
// scale.
template <class Visit, class Write> DEVICE void norm_any(u32 width, float epsilon, Visit visit, Write write) {
    __shared__ float scratch[32];
    float sum = 0;
    for (u32 at = threadIdx.x; at < width; at += blockDim.x) {
        float value = visit(at);
        sum += value * value;
    }
    float scale = rsqrtf(row_sum(sum, scratch) / width + epsilon);
    for (u32 at = threadIdx.x; at < width; at += blockDim.x) write(at, scale);
}
