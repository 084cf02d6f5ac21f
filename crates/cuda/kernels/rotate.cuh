
// The rotation of heads by position. By the negative sine it goes back.
__device__ __forceinline__ void rotate(float &a, float &b, float cosine, float sine) {
    float turned = a * cosine - b * sine;
    b = b * cosine + a * sine;
    a = turned;
}

// A lane has V numbers of the lower half of a head, from `at` on, and as many of the upper half. `sign` is 1, or -1 to go
// back. `Heads` says how the heads lie: head_dim, positions, cosines, sines, is_by_pairs.
template <int V, int sign, class Heads>
__device__ __forceinline__ void rotate_lane(const Heads &heads, u64 position, u32 at, float *low, float *high) {
    u32 half = heads.head_dim / 2;
    u64 row = position < heads.positions ? position : heads.positions - 1;
    const float *cosines = heads.cosines + row * half, *sines = heads.sines + row * half;
    if (heads.is_by_pairs) {
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

// Where a head of a token lies: among queries, [batch, heads, tokens, head_dim], or in a cache of keys or of values,
// [batch, kv_heads, capacity, head_dim]. Null where the cache has no place for its position.
template <class Heads, class Number, class Index>
__device__ __forceinline__ Number *head_place(const Heads &of, Number *q, Number *k, Number *v, Index sequence, u32 token,
                                              u32 head, u64 position) {
    if (head < of.heads) return q + (((u64)sequence * of.heads + head) * of.tokens + token) * of.head_dim;
    if (position >= of.capacity) return nullptr;
    bool is_k = head < of.heads + of.kv_heads;
    u32 kv_head = head - of.heads - (is_k ? 0 : of.kv_heads);
    return (is_k ? k : v) + (((u64)sequence * of.kv_heads + kv_head) * of.capacity + position) * of.head_dim;
}
