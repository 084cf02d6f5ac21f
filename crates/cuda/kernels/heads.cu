// The packed product of queries, keys and values, taken apart: bias, norm of each head of q and k, rotation by position;
// q goes to [batch, heads, tokens, head_dim], k and v into caches [batch, kv_heads, capacity, head_dim].

struct Split {
    const number *packed;  // [batch * tokens, (heads + 2 kv_heads) * head_dim]
    const number *bias;    // [(heads + 2 kv_heads) * head_dim], or absent
    const number *q_norm;  // [head_dim], or absent
    const number *k_norm;
    const float *cosines;  // [positions, head_dim / 2]
    const float *sines;
    const u32 *start;
    number *q;
    number *k;
    number *v;
    u32 tokens, heads, kv_heads, head_dim, capacity, positions;
    u32 is_by_pairs;       // pairs (2i, 2i + 1) are rotated; else (i, i + head_dim / 2)
    float epsilon;
};

#define SPLIT_PARAMETERS                                                                                               \
    const number *packed, const number *bias, const number *q_norm, const number *k_norm, const float *cosines,        \
        const float *sines, const u32 *start, number *q, number *k, number *v, u32 tokens, u32 heads, u32 kv_heads,    \
        u32 head_dim, u32 capacity, u32 positions, u32 is_by_pairs, float epsilon, u32 lane_bits
#define SPLIT_ARGUMENTS                                                                                                \
    {packed, bias, q_norm, k_norm, cosines, sines, start, q, k, v, tokens, heads, kv_heads, head_dim, capacity,        \
     positions, is_by_pairs, epsilon}

__device__ __forceinline__ const number *norm_of(const Split &split, u32 head) {
    if (head < split.heads) return split.q_norm;
    return head < split.heads + split.kv_heads ? split.k_norm : nullptr;
}

// Blocks go over tokens and heads; 2^`lane_bits` threads a head, at most a warp. Half a head is groups of 16 bytes.
extern "C" __global__ void __launch_bounds__(256, 4) split_heads(SPLIT_PARAMETERS) {
    wait_for_the_kernel_before();
    const Split split = SPLIT_ARGUMENTS;
    constexpr u32 V = NUMBERS_IN_16_BYTES;
    u32 row = blockIdx.x, sequence = row / tokens, token = row - sequence * tokens;
    u32 all_heads = heads + 2 * kv_heads, half = head_dim / 2;
    u32 at = (threadIdx.x & ((1u << lane_bits) - 1)) * V, head = (blockIdx.y * blockDim.x + threadIdx.x) >> lane_bits;
    bool is_used = at < half && head < all_heads;
    float low[V] = {}, high[V] = {};
    if (is_used) {
        const number *from = packed + ((u64)row * all_heads + head) * head_dim + at;
        take(from, low);
        take(from + half, high);
        if (bias) {
            numbers low_bias = loaded(bias + head * head_dim + at), high_bias = loaded(bias + head * head_dim + half + at);
#pragma unroll
            for (int i = 0; i < V; i++) {
                low[i] += widened(low_bias.at[i]);
                high[i] += widened(high_bias.at[i]);
            }
        }
    }
    const number *norm = norm_of(split, head);
    if (q_norm || k_norm) {
        float sum = 0;
#pragma unroll
        for (int i = 0; i < V; i++) sum += low[i] * low[i] + high[i] * high[i];
        // All threads of a warp add up together, whether they have a head or not.
        for (u32 distance = 1u << lane_bits >> 1; distance > 0; distance /= 2)
            sum += __shfl_xor_sync(~0u, sum, distance);
        if (is_used && norm) {
            float scale = rsqrtf(sum / head_dim + epsilon);
            numbers low_weight = loaded(norm + at), high_weight = loaded(norm + half + at);
#pragma unroll
            for (int i = 0; i < V; i++) {
                low[i] *= scale * widened(low_weight.at[i]);
                high[i] *= scale * widened(high_weight.at[i]);
            }
        }
    }
    if (!is_used) return;
    u64 position = (u64)*start + token;
    if (head < heads + kv_heads) rotate_lane<V, 1>(split, position, at, low, high);
    number *to = head_place(split, split.q, split.k, split.v, (u64)sequence, token, head, position);
    if (!to) return;
    put(to + at, low);
    put(to + half + at, high);
}

// The same for heads of any even size up to 256, at any place; a warp a head.
extern "C" __global__ void split_heads_any(SPLIT_PARAMETERS) {
    wait_for_the_kernel_before();
    const Split split = SPLIT_ARGUMENTS;
    u64 row = blockIdx.x, sequence = blockIdx.x / split.tokens;
    u32 token = blockIdx.x % split.tokens, all_heads = split.heads + 2 * split.kv_heads, half = split.head_dim / 2;
    u64 position = (u64)*split.start + token;
    u64 table_row = position < split.positions ? position : split.positions - 1;
    for (u32 head = (blockIdx.y * blockDim.x + threadIdx.x) / 32; head < all_heads; head += gridDim.y * blockDim.x / 32) {
        const number *from = split.packed + (row * all_heads + head) * split.head_dim;
        const number *norm = norm_of(split, head);
        number *to = head_place(split, split.q, split.k, split.v, (u64)sequence, token, head, position);
        float scale = 1;
        auto value = [&](u32 at) {
            return widened(from[at]) + (split.bias ? widened(split.bias[head * split.head_dim + at]) : 0);
        };
        if (norm) {
            float sum = 0;
            for (u32 at = threadIdx.x % 32; at < split.head_dim; at += 32) sum += value(at) * value(at);
            for (u32 distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(~0u, sum, distance);
            scale = rsqrtf(sum / split.head_dim + split.epsilon);
        }
        if (!to) continue;
        for (u32 pair = threadIdx.x % 32; pair < half; pair += 32) {
            u32 a = split.is_by_pairs ? 2 * pair : pair, b = split.is_by_pairs ? 2 * pair + 1 : pair + half;
            float first = value(a), second = value(b);
            if (norm) {
                first *= scale * widened(norm[a]);
                second *= scale * widened(norm[b]);
            }
            if (head < split.heads + split.kv_heads)
                rotate(first, second, split.cosines[table_row * half + pair], split.sines[table_row * half + pair]);
            to[a] = narrowed(first);
            to[b] = narrowed(second);
        }
    }
}
