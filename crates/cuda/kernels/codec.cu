// Operations between the convolutions of an audio codec: layer norms, activations, scaled additions and codebook
// lookups.

// One block per row.
KERNEL layer_norm(const dtype *x, const dtype *weight, const dtype *bias, dtype *out, u32 width, float epsilon) {
    __shared__ float scratch[2][32];
    const dtype *row = x + (u64)blockIdx.x * width;
    float sum = 0.0f, squares = 0.0f;
    for (u32 at = threadIdx.x; at < width; at += blockDim.x) sum += to_float(row[at]);
    float mean = row_sum(sum, scratch[0]) / width;
    for (u32 at = threadIdx.x; at < width; at += blockDim.x) {
        float centred = to_float(row[at]) - mean;
        squares += centred * centred;
    }
    float scale = rsqrtf(row_sum(squares, scratch[1]) / width + epsilon);
    dtype *to = out + (u64)blockIdx.x * width;
    for (u32 at = threadIdx.x; at < width; at += blockDim.x)
        to[at] = to_dtype((to_float(row[at]) - mean) * scale * to_float(weight[at]) + to_float(bias[at]));
}

// Adds a bias to each row and applies GELU or SiLU. Blocks cover columns and rows.
template <u32 V> DEVICE void bias_activation_rows(dtype *x, const dtype *bias, u32 rows, u32 width, u32 is_silu) {
    u32 at = (blockIdx.x * blockDim.x + threadIdx.x) * V;
    if (at >= width) return;
    float added[V];
#pragma unroll
    for (u32 i = 0; i < V; i++) added[i] = bias ? to_float(bias[at + i]) : 0.0f;
    for (u32 row = blockIdx.y; row < rows; row += gridDim.y) {
        Vec<V> values = load<V>(x + (u64)row * width + at);
        store(x + (u64)row * width + at, make_vec<V>([&](u32 i) {
                  float biased = rounded(to_float(values.at[i]) + added[i]);
                  return is_silu ? silu(biased) : gelu(biased);
              }));
    }
}

KERNEL_PAIR(bias_activation, bias_activation_rows, (dtype *x, const dtype *bias, u32 rows, u32 width, u32 is_silu), x, bias,
            rows, width, is_silu)

// x += scale * (y + bias), with a scale per column. Blocks cover columns and rows.
template <u32 V>
DEVICE void add_scaled_rows(dtype *x, const dtype *y, const dtype *bias, const dtype *scale, u32 rows, u32 width) {
    u32 at = (blockIdx.x * blockDim.x + threadIdx.x) * V;
    if (at >= width) return;
    float added[V], scales[V];
#pragma unroll
    for (u32 i = 0; i < V; i++) {
        added[i] = bias ? to_float(bias[at + i]) : 0.0f;
        scales[i] = to_float(scale[at + i]);
    }
    for (u32 row = blockIdx.y; row < rows; row += gridDim.y) {
        u64 index = (u64)row * width + at;
        Vec<V> to = load<V>(x + index), from = load<V>(y + index);
        auto sum = [&](u32 i) { return to_float(to.at[i]) + scales[i] * (to_float(from.at[i]) + added[i]); };
        store(x + index, make_vec<V>(sum));
    }
}

KERNEL_PAIR(add_scaled, add_scaled_rows,
            (dtype *x, const dtype *y, const dtype *bias, const dtype *scale, u32 rows, u32 width), x, y, bias, scale, rows,
            width)

// Multiplies each row by its own factor.
KERNEL scale_rows(dtype *x, const dtype *factors, u32 width) {
    float scale = to_float(factors[blockIdx.x]);
    dtype *row = x + (u64)blockIdx.x * width;
    for (u32 at = threadIdx.x; at < width; at += blockDim.x) row[at] = to_dtype(to_float(row[at]) * scale);
}

// Adds to each row the table row of its id. An id outside the vocabulary adds nothing.
KERNEL add_embedding(const u32 *ids, const dtype *table, dtype *x, u32 vocabulary, u32 width) {
    u32 id = ids[blockIdx.x];
    if (id >= vocabulary) return;
    dtype *row = x + (u64)blockIdx.x * width;
    for (u32 at = threadIdx.x; at < width; at += blockDim.x)
        row[at] = to_dtype(to_float(row[at]) + to_float(table[(u64)id * width + at]));
}

// One block per frame of codes: the row of the first codebook, followed by the sum of the rows of the others. A code
// outside its codebook gives NaN.
KERNEL embed_codes(const u32 *codes, const dtype *codebooks, dtype *out, u32 groups, u32 size, u32 width) {
    const u32 *frame = codes + (u64)blockIdx.x * groups;
    dtype *to = out + (u64)blockIdx.x * 2 * width;
    for (u32 at = threadIdx.x; at < width; at += blockDim.x) {
        float sum = 0.0f;
        for (u32 group = 0; group < groups; group++) {
            u32 code = frame[group];
            float value = code < size ? to_float(codebooks[((u64)group * size + code) * width + at]) : QUIET_NAN;
            if (group == 0)
                to[at] = to_dtype(value);
            else
                sum += value;
        }
        to[width + at] = to_dtype(sum);
    }
}
