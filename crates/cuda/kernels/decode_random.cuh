// Random sampling that gives the same tokens as the CPU: the same operations in the same order, none fused.

struct Rules {
    float temperature; // 0 selects the most likely token
    float penalty;
    double top_p;
    u32 top_k; // 0 keeps all
    u32 seed_low, seed_high;
    u32 min_frames; // before the end token
    u32 end, unused;
};

// Random bits for a seed, a frame and a group; the CPU has the same formula.
DEVICE u32 random_bits(const Rules &rules, u32 frame, u32 group) {
    const u32 step = 0x9e3779b9u;
    u32 hash = fmix32(rules.seed_low + step);
    hash = fmix32((hash ^ rules.seed_high) + step);
    hash = fmix32((hash ^ frame) + step);
    return fmix32((hash ^ group) + step);
}

// exp(value), operation by operation as on the CPU.
DEVICE float exact_exp(float value) {
    const float round = 12582912.0f;
    if (value < -87.3f) value = -87.3f;
    if (value > 88.3f) value = 88.3f;
    float rounded = __fadd_rn(__fmul_rn(value, 1.44269504088896340736f), round);
    float whole = __fsub_rn(rounded, round);
    float rest = __fsub_rn(__fsub_rn(value, __fmul_rn(whole, 0.6933594f)), __fmul_rn(whole, -2.1219444e-4f));
    const float terms[6] = {1.0f / 720.0f, 1.0f / 120.0f, 1.0f / 24.0f, 1.0f / 6.0f, 0.5f, 1.0f};
    float series = 1.0f / 5040.0f;
#pragma unroll
    for (u32 i = 0; i < 6; i++) series = __fadd_rn(__fmul_rn(series, rest), terms[i]);
    float power = __fadd_rn(__fmul_rn(series, rest), 1.0f);
    return __uint_as_float(__float_as_uint(power) + (__float_as_uint(rounded) << 23));
}

// The weight of a logit. The most likely token has 2^30.
DEVICE u32 weight_of(float value, float largest) {
    return __float2uint_rn(__fmul_rn(exact_exp(__fsub_rn(value, largest)), 1073741824.0f));
}

// Ordered bits of a logit; 0 for NaN, and for a token that must not be sampled.
DEVICE u32 logit_bits(float value) { return value == NEG_INF ? 0 : ordered_bits(value); }

// The inverse.
DEVICE float logit_of(u32 bits) { return __uint_as_float(bits & 0x80000000u ? bits & 0x7fffffffu : ~bits); }
