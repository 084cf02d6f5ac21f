// Operations of streaming convolution blocks. Each convolution reads a list of rows that begins with the last rows of
// the previous call.
//
// Threads along x share a row: a part of a warp, with several rows per block, or whole warps, with one row per block.

DEVICE float shared_row_sum(float value) {
    __shared__ float scratch[32];
    if (blockDim.x >= 32) return row_sum(value, scratch);
    for (u32 delta = blockDim.x / 2; delta > 0; delta /= 2) value += __shfl_xor_sync(~0u, value, delta);
    return value;
}

// Writes the RMS norm of a row, or the row itself if `norm` is null. `squares` is this thread's part of the sum of
// squares.
template <u32 V>
DEVICE void norm_row(const dtype *x, const dtype *norm, dtype *out, bool is_row, u32 width, float squares, float epsilon) {
    float scale = norm ? rsqrtf(shared_row_sum(squares) / width + epsilon) : 1.0f;
    if (!is_row) return;
    for (u32 at = threadIdx.x * V; at < width; at += blockDim.x * V) {
        float values[V], weights[V];
        load(x + at, values);
        if (norm) {
            load(norm + at, weights);
#pragma unroll
            for (u32 i = 0; i < V; i++) values[i] *= scale * weights[i];
        }
        store(out + at, values);
    }
}

// x += scale * (y + bias) unless `y` is null, with a scale per column; then the norm of x into `out`.
template <u32 V>
DEVICE void add_norm_rows(dtype *x, const dtype *y, const dtype *bias, const dtype *scale, const dtype *norm, dtype *out,
                          u32 rows, u32 width, float epsilon) {
    u32 row = blockIdx.x * blockDim.y + threadIdx.y;
    bool is_row = row < rows;
    u64 first = (u64)(is_row ? row : 0) * width;
    float squares = 0.0f;
    for (u32 at = threadIdx.x * V; at < width && is_row; at += blockDim.x * V) {
        float values[V];
        load(x + first + at, values);
        if (y) {
            float added[V], biases[V], scales[V];
            load(y + first + at, added);
            load(bias + at, biases);
            load(scale + at, scales);
#pragma unroll
            for (u32 i = 0; i < V; i++) values[i] = rounded(values[i] + scales[i] * (added[i] + biases[i]));
            store(x + first + at, values);
        }
#pragma unroll
        for (u32 i = 0; i < V; i++) squares += values[i] * values[i];
    }
    norm_row<V>(x + first, norm, out + first, is_row, width, squares, epsilon);
}

KERNEL_PAIR(add_norm, add_norm_rows,
            (dtype *x, const dtype *y, const dtype *bias, const dtype *scale, const dtype *norm, dtype *out, u32 rows,
             u32 width, float epsilon),
            x, y, bias, scale, norm, out, rows, width, epsilon)

// Taps and rows whose loads are in flight together.
#define UNROLLED 8

// Adds the products of the taps with consecutive rows.
template <u32 V> DEVICE void add_taps(float (&sum)[V], const dtype *rows, const dtype *weight, u32 width, u32 taps) {
    for (u32 first = 0; first < taps; first += UNROLLED) {
        Vec<V> values[UNROLLED], weights[UNROLLED];
#pragma unroll
        for (u32 i = 0; i < UNROLLED; i++) {
            if (first + i >= taps) continue;
            values[i] = load<V>(rows + (u64)(first + i) * width);
            weights[i] = load<V>(weight + (u64)(first + i) * width);
        }
#pragma unroll
        for (u32 i = 0; i < UNROLLED; i++) {
            if (first + i >= taps) continue;
#pragma unroll
            for (u32 j = 0; j < V; j++) sum[j] += to_float(weights[i].at[j]) * to_float(values[i].at[j]);
        }
    }
}

// x += scale * depthwise convolution, then the norm of x into `out`. Output row n reads rows n to n + taps - 1 of
// `history`; weights are [taps, channels].
template <u32 V>
DEVICE void mix_norm_rows(const dtype *history, const dtype *weight, const dtype *bias, const dtype *scale, dtype *x,
                          const dtype *norm, dtype *out, u32 rows, u32 width, u32 taps, float epsilon) {
    u32 row = blockIdx.x * blockDim.y + threadIdx.y;
    bool is_row = row < rows;
    u64 first = (u64)(is_row ? row : 0) * width;
    float squares = 0.0f;
    for (u32 at = threadIdx.x * V; at < width && is_row; at += blockDim.x * V) {
        float sum[V], values[V], scales[V];
        load(bias + at, sum);
        load(x + first + at, values);
        load(scale + at, scales);
        add_taps(sum, history + first + at, weight + at, width, taps);
#pragma unroll
        for (u32 i = 0; i < V; i++) {
            values[i] = rounded(values[i] + scales[i] * rounded(sum[i]));
            squares += values[i] * values[i];
        }
        store(x + first + at, values);
    }
    norm_row<V>(x + first, norm, out + first, is_row, width, squares, epsilon);
}

KERNEL_PAIR(mix_norm, mix_norm_rows,
            (const dtype *history, const dtype *weight, const dtype *bias, const dtype *scale, dtype *x, const dtype *norm,
             dtype *out, u32 rows, u32 width, u32 taps, float epsilon),
            history, weight, bias, scale, x, norm, out, rows, width, taps, epsilon)

// From [channels, taps] to [taps, channels].
KERNEL transpose_taps(const dtype *from, dtype *to, u32 channels, u32 taps) {
    u32 at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < channels * taps) to[at] = from[at % channels * taps + at / channels];
}

// A list: its first element, the width of its rows, the rows of the previous call at its beginning, and rows per token.
struct List {
    u32 begin, width, kept, rows_per_token;
};

// Moves the last rows of every list to its beginning, for the next call. Blocks cover columns and lists.
KERNEL keep_rows(dtype *all, const List *lists, u32 tokens) {
    List list = lists[blockIdx.y];
    u64 rows = (u64)list.rows_per_token * tokens;
    dtype *first_row = all + list.begin;
    for (u32 column = blockIdx.x * blockDim.x + threadIdx.x; column < list.width; column += gridDim.x * blockDim.x) {
        // If fewer rows are new than are kept, source and target overlap: each row is read before it is overwritten.
        for (u32 first = 0; first < list.kept; first += UNROLLED) {
            dtype moved[UNROLLED];
#pragma unroll
            for (u32 i = 0; i < UNROLLED; i++)
                if (first + i < list.kept) moved[i] = first_row[(first + i + rows) * list.width + column];
#pragma unroll
            for (u32 i = 0; i < UNROLLED; i++)
                if (first + i < list.kept) first_row[(u64)(first + i) * list.width + column] = moved[i];
        }
    }
}

// Writes the samples of a token, rounded to the dtype, to its range of `all` and to `out`.
KERNEL write_samples(const float *from, const u32 *token, float *all, dtype *out, u32 samples) {
    u32 at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= samples) return;
    dtype value = to_dtype(from[at]);
    all[(u64)*token * samples + at] = to_float(value);
    out[at] = value;
}
