// Heads of queries, keys and values and their rotary position embeddings (RoPE), forwards and backwards.

// `packed` is [batch * tokens, (heads + 2 kv_heads) * head_dim] and the bias a row of it. Bias and norms may be null.
// The tables are [positions, head_dim / 2].
#define QKV_PARAMETERS                                                                                                 \
    const dtype *packed, const dtype *bias, const dtype *q_norm, const dtype *k_norm, const float *cosines,            \
        const float *sines, const u32 *start
#define HEAD_PARAMETERS                                                                                                \
    u32 tokens, u32 heads, u32 kv_heads, u32 head_dim, u32 capacity, u32 positions, u32 is_interleaved, float epsilon, \
        u32 lane_bits
#define THESE_HEADS {cosines, sines, tokens, heads, kv_heads, head_dim, capacity, positions, is_interleaved}

struct Heads {
    const float *cosines, *sines;
    u32 tokens, heads, kv_heads, head_dim, capacity, positions;
    u32 is_interleaved; // elements (2i, 2i + 1) are rotated together, else (i, i + head_dim / 2)
};

// The negative sine rotates back.
DEVICE void rotate(float &a, float &b, float cosine, float sine) {
    float rotated = a * cosine - b * sine;
    b = b * cosine + a * sine;
    a = rotated;
}

// Rotates V elements of the lower half of a head from `at` on, and as many of the upper half. A sign of -1 rotates
// back.
template <int V, int sign> DEVICE void rotate_lane(const Heads &of, u64 position, u32 at, float *low, float *high) {
    u32 half = of.head_dim / 2;
    u64 row = position < of.positions ? position : of.positions - 1;
    const float *cosines = of.cosines + row * half, *sines = of.sines + row * half;
    if (of.is_interleaved) {
#pragma unroll
        for (int i = 0; i + 1 < V; i += 2) {
            u32 low_pair = (at + i) / 2, high_pair = (half + at + i) / 2;
            rotate(low[i], low[i + 1], cosines[low_pair], sign * sines[low_pair]);
            rotate(high[i], high[i + 1], cosines[high_pair], sign * sines[high_pair]);
        }
    } else {
#pragma unroll
        for (int i = 0; i < V; i += 4) {
            float4 cosine = *reinterpret_cast<const float4 *>(cosines + at + i);
            float4 sine = *reinterpret_cast<const float4 *>(sines + at + i);
            rotate(low[i], high[i], cosine.x, sign * sine.x);
            rotate(low[i + 1], high[i + 1], cosine.y, sign * sine.y);
            rotate(low[i + 2], high[i + 2], cosine.z, sign * sine.z);
            rotate(low[i + 3], high[i + 3], cosine.w, sign * sine.w);
        }
    }
}

// The address of a token's head in the queries, [batch, heads, tokens, head_dim], or in a cache of keys or values,
// [batch, kv_heads, capacity, head_dim]. Null if the position is beyond the cache.
template <class T>
DEVICE T *head_address(const Heads &of, T *q, T *k, T *v, u32 sequence, u32 token, u32 head, u64 position) {
    if (head < of.heads) return q + (((u64)sequence * of.heads + head) * of.tokens + token) * of.head_dim;
    if (position >= of.capacity) return nullptr;
    bool is_k = head < of.heads + of.kv_heads;
    u32 kv_head = head - of.heads - (is_k ? 0 : of.kv_heads);
    return (is_k ? k : v) + (((u64)sequence * of.kv_heads + kv_head) * of.capacity + position) * of.head_dim;
}
