// SwiGLU, GeGLU and biases. Blocks cover columns and rows.

struct Silu {
    static DEVICE float of(float gate) { return silu(gate); }
};

// The tanh approximation of GELU: (1 + tanh(z)) / 2 is 1 / (1 + exp(-2 z)).
struct GeluTanh {
    static DEVICE float of(float gate) {
        return gate / (1 + __expf(-1.5957691216f * (gate + 0.044715f * gate * gate * gate)));
    }
};

// Rows of `gate_up`, [rows, 2 ffn], are the gate and then the up projection. The bias, [2 ffn], may be null.
template <u32 V, class Activation>
DEVICE void glu(const dtype *gate_up, const dtype *bias, dtype *out, u32 rows, u32 ffn) {
    wait_for_previous_kernel();
    u32 at = (blockIdx.x * blockDim.x + threadIdx.x) * V;
    if (at >= ffn) return;
    Vec<V> gate_bias = {}, up_bias = {};
    if (bias) {
        gate_bias = load<V>(bias + at);
        up_bias = load<V>(bias + ffn + at);
    }
    for (u64 row = blockIdx.y; row < rows; row += gridDim.y) {
        const dtype *from = gate_up + row * 2 * ffn + at;
        Vec<V> gate = load<V>(from), up = load<V>(from + ffn);
        store(out + row * ffn + at, make_vec<V>([&](u32 i) {
                  return Activation::of(to_float(gate.at[i]) + to_float(gate_bias.at[i])) *
                         (to_float(up.at[i]) + to_float(up_bias.at[i]));
              }));
    }
}

template <u32 V> DEVICE void swiglu_rows(const dtype *gate_up, const dtype *bias, dtype *out, u32 rows, u32 ffn) {
    glu<V, Silu>(gate_up, bias, out, rows, ffn);
}
template <u32 V> DEVICE void geglu_rows(const dtype *gate_up, const dtype *bias, dtype *out, u32 rows, u32 ffn) {
    glu<V, GeluTanh>(gate_up, bias, out, rows, ffn);
}

#define GLU_PARAMETERS (const dtype *gate_up, const dtype *bias, dtype *out, u32 rows, u32 ffn)

KERNEL_PAIR(swiglu, swiglu_rows, GLU_PARAMETERS, gate_up, bias, out, rows, ffn)
KERNEL_PAIR(geglu, geglu_rows, GLU_PARAMETERS, gate_up, bias, out, rows, ffn)

template <u32 V> DEVICE void add_bias_rows(dtype *x, const dtype *bias, u32 rows, u32 width) {
    u32 at = (blockIdx.x * blockDim.x + threadIdx.x) * V;
    if (at >= width) return;
    Vec<V> added = load<V>(bias + at);
    for (u64 row = blockIdx.y; row < rows; row += gridDim.y) {
        Vec<V> values = load<V>(x + row * width + at);
        store(x + row * width + at, make_vec<V>([&](u32 i) { return to_float(values.at[i]) + to_float(added.at[i]); }));
    }
}

KERNEL_PAIR(add_bias, add_bias_rows, (dtype *x, const dtype *bias, u32 rows, u32 width), x, bias, rows, width)
