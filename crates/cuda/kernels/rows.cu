// Copies of rows: embedding, the last row of each sequence, and heads.

// Copies `width` elements with the threads of a block. If `is_aligned`, it moves 16-byte vectors. `from` and `to` map
// the index of an element to its address.
template <class From, class To> DEVICE void copy_row(u32 width, u32 is_aligned, From from, To to) {
    u32 step = is_aligned ? VEC : 1;
    for (u32 at = threadIdx.x * step; at < width; at += blockDim.x * step) {
        if (is_aligned)
            store(to(at), load(from(at)));
        else
            *to(at) = *from(at);
    }
}

// One block per token. A token outside the vocabulary gives NaN.
KERNEL embed(const u32 *tokens, const dtype *table, dtype *out, u32 vocabulary, u32 width, u32 is_aligned) {
    u64 row = blockIdx.x;
    u32 token = tokens[row];
    const dtype *from = table + (u64)token * width;
    dtype *to = out + row * width;
    if (token < vocabulary)
        copy_row(width, is_aligned, [=](u32 at) { return from + at; }, [=](u32 at) { return to + at; });
    else
        for (u32 at = threadIdx.x; at < width; at += blockDim.x) to[at] = to_dtype(QUIET_NAN);
}

KERNEL scale(dtype *x, u64 count, float factor) {
    u64 at = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (at < count) x[at] = to_dtype(to_float(x[at]) * factor);
}

// One block per sequence.
KERNEL last_rows(const dtype *x, dtype *out, u32 tokens, u32 width, u32 is_aligned) {
    u64 sequence = blockIdx.x;
    const dtype *from = x + ((sequence + 1) * tokens - 1) * width;
    dtype *to = out + sequence * width;
    copy_row(width, is_aligned, [=](u32 at) { return from + at; }, [=](u32 at) { return to + at; });
}

// The address of an element of this block's token in [batch, heads, tokens, head_dim]. Blocks cover tokens and
// sequences.
template <class T> DEVICE T *in_heads(T *x, u32 heads, u32 tokens, u32 head_dim, u32 at) {
    u32 head = at / head_dim;
    return x + (((u64)blockIdx.y * heads + head) * tokens + blockIdx.x) * head_dim + (at - head * head_dim);
}

// From [batch, heads, tokens, head_dim] to [batch, tokens, heads * head_dim].
KERNEL merge_heads(const dtype *x, dtype *out, u32 heads, u32 tokens, u32 head_dim, u32 is_aligned) {
    u32 width = heads * head_dim;
    dtype *to = out + ((u64)blockIdx.y * tokens + blockIdx.x) * width;
    auto from = [=](u32 at) { return in_heads(x, heads, tokens, head_dim, at); };
    copy_row(width, is_aligned, from, [=](u32 at) { return to + at; });
}

// The reverse.
KERNEL unmerge_heads(const dtype *x, dtype *out, u32 heads, u32 tokens, u32 head_dim, u32 is_aligned) {
    u32 width = heads * head_dim;
    const dtype *from = x + ((u64)blockIdx.y * tokens + blockIdx.x) * width;
    auto to = [=](u32 at) { return in_heads(out, heads, tokens, head_dim, at); };
    copy_row(width, is_aligned, [=](u32 at) { return from + at; }, to);
}
