// Copies memory by a kernel, sixteen bytes a thread at a time; `count` is in such groups.
extern "C" __global__ void copy(const uint4* from, uint4* to, unsigned long long count) {
    const unsigned long long stride = static_cast<unsigned long long>(gridDim.x) * blockDim.x;
    for (unsigned long long at = static_cast<unsigned long long>(blockIdx.x) * blockDim.x + threadIdx.x; at < count;
         at += stride) {
        to[at] = from[at];
    }
}
