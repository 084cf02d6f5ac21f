// Synthetic weights and constants.

// `synthetic::value` of `laptime_models` is the same formula.
DEVICE float random_value(u64 key, u64 index, float amplitude) {
    u32 hash = fmix32((u32)index ^ fmix32((u32)(index >> 32) ^ fmix32((u32)key) ^ (u32)(key >> 32)));
    float uniform = (float)(hash >> 8) * 0x1p-24f;
    return __fmul_rn(amplitude, 2 * uniform - 1);
}

// Elements before the first multiple of 16 bytes.
DEVICE u64 lead_of(const dtype *out, u64 count) { return min(count, (u64)(-(u64)out % 16 / sizeof(dtype))); }

KERNEL fill_random(dtype *out, u64 count, u64 key, float amplitude) {
    auto value = [&](float, u64 index) { return random_value(key, index, amplitude); };
    map_elements(out, count, lead_of(out, count), true, value);
}

KERNEL fill_constant(dtype *out, u64 count, float value) {
    map_elements(out, count, lead_of(out, count), true, [&](float, u64) { return value; });
}
