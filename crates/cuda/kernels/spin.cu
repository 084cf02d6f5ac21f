// Kernels of a known length, to check clocks against.

__device__ unsigned long long global_nanos() {
    unsigned long long nanos;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(nanos));
    return nanos;
}

// Spins for this number of nanoseconds of the device's global timer.
extern "C" __global__ void spin_nanos(unsigned long long nanos) {
    const unsigned long long begin = global_nanos();
    while (global_nanos() - begin < nanos) {
    }
}

// Reads the global timer again and again, to see by how much it moves.
extern "C" __global__ void timer_readings(unsigned long long* readings, unsigned int count) {
    for (unsigned int at = 0; at < count; ++at) {
        readings[at] = global_nanos();
    }
}
