// The gradient of a causal softmax with probabilities p, over that of p: p * (dp - sum of p * dp) * scale. Masked
// scores get zero.

#define SOFTMAX_PARAMETERS                                                                                             \
    const dtype *p, dtype *dp, u64 rows, u32 tokens, u32 keys, float scale, const u32 *start

// A row has `blockDim.x` threads, and a block has `blockDim.y` rows (one, unless a warp is enough). A thread keeps at
// most KEPT 16-byte vectors of each.
template <u32 KEPT> DEVICE void softmax_backward(SOFTMAX_PARAMETERS) {
    __shared__ float scratch[32];
    u64 row = (u64)blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;
    u32 visible = visible_keys(row, tokens, keys, start), step = blockDim.x * VEC, first = threadIdx.x * VEC;
    vec_t kept_p[KEPT], kept_dp[KEPT];
    float sum = 0;
#pragma unroll
    for (u32 k = 0; k < KEPT; k++) {
        u32 at = k * step + first;
        kept_p[k] = kept_dp[k] = {};
        if (at >= visible) continue;
        kept_p[k] = load(p + row * keys + at);
        kept_dp[k] = load(dp + row * keys + at);
    }
#pragma unroll
    for (u32 k = 0; k < KEPT; k++)
#pragma unroll
        for (u32 i = 0; i < VEC; i++)
            // Masked elements may hold anything.
            if (k * step + first + i < visible) sum += to_float(kept_p[k].at[i]) * to_float(kept_dp[k].at[i]);
    sum = row_sum(sum, scratch);
#pragma unroll
    for (u32 k = 0; k < KEPT; k++) {
        u32 at = k * step + first;
        if (at >= keys) continue;
        store(dp + row * keys + at, make_vec<VEC>([&](u32 i) {
                  float gradient = to_float(kept_p[k].at[i]) * (to_float(kept_dp[k].at[i]) - sum) * scale;
                  return at + i < visible ? gradient : 0;
              }));
    }
}

// Named by the vectors that a thread keeps. The more it keeps, the fewer threads fit.
KERNEL __launch_bounds__(128) softmax_causal_backward_2(SOFTMAX_PARAMETERS) {
    softmax_backward<2>(p, dp, rows, tokens, keys, scale, start);
}
KERNEL __launch_bounds__(256) softmax_causal_backward_4(SOFTMAX_PARAMETERS) {
    softmax_backward<4>(p, dp, rows, tokens, keys, scale, start);
}

// For rows of any length and alignment, which are read twice, with one block per row.
KERNEL softmax_causal_backward_any(SOFTMAX_PARAMETERS) {
    __shared__ float scratch[32];
    u64 row = blockIdx.x;
    u32 visible = visible_keys(row, tokens, keys, start);
    const dtype *row_p = p + row * keys;
    dtype *row_dp = dp + row * keys;
    float sum = 0;
    for (u32 at = threadIdx.x; at < visible; at += blockDim.x) sum += to_float(row_p[at]) * to_float(row_dp[at]);
    sum = row_sum(sum, scratch);
    for (u32 at = threadIdx.x; at < keys; at += blockDim.x)
        row_dp[at] = to_dtype(at < visible ? to_float(row_p[at]) * (to_float(row_dp[at]) - sum) * scale : 0);
}
