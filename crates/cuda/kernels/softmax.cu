// Causal softmax of scores, in place. Row r of a matrix is of query r % tokens, which sees the keys up to start + query.
// What a row does not see becomes zero.

// `blockDim.x` threads a row, `blockDim.y` rows a block (one, unless a row is of one warp). Rows are groups of 16 bytes,
// and a thread has at most KEPT of them.
template <u32 KEPT> __device__ __forceinline__ void softmax(number *scores, u64 rows, u32 tokens, u32 keys, float scale,
                                                            const u32 *start) {
    __shared__ float places[2][32];
    u64 row = (u64)blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;
    u32 seen = keys_seen(row, tokens, keys, start), step = blockDim.x * NUMBERS_IN_16_BYTES;
    u32 first = threadIdx.x * NUMBERS_IN_16_BYTES;
    number *at_row = scores + row * keys;
    float kept[KEPT][NUMBERS_IN_16_BYTES];
    float largest = LOWEST, sum = 0;
#pragma unroll
    for (u32 k = 0; k < KEPT; k++) {
        u32 at = k * step + first;
        numbers read = {};
        if (at < seen) read = loaded(at_row + at);
#pragma unroll
        for (u32 i = 0; i < NUMBERS_IN_16_BYTES; i++) kept[k][i] = at + i < seen ? widened(read.at[i]) : LOWEST;
    }
#pragma unroll
    for (u32 k = 0; k < KEPT; k++)
#pragma unroll
        for (u32 i = 0; i < NUMBERS_IN_16_BYTES; i++) largest = fmaxf(largest, kept[k][i]);
    largest = largest_of_row(largest, places[0]);
#pragma unroll
    for (u32 k = 0; k < KEPT; k++) {
        // Nobody sees so far: there is nothing to compute.
        bool is_seen = k * step < seen;
#pragma unroll
        for (u32 i = 0; i < NUMBERS_IN_16_BYTES; i++) {
            kept[k][i] = is_seen ? __expf((kept[k][i] - largest) * scale) : 0;
            sum += kept[k][i];
        }
    }
    float share = 1 / sum_of_row(sum, places[1]);
#pragma unroll
    for (u32 k = 0; k < KEPT; k++) {
        u32 at = k * step + first;
        if (at >= keys) continue;
        store(at_row + at, each<NUMBERS_IN_16_BYTES>([&](u32 i) { return kept[k][i] * share; }));
    }
}

#define SOFTMAX_PARAMETERS number *scores, u64 rows, u32 tokens, u32 keys, float scale, const u32 *start

// By how many groups a thread keeps; the more it keeps, the fewer threads there can be.
extern "C" __global__ void __launch_bounds__(128) softmax_causal_2(SOFTMAX_PARAMETERS) {
    softmax<2>(scores, rows, tokens, keys, scale, start);
}
extern "C" __global__ void __launch_bounds__(256) softmax_causal_4(SOFTMAX_PARAMETERS) {
    softmax<4>(scores, rows, tokens, keys, scale, start);
}
extern "C" __global__ void __launch_bounds__(4096 / NUMBERS_IN_16_BYTES) softmax_causal_8(SOFTMAX_PARAMETERS) {
    softmax<8>(scores, rows, tokens, keys, scale, start);
}

// The same for rows of any length and at any place, which are read three times; a block a row. Only the last `window` of
// the keys that a row may see are seen.
__device__ __forceinline__ void softmax_any(SOFTMAX_PARAMETERS, u32 window) {
    __shared__ float places[2][32];
    u64 row = blockIdx.x;
    u32 seen = keys_seen(row, tokens, keys, start), first = seen > window ? seen - window : 0;
    number *at_row = scores + row * keys;
    float largest = LOWEST, sum = 0;
    for (u32 at = first + threadIdx.x; at < seen; at += blockDim.x) largest = fmaxf(largest, widened(at_row[at]));
    largest = largest_of_row(largest, places[0]);
    for (u32 at = first + threadIdx.x; at < seen; at += blockDim.x) sum += __expf((widened(at_row[at]) - largest) * scale);
    float share = 1 / sum_of_row(sum, places[1]);
    for (u32 at = threadIdx.x; at < keys; at += blockDim.x)
        at_row[at] = narrowed(at >= first && at < seen ? __expf((widened(at_row[at]) - largest) * scale) * share : 0);
}

extern "C" __global__ void softmax_causal_any(SOFTMAX_PARAMETERS) {
    softmax_any(scores, rows, tokens, keys, scale, start, ~0u);
}

extern "C" __global__ void softmax_windowed(SOFTMAX_PARAMETERS, u32 window) {
    softmax_any(scores, rows, tokens, keys, scale, start, window);
}
