// Instructions of Hopper (sm_90a): mbarriers, the tensor memory accelerator (TMA) and warpgroup products (WGMMA).

struct alignas(128) TensorMap {
    u64 words[16];
};

DEVICE void mbarrier_wait(u32 barrier, u32 parity) {
    asm volatile("{\n"
                 ".reg .pred done;\n"
                 "AGAIN:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@!done bra AGAIN;\n"
                 "}" ::"r"(barrier), "r"(parity)
                 : "memory");
}
DEVICE void mbarrier_arrive(u32 barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
DEVICE void mbarrier_init(u32 barrier, u32 arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

DEVICE void tma_load(u32 to, const TensorMap &map, u32 column, u32 key, u32 head, u32 barrier) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3, %4}], [%5];" ::"r"(to),
                 "l"(reinterpret_cast<u64>(&map)), "r"(column), "r"(key), "r"(head), "r"(barrier)
                 : "memory");
}

// The matrix descriptor of rows with a 128-byte swizzle: groups of eight rows are 1024 bytes apart. The address is in
// units of 16 bytes.
DEVICE u64 wgmma_descriptor(u32 address) { return (u64)1 << 62 | (u64)64 << 32 | (u64)1 << 16 | address; }

DEVICE void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
DEVICE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int PENDING> DEVICE void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}
// Keeps the compiler from moving uses of these registers across.
DEVICE void fence_registers(float (&values)[32]) {
#pragma unroll
    for (int i = 0; i < 32; i++) asm volatile("" : "+f"(values[i])::"memory");
}

// sum += a b, or sum = a b: 64 by 16 times 16 by 64. b is stored by columns unless it is transposed.
template <int IS_TRANSPOSED> DEVICE void wgmma(float (&sum)[32], const u32 *a, u64 b, int is_added) {
    asm volatile("{\n"
                 ".reg .pred added;\n"
                 "setp.ne.b32 added, %37, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32." TYPE "." TYPE " "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
                 "{%32, %33, %34, %35}, %36, added, 1, 1, %38;\n"
                 "}"
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3]), "+f"(sum[4]), "+f"(sum[5]), "+f"(sum[6]),
                   "+f"(sum[7]), "+f"(sum[8]), "+f"(sum[9]), "+f"(sum[10]), "+f"(sum[11]), "+f"(sum[12]), "+f"(sum[13]),
                   "+f"(sum[14]), "+f"(sum[15]), "+f"(sum[16]), "+f"(sum[17]), "+f"(sum[18]), "+f"(sum[19]),
                   "+f"(sum[20]), "+f"(sum[21]), "+f"(sum[22]), "+f"(sum[23]), "+f"(sum[24]), "+f"(sum[25]),
                   "+f"(sum[26]), "+f"(sum[27]), "+f"(sum[28]), "+f"(sum[29]), "+f"(sum[30]), "+f"(sum[31])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(is_added), "n"(IS_TRANSPOSED));
}
