// Cross entropy of logits, one block per row. The gradient is written over the logits. A target outside the vocabulary
// gives NaN.

#define LOSS_PARAMETERS (dtype *logits, const u32 *targets, float *losses, u32 vocabulary, float scale)
#define LOSS_ARGUMENTS (logits, targets, losses, vocabulary, scale)

// The softmax of one row and its target.
struct Row {
    u32 target;
    float target_logit, largest, probability_scale;

    DEVICE Row(const dtype *row, u32 target, u32 vocabulary) : target(target) {
        // Read before any thread overwrites it.
        target_logit = threadIdx.x == 0 && target < vocabulary ? to_float(row[target]) : QUIET_NAN;
    }
    DEVICE void finish(float sum, float *losses, u32 vocabulary, float scale) {
        if (threadIdx.x == 0) losses[blockIdx.x] = largest + logf(sum) - target_logit;
        probability_scale = target < vocabulary ? scale / sum : QUIET_NAN;
    }
    template <u32 V> DEVICE void store_gradient(dtype *row, u32 at, const Vec<V> &values, float scale) const {
        store(row + at, make_vec<V>([&](u32 i) {
                  float target_part = at + i == target ? scale : 0;
                  return __expf(to_float(values.at[i]) - largest) * probability_scale - target_part;
              }));
    }
};

// A thread keeps at most KEPT vectors in registers.
template <u32 KEPT> DEVICE void cross_entropy_kept LOSS_PARAMETERS {
    __shared__ float scratch[2][32];
    dtype *from = logits + (u64)blockIdx.x * vocabulary;
    Row row(from, targets[blockIdx.x], vocabulary);
    vec_t kept[KEPT];
    float largest = NEG_INF, sum = 0;
#pragma unroll
    for (u32 k = 0; k < KEPT; k++) {
        u32 at = (k * blockDim.x + threadIdx.x) * VEC;
        if (at < vocabulary) kept[k] = load(from + at);
    }
#pragma unroll
    for (u32 k = 0; k < KEPT; k++)
        if ((k * blockDim.x + threadIdx.x) * VEC < vocabulary)
#pragma unroll
            for (u32 i = 0; i < VEC; i++) largest = fmaxf(largest, to_float(kept[k].at[i]));
    row.largest = row_max(largest, scratch[0]);
#pragma unroll
    for (u32 k = 0; k < KEPT; k++)
        if ((k * blockDim.x + threadIdx.x) * VEC < vocabulary)
#pragma unroll
            for (u32 i = 0; i < VEC; i++) sum += __expf(to_float(kept[k].at[i]) - row.largest);
    row.finish(row_sum(sum, scratch[1]), losses, vocabulary, scale);
#pragma unroll
    for (u32 k = 0; k < KEPT; k++) {
        u32 at = (k * blockDim.x + threadIdx.x) * VEC;
        if (at < vocabulary) row.store_gradient(from, at, kept[k], scale);
    }
}

KERNEL __launch_bounds__(1024, 1) cross_entropy_4 LOSS_PARAMETERS { cross_entropy_kept<4> LOSS_ARGUMENTS; }
KERNEL __launch_bounds__(1024, 1) cross_entropy_8 LOSS_PARAMETERS { cross_entropy_kept<8> LOSS_ARGUMENTS; }

// Longer rows are read twice, the second time backwards: what was read last is still in the cache.
template <u32 V> DEVICE void cross_entropy_long LOSS_PARAMETERS {
    __shared__ float scratch[2][32];
    dtype *from = logits + (u64)blockIdx.x * vocabulary;
    Row row(from, targets[blockIdx.x], vocabulary);
    u32 vectors = vocabulary / V;
    float largest = NEG_INF, sum = 0;
#pragma unroll 4
    for (u32 i = threadIdx.x; i < vectors; i += blockDim.x) {
        Vec<V> values = load<V>(from + i * V);
        float before = largest;
#pragma unroll
        for (u32 j = 0; j < V; j++) largest = fmaxf(largest, to_float(values.at[j]));
        // The difference of two infinities is NaN.
        float base = largest == NEG_INF ? 0 : largest;
        sum *= __expf(before - base);
#pragma unroll
        for (u32 j = 0; j < V; j++) sum += __expf(to_float(values.at[j]) - base);
    }
    row.largest = row_max(largest, scratch[0]);
    row.finish(row_sum(sum * __expf(largest - row.largest), scratch[1]), losses, vocabulary, scale);
#pragma unroll 4
    for (u32 i = threadIdx.x; i < vectors; i += blockDim.x) {
        u32 at = (vectors - 1 - i) * V;
        row.store_gradient(from, at, load<V>(from + at), scale);
    }
}

KERNEL_PAIR(__launch_bounds__(1024, 1) cross_entropy, cross_entropy_long, LOSS_PARAMETERS, logits, targets, losses,
            vocabulary, scale)

// The mean of all values, by one block.
KERNEL __launch_bounds__(1024, 1) mean(const float *values, float *result, u32 count) {
    __shared__ float scratch[32];
    float sum = 0;
    for (u32 at = threadIdx.x; at < count; at += blockDim.x) sum += values[at];
    sum = row_sum(sum, scratch);
    if (threadIdx.x == 0) *result = sum / count;
}
