// The gradient of the packed product of queries, keys and values, from those of the heads: rotated back, and through the
// norm of each head of q and k. Where there is a norm, blocks leave the sums of its weights' gradients, queries' and keys',
// in `partial`, [blocks, 2 head_dim].

struct Join {
    const number *packed;  // [batch * tokens, (heads + 2 kv_heads) * head_dim], read where there is a norm
    const number *bias;    // [(heads + 2 kv_heads) * head_dim], or absent
    const number *q_norm;  // [head_dim], or absent
    const number *k_norm;
    const float *cosines;  // [positions, head_dim / 2]
    const float *sines;
    const u32 *start;
    const number *dq;      // [batch, heads, tokens, head_dim]
    const number *dk;      // [batch, kv_heads, capacity, head_dim]
    const number *dv;
    number *d_packed;
    float *partial;
    u32 rows, tokens, heads, kv_heads, head_dim, capacity, positions;
    u32 is_by_pairs;       // pairs (2i, 2i + 1) were rotated; else (i, i + head_dim / 2)
    float epsilon;
};

#define JOIN_PARAMETERS                                                                                                \
    const number *packed, const number *bias, const number *q_norm, const number *k_norm, const float *cosines,        \
        const float *sines, const u32 *start, const number *dq, const number *dk, const number *dv, number *d_packed,  \
        float *partial, u32 rows, u32 tokens, u32 heads, u32 kv_heads, u32 head_dim, u32 capacity, u32 positions,      \
        u32 is_by_pairs, float epsilon, u32 lane_bits
#define JOIN_ARGUMENTS                                                                                                 \
    {packed, bias, q_norm, k_norm, cosines, sines, start, dq, dk, dv, d_packed, partial, rows, tokens, heads,          \
     kv_heads, head_dim, capacity, positions, is_by_pairs, epsilon}

// Adds up what the warps of a block found about the weights, each in its own row of `sums`.
__device__ __forceinline__ void leave_sums(const Join &join, const float *sums) {
    u32 width = 2 * join.head_dim;
    __syncthreads();
    for (u32 at = threadIdx.x; at < width; at += blockDim.x) {
        float sum = 0;
        for (u32 warp = 0; warp < blockDim.x / 32; warp++) sum += sums[warp * width + at];
        join.partial[(u64)blockIdx.x * width + at] = sum;
    }
}

// Heads without a norm. Blocks go along all heads of all tokens; `lanes` threads a head, and half a head is groups of 16
// bytes, one a thread.
extern "C" __global__ void __launch_bounds__(256) split_heads_backward_plain(JOIN_PARAMETERS) {
    const Join join = JOIN_ARGUMENTS;
    constexpr u32 V = NUMBERS_IN_16_BYTES;
    u32 lanes = lane_bits, team = threadIdx.x / lanes, at = (threadIdx.x - team * lanes) * V;
    u32 item = blockIdx.x * (blockDim.x / lanes) + team, all_heads = heads + 2 * kv_heads, half = head_dim / 2;
    if (item >= rows * all_heads) return;
    u32 row = item / all_heads, head = item - row * all_heads, sequence = row / tokens, token = row - sequence * tokens;
    u64 position = (u64)*start + token;
    float low[V] = {}, high[V] = {};
    Some<V> lows = {}, highs = {};
    if (const number *from = head_place(join, dq, dk, dv, sequence, token, head, position)) {
        lows = some<V>(from + at);
        highs = some<V>(from + half + at);
        if (head < heads + kv_heads) {
#pragma unroll
            for (int i = 0; i < V; i++) {
                low[i] = widened(lows.at[i]);
                high[i] = widened(highs.at[i]);
            }
            rotate_lane<V, -1>(join, position, at, low, high);
#pragma unroll
            for (int i = 0; i < V; i++) {
                lows.at[i] = narrowed(low[i]);
                highs.at[i] = narrowed(high[i]);
            }
        }
    }
    put<V>(d_packed + (u64)item * head_dim + at, lows);
    put<V>(d_packed + (u64)item * head_dim + half + at, highs);
}

