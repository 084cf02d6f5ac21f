// Causal softmax of scores, in place. Masked scores become zero.

#define SOFTMAX_PARAMETERS dtype *scores, u64 rows, u32 tokens, u32 keys, float scale, const u32 *start

// A row has `blockDim.x` threads, and a block has `blockDim.y` rows (one, unless a warp is enough). A thread keeps at
// most KEPT 16-byte vectors.
template <u32 KEPT> DEVICE void softmax(SOFTMAX_PARAMETERS) {
    __shared__ float scratch[2][32];
    u64 row = (u64)blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;
    u32 visible = visible_keys(row, tokens, keys, start), step = blockDim.x * VEC, first = threadIdx.x * VEC;
    dtype *from = scores + row * keys;
    float kept[KEPT][VEC];
    float largest = NEG_INF, sum = 0;
#pragma unroll
    for (u32 k = 0; k < KEPT; k++) {
        u32 at = k * step + first;
        vec_t read = {};
        if (at < visible) read = load(from + at);
#pragma unroll
        for (u32 i = 0; i < VEC; i++) kept[k][i] = at + i < visible ? to_float(read.at[i]) : NEG_INF;
    }
#pragma unroll
    for (u32 k = 0; k < KEPT; k++)
#pragma unroll
        for (u32 i = 0; i < VEC; i++) largest = fmaxf(largest, kept[k][i]);
    largest = row_max(largest, scratch[0]);
#pragma unroll
    for (u32 k = 0; k < KEPT; k++) {
        // Skips what no thread of the row sees.
        bool is_visible = k * step < visible;
#pragma unroll
        for (u32 i = 0; i < VEC; i++) {
            kept[k][i] = is_visible ? __expf((kept[k][i] - largest) * scale) : 0;
            sum += kept[k][i];
        }
    }
    float inverse = 1 / row_sum(sum, scratch[1]);
#pragma unroll
    for (u32 k = 0; k < KEPT; k++) {
        u32 at = k * step + first;
        if (at < keys) store(from + at, make_vec<VEC>([&](u32 i) { return kept[k][i] * inverse; }));
    }
}

// Named by the vectors that a thread keeps. The more it keeps, the fewer threads fit.
KERNEL __launch_bounds__(128) softmax_causal_2(SOFTMAX_PARAMETERS) { softmax<2>(scores, rows, tokens, keys, scale, start); }
KERNEL __launch_bounds__(256) softmax_causal_4(SOFTMAX_PARAMETERS) { softmax<4>(scores, rows, tokens, keys, scale, start); }
KERNEL __launch_bounds__(4096 / VEC) softmax_causal_8(SOFTMAX_PARAMETERS) {
    softmax<8>(scores, rows, tokens, keys, scale, start);
}

// For rows of any length and alignment, which are read three times, with one block per row. Only the last `window`
// visible keys count.
DEVICE void softmax_any(SOFTMAX_PARAMETERS, u32 window) {
    __shared__ float scratch[2][32];
    u64 row = blockIdx.x;
    u32 visible = visible_keys(row, tokens, keys, start), first = visible > window ? visible - window : 0;
    dtype *from = scores + row * keys;
    float largest = NEG_INF, sum = 0;
    for (u32 at = first + threadIdx.x; at < visible; at += blockDim.x) largest = fmaxf(largest, to_float(from[at]));
    largest = row_max(largest, scratch[0]);
    auto power = [&](u32 at) { return __expf((to_float(from[at]) - largest) * scale); };
    for (u32 at = first + threadIdx.x; at < visible; at += blockDim.x) sum += power(at);
    float inverse = 1 / row_sum(sum, scratch[1]);
    for (u32 at = threadIdx.x; at < keys; at += blockDim.x)
        from[at] = to_dtype(at >= first && at < visible ? power(at) * inverse : 0);
}

KERNEL softmax_causal_any(SOFTMAX_PARAMETERS) { softmax_any(scores, rows, tokens, keys, scale, start, ~0u); }

KERNEL softmax_windowed(SOFTMAX_PARAMETERS, u32 window) {
    softmax_any(scores, rows, tokens, keys, scale, start, window);
}
