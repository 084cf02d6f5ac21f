
// Copies into shared memory and products of small matrices by tensor cores, in bf16 and f16.

#if defined(NUMBER_BF16)
#define TYPE "bf16"
#else
#define TYPE "f16"
#endif

// Starts a copy of 16 bytes to shared memory; of zeros where there is nothing to copy.
__device__ __forceinline__ void begin_copy(u32 to, const void *from, bool is_there) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(is_there ? 16 : 0));
}
__device__ __forceinline__ void end_of_copies() { asm volatile("cp.async.commit_group;"); }
template <int LATER> __device__ __forceinline__ void wait_for_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(LATER) : "memory");
}

struct Four {
    u32 at[4];
};

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

// sum += a b: 16 by 16 times 16 by 8.
__device__ __forceinline__ void multiply(float *sum, const Four &a, u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32." TYPE "." TYPE ".f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                 : "r"(a.at[0]), "r"(a.at[1]), "r"(a.at[2]), "r"(a.at[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ u32 pair(float low, float high) {
    u32 both;
    asm("cvt.rn." TYPE "x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}

__device__ __forceinline__ float power_of_two(float exponent) {
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(exponent));
    return result;
}
