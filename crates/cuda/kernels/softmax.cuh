// The number of keys visible to a row of a causal softmax: row r belongs to query r % tokens, which sees the keys up to
// `start` plus the query.
DEVICE u32 visible_keys(u64 row, u32 tokens, u32 keys, const u32 *start) {
    // There are fewer than 2^31 rows, and 32-bit division is faster.
    u64 visible = (u64)*start + (u32)row % tokens + 1;
    return visible < keys ? (u32)visible : keys;
}
