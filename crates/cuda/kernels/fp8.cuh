// Matrices in FP8 (e4m3). The codes of a matrix [rows, width], one byte each, are followed by its f32 scales, from a
// multiple of 16 bytes on: one per row, or one per SCALED neighbours of a row.

#define SCALED 128

typedef unsigned char code;

DEVICE u32 scales_per_row(u32 width, u32 group) { return (width + group - 1) / group; }

DEVICE const float *scales_after(const code *codes, u64 count) {
    return reinterpret_cast<const float *>(codes + (count + 15) / 16 * 16);
}

DEVICE float decode_fp8(u32 value) {
    // The factor corrects the difference between the exponent biases.
    float size = __uint_as_float((value & 0x7f) << 20) * 0x1p120f;
    if ((value & 0x7f) == 0x7f) size = __uint_as_float(0x7fc00000u);
    return value & 0x80 ? -size : size;
}

// Decodes four bytes, the lowest first.
DEVICE void decode_fp8x4(u32 word, float *out) {
#if __CUDA_ARCH__ >= 890
    asm("{ .reg .b16 low, high, a, b, c, d; .reg .b32 first, second;"
        "mov.b32 {low, high}, %4;"
        "cvt.rn.f16x2.e4m3x2 first, low; cvt.rn.f16x2.e4m3x2 second, high;"
        "mov.b32 {a, b}, first; mov.b32 {c, d}, second;"
        "cvt.f32.f16 %0, a; cvt.f32.f16 %1, b; cvt.f32.f16 %2, c; cvt.f32.f16 %3, d; }"
        : "=f"(out[0]), "=f"(out[1]), "=f"(out[2]), "=f"(out[3])
        : "r"(word));
#else
#pragma unroll
    for (u32 i = 0; i < 4; i++) out[i] = decode_fp8(word >> 8 * i & 0xff);
#endif
}

// Rounds to nearest, ties to even, and saturates. `fp8::encode` on the CPU is the same.
DEVICE code encode_fp8(float value) {
    u32 bits = __float_as_uint(value), size = bits & 0x7fffffffu, result;
    if (size > 0x7f800000u) result = 0x7f;
    else if (size < 0x3c800000u) result = (u32)__float2int_rn(__uint_as_float(size) * 512.0f);
    else result = min((size + 0x7ffffu + (size >> 20 & 1)) / 0x100000u - (120u << 3), 0x7eu);
    return (code)(result | bits >> 24 & 0x80);
}
