// How tokens are chosen by chance, operation by operation as on the CPU. This text stands after decode.cuh and before
// decode_sample.cu.

// What is chosen by, as it lies on the device.
struct Rules {
    float temperature; // 0 for the likeliest
    float penalty;
    double top_p;
    u32 top_k; // 0 for all
    u32 seed_low, seed_high;
    u32 least; // frames before the end may come
    u32 end, unused;
};

// Bits that look random, for each seed, frame and group others; the CPU has the same formula.
__device__ __forceinline__ u32 random_bits(const Rules &rules, u32 frame, u32 group) {
    const u32 step = 0x9e3779b9u;
    u32 hash = mixed(rules.seed_low + step);
    hash = mixed((hash ^ rules.seed_high) + step);
    hash = mixed((hash ^ frame) + step);
    return mixed((hash ^ group) + step);
}

// The power of e, operation by operation as the CPU has it.
__device__ __forceinline__ float power_of_e(float number) {
    const float round = 12582912.0f;
    if (number < -87.3f) number = -87.3f;
    if (number > 88.3f) number = 88.3f;
    float rounded = __fadd_rn(__fmul_rn(number, 1.44269504088896340736f), round);
    float whole = __fsub_rn(rounded, round);
    float rest = __fsub_rn(__fsub_rn(number, __fmul_rn(whole, 0.6933594f)), __fmul_rn(whole, -2.1219444e-4f));
    const float terms[6] = {1.0f / 720.0f, 1.0f / 120.0f, 1.0f / 24.0f, 1.0f / 6.0f, 0.5f, 1.0f};
    float series = 1.0f / 5040.0f;
#pragma unroll
    for (u32 i = 0; i < 6; i++) series = __fadd_rn(__fmul_rn(series, rest), terms[i]);
    float power = __fadd_rn(__fmul_rn(series, rest), 1.0f);
    return __uint_as_float(__float_as_uint(power) + (__float_as_uint(rounded) << 23));
}

// The likeliest has 2^30.
__device__ __forceinline__ u32 weight_of(float value, float highest) {
    return __float2uint_rn(__fmul_rn(power_of_e(__fsub_rn(value, highest)), 1073741824.0f));
}

// Larger for larger values; 0 for what is no number, and for what must not be chosen.
__device__ __forceinline__ u32 choice_order(float value) { return value == LOWEST ? 0 : order_of(value); }

// The inverse.
__device__ __forceinline__ float value_of(u32 order) {
    return __uint_as_float(order & 0x80000000u ? order & 0x7fffffffu : ~order);
}
