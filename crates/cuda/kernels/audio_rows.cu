// Rows between the convolutions of a codec: layer norms, gates, scaled additions, and the rows of codebooks.

__device__ __forceinline__ float added_up_in_block(float value) {
    __shared__ float sums[32];
    __syncthreads();
    value = sum_of_warp(value);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = value;
    __syncthreads();
    return sum_of_warp(threadIdx.x % 32 < blockDim.x / 32 ? sums[threadIdx.x % 32] : 0.0f);
}

// One block per row: subtracts the mean, divides by the standard deviation, multiplies by a weight, and adds a bias.
extern "C" __global__ void layer_norm(const number *x, const number *weight, const number *bias, number *out, u32 width,
                                      float epsilon) {
    const number *row = x + (u64)blockIdx.x * width;
    float sum = 0.0f;
    for (u32 at = threadIdx.x; at < width; at += blockDim.x) sum += widened(row[at]);
    float mean = added_up_in_block(sum) / width, squares = 0.0f;
    for (u32 at = threadIdx.x; at < width; at += blockDim.x) {
        float apart = widened(row[at]) - mean;
        squares += apart * apart;
    }
    float scale = rsqrtf(added_up_in_block(squares) / width + epsilon);
    number *to = out + (u64)blockIdx.x * width;
    for (u32 at = threadIdx.x; at < width; at += blockDim.x)
        to[at] = narrowed((widened(row[at]) - mean) * scale * widened(weight[at]) + widened(bias[at]));
}

// Adds a bias to each row, and applies gelu or silu. Blocks cover columns and rows.
template <u32 EACH>
__device__ __forceinline__ void bias_gate_of(number *x, const number *bias, u32 rows, u32 width, u32 is_silu) {
    u32 at = (blockIdx.x * blockDim.x + threadIdx.x) * EACH;
    if (at >= width) return;
    float added[EACH];
#pragma unroll
    for (u32 i = 0; i < EACH; i++) added[i] = bias ? widened(bias[at + i]) : 0.0f;
    for (u32 row = blockIdx.y; row < rows; row += gridDim.y) {
        number *place = x + (u64)row * width + at;
        Some<EACH> values = some<EACH>(place);
#pragma unroll
        for (u32 i = 0; i < EACH; i++) {
            number biased = narrowed(widened(values.at[i]) + added[i]);
            values.at[i] = is_silu ? narrowed(silu(widened(biased))) : gelu_of(biased);
        }
        put(place, values);
    }
}

PAIR(bias_gate, bias_gate_of, (number *x, const number *bias, u32 rows, u32 width, u32 is_silu), x, bias, rows, width,
     is_silu)

// Adds to each row of x that of y, with a bias, times a scale per column. Blocks cover columns and rows.
template <u32 EACH>
__device__ __forceinline__ void add_scaled_of(number *x, const number *y, const number *bias, const number *scale, u32 rows,
                                              u32 width) {
    u32 at = (blockIdx.x * blockDim.x + threadIdx.x) * EACH;
    if (at >= width) return;
    float added[EACH], scales[EACH];
#pragma unroll
    for (u32 i = 0; i < EACH; i++) {
        added[i] = bias ? widened(bias[at + i]) : 0.0f;
        scales[i] = widened(scale[at + i]);
    }
    for (u32 row = blockIdx.y; row < rows; row += gridDim.y) {
        u64 place = (u64)row * width + at;
        Some<EACH> to = some<EACH>(x + place), from = some<EACH>(y + place);
        put(x + place, each<EACH>([&](u32 i) {
                return widened(to.at[i]) + scales[i] * (widened(from.at[i]) + added[i]);
            }));
    }
}

PAIR(add_scaled, add_scaled_of,
     (number *x, const number *y, const number *bias, const number *scale, u32 rows, u32 width), x, y, bias, scale, rows,
     width)

// Multiplies each row by its own factor.
extern "C" __global__ void scale_rows(number *x, const number *by, u32 width) {
    float scale = widened(by[blockIdx.x]);
    number *row = x + (u64)blockIdx.x * width;
    for (u32 at = threadIdx.x; at < width; at += blockDim.x) row[at] = narrowed(widened(row[at]) * scale);
}

// Adds to each row the table row selected for it, if any.
extern "C" __global__ void add_embedding(const u32 *ids, const number *table, number *x, u32 vocabulary, u32 width) {
    u32 id = ids[blockIdx.x];
    if (id >= vocabulary) return;
    number *row = x + (u64)blockIdx.x * width;
    for (u32 at = threadIdx.x; at < width; at += blockDim.x)
        row[at] = narrowed(widened(row[at]) + widened(table[(u64)id * width + at]));
}

// One block per row of codes: the row of the first codebook, followed by the sum of the rows of the others. A code
// outside its codebook gives NaN.
extern "C" __global__ void code_rows(const u32 *codes, const number *books, number *out, u32 groups, u32 size, u32 width) {
    const u32 *mine = codes + (u64)blockIdx.x * groups;
    number *to = out + (u64)blockIdx.x * 2 * width;
    for (u32 at = threadIdx.x; at < width; at += blockDim.x) {
        float rest = 0.0f;
        for (u32 group = 0; group < groups; group++) {
            u32 code = mine[group];
            float value = code < size ? widened(books[((u64)group * size + code) * width + at]) : NOT_A_NUMBER;
            if (group == 0) to[at] = narrowed(value);
            else rest += value;
        }
        to[width + at] = narrowed(rest);
    }
}
