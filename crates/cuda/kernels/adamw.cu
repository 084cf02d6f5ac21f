// AdamW over all parameters in one launch. Each block updates a chunk of one parameter.

#define CHUNK 16384
#define THREADS 256
// Vectors per thread whose loads are in flight together.
#define UNROLLED 2

struct Parameter {
    dtype *value;
    const dtype *gradient;
    dtype *first;
    dtype *second;
    u64 count;
};

struct Rates {
    float decay;        // the factor of the weight decay
    float beta1, beta2; // of the moments
    float step;         // the learning rate with the bias correction of the first moment
    float root;         // the bias correction of the second moment's root
    float epsilon;
};

DEVICE void update(const Rates &rates, dtype &value, float gradient, dtype &first, dtype &second) {
    float mean = rates.beta1 * to_float(first) + (1 - rates.beta1) * gradient;
    float square = rates.beta2 * to_float(second) + (1 - rates.beta2) * gradient * gradient;
    float change = rates.step * mean / (sqrtf(square) * rates.root + rates.epsilon);
    value = to_dtype(to_float(value) * rates.decay - change);
    first = to_dtype(mean);
    second = to_dtype(square);
}

// A chunk is the index of a parameter, and of one of its chunks.
KERNEL __launch_bounds__(THREADS) adamw(const Parameter *parameters, const uint2 *chunks, float decay, float beta1,
                                        float beta2, float step, float root, float epsilon) {
    const Rates rates = {decay, beta1, beta2, step, root, epsilon};
    uint2 chunk = chunks[blockIdx.x];
    const Parameter of = parameters[chunk.x];
    u64 begin = (u64)chunk.y * CHUNK;
    dtype *values = of.value + begin, *firsts = of.first + begin, *seconds = of.second + begin;
    const dtype *gradients = of.gradient + begin;
    u32 count = of.count - begin < CHUNK ? (u32)(of.count - begin) : CHUNK;
    bool is_aligned = ((u64)values | (u64)gradients | (u64)firsts | (u64)seconds) % 16 == 0;
    u32 whole = is_aligned ? count / VEC * VEC : 0;
    for (u32 base = threadIdx.x * VEC; base < whole; base += UNROLLED * THREADS * VEC) {
        vec_t value[UNROLLED], gradient[UNROLLED], first[UNROLLED], second[UNROLLED];
#pragma unroll
        for (u32 k = 0; k < UNROLLED; k++) {
            u32 at = base + k * THREADS * VEC;
            if (at >= whole) continue;
            value[k] = load(values + at);
            gradient[k] = load(gradients + at);
            first[k] = load(firsts + at);
            second[k] = load(seconds + at);
        }
#pragma unroll
        for (u32 k = 0; k < UNROLLED; k++) {
            u32 at = base + k * THREADS * VEC;
            if (at >= whole) continue;
#pragma unroll
            for (u32 i = 0; i < VEC; i++)
                update(rates, value[k].at[i], to_float(gradient[k].at[i]), first[k].at[i], second[k].at[i]);
            store(values + at, value[k]);
            store(firsts + at, first[k]);
            store(seconds + at, second[k]);
        }
    }
    for (u32 at = whole + threadIdx.x; at < count; at += THREADS)
        update(rates, values[at], to_float(gradients[at]), firsts[at], seconds[at]);
}
