// The gradient of SwiGLU, in place of the gate and what it lets through. Blocks go over the columns and the rows.

// gate_up is [rows, 2 ffn]; the bias, [2 ffn], and a place for what was activated may be absent.
template <u32 V>
__device__ __forceinline__ void gate_backward(number *gate_up, const number *bias, const number *slopes,
                                              number *activated, u32 rows, u32 ffn) {
    u32 at = (blockIdx.x * blockDim.x + threadIdx.x) * V;
    if (at >= ffn) return;
    Some<V> gate_bias = {}, up_bias = {};
    if (bias) {
        gate_bias = some<V>(bias + at);
        up_bias = some<V>(bias + ffn + at);
    }
    for (u64 row = blockIdx.y; row < rows; row += gridDim.y) {
        number *place = gate_up + row * 2 * ffn + at;
        Some<V> gates = some<V>(place), ups = some<V>(place + ffn), slope = some<V>(slopes + row * ffn + at), passed;
#pragma unroll
        for (u32 i = 0; i < V; i++) {
            float gate = widened(gates.at[i]) + widened(gate_bias.at[i]);
            float up = widened(ups.at[i]) + widened(up_bias.at[i]), by = widened(slope.at[i]);
            // Infinite where the gate is far below zero, and then nothing is let through.
            float open = 1 / (1 + __expf(-gate)), silu = gate * open;
            gates.at[i] = narrowed(by * up * open * (1 + gate * (1 - open)));
            ups.at[i] = narrowed(by * silu);
            passed.at[i] = narrowed(silu * up);
        }
        put(place, gates);
        put(place + ffn, ups);
        if (activated) put(activated + row * ffn + at, passed);
    }
}

PAIR(swiglu_backward, gate_backward,
     (number *gate_up, const number *bias, const number *slopes, number *activated, u32 rows, u32 ffn), gate_up, bias,
     slopes, activated, rows, ffn)
