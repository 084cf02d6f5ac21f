// Elements and helpers for all kernels. Elements are stored in the dtype that the source is compiled for (-DDTYPE_F32,
// -DDTYPE_BF16 or -DDTYPE_F16) and computed in f32. No header of the toolkit is needed. This header comes first.

#define DEVICE __device__ __forceinline__
#define KERNEL extern "C" __global__ void

typedef unsigned int u32;
typedef unsigned long long u64;

// VEC is the number of elements in a 16-byte vector.
#if defined(DTYPE_F32)
typedef float dtype;
#define VEC 4
#else
struct dtype {
    unsigned short bits;
};
#define VEC 8
#endif

#define NEG_INF (-__int_as_float(0x7f800000))
#define QUIET_NAN __uint_as_float(0x7fffffffu)
#define LOG2_E 1.4426950408889634f

// Programmatic dependent launch: a kernel launched early waits for the previous one. Devices before Hopper launch it
// when the previous one is done.
DEVICE void wait_for_previous_kernel() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
DEVICE void launch_dependents() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

#if defined(DTYPE_F32)

DEVICE float to_float(dtype value) { return value; }
DEVICE dtype to_dtype(float value) { return value; }

#elif defined(DTYPE_BF16)

DEVICE float to_float(dtype value) { return __uint_as_float((u32)value.bits << 16); }
DEVICE dtype to_dtype(float value) {
    dtype result;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result.bits) : "f"(value));
    return result;
}

#elif defined(DTYPE_F16)

DEVICE float to_float(dtype value) {
    float result;
    asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(value.bits));
    return result;
}
DEVICE dtype to_dtype(float value) {
    dtype result;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result.bits) : "f"(value));
    return result;
}

#else
#error "define DTYPE_F32, DTYPE_BF16 or DTYPE_F16"
#endif

// Rounds to the dtype.
DEVICE float rounded(float value) { return to_float(to_dtype(value)); }

// Elements that are loaded and stored together: a 16-byte vector, or one element at any address.
template <u32 V> struct alignas(V * sizeof(dtype)) Vec {
    dtype at[V];
};
typedef Vec<VEC> vec_t;

template <u32 V = VEC> DEVICE Vec<V> load(const dtype *from) { return *reinterpret_cast<const Vec<V> *>(from); }
template <u32 V> DEVICE void store(dtype *to, const Vec<V> &values) { *reinterpret_cast<Vec<V> *>(to) = values; }

template <u32 V> DEVICE void load(const dtype *from, float (&values)[V]) {
    Vec<V> loaded = load<V>(from);
#pragma unroll
    for (u32 i = 0; i < V; i++) values[i] = to_float(loaded.at[i]);
}

// The elements f(0) to f(V - 1).
template <u32 V, class F> DEVICE Vec<V> make_vec(F f) {
    Vec<V> result;
#pragma unroll
    for (u32 i = 0; i < V; i++) result.at[i] = to_dtype(f(i));
    return result;
}

template <u32 V> DEVICE void store(dtype *to, const float (&values)[V]) {
    store(to, make_vec<V>([&](u32 i) { return values[i]; }));
}

// A kernel that works on 16-byte vectors, and one on single elements for other widths and alignments.
#define KERNEL_PAIR(name, function, parameters, ...)                                                                   \
    KERNEL name parameters { function<VEC>(__VA_ARGS__); }                                                             \
    KERNEL name##_any parameters { function<1>(__VA_ARGS__); }

// Results are on every lane.
DEVICE float warp_sum(float value) {
    for (int delta = 16; delta > 0; delta /= 2) value += __shfl_xor_sync(~0u, value, delta);
    return value;
}
DEVICE float warp_max(float value) {
    for (int delta = 16; delta > 0; delta /= 2) value = fmaxf(value, __shfl_xor_sync(~0u, value, delta));
    return value;
}
DEVICE u64 warp_max(u64 value) {
    for (int delta = 16; delta > 0; delta /= 2) value = max(value, __shfl_xor_sync(~0u, value, delta));
    return value;
}

// Bits that compare like the floats. NaN gives 0, and both zeros are equal.
DEVICE u32 ordered_bits(float value) {
    if (value != value) return 0;
    u32 bits = __float_as_uint(value + 0.0f);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

// A key whose maximum is that of the largest value, and of the lowest index among equals. NaN gives 0.
DEVICE u64 argmax_key(float value, u32 index) {
    return value != value ? 0 : (u64)ordered_bits(value) << 32 | ~index;
}
DEVICE u32 index_of_key(u64 key) { return key == 0 ? 0 : ~(u32)key; }

// The finaliser of MurmurHash3.
DEVICE u32 fmix32(u32 bits) {
    bits ^= bits >> 16;
    bits *= 0x85ebca6bu;
    bits ^= bits >> 13;
    bits *= 0xc2b2ae35u;
    return bits ^ bits >> 16;
}

DEVICE float silu(float value) { return value / (1.0f + __expf(-value)); }
