// Reads memory as fast as it comes, and adds it up so that no read can be left out.
//
// `count` is in groups of four. The sum wraps around, and does not depend on the order.
extern "C" __global__ void read_sum(const uint4* values, unsigned long long count, unsigned long long* sum) {
    const unsigned long long stride = static_cast<unsigned long long>(gridDim.x) * blockDim.x;
    unsigned long long mine = 0;
    for (unsigned long long at = static_cast<unsigned long long>(blockIdx.x) * blockDim.x + threadIdx.x; at < count;
         at += stride) {
        const uint4 four = values[at];
        mine += static_cast<unsigned long long>(four.x) + four.y + four.z + four.w;
    }
    for (int offset = 16; offset > 0; offset /= 2) {
        mine += __shfl_down_sync(0xffffffffu, mine, offset);
    }
    if (threadIdx.x % 32 == 0) {
        atomicAdd(sum, mine);
    }
}
