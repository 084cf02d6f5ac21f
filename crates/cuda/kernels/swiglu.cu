// SwiGLU and biases. Blocks go over the columns and the rows.

__device__ __forceinline__ float gated(float gate, float up) { return gate / (1 + __expf(-gate)) * up; }

// gate_up is [rows, 2 ffn]: the gate first, then what it lets through. The bias, [2 ffn], may be absent.
extern "C" __global__ void swiglu(const number *gate_up, const number *bias, number *out, u32 rows, u32 ffn) {
    u32 at = (blockIdx.x * blockDim.x + threadIdx.x) * NUMBERS_IN_16_BYTES;
    if (at >= ffn) return;
    numbers gate_bias = {}, up_bias = {};
    if (bias) {
        gate_bias = loaded(bias + at);
        up_bias = loaded(bias + ffn + at);
    }
    for (u64 row = blockIdx.y; row < rows; row += gridDim.y) {
        const number *from = gate_up + row * 2 * ffn + at;
        numbers gate = loaded(from), up = loaded(from + ffn), result;
#pragma unroll
        for (int i = 0; i < NUMBERS_IN_16_BYTES; i++)
            result.at[i] = narrowed(gated(widened(gate.at[i]) + widened(gate_bias.at[i]),
                                          widened(up.at[i]) + widened(up_bias.at[i])));
        store(out + row * ffn + at, result);
    }
}

// The same at any width and place.
extern "C" __global__ void swiglu_any(const number *gate_up, const number *bias, number *out, u32 rows, u32 ffn) {
    u32 at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= ffn) return;
    float gate_bias = bias ? widened(bias[at]) : 0, up_bias = bias ? widened(bias[ffn + at]) : 0;
    for (u64 row = blockIdx.y; row < rows; row += gridDim.y) {
        const number *from = gate_up + row * 2 * ffn + at;
        out[row * ffn + at] = narrowed(gated(widened(from[0]) + gate_bias, widened(from[ffn]) + up_bias));
    }
}

extern "C" __global__ void add_bias(number *x, const number *bias, u32 rows, u32 width) {
    u32 at = (blockIdx.x * blockDim.x + threadIdx.x) * NUMBERS_IN_16_BYTES;
    if (at >= width) return;
    numbers added = loaded(bias + at);
    for (u64 row = blockIdx.y; row < rows; row += gridDim.y) {
        numbers values = loaded(x + row * width + at);
#pragma unroll
        for (int i = 0; i < NUMBERS_IN_16_BYTES; i++)
            values.at[i] = narrowed(widened(values.at[i]) + widened(added.at[i]));
        store(x + row * width + at, values);
    }
}

extern "C" __global__ void add_bias_any(number *x, const number *bias, u32 rows, u32 width) {
    u32 at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= width) return;
    for (u64 row = blockIdx.y; row < rows; row += gridDim.y)
        x[row * width + at] = narrowed(widened(x[row * width + at]) + widened(bias[at]));
}
