// Cross entropy of logits and the tokens that came, a block a row; the logits' gradient takes their place. A target beyond
// the vocabulary makes a loss and a gradient that are no numbers.

#define LOSS_PARAMETERS number *logits, const u32 *targets, float *losses, u32 vocabulary, float scale

// A thread keeps at most KEPT groups of 16 bytes.
template <u32 KEPT> __device__ __forceinline__ void kept_row(LOSS_PARAMETERS) {
    constexpr u32 V = NUMBERS_IN_16_BYTES;
    __shared__ float places[2][32];
    number *row = logits + (u64)blockIdx.x * vocabulary;
    u32 target = targets[blockIdx.x];
    bool is_known = target < vocabulary;
    // Before anybody writes over it.
    float of_target = threadIdx.x == 0 && is_known ? widened(row[target]) : NOT_A_NUMBER;
    Some<V> kept[KEPT];
    float largest = LOWEST, sum = 0;
#pragma unroll
    for (u32 k = 0; k < KEPT; k++) {
        u32 at = (k * blockDim.x + threadIdx.x) * V;
        if (at < vocabulary) kept[k] = some<V>(row + at);
    }
#pragma unroll
    for (u32 k = 0; k < KEPT; k++)
        if ((k * blockDim.x + threadIdx.x) * V < vocabulary)
#pragma unroll
            for (u32 i = 0; i < V; i++) largest = fmaxf(largest, widened(kept[k].at[i]));
    largest = largest_of_row(largest, places[0]);
#pragma unroll
    for (u32 k = 0; k < KEPT; k++)
        if ((k * blockDim.x + threadIdx.x) * V < vocabulary)
#pragma unroll
            for (u32 i = 0; i < V; i++) sum += __expf(widened(kept[k].at[i]) - largest);
    sum = sum_of_row(sum, places[1]);
    if (threadIdx.x == 0) losses[blockIdx.x] = largest + logf(sum) - of_target;
    float share = is_known ? scale / sum : NOT_A_NUMBER;
#pragma unroll
    for (u32 k = 0; k < KEPT; k++) {
        u32 at = (k * blockDim.x + threadIdx.x) * V;
        if (at >= vocabulary) continue;
#pragma unroll
        for (u32 i = 0; i < V; i++) {
            float one = at + i == target ? scale : 0;
            kept[k].at[i] = narrowed(__expf(widened(kept[k].at[i]) - largest) * share - one);
        }
        put<V>(row + at, kept[k]);
    }
}

extern "C" __global__ void __launch_bounds__(1024, 1) cross_entropy_4(LOSS_PARAMETERS) {
    kept_row<4>(logits, targets, losses, vocabulary, scale);
}
extern "C" __global__ void __launch_bounds__(1024, 1) cross_entropy_8(LOSS_PARAMETERS) {
    kept_row<8>(logits, targets, losses, vocabulary, scale);
}

// Rows that nobody can keep are read twice, the second time from the end: what was read last is still near.
template <u32 V> __device__ __forceinline__ void long_row(LOSS_PARAMETERS) {
    __shared__ float places[2][32];
    number *row = logits + (u64)blockIdx.x * vocabulary;
    u32 target = targets[blockIdx.x], groups = vocabulary / V;
    bool is_known = target < vocabulary;
    float of_target = threadIdx.x == 0 && is_known ? widened(row[target]) : NOT_A_NUMBER;
    float most = LOWEST, sum = 0;
#pragma unroll 4
    for (u32 group = threadIdx.x; group < groups; group += blockDim.x) {
        Some<V> read = some<V>(row + group * V);
        float before = most;
#pragma unroll
        for (u32 i = 0; i < V; i++) most = fmaxf(most, widened(read.at[i]));
        // Two infinities have no difference.
        float base = most == LOWEST ? 0 : most;
        sum *= __expf(before - base);
#pragma unroll
        for (u32 i = 0; i < V; i++) sum += __expf(widened(read.at[i]) - base);
    }
    float largest = largest_of_row(most, places[0]);
    sum = sum_of_row(sum * __expf(most - largest), places[1]);
    if (threadIdx.x == 0) losses[blockIdx.x] = largest + logf(sum) - of_target;
    float share = is_known ? scale / sum : NOT_A_NUMBER;
#pragma unroll 4
    for (u32 group = threadIdx.x; group < groups; group += blockDim.x) {
        u32 at = (groups - 1 - group) * V;
        Some<V> values = some<V>(row + at);
#pragma unroll
        for (u32 i = 0; i < V; i++) {
            float one = at + i == target ? scale : 0;
            values.at[i] = narrowed(__expf(widened(values.at[i]) - largest) * share - one);
        }
        put<V>(row + at, values);
    }
}

extern "C" __global__ void __launch_bounds__(1024, 1) cross_entropy(LOSS_PARAMETERS) {
    long_row<NUMBERS_IN_16_BYTES>(logits, targets, losses, vocabulary, scale);
}
extern "C" __global__ void __launch_bounds__(1024, 1) cross_entropy_any(LOSS_PARAMETERS) {
    long_row<1>(logits, targets, losses, vocabulary, scale);
}

// The mean of all values, by one block.
extern "C" __global__ void __launch_bounds__(1024, 1) mean(const float *values, float *result, u32 count) {
    __shared__ float places[32];
    float sum = 0;
    for (u32 at = threadIdx.x; at < count; at += blockDim.x) sum += values[at];
    sum = sum_of_row(sum, places);
    if (threadIdx.x == 0) *result = sum / count;
}
