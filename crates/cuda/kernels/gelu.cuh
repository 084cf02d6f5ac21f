// The exact gelu. This text stands after number.cuh and before those that use it.

// The error function, to 3e-7, by the polynomial that the CPU has too.
__device__ __forceinline__ float error_function(float value) {
    float size = fabsf(value), t = __fdividef(1.0f, 1.0f + 0.4f * size);
    float fitted = 0.07946383f;
    fitted = fitted * t - 0.41978914f;
    fitted = fitted * t + 0.73644507f;
    fitted = fitted * t - 0.43271428f;
    fitted = fitted * t + 0.44790328f;
    fitted = fitted * t + 0.1243262f;
    fitted = fitted * t + 0.23970534f;
    fitted = fitted * t + 0.22465973f;
    return copysignf(1.0f - t * fitted * __expf(-size * size), value);
}

__device__ __forceinline__ number gelu_of(number value) {
    float x = widened(value);
    return narrowed(0.5f * x * (1.0f + error_function(x * 0.70710678f)));
}
