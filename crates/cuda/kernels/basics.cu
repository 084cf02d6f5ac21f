// Kernels without a dtype: timers, and memory bandwidth.

typedef unsigned int u32;
typedef unsigned long long u64;

__device__ __forceinline__ u64 global_timer() {
    u64 nanos;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(nanos));
    return nanos;
}

// Spins for this number of nanoseconds of the global timer: a kernel of known duration, to check clocks with.
extern "C" __global__ void spin_nanos(u64 nanos) {
    const u64 begin = global_timer();
    while (global_timer() - begin < nanos) {
    }
}

// Consecutive readings of the global timer, to measure its resolution.
extern "C" __global__ void timer_readings(u64 *readings, u32 count) {
    for (u32 at = 0; at < count; ++at) readings[at] = global_timer();
}

// Writes the time of a stage boundary inside a graph, before kernels that do not do so themselves.
extern "C" __global__ void stamp(u64 *timestamp) { *timestamp = global_timer(); }

// The last kernel of a replay. Writes the last timestamp unless it is already written (then `last` is `count`), copies
// the timestamps into this replay's row of the ring, and advances to the next row. One block.
extern "C" __global__ void end_replay(u64 *timestamps, u32 count, u32 last, u64 *ring, u32 *replay, u32 slots, u32 rows) {
    u64 now = global_timer();
    u64 *row = ring + static_cast<u64>(*replay % rows) * slots;
    for (u32 at = threadIdx.x; at < count; at += blockDim.x) row[at] = at == last ? now : timestamps[at];
    __syncthreads();
    if (threadIdx.x == 0) *replay += 1;
}

// A grid-stride loop.
#define ALONG(at, count)                                                                                               \
    const u64 stride = static_cast<u64>(gridDim.x) * blockDim.x;                                                       \
    for (u64 at = static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x; at < count; at += stride)

extern "C" __global__ void fill(float *out, float value, u64 count) {
    ALONG(at, count) out[at] = value;
}

// `count` is in 16-byte vectors.
extern "C" __global__ void copy(const uint4 *from, uint4 *to, u64 count) {
    ALONG(at, count) to[at] = from[at];
}

// Reads memory at full bandwidth, and sums it so that no read can be optimised away. `count` is in 16-byte vectors. The
// sum wraps around, so the order does not matter.
extern "C" __global__ void read_sum(const uint4 *values, u64 count, u64 *sum) {
    u64 mine = 0;
    ALONG(at, count) {
        const uint4 four = values[at];
        mine += static_cast<u64>(four.x) + four.y + four.z + four.w;
    }
    for (int offset = 16; offset > 0; offset /= 2) mine += __shfl_down_sync(0xffffffffu, mine, offset);
    if (threadIdx.x % 32 == 0) atomicAdd(sum, mine);
}

// Writes to an invalid address, to test a lost context.
extern "C" __global__ void illegal_access(u64 address) { *reinterpret_cast<volatile int *>(address) = 1; }
