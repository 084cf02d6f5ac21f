// Convolutions over time with channels last: a row of a signal is one moment, [length, channels].
//
// A row of columns is all that one output looks at, tap by tap, and behind it a one, which the bias is multiplied with:
// so a convolution is one product of columns with weights. A transposed one is too: output n * stride + j is made of the
// same rows for every j, so it is a plain one of fewer taps and `stride` times as many outputs.

// Numbers behind the taps of a row of columns: a one, and zeros that keep rows aligned.
#define BEHIND 8
// Channels that a block of `columns` takes.
#define CHUNK 64

// A channel's snake: x + reach * sin(rate * x)^2.
struct alignas(8) Snake {
    float rate, reach;
};

__device__ __forceinline__ float snaked(float x, Snake of) {
    float sine = sinf(x * of.rate);
    return x + of.reach * sine * sine;
}

// From the logarithms that are stored.
extern "C" __global__ void snake_parameters(const number *alpha, const number *beta, Snake *out, u32 channels) {
    u32 channel = blockIdx.x * blockDim.x + threadIdx.x;
    if (channel >= channels) return;
    out[channel] = {expf(widened(alpha[channel])), 1.0f / (expf(widened(beta[channel])) + 1e-9f)};
}

struct Taps {
    u32 length, channels, taps, dilation, stride;
    // Rows of nothing before the first.
    u32 before;
};

#define TAPS u32 length, u32 channels, u32 taps, u32 dilation, u32 stride, u32 before
#define THESE_TAPS {length, channels, taps, dilation, stride, before}

// The row that a tap of an output looks at, or one beyond the signal.
__device__ __forceinline__ u32 looked_at(const Taps &of, u32 output, u32 tap) {
    u32 row = output * of.stride + tap * of.dilation;
    return row < of.before ? ~0u : row - of.before;
}

__device__ __forceinline__ number behind(u32 at) { return narrowed(at == 0 ? 1.0f : 0.0f); }

// Blocks go over `each` outputs and over CHUNK channels. What they look at is brought to shared memory once.
extern "C" __global__ void columns(const number *x, const Snake *snake, number *out, TAPS, u32 first, u32 rows, u32 each) {
    Taps of = THESE_TAPS;
    extern __shared__ uint4 shared[];
    numbers *kept = reinterpret_cast<numbers *>(shared);
    const u32 lanes = CHUNK / NUMBERS_IN_16_BYTES;
    u32 lane = threadIdx.x % lanes, thread = threadIdx.x / lanes, threads = blockDim.x / lanes;
    u32 channel = blockIdx.y * CHUNK + lane * NUMBERS_IN_16_BYTES;
    u32 begin = blockIdx.x * each, count = min(each, rows - begin);
    u32 width = of.taps * of.channels + BEHIND;
    u32 looked = (count - 1) * of.stride + (of.taps - 1) * of.dilation + 1;
    Snake snakes[NUMBERS_IN_16_BYTES];
    if (snake && channel < of.channels) {
#pragma unroll
        for (u32 i = 0; i < NUMBERS_IN_16_BYTES; i++) snakes[i] = snake[channel + i];
    }
    for (u32 at = thread; at < looked; at += threads) {
        // Before the signal this is beyond every length.
        u32 row = (first + begin) * of.stride + at - of.before;
        numbers values;
#pragma unroll
        for (u32 i = 0; i < NUMBERS_IN_16_BYTES; i++) values.at[i] = narrowed(0.0f);
        if (row < of.length && channel < of.channels) {
            values = loaded(x + (u64)row * of.channels + channel);
            if (snake) {
#pragma unroll
                for (u32 i = 0; i < NUMBERS_IN_16_BYTES; i++)
                    values.at[i] = narrowed(snaked(widened(values.at[i]), snakes[i]));
            }
        }
        kept[at * lanes + lane] = values;
    }
    __syncthreads();
    if (channel < of.channels) {
        for (u32 at = thread; at < count * of.taps; at += threads) {
            u32 output = at / of.taps, tap = at - output * of.taps;
            number *to = out + (u64)(begin + output) * width + tap * of.channels + channel;
            store(to, kept[(output * of.stride + tap * of.dilation) * lanes + lane]);
        }
    }
    if (blockIdx.y != 0) return;
    for (u32 at = threadIdx.x; at < count * BEHIND; at += blockDim.x) {
        number *to = out + (u64)(begin + at / BEHIND + 1) * width - BEHIND;
        to[at % BEHIND] = behind(at % BEHIND);
    }
}

// The same for any number of channels and any reach. A block an output.
extern "C" __global__ void columns_any(const number *x, const Snake *snake, number *out, TAPS, u32 first) {
    Taps of = THESE_TAPS;
    u32 width = of.taps * of.channels + BEHIND;
    number *to = out + (u64)blockIdx.x * width;
    for (u32 at = threadIdx.x; at < of.taps * of.channels; at += blockDim.x) {
        u32 tap = at / of.channels, channel = at - tap * of.channels;
        u32 row = looked_at(of, first + blockIdx.x, tap);
        float value = row < of.length ? widened(x[(u64)row * of.channels + channel]) : 0.0f;
        to[at] = narrowed(snake ? snaked(value, snake[channel]) : value);
    }
    if (threadIdx.x < BEHIND) to[width - BEHIND + threadIdx.x] = behind(threadIdx.x);
}

