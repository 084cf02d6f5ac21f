// Products of small matrices on tensor cores, in bf16 and f16.

#ifndef NUMBER_F32

#if defined(NUMBER_BF16)
#define TYPE "bf16"
#else
#define TYPE "f16"
#endif

struct Four {
    u32 at[4];
};

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

#endif
