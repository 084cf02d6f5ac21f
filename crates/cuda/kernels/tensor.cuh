// Copies into shared memory, and matrices from there for products on tensor cores. This text stands after mma.cuh.

// Starts a copy of 16 bytes to shared memory; of zeros where there is nothing to copy.
__device__ __forceinline__ void begin_copy(u32 to, const void *from, bool is_there) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(is_there ? 16 : 0));
}
__device__ __forceinline__ void end_of_copies() { asm volatile("cp.async.commit_group;"); }
template <int LATER> __device__ __forceinline__ void wait_for_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(LATER) : "memory");
}

// Four matrices of 8 by 8, their rows at the addresses that the lanes give, eight each.
__device__ __forceinline__ Four matrices(u32 address) {
    Four read;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(read.at[0]), "=r"(read.at[1]), "=r"(read.at[2]), "=r"(read.at[3])
                 : "r"(address)
                 : "memory");
    return read;
}
__device__ __forceinline__ Four matrices_transposed(u32 address) {
    Four read;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(read.at[0]), "=r"(read.at[1]), "=r"(read.at[2]), "=r"(read.at[3])
                 : "r"(address)
                 : "memory");
    return read;
}

__device__ __forceinline__ float power_of_two(float exponent) {
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(exponent));
    return result;
}