// The same with a norm: 2^`lane_bits` threads a head, at most a warp, and blocks that go over many heads.
extern "C" __global__ void __launch_bounds__(512, 1) split_heads_backward(JOIN_PARAMETERS) {
    const Join join = JOIN_ARGUMENTS;
    constexpr u32 V = NUMBERS_IN_16_BYTES;
    extern __shared__ float sums[];
    let_the_next_kernel_begin();
    u32 all_heads = heads + 2 * kv_heads, half = head_dim / 2, count = rows * all_heads;
    u32 thread = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x & ((1u << lane_bits) - 1), at = lane * V;
    u32 stride = gridDim.x * blockDim.x >> lane_bits;
    float q_low[V] = {}, q_high[V] = {}, k_low[V] = {}, k_high[V] = {};
    // All heads of a warp go together, since they add up together.
    for (u32 base = (thread & ~31u) >> lane_bits; base < count; base += stride) {
        u32 item = base + ((threadIdx.x & 31u) >> lane_bits);
        bool is_used = at < half && item < count;
        u32 row = item / all_heads, head = item - row * all_heads, sequence = row / tokens, token = row - sequence * tokens;
        u64 position = (u64)*start + token;
        float low[V] = {}, high[V] = {};
        const number *from = is_used ? head_place(join, dq, dk, dv, sequence, token, head, position) : nullptr;
        if (from) {
            take(from + at, low);
            take(from + half + at, high);
            if (head < heads + kv_heads) rotate_lane<V, -1>(join, position, at, low, high);
        }
        {
            bool is_q = head < heads, is_mine = is_used && head < heads + kv_heads;
            float low_value[V] = {}, high_value[V] = {};
            Some<V> low_weight = {}, high_weight = {};
            float square = 0, along = 0;
            if (is_mine) {
                const number *norm = is_q ? q_norm : k_norm, *value = packed + (u64)item * head_dim + at;
                low_weight = some<V>(norm + at);
                high_weight = some<V>(norm + half + at);
                Some<V> lows = some<V>(value), highs = some<V>(value + half), low_bias = {}, high_bias = {};
                if (bias) {
                    low_bias = some<V>(bias + head * head_dim + at);
                    high_bias = some<V>(bias + head * head_dim + half + at);
                }
#pragma unroll
                for (int i = 0; i < V; i++) {
                    low_value[i] = widened(lows.at[i]) + widened(low_bias.at[i]);
                    high_value[i] = widened(highs.at[i]) + widened(high_bias.at[i]);
                    square += low_value[i] * low_value[i] + high_value[i] * high_value[i];
                    along += low_value[i] * low[i] * widened(low_weight.at[i]) +
                             high_value[i] * high[i] * widened(high_weight.at[i]);
                }
            }
            for (u32 distance = 1u << lane_bits >> 1; distance > 0; distance /= 2) {
                square += __shfl_xor_sync(~0u, square, distance);
                along += __shfl_xor_sync(~0u, along, distance);
            }
            if (is_mine) {
                float scale = rsqrtf(square / head_dim + epsilon);
                along = scale * scale * (along / head_dim);
#pragma unroll
                for (int i = 0; i < V; i++) {
                    float low_sum = low[i] * low_value[i] * scale, high_sum = high[i] * high_value[i] * scale;
                    q_low[i] += is_q ? low_sum : 0;
                    q_high[i] += is_q ? high_sum : 0;
                    k_low[i] += is_q ? 0 : low_sum;
                    k_high[i] += is_q ? 0 : high_sum;
                    low[i] = scale * (widened(low_weight.at[i]) * low[i] - low_value[i] * along);
                    high[i] = scale * (widened(high_weight.at[i]) * high[i] - high_value[i] * along);
                }
            }
        }
        if (!is_used) continue;
        put(d_packed + (u64)item * head_dim + at, low);
        put(d_packed + (u64)item * head_dim + half + at, high);
    }
    float *mine = sums + threadIdx.x / 32 * 2 * head_dim + at;
    bool is_first = (threadIdx.x & 31u) >> lane_bits == 0 && at < half;
#pragma unroll
    for (int i = 0; i < V; i++) {
        for (u32 distance = 16; distance >> lane_bits > 0; distance /= 2) {
            q_low[i] += __shfl_xor_sync(~0u, q_low[i], distance);
            q_high[i] += __shfl_xor_sync(~0u, q_high[i], distance);
            k_low[i] += __shfl_xor_sync(~0u, k_low[i], distance);
            k_high[i] += __shfl_xor_sync(~0u, k_high[i], distance);
        }
        if (!is_first) continue;
        mine[i] = q_low[i];
        mine[half + i] = q_high[i];
        mine[head_dim + i] = k_low[i];
        mine[head_dim + half + i] = k_high[i];
    }
    leave_sums(join, sums);
}

