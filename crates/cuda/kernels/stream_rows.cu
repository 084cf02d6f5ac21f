// Rows between convolutions that go on from what came before: each convolution sees a list of rows that begins with the
// last ones of the run before.
//
// Threads along x share a row: up to a warp of them, and then several rows a block; or whole warps, and a block a row.

__device__ __forceinline__ float added_up_in_row(float value) {
    __shared__ float sums[32];
    for (u32 apart = min(blockDim.x, 32) / 2; apart > 0; apart /= 2) value += __shfl_xor_sync(~0u, value, apart);
    if (blockDim.x <= 32) return value;
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = value;
    __syncthreads();
    float sum = 0.0f;
    for (u32 warp = 0; warp < blockDim.x / 32; warp++) sum += sums[warp];
    return sum;
}

// Puts a row that this thread has a share of, normed, or as it is where there is no norm, into another.
template <u32 EACH>
__device__ __forceinline__ void norm_row(const number *x, const number *norm, number *out, bool there, u32 width,
                                         float squares, float epsilon) {
    float scale = norm ? rsqrtf(added_up_in_row(squares) / width + epsilon) : 1.0f;
    if (!there) return;
    for (u32 at = threadIdx.x * EACH; at < width; at += blockDim.x * EACH) {
        float values[EACH], weights[EACH];
        take<EACH>(x + at, values);
        if (norm) {
            take<EACH>(norm + at, weights);
#pragma unroll
            for (u32 i = 0; i < EACH; i++) values[i] *= scale * weights[i];
        }
        put<EACH>(out + at, values);
    }
}

// Adds to each row of x, where there is a y, that of y with a bias, times a scale a column; and norms it into out.
template <u32 EACH>
__device__ __forceinline__ void add_norm_of(number *x, const number *y, const number *bias, const number *scale,
                                            const number *norm, number *out, u32 rows, u32 width, float epsilon) {
    u32 row = blockIdx.x * blockDim.y + threadIdx.y;
    bool there = row < rows;
    u64 place = (u64)(there ? row : 0) * width;
    float squares = 0.0f;
    for (u32 at = threadIdx.x * EACH; at < width && there; at += blockDim.x * EACH) {
        float values[EACH];
        take<EACH>(x + place + at, values);
        if (y) {
            float more[EACH], added[EACH], scales[EACH];
            take<EACH>(y + place + at, more);
            take<EACH>(bias + at, added);
            take<EACH>(scale + at, scales);
#pragma unroll
            for (u32 i = 0; i < EACH; i++) values[i] = widened(narrowed(values[i] + scales[i] * (more[i] + added[i])));
            put<EACH>(x + place + at, values);
        }
#pragma unroll
        for (u32 i = 0; i < EACH; i++) squares += values[i] * values[i];
    }
    norm_row<EACH>(x + place, norm, out + place, there, width, squares, epsilon);
}

PAIR(add_norm, add_norm_of,
     (number *x, const number *y, const number *bias, const number *scale, const number *norm, number *out, u32 rows,
      u32 width, float epsilon),
     x, y, bias, scale, norm, out, rows, width, epsilon)

// Adds the products of taps with rows at this distance, eight at a time, so that all usual loads are in flight
// together.
#define TOGETHER 8
template <u32 EACH>
__device__ __forceinline__ void add_taps(float (&sum)[EACH], const number *seen, const number *weight, u32 width, u32 taps) {
    for (u32 first = 0; first < taps; first += TOGETHER) {
        Some<EACH> values[TOGETHER], weights[TOGETHER];
#pragma unroll
        for (u32 i = 0; i < TOGETHER; i++) {
            if (first + i >= taps) continue;
            values[i] = some<EACH>(seen + (u64)(first + i) * width);
            weights[i] = some<EACH>(weight + (u64)(first + i) * width);
        }
#pragma unroll
        for (u32 i = 0; i < TOGETHER; i++) {
            if (first + i >= taps) continue;
#pragma unroll
            for (u32 j = 0; j < EACH; j++) sum[j] += widened(weights[i].at[j]) * widened(values[i].at[j]);
        }
    }
}

// Adds to each row of x what each channel by itself makes of the rows that it sees, times a scale; and norms it into out.
// Row n sees rows n to n + taps - 1 of the list; weights are [taps, channels].
template <u32 EACH>
__device__ __forceinline__ void mix_norm_of(const number *seen, const number *weight, const number *bias,
                                            const number *scale, number *x, const number *norm, number *out, u32 rows,
                                            u32 width, u32 taps, float epsilon) {
    u32 row = blockIdx.x * blockDim.y + threadIdx.y;
    bool there = row < rows;
    u64 place = (u64)(there ? row : 0) * width;
    float squares = 0.0f;
    for (u32 at = threadIdx.x * EACH; at < width && there; at += blockDim.x * EACH) {
        float sum[EACH], values[EACH], scales[EACH];
        take<EACH>(bias + at, sum);
        take<EACH>(x + place + at, values);
        take<EACH>(scale + at, scales);
        add_taps<EACH>(sum, seen + place + at, weight + at, width, taps);
#pragma unroll
        for (u32 i = 0; i < EACH; i++) {
            values[i] = widened(narrowed(values[i] + scales[i] * widened(narrowed(sum[i]))));
            squares += values[i] * values[i];
        }
        put<EACH>(x + place + at, values);
    }
    norm_row<EACH>(x + place, norm, out + place, there, width, squares, epsilon);
}

PAIR(mix_norm, mix_norm_of,
     (const number *seen, const number *weight, const number *bias, const number *scale, number *x, const number *norm,
      number *out, u32 rows, u32 width, u32 taps, float epsilon),
     seen, weight, bias, scale, x, norm, out, rows, width, taps, epsilon)

// Weights [channels, taps] as [taps, channels].
extern "C" __global__ void turn_taps(const number *from, number *to, u32 channels, u32 taps) {
    u32 at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= channels * taps) return;
    to[at] = from[at % channels * taps + at / channels];
}

// A list of rows: where it begins, its width, the rows of the run before that it begins with, and those of a token.
struct List {
    u32 begin, width, kept, each;
};

// Puts the last rows of every list to its beginning, for the next run. Blocks go over columns and over lists.
extern "C" __global__ void keep_rows(number *all, const List *lists, u32 tokens) {
    List list = lists[blockIdx.y];
    u64 rows = (u64)list.each * tokens;
    number *rows_of = all + list.begin;
    for (u32 column = blockIdx.x * blockDim.x + threadIdx.x; column < list.width; column += gridDim.x * blockDim.x) {
        // Where fewer rows are new than are kept, those before move up: each is read before its place is written.
        for (u32 first = 0; first < list.kept; first += TOGETHER) {
            number moved[TOGETHER];
#pragma unroll
            for (u32 i = 0; i < TOGETHER; i++)
                if (first + i < list.kept) moved[i] = rows_of[(first + i + rows) * list.width + column];
#pragma unroll
            for (u32 i = 0; i < TOGETHER; i++)
                if (first + i < list.kept) rows_of[(u64)(first + i) * list.width + column] = moved[i];
        }
    }
}

// Samples of a token, rounded to numbers: among those of all, and as rows of one.
extern "C" __global__ void put_samples(const float *from, const u32 *token, float *all, number *out, u32 samples) {
    u32 at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= samples) return;
    number value = narrowed(from[at]);
    all[(u64)*token * samples + at] = widened(value);
    out[at] = value;
}
