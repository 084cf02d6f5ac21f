// Splits the packed QKV projection into heads: bias, norm of each head of q and k, and RoPE. q goes to
// [batch, heads, tokens, head_dim], k and v into caches [batch, kv_heads, capacity, head_dim].

#define SPLIT_PARAMETERS QKV_PARAMETERS, dtype *q, dtype *k, dtype *v, HEAD_PARAMETERS

// Blocks cover tokens and heads. A head has 2^`lane_bits` threads, at most a warp, and its halves are 16-byte vectors.
KERNEL __launch_bounds__(256, 4) split_heads(SPLIT_PARAMETERS) {
    wait_for_previous_kernel();
    const Heads layout = THESE_HEADS;
    u32 row = blockIdx.x, sequence = row / tokens, token = row - sequence * tokens;
    u32 all_heads = heads + 2 * kv_heads, half = head_dim / 2;
    u32 at = (threadIdx.x & ((1u << lane_bits) - 1)) * VEC, head = (blockIdx.y * blockDim.x + threadIdx.x) >> lane_bits;
    bool is_used = at < half && head < all_heads;
    float low[VEC] = {}, high[VEC] = {};
    if (is_used) {
        const dtype *from = packed + ((u64)row * all_heads + head) * head_dim + at;
        load(from, low);
        load(from + half, high);
        if (bias) {
            vec_t low_bias = load(bias + head * head_dim + at), high_bias = load(bias + head * head_dim + half + at);
#pragma unroll
            for (int i = 0; i < VEC; i++) {
                low[i] += to_float(low_bias.at[i]);
                high[i] += to_float(high_bias.at[i]);
            }
        }
    }
    const dtype *norm = head < heads ? q_norm : head < heads + kv_heads ? k_norm : nullptr;
    if (q_norm || k_norm) {
        float sum = 0;
#pragma unroll
        for (int i = 0; i < VEC; i++) sum += low[i] * low[i] + high[i] * high[i];
        // All threads of the warp take part, whether they have a head or not.
        for (u32 delta = 1u << lane_bits >> 1; delta > 0; delta /= 2) sum += __shfl_xor_sync(~0u, sum, delta);
        if (is_used && norm) {
            float scale = rsqrtf(sum / head_dim + epsilon);
            vec_t low_weight = load(norm + at), high_weight = load(norm + half + at);
#pragma unroll
            for (int i = 0; i < VEC; i++) {
                low[i] *= scale * to_float(low_weight.at[i]);
                high[i] *= scale * to_float(high_weight.at[i]);
            }
        }
    }
    if (!is_used) return;
    u64 position = (u64)*start + token;
    if (head < heads + kv_heads) rotate_lane<VEC, 1>(layout, position, at, low, high);
    dtype *to = head_address(layout, q, k, v, sequence, token, head, position);
    if (!to) return;
    store(to + at, low);
    store(to + half + at, high);
}

// For heads of any even size up to 256 and any alignment: one warp per head.
KERNEL split_heads_any(SPLIT_PARAMETERS) {
    wait_for_previous_kernel();
    const Heads layout = THESE_HEADS;
    u32 sequence = blockIdx.x / tokens, token = blockIdx.x % tokens, all_heads = heads + 2 * kv_heads, half = head_dim / 2;
    u64 position = (u64)*start + token, table_row = position < positions ? position : positions - 1;
    for (u32 head = (blockIdx.y * blockDim.x + threadIdx.x) / 32; head < all_heads; head += gridDim.y * blockDim.x / 32) {
        const dtype *from = packed + ((u64)blockIdx.x * all_heads + head) * head_dim;
        const dtype *norm = head < heads ? q_norm : head < heads + kv_heads ? k_norm : nullptr;
        dtype *to = head_address(layout, q, k, v, sequence, token, head, position);
        float scale = 1;
        auto value = [&](u32 at) { return to_float(from[at]) + (bias ? to_float(bias[head * head_dim + at]) : 0); };
        if (norm) {
            float sum = 0;
            for (u32 at = threadIdx.x % 32; at < head_dim; at += 32) sum += value(at) * value(at);
            scale = rsqrtf(warp_sum(sum) / head_dim + epsilon);
        }
        if (!to) continue;
        for (u32 pair = threadIdx.x % 32; pair < half; pair += 32) {
            u32 a = is_interleaved ? 2 * pair : pair, b = is_interleaved ? 2 * pair + 1 : pair + half;
            float first = value(a), second = value(b);
            if (norm) {
                first *= scale * to_float(norm[a]);
                second *= scale * to_float(norm[b]);
            }
            if (head < heads + kv_heads)
                rotate(first, second, cosines[table_row * half + pair], sines[table_row * half + pair]);
            to[a] = to_dtype(first);
            to[b] = to_dtype(second);
        }
    }
}
