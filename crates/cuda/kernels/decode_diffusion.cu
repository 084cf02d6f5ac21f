// The parts of a diffusion head's steps around its layers: conditioning, solver steps, and both ends.
//
// Two vectors are denoised together, for classifier-free guidance: the conditional one first, then the unconditional
// one.

// The solver's factors of a step.
struct Factors {
    float clean_sample, clean_velocity, next_sample, next_clean, next_before;
};

struct Diffusion {
    const float *noise;     // [tokens, latent]
    const u32 *token;       // the index of the current latent
    float *samples;         // [steps + 1, latent]
    float *estimates;       // of the clean latent, [steps, latent]
    const dtype *velocity;  // of the last step, [2, latent]
    const Factors *factors; // [steps]
    const float *guidance;
    u32 step, latent;

    // Element `at` of the step's first sample, and of the previous step's estimate.
    DEVICE float sample(u32 at, float &estimate) const {
        if (step == 0) return noise[(u64)*token * latent + at];
        u32 last = step - 1;
        Factors by = factors[last];
        float conditional = to_float(velocity[at]), unconditional = to_float(velocity[latent + at]);
        float guided = unconditional + *guidance * (conditional - unconditional);
        float sample = samples[(u64)last * latent + at];
        estimate = sample * by.clean_sample + guided * by.clean_velocity;
        float next = sample * by.next_sample + estimate * by.next_clean;
        // There is no estimate before the first step.
        if (last == 0 || by.next_before == 0.0f) return next;
        return next + estimates[(u64)(last - 1) * latent + at] * by.next_before;
    }
    DEVICE void store(u32 at, float sample, float estimate) const {
        samples[(u64)step * latent + at] = sample;
        if (step > 0) estimates[(u64)(step - 1) * latent + at] = estimate;
    }
};

#define DIFFUSION                                                                                                      \
    const float *noise, const u32 *token, float *samples, float *estimates, const dtype *velocity,                     \
        const Factors *factors, const float *guidance, u32 step, u32 latent
#define THIS_DIFFUSION {noise, token, samples, estimates, velocity, factors, guidance, step, latent}

// The conditioning of every step, [steps, 2, width]: the SiLU of the time's embedding plus the vector's condition.
KERNEL conditioning_rows(const dtype *conditions, const dtype *times, dtype *conditioning, u32 width) {
    u32 step = blockIdx.y / 2, row = blockIdx.y % 2, at = blockIdx.x * blockDim.x + threadIdx.x;
    wait_then_launch();
    if (at >= width) return;
    float sum = rounded(to_float(conditions[(u64)row * width + at]) + to_float(times[(u64)step * width + at]));
    conditioning[(u64)blockIdx.y * width + at] = to_dtype(silu(sum));
}

// Begins a step: projects the sample with `enter`, [width, latent], into both vectors. One warp per row; the sample is
// in shared memory.
KERNEL begin_diffusion_step(DIFFUSION, const dtype *enter, dtype *x, u32 width) {
    const Diffusion of = THIS_DIFFUSION;
    extern __shared__ float sample[];
    wait_then_launch();
    for (u32 at = threadIdx.x; at < latent; at += blockDim.x) {
        float estimate = 0.0f, value = of.sample(at, estimate);
        if (blockIdx.x == 0) of.store(at, value, estimate);
        sample[at] = rounded(value);
    }
    __syncthreads();
    u32 lane = threadIdx.x % LANES, warps = blockDim.x / LANES;
    for (u32 row = blockIdx.x * warps + threadIdx.x / LANES; row < width; row += gridDim.x * warps) {
        float sum = 0.0f;
        for (u32 at = lane; at < latent; at += LANES) sum += to_float(enter[(u64)row * latent + at]) * sample[at];
        sum = warp_sum(sum);
        if (lane == 0) x[row] = x[width + row] = to_dtype(sum);
    }
}

// Ends a latent: writes it to the list, and as the connector and the decoder take it. One block.
KERNEL end_diffusion(DIFFUSION, float *latents, dtype *connector, dtype *decoder, float divisor, float bias) {
    const Diffusion of = THIS_DIFFUSION;
    wait_then_launch();
    for (u32 at = threadIdx.x; at < latent; at += blockDim.x) {
        float estimate = 0.0f, value = of.sample(at, estimate);
        of.store(at, value, estimate);
        latents[(u64)*token * latent + at] = value;
        connector[at] = to_dtype(value);
        decoder[at] = to_dtype(value / divisor - bias);
    }
}
