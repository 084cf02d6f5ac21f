// Weights in e4m3: a byte each. A matrix [rows, width] of them is followed, from a multiple of 16 bytes on, by its scales
// in f32: one for each row, or for every SCALED neighbours of a row. This text stands after number.cuh.

#define SCALED 128

typedef unsigned char code;

__device__ __forceinline__ u32 scales_of_row(u32 width, u32 group) { return (width + group - 1) / group; }

__device__ __forceinline__ const float *scales_behind(const code *codes, u64 count) {
    return reinterpret_cast<const float *>(codes + (count + 15) / 16 * 16);
}

__device__ __forceinline__ float widened_code(u32 value) {
    // The exponents of the two types count from different zeros.
    float size = __uint_as_float((value & 0x7f) << 20) * 0x1p120f;
    if ((value & 0x7f) == 0x7f) size = __uint_as_float(0x7fc00000u);
    return value & 0x80 ? -size : size;
}

// Four numbers from four bytes, the lowest first.
__device__ __forceinline__ void widen_codes(u32 word, float *out) {
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
    for (u32 i = 0; i < 4; i++) out[i] = widened_code(word >> 8 * i & 0xff);
#endif
}

// The nearest code, or the even one of two; the largest finite one for anything larger. `fp8::encode` on the CPU is the
// same.
__device__ __forceinline__ code narrowed_code(float value) {
    u32 bits = __float_as_uint(value), size = bits & 0x7fffffffu, result;
    if (size > 0x7f800000u) result = 0x7f;
    else if (size < 0x3c800000u) result = (u32)__float2int_rn(__uint_as_float(size) * 512.0f);
    else result = min((size + 0x7ffffu + (size >> 20 & 1)) / 0x100000u - (120u << 3), 0x7eu);
    return (code)(result | bits >> 24 & 0x80);
}
