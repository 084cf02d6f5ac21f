// The numbers of a model, as kernels compute with them: stored in the type that the text is compiled for
// (-DNUMBER_F32, -DNUMBER_BF16 or -DNUMBER_F16), added up in f32. No header of the toolkit is needed.
//
// This text is put before those that use it.

typedef unsigned int u32;
typedef unsigned long long u64;

#if defined(NUMBER_F32)
typedef float number;
#define NUMBERS_IN_16_BYTES 4
#else
struct number {
    unsigned short bits;
};
#define NUMBERS_IN_16_BYTES 8
#endif

// Waits until the kernel before is done, where this one was launched to begin before its end. Devices before Hopper launch
// it at its end.
__device__ __forceinline__ void wait_for_the_kernel_before() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

#if defined(NUMBER_F32)

__device__ __forceinline__ float widened(number value) { return value; }
__device__ __forceinline__ number narrowed(float value) { return value; }

#elif defined(NUMBER_BF16)

__device__ __forceinline__ float widened(number value) { return __uint_as_float((u32)value.bits << 16); }
__device__ __forceinline__ number narrowed(float value) {
    number result;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result.bits) : "f"(value));
    return result;
}

#elif defined(NUMBER_F16)

__device__ __forceinline__ float widened(number value) {
    float result;
    asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(value.bits));
    return result;
}
__device__ __forceinline__ number narrowed(float value) {
    number result;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result.bits) : "f"(value));
    return result;
}

#else
#error "the type of numbers is not chosen"
#endif

// As many numbers as one load of 16 bytes brings.
struct alignas(16) numbers {
    number at[NUMBERS_IN_16_BYTES];
};

__device__ __forceinline__ numbers loaded(const number *from) { return *reinterpret_cast<const numbers *>(from); }
__device__ __forceinline__ void store(number *to, const numbers &values) { *reinterpret_cast<numbers *>(to) = values; }
