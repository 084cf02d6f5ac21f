// Tensor core instructions for bf16 and f16.

#ifndef DTYPE_F32

#if defined(DTYPE_BF16)
#define TYPE "bf16"
#else
#define TYPE "f16"
#endif

struct Fragment {
    u32 at[4];
};

// sum += a b: 16 by 16 times 16 by 8.
DEVICE void mma(float *sum, const Fragment &a, u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32." TYPE "." TYPE ".f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a.at[0]), "r"(a.at[1]), "r"(a.at[2]), "r"(a.at[3]), "r"(b0), "r"(b1));
}

DEVICE u32 pack2(float low, float high) {
    u32 both;
    asm("cvt.rn." TYPE "x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}

// Loads four 8 by 8 matrices from shared memory. Each lane gives the address of one row.
template <bool IS_TRANSPOSED = false> DEVICE Fragment ldmatrix(u32 address) {
    Fragment read;
    if (IS_TRANSPOSED)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(read.at[0]), "=r"(read.at[1]), "=r"(read.at[2]), "=r"(read.at[3])
                     : "r"(address)
                     : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(read.at[0]), "=r"(read.at[1]), "=r"(read.at[2]), "=r"(read.at[3])
                     : "r"(address)
                     : "memory");
    return read;
}

DEVICE float exp2_approx(float exponent) {
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(exponent));
    return result;
}

#endif
