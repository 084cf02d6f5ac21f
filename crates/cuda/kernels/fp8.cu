// Quantisation to FP8 and back: see fp8.cuh.

// The smallest power of two for which the largest element is at most 448. `fp8::scale_of` on the CPU is the same.
DEVICE float scale_for(float largest) {
    u32 bits = __float_as_uint(largest);
    if (bits == 0) return 1.0f;
    u32 exponent = (bits >> 23) + ((bits & 0x7fffffu) > 0x600000u);
    return __uint_as_float((exponent > 9 ? exponent - 8 : 1) << 23);
}

// One block per `group` neighbours of a row. `fp8::quantise` on the CPU is the same.
KERNEL quantise_fp8(const dtype *from, code *codes, u32 rows, u32 width, u32 group) {
    __shared__ float scratch[32];
    u32 row = blockIdx.x, begin = blockIdx.y * group, count = min(group, width - begin);
    u64 first = (u64)row * width + begin;
    float largest = 0.0f;
    for (u32 i = threadIdx.x; i < count; i += blockDim.x) largest = fmaxf(largest, fabsf(to_float(from[first + i])));
    float scale = scale_for(row_max(largest, scratch));
    float *scales = const_cast<float *>(scales_after(codes, (u64)rows * width));
    if (threadIdx.x == 0) scales[row * scales_per_row(width, group) + blockIdx.y] = scale;
    for (u32 i = threadIdx.x; i < count; i += blockDim.x)
        codes[first + i] = encode_fp8(__fdiv_rn(to_float(from[first + i]), scale));
}

// One block per row; 16 codes at a time if rows begin at multiples of 16 bytes.
KERNEL dequantise_fp8(const code *codes, dtype *out, u32 rows, u32 width, u32 group) {
    u64 first = (u64)blockIdx.x * width;
    const float *scales = scales_after(codes, (u64)rows * width) + blockIdx.x * scales_per_row(width, group);
    u32 vectors = width % 16 == 0 && group % 16 == 0 ? width / 16 : 0;
    for (u32 i = threadIdx.x; i < vectors; i += blockDim.x) {
        uint4 words = *reinterpret_cast<const uint4 *>(codes + first + 16 * i);
        u32 word[4] = {words.x, words.y, words.z, words.w};
        float scale = scales[16 * i / group], values[16];
#pragma unroll
        for (u32 j = 0; j < 4; j++) decode_fp8x4(word[j], values + 4 * j);
#pragma unroll
        for (u32 j = 0; j < 16; j += VEC)
            store(out + first + 16 * i + j, make_vec<VEC>([&](u32 k) { return values[j + k] * scale; }));
    }
    for (u32 i = 16 * vectors + threadIdx.x; i < width; i += blockDim.x)
        out[first + i] = to_dtype(decode_fp8(codes[first + i]) * scales[i / group]);
}
