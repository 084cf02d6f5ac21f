// Writes where nobody may, so that losing a context can be tested.
extern "C" __global__ void illegal_access(unsigned long long address) {
    *reinterpret_cast<volatile int*>(address) = 1;
}
