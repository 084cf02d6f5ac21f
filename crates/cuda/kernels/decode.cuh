// What the kernels of one decode step share. This text stands after number.cuh and before those that use it.
//
// A kernel of a step may begin while the one before it still runs (programmatic dependent launch). What it does before
// `wait_for_the_kernel_before` must not depend on that kernel: it fetches weights, and what earlier steps left behind.

#define LANES 32
#define ALL_LANES 0xffffffffu
#define PER NUMBERS_IN_16_BYTES

// Writes the device's timer where a stage of a step begins, once everything before this kernel is done: one thread of the
// grid, after `wait_for_the_kernel_before`. No place means that no stage begins here.
__device__ __forceinline__ void stamp_border(u64 *border) {
    if (border && (threadIdx.x | threadIdx.y | blockIdx.x | blockIdx.y | blockIdx.z) == 0) {
        u64 nanos;
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(nanos)::"memory");
        *border = nanos;
    }
}

// 16 bytes of numbers, as they are loaded.
struct alignas(16) packed {
    u32 word[4];
};

__device__ __forceinline__ packed load_packed(const number *from) { return *reinterpret_cast<const packed *>(from); }
__device__ __forceinline__ void store_packed(number *to, const packed &values) {
    *reinterpret_cast<packed *>(to) = values;
}

// The numbers of 16 bytes, widened.
__device__ __forceinline__ void unpack(const packed &values, float (&out)[PER]) {
#pragma unroll
    for (u32 i = 0; i < 4; i++) {
#if defined(NUMBER_F32)
        out[i] = __uint_as_float(values.word[i]);
#elif defined(NUMBER_BF16)
        out[2 * i] = __uint_as_float(values.word[i] << 16);
        out[2 * i + 1] = __uint_as_float(values.word[i] & 0xffff0000u);
#else
        asm("{ .reg .b16 low, high; mov.b32 {low, high}, %2; cvt.f32.f16 %0, low; cvt.f32.f16 %1, high; }"
            : "=f"(out[2 * i]), "=f"(out[2 * i + 1])
            : "r"(values.word[i]));
#endif
    }
}

__device__ __forceinline__ packed pack(const float (&values)[PER]) {
    numbers narrow;
#pragma unroll
    for (u32 i = 0; i < PER; i++) narrow.at[i] = narrowed(values[i]);
    return *reinterpret_cast<packed *>(&narrow);
}

// A value as it is once it was stored.
__device__ __forceinline__ float rounded(float value) { return widened(narrowed(value)); }

// Begins to copy 16 bytes to shared memory, or to zero them where `bytes` is 0.
__device__ __forceinline__ void begin_copy(void *to, const void *from, u32 bytes) {
    u32 place = (u32)__cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(place), "l"(from), "r"(bytes) : "memory");
}

// The same for 4 bytes.
__device__ __forceinline__ void begin_small_copy(void *to, const void *from, u32 bytes) {
    u32 place = (u32)__cvta_generic_to_shared(to);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(place), "l"(from), "r"(bytes) : "memory");
}

__device__ __forceinline__ void end_of_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until all but the last `PENDING` groups of copies of this thread are there.
template <u32 PENDING> __device__ __forceinline__ void wait_for_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}
