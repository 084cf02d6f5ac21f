// Fills memory with one value.
extern "C" __global__ void fill(float* out, float value, unsigned long long count) {
    const unsigned long long stride = static_cast<unsigned long long>(gridDim.x) * blockDim.x;
    for (unsigned long long at = static_cast<unsigned long long>(blockIdx.x) * blockDim.x + threadIdx.x; at < count;
         at += stride) {
        out[at] = value;
    }
}