// The most pairs of a lane: a head has at most 256 numbers.
#define PAIRS 4

// The same for heads of any even size up to 256, at any place; a warp a head.
extern "C" __global__ void __launch_bounds__(512, 1) split_heads_backward_any(JOIN_PARAMETERS) {
    const Join join = JOIN_ARGUMENTS;
    extern __shared__ float sums[];
    let_the_next_kernel_begin();
    u32 all_heads = heads + 2 * kv_heads, half = head_dim / 2, count = rows * all_heads, lane = threadIdx.x % 32;
    bool is_normed = q_norm != nullptr;
    float q_sum[2 * PAIRS] = {}, k_sum[2 * PAIRS] = {};
    for (u32 item = (blockIdx.x * blockDim.x + threadIdx.x) / 32; item < count; item += gridDim.x * blockDim.x / 32) {
        u32 row = item / all_heads, head = item - row * all_heads, sequence = row / tokens, token = row - sequence * tokens;
        u64 position = (u64)*start + token, table_row = position < positions ? position : positions - 1;
        const number *from = head_place(join, dq, dk, dv, sequence, token, head, position);
        bool is_q = head < heads, is_turned = head < heads + kv_heads;
        const number *norm = !is_turned ? nullptr : is_q ? q_norm : k_norm;
        float gradient[2 * PAIRS] = {}, value[2 * PAIRS] = {}, square = 0, along = 0;
#pragma unroll
        for (u32 p = 0; p < PAIRS; p++) {
            u32 pair = lane + 32 * p;
            if (pair >= half) continue;
            u32 place[2] = {is_by_pairs ? 2 * pair : pair, is_by_pairs ? 2 * pair + 1 : pair + half};
            float *pair_gradient = gradient + 2 * p;
            if (from) {
                pair_gradient[0] = widened(from[place[0]]);
                pair_gradient[1] = widened(from[place[1]]);
                if (is_turned)
                    rotate(pair_gradient[0], pair_gradient[1], cosines[table_row * half + pair],
                           -sines[table_row * half + pair]);
            }
            if (!norm) continue;
#pragma unroll
            for (u32 i = 0; i < 2; i++) {
                float here = widened(packed[(u64)item * head_dim + place[i]]);
                if (bias) here += widened(bias[head * head_dim + place[i]]);
                value[2 * p + i] = here;
                square += here * here;
                along += here * pair_gradient[i] * widened(norm[place[i]]);
            }
        }
        float scale = 1;
        if (norm) {
            square = sum_of_warp(square);
            scale = rsqrtf(square / head_dim + epsilon);
            along = scale * scale * (sum_of_warp(along) / head_dim);
        }
#pragma unroll
        for (u32 p = 0; p < PAIRS; p++) {
            u32 pair = lane + 32 * p;
            if (pair >= half) continue;
            u32 place[2] = {is_by_pairs ? 2 * pair : pair, is_by_pairs ? 2 * pair + 1 : pair + half};
#pragma unroll
            for (u32 i = 0; i < 2; i++) {
                float result = gradient[2 * p + i], here = value[2 * p + i];
                if (norm) {
                    float sum = result * here * scale;
                    q_sum[2 * p + i] += is_q ? sum : 0;
                    k_sum[2 * p + i] += is_q ? 0 : sum;
                    result = scale * (widened(norm[place[i]]) * result - here * along);
                }
                d_packed[(u64)item * head_dim + place[i]] = narrowed(result);
            }
        }
    }
    if (!is_normed) return;
#pragma unroll
    for (u32 p = 0; p < PAIRS; p++) {
        u32 pair = lane + 32 * p;
        if (pair >= half) continue;
        float *mine = sums + threadIdx.x / 32 * 2 * head_dim;
        u32 place[2] = {is_by_pairs ? 2 * pair : pair, is_by_pairs ? 2 * pair + 1 : pair + half};
#pragma unroll
        for (u32 i = 0; i < 2; i++) {
            mine[place[i]] = q_sum[2 * p + i];
            mine[head_dim + place[i]] = k_sum[2 * p + i];
        }
    }
    leave_sums(join, sums);
}
