// AdamW over all parameters in one launch. A block has a chunk of one of them.

#define CHUNK 16384
#define THREADS 256
// Groups that a thread has on the way at once.
#define TOGETHER 2

struct Parameter {
    number *value;
    const number *gradient;
    number *first;
    number *second;
    u64 count;
};

struct Rates {
    float kept;         // what the decay leaves of a value
    float first_share;  // of the old moment
    float second_share;
    float step;         // the rate, with the first moment's correction
    float root;         // the second moment's correction, of its root
    float epsilon;
};

__device__ __forceinline__ void move(const Rates &rates, number &value, float gradient, number &first, number &second) {
    float mean = rates.first_share * widened(first) + (1 - rates.first_share) * gradient;
    float square = rates.second_share * widened(second) + (1 - rates.second_share) * gradient * gradient;
    float by = rates.step * mean / (sqrtf(square) * rates.root + rates.epsilon);
    value = narrowed(widened(value) * rates.kept - by);
    first = narrowed(mean);
    second = narrowed(square);
}

// A chunk is a parameter and which of its chunks.
extern "C" __global__ void __launch_bounds__(THREADS)
    adamw(const Parameter *parameters, const uint2 *chunks, float kept, float first_share, float second_share, float step,
          float root, float epsilon) {
    constexpr u32 V = NUMBERS_IN_16_BYTES;
    const Rates rates = {kept, first_share, second_share, step, root, epsilon};
    uint2 chunk = chunks[blockIdx.x];
    const Parameter of = parameters[chunk.x];
    u64 begin = (u64)chunk.y * CHUNK;
    number *values = of.value + begin, *firsts = of.first + begin, *seconds = of.second + begin;
    const number *gradients = of.gradient + begin;
    u32 count = of.count - begin < CHUNK ? (u32)(of.count - begin) : CHUNK;
    bool is_aligned = ((u64)values | (u64)gradients | (u64)firsts | (u64)seconds) % 16 == 0;
    u32 whole = is_aligned ? count / V * V : 0;
    for (u32 base = threadIdx.x * V; base < whole; base += TOGETHER * THREADS * V) {
        numbers value[TOGETHER], gradient[TOGETHER], first[TOGETHER], second[TOGETHER];
#pragma unroll
        for (u32 k = 0; k < TOGETHER; k++) {
            u32 at = base + k * THREADS * V;
            if (at >= whole) continue;
            value[k] = loaded(values + at);
            gradient[k] = loaded(gradients + at);
            first[k] = loaded(firsts + at);
            second[k] = loaded(seconds + at);
        }
#pragma unroll
        for (u32 k = 0; k < TOGETHER; k++) {
            u32 at = base + k * THREADS * V;
            if (at >= whole) continue;
#pragma unroll
            for (u32 i = 0; i < V; i++)
                move(rates, value[k].at[i], widened(gradient[k].at[i]), first[k].at[i], second[k].at[i]);
            store(values + at, value[k]);
            store(firsts + at, first[k]);
            store(seconds + at, second[k]);
        }
    }
    for (u32 at = whole + threadIdx.x; at < count; at += THREADS)
        move(rates, values[at], widened(gradients[at]), firsts[at], seconds[at]);
}
