// Stamps of the device's global timer, for the stages inside a graph.

__device__ __forceinline__ unsigned long long global_timer() {
    unsigned long long nanos;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(nanos));
    return nanos;
}

// Writes the time where a border is kept, for kernels that do not do so themselves.
extern "C" __global__ void stamp(unsigned long long* border) { *border = global_timer(); }

// The last kernel of a replay. Writes the time of the last border, unless it was written (`last` is `count` then), copies
// the borders into this replay's row of the ring, and moves on to the next row. One block.
extern "C" __global__ void end_replay(
    unsigned long long* borders, unsigned int count, unsigned int last, unsigned long long* ring, unsigned int* replay,
    unsigned int slots, unsigned int rows) {
    unsigned long long now = global_timer();
    unsigned long long* row = ring + static_cast<unsigned long long>(*replay % rows) * slots;
    for (unsigned int at = threadIdx.x; at < count; at += blockDim.x) row[at] = at == last ? now : borders[at];
    __syncthreads();
    if (threadIdx.x == 0) *replay += 1;
}
