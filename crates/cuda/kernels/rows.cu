// Rows copied from one place to another: embedding, the last row of each sequence, heads side by side.

// Copies `width` numbers by the threads of a block. Both must be aligned where `by_16_bytes` is set.
__device__ __forceinline__ void copy_row(const number *from, number *to, u32 width, u32 by_16_bytes) {
    if (by_16_bytes) {
        for (u32 at = threadIdx.x * NUMBERS_IN_16_BYTES; at < width; at += blockDim.x * NUMBERS_IN_16_BYTES)
            store(to + at, loaded(from + at));
    } else {
        for (u32 at = threadIdx.x; at < width; at += blockDim.x) to[at] = from[at];
    }
}

// A block a token. A token that is not in the vocabulary gets a row that is no number.
extern "C" __global__ void embed(const u32 *tokens, const number *table, number *out, u32 vocabulary, u32 width,
                                 u32 by_16_bytes) {
    u64 row = blockIdx.x;
    u32 token = tokens[row];
    number *to = out + row * width;
    if (token < vocabulary) {
        copy_row(table + (u64)token * width, to, width, by_16_bytes);
    } else {
        for (u32 at = threadIdx.x; at < width; at += blockDim.x) to[at] = narrowed(NOT_A_NUMBER);
    }
}

// Multiplies every number with a factor.
extern "C" __global__ void scale_rows(number *x, u64 count, float factor) {
    u64 at = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (at < count) x[at] = narrowed(widened(x[at]) * factor);
}

// A block a sequence.
extern "C" __global__ void last_rows(const number *x, number *out, u32 tokens, u32 width, u32 by_16_bytes) {
    u64 sequence = blockIdx.x;
    copy_row(x + ((sequence + 1) * tokens - 1) * width, out + sequence * width, width, by_16_bytes);
}

// From [batch, heads, tokens, head_dim] to [batch, tokens, heads * head_dim]: blocks go over tokens, heads and batch.
extern "C" __global__ void merge_heads(const number *heads_apart, number *out, u32 heads, u32 tokens, u32 head_dim,
                                       u32 by_16_bytes) {
    u64 sequence = blockIdx.y;
    u32 token = blockIdx.x;
    u32 step = by_16_bytes ? NUMBERS_IN_16_BYTES : 1;
    u32 width = heads * head_dim;
    number *to = out + (sequence * tokens + token) * width;
    for (u32 at = threadIdx.x * step; at < width; at += blockDim.x * step) {
        u32 head = at / head_dim;
        const number *from = heads_apart + ((sequence * heads + head) * tokens + token) * head_dim + (at - head * head_dim);
        if (by_16_bytes) {
            store(to + at, loaded(from));
        } else {
            to[at] = *from;
        }
    }
}
