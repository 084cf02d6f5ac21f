// The exact GELU.

// The error function to 3e-7, by the same polynomial as on the CPU.
DEVICE float error_function(float value) {
    float size = fabsf(value), t = __fdividef(1.0f, 1.0f + 0.4f * size);
    const float terms[7] = {-0.41978914f, 0.73644507f, -0.43271428f, 0.44790328f, 0.1243262f, 0.23970534f, 0.22465973f};
    float fitted = 0.07946383f;
#pragma unroll
    for (u32 i = 0; i < 7; i++) fitted = fitted * t + terms[i];
    return copysignf(1.0f - t * fitted * __expf(-size * size), value);
}

DEVICE float gelu(float x) { return 0.5f * x * (1.0f + error_function(x * 0.70710678f)); }
