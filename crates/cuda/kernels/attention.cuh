// What all attention kernels share. Queries are [batch, heads, tokens, HEAD_DIM], keys and values are caches [batch,
// kv_heads, capacity, HEAD_DIM], and the result is [batch, tokens, heads * HEAD_DIM]. HEAD_DIM is a compile-time
// option.

DEVICE u64 out_index(u32 sequence, u64 query, u32 head, u32 tokens, u32 heads) {
    return (((u64)sequence * tokens + query) * heads + head) * HEAD_DIM;
}

// The query head of a block: blocks along x cover the heads of all sequences.
struct QueryHead {
    u32 sequence, head, tokens, heads;
    u64 kv_row; // the first row of its keys and values
    DEVICE QueryHead(u32 tokens, u32 heads, u32 kv_heads, u32 capacity)
        : sequence(blockIdx.x / heads), head(blockIdx.x % heads), tokens(tokens), heads(heads),
          kv_row((u64)(sequence * kv_heads + head / (heads / kv_heads)) * capacity) {}
    DEVICE u64 query_row(u32 query) const { return (u64)blockIdx.x * tokens + query; }
    DEVICE u64 out(u32 query) const { return out_index(sequence, query, head, tokens, heads); }
};

// Query i has position `start` + i and sees the keys up to it.
struct Causal {
    u64 position, length;
    DEVICE Causal(const u32 *start, u32 tokens, u32 capacity)
        : position(*start), length(position + tokens < capacity ? position + tokens : capacity) {}
    // The number of keys visible to the query before `end`.
    DEVICE u64 visible(u64 end) const { return position + end < length ? position + end : length; }
};

// The source of a tile's rows: whether a row exists, and the index of its first element.
struct Row {
    bool is_there;
    u64 begin;
};
template <class Count> struct Contiguous {
    Count rows;
    u64 stride = HEAD_DIM;
    DEVICE Row find(u32 row) const { return {row < rows, row * stride}; }
};
