// 1D convolutions of signals [length, channels] by im2col and one GEMM.
//
// A row of columns is the input of one output, tap by tap, followed by a one that the bias is multiplied with. A
// transposed convolution is a GEMM too: output n * stride + j reads the same rows for every j, so it is a plain
// convolution with fewer taps and `stride` times as many outputs.

// Elements after the taps of a row of columns: a one, and zeros that keep rows aligned.
#define BIAS_PADDING 8
// Channels per block of `columns`.
#define CHUNK 64

// The snake activation of a channel: x + amplitude * sin(rate * x)^2.
struct alignas(8) Snake {
    float rate, amplitude;
};

DEVICE float snake_of(float x, Snake of) {
    float sine = sinf(x * of.rate);
    return x + of.amplitude * sine * sine;
}

// The stored parameters are logarithms.
KERNEL snake_parameters(const dtype *alpha, const dtype *beta, Snake *out, u32 channels) {
    u32 channel = blockIdx.x * blockDim.x + threadIdx.x;
    if (channel >= channels) return;
    out[channel] = {expf(to_float(alpha[channel])), 1.0f / (expf(to_float(beta[channel])) + 1e-9f)};
}

struct Taps {
    u32 length, channels, taps, dilation, stride;
    // Zero rows before the first.
    u32 before;
};

#define TAPS u32 length, u32 channels, u32 taps, u32 dilation, u32 stride, u32 before
#define THESE_TAPS {length, channels, taps, dilation, stride, before}

// The input row of an output's tap; padding is beyond the end of the signal.
DEVICE u32 input_row(const Taps &of, u32 output, u32 tap) {
    u32 row = output * of.stride + tap * of.dilation;
    return row < of.before ? ~0u : row - of.before;
}

DEVICE dtype bias_padding(u32 at) { return to_dtype(at == 0 ? 1.0f : 0.0f); }

// im2col. Blocks cover `each` outputs and CHUNK channels. Their input is loaded into shared memory once.
KERNEL columns(const dtype *x, const Snake *snake, dtype *out, TAPS, u32 first, u32 rows, u32 each) {
    Taps of = THESE_TAPS;
    extern __shared__ uint4 shared[];
    vec_t *kept = reinterpret_cast<vec_t *>(shared);
    const u32 lanes = CHUNK / VEC;
    u32 lane = threadIdx.x % lanes, thread = threadIdx.x / lanes, threads = blockDim.x / lanes;
    u32 channel = blockIdx.y * CHUNK + lane * VEC;
    u32 begin = blockIdx.x * each, count = min(each, rows - begin);
    u32 width = of.taps * of.channels + BIAS_PADDING;
    u32 inputs = (count - 1) * of.stride + (of.taps - 1) * of.dilation + 1;
    Snake snakes[VEC];
    if (snake && channel < of.channels) {
#pragma unroll
        for (u32 i = 0; i < VEC; i++) snakes[i] = snake[channel + i];
    }
    for (u32 at = thread; at < inputs; at += threads) {
        // Wraps around before the signal, beyond every length.
        u32 row = (first + begin) * of.stride + at - of.before;
        vec_t values = {};
        if (row < of.length && channel < of.channels) {
            values = load(x + (u64)row * of.channels + channel);
            if (snake) values = make_vec<VEC>([&](u32 i) { return snake_of(to_float(values.at[i]), snakes[i]); });
        }
        kept[at * lanes + lane] = values;
    }
    __syncthreads();
    if (channel < of.channels) {
        for (u32 at = thread; at < count * of.taps; at += threads) {
            u32 output = at / of.taps, tap = at - output * of.taps;
            dtype *to = out + (u64)(begin + output) * width + tap * of.channels + channel;
            store(to, kept[(output * of.stride + tap * of.dilation) * lanes + lane]);
        }
    }
    if (blockIdx.y != 0) return;
    for (u32 at = threadIdx.x; at < count * BIAS_PADDING; at += blockDim.x) {
        dtype *to = out + (u64)(begin + at / BIAS_PADDING + 1) * width - BIAS_PADDING;
        to[at % BIAS_PADDING] = bias_padding(at % BIAS_PADDING);
    }
}

// The same for any number of channels and any dilation. One block per output.
KERNEL columns_any(const dtype *x, const Snake *snake, dtype *out, TAPS, u32 first) {
    Taps of = THESE_TAPS;
    u32 width = of.taps * of.channels + BIAS_PADDING;
    dtype *to = out + (u64)blockIdx.x * width;
    for (u32 at = threadIdx.x; at < of.taps * of.channels; at += blockDim.x) {
        u32 tap = at / of.channels, channel = at - tap * of.channels;
        u32 row = input_row(of, first + blockIdx.x, tap);
        float value = row < of.length ? to_float(x[(u64)row * of.channels + channel]) : 0.0f;
        to[at] = to_dtype(snake ? snake_of(value, snake[channel]) : value);
    }
    if (threadIdx.x < BIAS_PADDING) to[width - BIAS_PADDING + threadIdx.x] = bias_padding(threadIdx.x);
}

