// What the kernels of a decode step share.
//
// A kernel of a step may start while the previous one still runs (programmatic dependent launch). What it does before
// `wait_for_previous_kernel` must not depend on that kernel: it loads weights, and what earlier steps have written.

#define LANES 32

// For kernels whose successors may read what their predecessors wrote: they start when all of that is written.
DEVICE void wait_then_launch() {
    wait_for_previous_kernel();
    launch_dependents();
}

// Writes the global timer at the boundary of a stage, once everything before this kernel is done: one thread of the
// grid, after `wait_for_previous_kernel`. Null if no stage begins here.
DEVICE void write_timestamp(u64 *timestamp) {
    if (timestamp && (threadIdx.x | threadIdx.y | blockIdx.x | blockIdx.y | blockIdx.z) == 0) {
        u64 nanos;
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(nanos)::"memory");
        *timestamp = nanos;
    }
}

// A 16-byte vector of elements as words.
struct alignas(16) packed {
    u32 word[4];
};

DEVICE packed load_packed(const dtype *from) { return *reinterpret_cast<const packed *>(from); }
DEVICE void store_packed(dtype *to, const packed &values) { *reinterpret_cast<packed *>(to) = values; }

DEVICE void unpack(const packed &values, float (&out)[VEC]) {
#pragma unroll
    for (u32 i = 0; i < 4; i++) {
#if defined(DTYPE_F32)
        out[i] = __uint_as_float(values.word[i]);
#elif defined(DTYPE_BF16)
        out[2 * i] = __uint_as_float(values.word[i] << 16);
        out[2 * i + 1] = __uint_as_float(values.word[i] & 0xffff0000u);
#else
        asm("{ .reg .b16 low, high; mov.b32 {low, high}, %2; cvt.f32.f16 %0, low; cvt.f32.f16 %1, high; }"
            : "=f"(out[2 * i]), "=f"(out[2 * i + 1])
            : "r"(values.word[i]));
#endif
    }
}

DEVICE packed pack(const float (&values)[VEC]) {
    vec_t narrow = make_vec<VEC>([&](u32 i) { return values[i]; });
    return *reinterpret_cast<packed *>(&narrow);
}
