// Stamps of the device's global timer, for the stages inside a graph.

// Writes the time into this replay's row of the ring.
extern "C" __global__ void stamp(
    unsigned long long* ring, const unsigned int* replay, unsigned int slot, unsigned int slots, unsigned int rows) {
    unsigned long long nanos;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(nanos));
    ring[static_cast<unsigned long long>(*replay % rows) * slots + slot] = nanos;
}

// Moves on to the next row; the last of a replay.
extern "C" __global__ void next_replay(unsigned int* replay) {
    *replay += 1;
}
