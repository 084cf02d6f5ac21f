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

#define LOWEST (-__int_as_float(0x7f800000))
#define NOT_A_NUMBER __uint_as_float(0x7fffffffu)

// A kernel may begin before the end of the one before it, where it was launched so, and then waits for that one. Devices
// before Hopper launch it at the end.
__device__ __forceinline__ void wait_for_the_kernel_before() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
__device__ __forceinline__ void let_the_next_kernel_begin() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
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

// Numbers that are read and written at once: those of 16 bytes, or one at any address.
template <u32 V> struct alignas(V * sizeof(number)) Some {
    number at[V];
};
typedef Some<NUMBERS_IN_16_BYTES> numbers;

template <u32 V> __device__ __forceinline__ Some<V> some(const number *from) {
    return *reinterpret_cast<const Some<V> *>(from);
}
template <u32 V> __device__ __forceinline__ void put(number *to, const Some<V> &values) {
    *reinterpret_cast<Some<V> *>(to) = values;
}
__device__ __forceinline__ numbers loaded(const number *from) { return some<NUMBERS_IN_16_BYTES>(from); }
__device__ __forceinline__ void store(number *to, const numbers &values) { put<NUMBERS_IN_16_BYTES>(to, values); }

// The same, widened.
template <u32 V> __device__ __forceinline__ void take(const number *from, float (&values)[V]) {
    Some<V> taken = some<V>(from);
#pragma unroll
    for (u32 i = 0; i < V; i++) values[i] = widened(taken.at[i]);
}

// The numbers that a function of their indices gives.
template <u32 V, class Of> __device__ __forceinline__ Some<V> each(Of of) {
    Some<V> result;
#pragma unroll
    for (u32 i = 0; i < V; i++) result.at[i] = narrowed(of(i));
    return result;
}

template <u32 V> __device__ __forceinline__ void put(number *to, const float (&values)[V]) {
    put(to, each<V>([&](u32 i) { return values[i]; }));
}

// A kernel that goes by groups of 16 bytes, and the same for what cannot be divided so.
#define PAIR(name, function, parameters, ...)                                                                          \
    extern "C" __global__ void name parameters { function<NUMBERS_IN_16_BYTES>(__VA_ARGS__); }                         \
    extern "C" __global__ void name##_any parameters { function<1>(__VA_ARGS__); }

// On every lane.
__device__ __forceinline__ float sum_of_warp(float value) {
    for (int distance = 16; distance > 0; distance /= 2) value += __shfl_xor_sync(~0u, value, distance);
    return value;
}
__device__ __forceinline__ float largest_of_warp(float value) {
    for (int distance = 16; distance > 0; distance /= 2) value = fmaxf(value, __shfl_xor_sync(~0u, value, distance));
    return value;
}

// Grows with the value. 0 is what is no number; both zeros are the same.
__device__ __forceinline__ u32 order_of(float value) {
    if (value != value) return 0;
    u32 bits = __float_as_uint(value + 0.0f);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

// A value and its place as one number that is larger for a larger value, and for an earlier place of the same value. 0 is
// what is no number.
__device__ __forceinline__ u64 rank(float value, u32 place) {
    return value != value ? 0 : (u64)order_of(value) << 32 | ~place;
}
__device__ __forceinline__ u64 larger(u64 a, u64 b) { return a > b ? a : b; }

// Bits that look random, for other bits.
__device__ __forceinline__ u32 mixed(u32 bits) {
    bits ^= bits >> 16;
    bits *= 0x85ebca6bu;
    bits ^= bits >> 13;
    bits *= 0xc2b2ae35u;
    return bits ^ bits >> 16;
}

__device__ __forceinline__ float silu(float value) { return value / (1.0f + __expf(-value)); }
