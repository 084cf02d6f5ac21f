// From noise to a latent: what stands between the layers of a diffusion head, and at both ends of its steps.
//
// Two vectors run together: what follows the positive stream, and what follows the negative one. Every kernel waits for
// the one before it before it touches anything.

// The factors of a step, as a solver gives them.
struct Factors {
    float clean_sample, clean_velocity, next_sample, next_clean, next_before;
};

// What is drawn: noise of all tokens and which token it is, samples and guesses of all steps, and the last velocities.
struct Drawing {
    const float *noise;     // [tokens, latent]
    const u32 *token;
    float *samples;         // [steps + 1, latent]
    float *guesses;         // [steps, latent]
    const number *velocity; // [2, latent]
    const Factors *factors; // [steps]
    const float *scale;     // how far the positive stream is followed
    u32 step, latent;
};

#define DRAWING                                                                                                        \
    const float *noise, const u32 *token, float *samples, float *guesses, const number *velocity,                      \
        const Factors *factors, const float *scale, u32 step, u32 latent
#define THIS_DRAWING {noise, token, samples, guesses, velocity, factors, scale, step, latent}

// The numbers of the sample that a step begins with, and with them the guess of the step before.
__device__ __forceinline__ float drawn(const Drawing &of, u32 at, float &guess) {
    if (of.step == 0) return of.noise[(u64)*of.token * of.latent + at];
    u32 last = of.step - 1;
    Factors by = of.factors[last];
    float positive = widened(of.velocity[at]), negative = widened(of.velocity[of.latent + at]);
    float velocity = negative + *of.scale * (positive - negative);
    float sample = of.samples[(u64)last * of.latent + at];
    guess = sample * by.clean_sample + velocity * by.clean_velocity;
    float next = sample * by.next_sample + guess * by.next_clean;
    // Before the first step there is no guess.
    if (last == 0 || by.next_before == 0.0f) return next;
    return next + of.guesses[(u64)(last - 1) * of.latent + at] * by.next_before;
}

__device__ __forceinline__ void keep_drawn(const Drawing &of, u32 at, float sample, float guess) {
    of.samples[(u64)of.step * of.latent + at] = sample;
    if (of.step > 0) of.guesses[(u64)(of.step - 1) * of.latent + at] = guess;
}

// The conditioning of the head at every step: the time's row added to each vector's, [steps, 2, width], and its silu.
extern "C" __global__ void conditioning_rows(const number *conditions, const number *times, number *conditioning, u32 width) {
    u32 step = blockIdx.y / 2, row = blockIdx.y % 2;
    u32 at = blockIdx.x * blockDim.x + threadIdx.x;
    wait_for_the_kernel_before();
    let_the_next_kernel_begin();
    if (at >= width) return;
    float sum = rounded(widened(conditions[(u64)row * width + at]) + widened(times[(u64)step * width + at]));
    conditioning[(u64)blockIdx.y * width + at] = narrowed(silu(sum));
}

// Begins a step: the sample through [width, latent] into both vectors. A warp a row; the latent lies in shared memory.
extern "C" __global__ void begin_drawing(DRAWING, const number *enter, number *x, u32 width) {
    Drawing of = THIS_DRAWING;
    extern __shared__ float sample[];
    wait_for_the_kernel_before();
    let_the_next_kernel_begin();
    for (u32 at = threadIdx.x; at < latent; at += blockDim.x) {
        float guess = 0.0f, value = drawn(of, at, guess);
        if (blockIdx.x == 0) keep_drawn(of, at, value, guess);
        sample[at] = rounded(value);
    }
    __syncthreads();
    u32 lane = threadIdx.x % LANES, warps = blockDim.x / LANES;
    for (u32 row = blockIdx.x * warps + threadIdx.x / LANES; row < width; row += gridDim.x * warps) {
        float sum = 0.0f;
        for (u32 at = lane; at < latent; at += LANES) sum += widened(enter[(u64)row * latent + at]) * sample[at];
        sum = sum_of_warp(sum);
        if (lane == 0) x[row] = x[width + row] = narrowed(sum);
    }
}

// Ends a token: its latent among those of all, as the connector takes it, and as the decoder does. One block.
extern "C" __global__ void end_drawing(DRAWING, float *latents, number *row, number *sound, float divisor, float bias) {
    Drawing of = THIS_DRAWING;
    wait_for_the_kernel_before();
    let_the_next_kernel_begin();
    for (u32 at = threadIdx.x; at < latent; at += blockDim.x) {
        float guess = 0.0f, value = drawn(of, at, guess);
        keep_drawn(of, at, value, guess);
        latents[(u64)*token * latent + at] = value;
        row[at] = narrowed(value);
        sound[at] = narrowed(value / divisor - bias);
    }
}
