// SwiGLU, GeGLU and biases. Blocks go over the columns and the rows.

struct Silu {
    static __device__ __forceinline__ float of(float gate) { return silu(gate); }
};

// GELU as its approximation by tanh: (1 + tanh(z)) / 2 is 1 / (1 + exp(-2 z)).
struct GeluTanh {
    static __device__ __forceinline__ float of(float gate) {
        return gate / (1 + __expf(-1.5957691216f * (gate + 0.044715f * gate * gate * gate)));
    }
};

// gate_up is [rows, 2 ffn]: the gate first, then what it lets through. The bias, [2 ffn], may be absent.
template <typename Gate>
__device__ __forceinline__ void gated(const number *gate_up, const number *bias, number *out, u32 rows, u32 ffn) {
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
            result.at[i] = narrowed(Gate::of(widened(gate.at[i]) + widened(gate_bias.at[i])) *
                                    (widened(up.at[i]) + widened(up_bias.at[i])));
        store(out + row * ffn + at, result);
    }
}

// The same at any width and place.
template <typename Gate>
__device__ __forceinline__ void gated_any(const number *gate_up, const number *bias, number *out, u32 rows, u32 ffn) {
    u32 at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= ffn) return;
    float gate_bias = bias ? widened(bias[at]) : 0, up_bias = bias ? widened(bias[ffn + at]) : 0;
    for (u64 row = blockIdx.y; row < rows; row += gridDim.y) {
        const number *from = gate_up + row * 2 * ffn + at;
        out[row * ffn + at] = narrowed(Gate::of(widened(from[0]) + gate_bias) * (widened(from[ffn]) + up_bias));
    }
}

#define GATE(name, function, gate)                                                                                     \
    extern "C" __global__ void name(const number *gate_up, const number *bias, number *out, u32 rows, u32 ffn) {       \
        wait_for_the_kernel_before();                                                                                  \
        function<gate>(gate_up, bias, out, rows, ffn);                                                                 \
    }

GATE(swiglu, gated, Silu)
GATE(swiglu_any, gated_any, Silu)
GATE(geglu, gated, GeluTanh)
GATE(geglu_any, gated_any, GeluTanh)

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