// Weights as they are multiplied with columns, from [outputs, inputs, kernel], or for a transposed convolution from
// [inputs, outputs, kernel]: rows of (phase, output), in each (tap, input) and the bias. Plain ones have one phase.
extern "C" __global__ void pack_taps(const number *from, const number *bias, number *to, u32 outputs, u32 inputs,
                                     u32 kernel, u32 phases, u32 taps) {
    u32 width = taps * inputs + BEHIND, row = blockIdx.x, phase = row / outputs, output = row - phase * outputs;
    for (u32 at = threadIdx.x; at < width; at += blockDim.x) {
        u32 tap = at / inputs, input = at - tap * inputs;
        number value = narrowed(0.0f);
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

// Each channel by itself: weights [channels, kernel]. Blocks go over groups of channels and over outputs.
template <u32 EACH>
__device__ __forceinline__ void depthwise_of(const number *x, const number *weight, const number *bias, number *out,
                                             Taps of, u32 outputs) {
    u32 channel = (blockIdx.x * blockDim.x + threadIdx.x) * EACH;
    if (channel >= of.channels) return;
    for (u32 output = blockIdx.y; output < outputs; output += gridDim.y) {
        float sum[EACH];
#pragma unroll
        for (u32 i = 0; i < EACH; i++) sum[i] = bias ? widened(bias[channel + i]) : 0.0f;
        for (u32 tap = 0; tap < of.taps; tap++) {
            u32 row = looked_at(of, output, tap);
            if (row >= of.length) continue;
            Some<EACH> values = some<EACH>(x + (u64)row * of.channels + channel);
#pragma unroll
            for (u32 i = 0; i < EACH; i++)
                sum[i] += widened(weight[(u64)(channel + i) * of.taps + tap]) * widened(values.at[i]);
        }
        put(out + (u64)output * of.channels + channel, sum);
    }
}

PAIR(depthwise, depthwise_of,
     (const number *x, const number *weight, const number *bias, number *out, TAPS, u32 outputs), x, weight, bias, out,
     THESE_TAPS, outputs)

// Outputs of a block of `to_one`, and threads that share one.
#define OUTPUTS 64
#define SHARING 4

// A convolution with one output, [1, channels, kernel], in f32 and between -limit and limit. Each CHUNK of channels that
// a block looks at lies in shared memory, with a number between rows so that threads do not wait for each other.
extern "C" __global__ void __launch_bounds__(OUTPUTS *SHARING)
    to_one(const number *x, const Snake *snake, const number *weight, const number *bias, float *out, TAPS, u32 outputs,
           float limit) {
    Taps of = THESE_TAPS;
    extern __shared__ float signal[];
    u32 looked = (OUTPUTS - 1) * of.stride + (of.taps - 1) * of.dilation + 1;
    float *weights = signal + looked * (CHUNK + 1);
    u32 begin = blockIdx.x * OUTPUTS, mine = threadIdx.x / SHARING, share = threadIdx.x % SHARING;
    float sum = 0.0f;
    for (u32 first = 0; first < of.channels; first += CHUNK) {
        __syncthreads();
        for (u32 at = threadIdx.x; at < looked * CHUNK; at += blockDim.x) {
            u32 row = begin * of.stride + at / CHUNK - of.before, channel = first + at % CHUNK;
            float value = 0.0f;
            if (row < of.length && channel < of.channels) {
                value = widened(x[(u64)row * of.channels + channel]);
                if (snake) value = widened(narrowed(snaked(value, snake[channel])));
            }
            signal[at / CHUNK * (CHUNK + 1) + at % CHUNK] = value;
        }
        for (u32 at = threadIdx.x; at < of.taps * CHUNK; at += blockDim.x) {
            u32 tap = at / CHUNK, channel = first + at % CHUNK;
            weights[at] = channel < of.channels ? widened(weight[(u64)channel * of.taps + tap]) : 0.0f;
        }
        __syncthreads();
        for (u32 tap = 0; tap < of.taps; tap++) {
            const float *row = signal + (mine * of.stride + tap * of.dilation) * (CHUNK + 1);
#pragma unroll 8
            for (u32 at = share; at < CHUNK; at += SHARING) sum += row[at] * weights[tap * CHUNK + at];
        }
    }
#pragma unroll
    for (u32 apart = SHARING / 2; apart > 0; apart /= 2) sum += __shfl_xor_sync(~0u, sum, apart);
    if (bias) sum += widened(bias[0]);
    // Not a number stays none.
    sum = sum < -limit ? -limit : sum > limit ? limit : sum;
    if (share == 0 && begin + mine < outputs) out[begin + mine] = sum;
}
