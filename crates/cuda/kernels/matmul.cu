// A plain matrix product, row-major: the reference that fast ones are checked against.
extern "C" __global__ void matmul(
    const float* a, const float* b, float* c, unsigned int m, unsigned int n, unsigned int k) {
    const unsigned int column = blockIdx.x * blockDim.x + threadIdx.x;
    const unsigned int row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= m || column >= n) {
        return;
    }
    float sum = 0.0f;
    for (unsigned int at = 0; at < k; ++at) {
        sum = fmaf(a[static_cast<unsigned long long>(row) * k + at], b[static_cast<unsigned long long>(at) * n + column], sum);
    }
    c[static_cast<unsigned long long>(row) * n + column] = sum;
}
