// Synthetic weights and constants. Blocks go along memory.

// `synthetic::value` of `laptime_models` is the same formula.
__device__ __forceinline__ float random_value(u64 key, u64 index, float amplitude) {
    u32 hash = mixed((u32)index ^ mixed((u32)(index >> 32) ^ mixed((u32)key) ^ (u32)(key >> 32)));
    float share = (float)(hash >> 8) * 0x1p-24f;
    return __fmul_rn(amplitude, 2 * share - 1);
}

// How memory is gone through: groups of 16 bytes from the first address that is a multiple of 16 on, and single numbers
// before and behind them.
struct walk {
    u64 thread, stride, lead, groups, behind;
};

__device__ __forceinline__ walk along(const number *numbers, u64 count) {
    walk way;
    way.thread = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    way.stride = (u64)gridDim.x * blockDim.x;
    way.lead = min(count, (u64)(-(u64)numbers % 16 / sizeof(number)));
    way.groups = (count - way.lead) / NUMBERS_IN_16_BYTES;
    way.behind = way.lead + way.groups * NUMBERS_IN_16_BYTES;
    return way;
}

extern "C" __global__ void fill_random(number *out, u64 count, u64 key, float amplitude) {
    walk way = along(out, count);
    for (u64 group = way.thread; group < way.groups; group += way.stride) {
        u64 first = way.lead + group * NUMBERS_IN_16_BYTES;
        numbers values;
#pragma unroll
        for (u32 i = 0; i < NUMBERS_IN_16_BYTES; i++) values.at[i] = narrowed(random_value(key, first + i, amplitude));
        store(out + first, values);
    }
    u64 rest = way.behind + way.thread;
    if (way.thread < way.lead) out[way.thread] = narrowed(random_value(key, way.thread, amplitude));
    if (rest < count) out[rest] = narrowed(random_value(key, rest, amplitude));
}

extern "C" __global__ void fill_numbers(number *out, u64 count, float value) {
    walk way = along(out, count);
    numbers values;
#pragma unroll
    for (u32 i = 0; i < NUMBERS_IN_16_BYTES; i++) values.at[i] = narrowed(value);
    for (u64 group = way.thread; group < way.groups; group += way.stride)
        store(out + way.lead + group * NUMBERS_IN_16_BYTES, values);
    u64 rest = way.behind + way.thread;
    if (way.thread < way.lead) out[way.thread] = narrowed(value);
    if (rest < count) out[rest] = narrowed(value);
}
