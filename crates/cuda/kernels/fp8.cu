// Matrices in e4m3, made from numbers and turned back: see fp8.cuh.

// The largest size among `count` numbers, on every thread of the block.
__device__ __forceinline__ float largest_of(const number *from, u32 count) {
    __shared__ float shared[32];
    float largest = 0.0f;
    for (u32 i = threadIdx.x; i < count; i += blockDim.x) largest = fmaxf(largest, fabsf(widened(from[i])));
#pragma unroll
    for (u32 apart = 16; apart > 0; apart /= 2) largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, apart));
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = largest;
    __syncthreads();
    for (u32 warp = 0; warp < blockDim.x / 32; warp++) largest = fmaxf(largest, shared[warp]);
    return largest;
}

// The least power of two with which the largest number is not above 448. `fp8::scale_of` on the CPU is the same.
__device__ __forceinline__ float scale_for(float largest) {
    u32 bits = __float_as_uint(largest);
    if (bits == 0) return 1.0f;
    u32 exponent = (bits >> 23) + ((bits & 0x7fffffu) > 0x600000u);
    return __uint_as_float((exponent > 9 ? exponent - 8 : 1) << 23);
}

// A block for each `group` neighbours of a row. `fp8::quantise` on the CPU is the same.
extern "C" __global__ void quantise_fp8(const number *from, code *codes, u32 rows, u32 width, u32 group) {
    u32 row = blockIdx.x, begin = blockIdx.y * group, count = min(group, width - begin);
    u64 first = (u64)row * width + begin;
    float scale = scale_for(largest_of(from + first, count));
    float *scales = const_cast<float *>(scales_behind(codes, (u64)rows * width));
    if (threadIdx.x == 0) scales[row * scales_of_row(width, group) + blockIdx.y] = scale;
    for (u32 i = threadIdx.x; i < count; i += blockDim.x) {
        codes[first + i] = narrowed_code(__fdiv_rn(widened(from[first + i]), scale));
    }
}

// A block for each row; 16 codes at a time where rows begin at multiples of 16 bytes.
extern "C" __global__ void dequantise_fp8(const code *codes, number *out, u32 rows, u32 width, u32 group) {
    u64 first = (u64)blockIdx.x * width;
    const float *scales = scales_behind(codes, (u64)rows * width) + blockIdx.x * scales_of_row(width, group);
    u32 whole = width % 16 == 0 && group % 16 == 0 ? width / 16 : 0;
    for (u32 i = threadIdx.x; i < whole; i += blockDim.x) {
        uint4 words = *reinterpret_cast<const uint4 *>(codes + first + 16 * i);
        u32 four[4] = {words.x, words.y, words.z, words.w};
        float scale = scales[16 * i / group], values[16];
#pragma unroll
        for (u32 j = 0; j < 4; j++) widen_codes(four[j], values + 4 * j);
#pragma unroll
        for (u32 j = 0; j < 16 / NUMBERS_IN_16_BYTES; j++) {
            numbers some;
#pragma unroll
            for (u32 k = 0; k < NUMBERS_IN_16_BYTES; k++) {
                some.at[k] = narrowed(values[j * NUMBERS_IN_16_BYTES + k] * scale);
            }
            store(out + first + 16 * i + j * NUMBERS_IN_16_BYTES, some);
        }
    }
    for (u32 i = 16 * whole + threadIdx.x; i < width; i += blockDim.x) {
        out[first + i] = narrowed(widened_code(codes[first + i]) * scales[i / group]);
    }
}
