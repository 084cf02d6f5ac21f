// The gradient of a causal softmax, in place of that of its shares: share * (slope - sum of share * slope) * scale. Row r of
// a matrix is of query r % tokens, which sees the keys up to start + query; what it does not see becomes zero.

#define SOFTMAX_PARAMETERS                                                                                             \
    const number *shares, number *slopes, u64 rows, u32 tokens, u32 keys, float scale, const u32 *start

// `blockDim.x` threads a row, `blockDim.y` rows a block (one, unless a row is of one warp). Rows are groups of 16 bytes,
// and a thread has at most KEPT of them.
template <u32 KEPT> __device__ __forceinline__ void softmax_backward(SOFTMAX_PARAMETERS) {
    constexpr u32 V = NUMBERS_IN_16_BYTES;
    __shared__ float places[32];
    u64 row = (u64)blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;
    u32 seen = keys_seen(row, tokens, keys, start), step = blockDim.x * V, first = threadIdx.x * V;
    Some<V> share[KEPT], slope[KEPT];
    float sum = 0;
#pragma unroll
    for (u32 k = 0; k < KEPT; k++) {
        u32 at = k * step + first;
        share[k] = {};
        slope[k] = {};
        if (at < seen) {
            share[k] = some<V>(shares + row * keys + at);
            slope[k] = some<V>(slopes + row * keys + at);
        }
    }
#pragma unroll
    for (u32 k = 0; k < KEPT; k++)
#pragma unroll
        for (u32 i = 0; i < V; i++)
            // What is not seen may be anything.
            if (k * step + first + i < seen) sum += widened(share[k].at[i]) * widened(slope[k].at[i]);
    sum = sum_of_row(sum, places);
#pragma unroll
    for (u32 k = 0; k < KEPT; k++) {
        u32 at = k * step + first;
        if (at >= keys) continue;
        put(slopes + row * keys + at, each<V>([&](u32 i) {
                float gradient = widened(share[k].at[i]) * (widened(slope[k].at[i]) - sum) * scale;
                return at + i < seen ? gradient : 0;
            }));
    }
}

// By how many groups a thread keeps; the more it keeps, the fewer threads there can be.
extern "C" __global__ void __launch_bounds__(128) softmax_causal_backward_2(SOFTMAX_PARAMETERS) {
    softmax_backward<2>(shares, slopes, rows, tokens, keys, scale, start);
}
extern "C" __global__ void __launch_bounds__(256) softmax_causal_backward_4(SOFTMAX_PARAMETERS) {
    softmax_backward<4>(shares, slopes, rows, tokens, keys, scale, start);
}

// The same for rows of any length and at any place, which are read twice; a block a row.
extern "C" __global__ void softmax_causal_backward_any(SOFTMAX_PARAMETERS) {
    __shared__ float places[32];
    u64 row = blockIdx.x;
    u32 seen = keys_seen(row, tokens, keys, start);
    const number *share = shares + row * keys;
    number *slope = slopes + row * keys;
    float sum = 0;
    for (u32 at = threadIdx.x; at < seen; at += blockDim.x) sum += widened(share[at]) * widened(slope[at]);
    sum = sum_of_row(sum, places);
    for (u32 at = threadIdx.x; at < keys; at += blockDim.x)
        slope[at] = narrowed(at < seen ? widened(share[at]) * (widened(slope[at]) - sum) * scale : 0);
}