// Packs weights for the GEMM, from [outputs, inputs, kernel], or for a transposed convolution from [inputs, outputs,
// kernel]: a row per (phase, output), with an element per (tap, input) and the bias. `phases` is 0 for plain
// convolutions.
KERNEL pack_taps(const dtype *from, const dtype *bias, dtype *to, u32 outputs, u32 inputs,
                                     u32 kernel, u32 phases, u32 taps) {
    u32 width = taps * inputs + BIAS_PADDING, row = blockIdx.x, phase = row / outputs, output = row - phase * outputs;
    for (u32 at = threadIdx.x; at < width; at += blockDim.x) {
        u32 tap = at / inputs, input = at - tap * inputs;
        dtype value = to_dtype(0.0f);
        if (at == taps * inputs) {
            if (bias) value = bias[output];
        } else if (tap < taps) {
            u32 index = phases == 0 ? tap : phase + (taps - 1 - tap) * phases;
            u64 place = phases == 0 ? (u64)output * inputs + input : (u64)input * outputs + output;
            if (index < kernel) value = from[place * kernel + index];
        }
        to[(u64)row * width + at] = value;
    }
}

// Depthwise convolution: weights [channels, kernel]. Blocks cover channels and outputs.
template <u32 V>
DEVICE void depthwise_of(const dtype *x, const dtype *weight, const dtype *bias, dtype *out,
                                             Taps of, u32 outputs) {
    u32 channel = (blockIdx.x * blockDim.x + threadIdx.x) * V;
    if (channel >= of.channels) return;
    for (u32 output = blockIdx.y; output < outputs; output += gridDim.y) {
        float sum[V];
#pragma unroll
        for (u32 i = 0; i < V; i++) sum[i] = bias ? to_float(bias[channel + i]) : 0.0f;
        for (u32 tap = 0; tap < of.taps; tap++) {
            u32 row = input_row(of, output, tap);
            if (row >= of.length) continue;
            Vec<V> values = load<V>(x + (u64)row * of.channels + channel);
#pragma unroll
            for (u32 i = 0; i < V; i++)
                sum[i] += to_float(weight[(u64)(channel + i) * of.taps + tap]) * to_float(values.at[i]);
        }
        store(out + (u64)output * of.channels + channel, sum);
    }
}

KERNEL_PAIR(depthwise, depthwise_of,
     (const dtype *x, const dtype *weight, const dtype *bias, dtype *out, TAPS, u32 outputs), x, weight, bias, out,
     THESE_TAPS, outputs)

// Outputs per block of `to_one`, and threads per output.
#define OUTPUTS 64
#define SHARING 4

// A convolution with one output channel, [1, channels, kernel], in f32, clamped to [-limit, limit]. A CHUNK of the
// input channels at a time is in shared memory, with padding between rows against bank conflicts.
KERNEL __launch_bounds__(OUTPUTS *SHARING)
    to_one(const dtype *x, const Snake *snake, const dtype *weight, const dtype *bias, float *out, TAPS, u32 outputs,
           float limit) {
    Taps of = THESE_TAPS;
    extern __shared__ float signal[];
    u32 inputs = (OUTPUTS - 1) * of.stride + (of.taps - 1) * of.dilation + 1;
    float *weights = signal + inputs * (CHUNK + 1);
    u32 begin = blockIdx.x * OUTPUTS, mine = threadIdx.x / SHARING, share = threadIdx.x % SHARING;
    float sum = 0.0f;
    for (u32 first = 0; first < of.channels; first += CHUNK) {
        __syncthreads();
        for (u32 at = threadIdx.x; at < inputs * CHUNK; at += blockDim.x) {
            u32 row = begin * of.stride + at / CHUNK - of.before, channel = first + at % CHUNK;
            float value = 0.0f;
            if (row < of.length && channel < of.channels) {
                value = to_float(x[(u64)row * of.channels + channel]);
                if (snake) value = to_float(to_dtype(snake_of(value, snake[channel])));
            }
            signal[at / CHUNK * (CHUNK + 1) + at % CHUNK] = value;
        }
        for (u32 at = threadIdx.x; at < of.taps * CHUNK; at += blockDim.x) {
            u32 tap = at / CHUNK, channel = first + at % CHUNK;
            weights[at] = channel < of.channels ? to_float(weight[(u64)channel * of.taps + tap]) : 0.0f;
        }
        __syncthreads();
        for (u32 tap = 0; tap < of.taps; tap++) {
            const float *row = signal + (mine * of.stride + tap * of.dilation) * (CHUNK + 1);
#pragma unroll 8
            for (u32 at = share; at < CHUNK; at += SHARING) sum += row[at] * weights[tap * CHUNK + at];
        }
    }
#pragma unroll
    for (u32 delta = SHARING / 2; delta > 0; delta /= 2) sum += __shfl_xor_sync(~0u, sum, delta);
    if (bias) sum += to_float(bias[0]);
    // Keeps NaN.
    sum = sum < -limit ? -limit : sum > limit ? limit : sum;
    if (share == 0 && begin + mine < outputs) out[begin + mine] = sum;
}
