// The gradient of SwiGLU, written over gate and up projection. Blocks cover columns and rows.

// `gate_up` is [rows, 2 ffn], as for the forward pass. The bias, [2 ffn], may be null, and so may `activated`, where
// the forward result is written again.
template <u32 V>
DEVICE void glu_backward(dtype *gate_up, const dtype *bias, const dtype *dy, dtype *activated, u32 rows, u32 ffn) {
    u32 at = (blockIdx.x * blockDim.x + threadIdx.x) * V;
    if (at >= ffn) return;
    Vec<V> gate_bias = {}, up_bias = {};
    if (bias) {
        gate_bias = load<V>(bias + at);
        up_bias = load<V>(bias + ffn + at);
    }
    for (u64 row = blockIdx.y; row < rows; row += gridDim.y) {
        dtype *from = gate_up + row * 2 * ffn + at;
        Vec<V> gates = load<V>(from), ups = load<V>(from + ffn), d_out = load<V>(dy + row * ffn + at), out;
#pragma unroll
        for (u32 i = 0; i < V; i++) {
            float gate = to_float(gates.at[i]) + to_float(gate_bias.at[i]);
            float up = to_float(ups.at[i]) + to_float(up_bias.at[i]), d = to_float(d_out.at[i]);
            // The exponential overflows for very negative gates, and the sigmoid is then 0.
            float sigmoid = 1 / (1 + __expf(-gate)), silu = gate * sigmoid;
            gates.at[i] = to_dtype(d * up * sigmoid * (1 + gate * (1 - sigmoid)));
            ups.at[i] = to_dtype(d * silu);
            out.at[i] = to_dtype(silu * up);
        }
        store(from, gates);
        store(from + ffn, ups);
        if (activated) store(activated + row * ffn + at, out);
    }
}

KERNEL_PAIR(swiglu_backward, glu_backward,
            (dtype *gate_up, const dtype *bias, const dtype *dy, dtype *activated, u32 rows, u32 ffn), gate_up, bias, dy,
            activated, rows, ffn)
