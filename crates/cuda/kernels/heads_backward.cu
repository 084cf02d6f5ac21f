// The gradient of the packed QKV projection, from those of the heads: the inverse rotation, and the gradient of the
// norm of each head of q and k. With norms, each block writes its sums of the gradients of their weights, of q and of
// k, to `partial`, [blocks, 2 head_dim].

// `packed` is only read if there are norms. `dq` is [batch, heads, tokens, head_dim], `dk` and `dv` are caches,
// [batch, kv_heads, capacity, head_dim].
#define JOIN_PARAMETERS                                                                                                \
    QKV_PARAMETERS, const dtype *dq, const dtype *dk, const dtype *dv, dtype *d_packed, float *partial, u32 rows,      \
        HEAD_PARAMETERS

// Adds the sums of the warps of a block, a row of `sums` each.
DEVICE void write_partial(const float *sums, float *partial, u32 width) {
    __syncthreads();
    for (u32 at = threadIdx.x; at < width; at += blockDim.x) {
        float sum = 0;
        for (u32 warp = 0; warp < blockDim.x / 32; warp++) sum += sums[warp * width + at];
        partial[(u64)blockIdx.x * width + at] = sum;
    }
}

// Without norms. Blocks cover all heads of all tokens. A head has `lane_bits` threads, each with a 16-byte vector of
// either half.
KERNEL __launch_bounds__(256) split_heads_backward_plain(JOIN_PARAMETERS) {
    const Heads layout = THESE_HEADS;
    u32 lanes = lane_bits, team = threadIdx.x / lanes, at = (threadIdx.x - team * lanes) * VEC;
    u32 item = blockIdx.x * (blockDim.x / lanes) + team, all_heads = heads + 2 * kv_heads, half = head_dim / 2;
    if (item >= rows * all_heads) return;
    u32 row = item / all_heads, head = item - row * all_heads, sequence = row / tokens, token = row - sequence * tokens;
    u64 position = (u64)*start + token;
    float low[VEC] = {}, high[VEC] = {};
    if (const dtype *from = head_address(layout, dq, dk, dv, sequence, token, head, position)) {
        load(from + at, low);
        load(from + half + at, high);
        if (head < heads + kv_heads) rotate_lane<VEC, -1>(layout, position, at, low, high);
    }
    store(d_packed + (u64)item * head_dim + at, low);
    store(d_packed + (u64)item * head_dim + half + at, high);
}

// With norms. A head has 2^`lane_bits` threads, at most a warp, and a block adds up many heads.
KERNEL __launch_bounds__(512, 1) split_heads_backward(JOIN_PARAMETERS) {
    const Heads layout = THESE_HEADS;
    extern __shared__ float sums[];
    launch_dependents();
    u32 all_heads = heads + 2 * kv_heads, half = head_dim / 2, count = rows * all_heads;
    u32 thread = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x & ((1u << lane_bits) - 1), at = lane * VEC;
    u32 stride = gridDim.x * blockDim.x >> lane_bits;
    float q_low[VEC] = {}, q_high[VEC] = {}, k_low[VEC] = {}, k_high[VEC] = {};
    // All threads of a warp take part in its sums.
    for (u32 base = (thread & ~31u) >> lane_bits; base < count; base += stride) {
        u32 item = base + ((threadIdx.x & 31u) >> lane_bits);
        bool is_used = at < half && item < count;
        u32 row = item / all_heads, head = item - row * all_heads, sequence = row / tokens, token = row - sequence * tokens;
        u64 position = (u64)*start + token;
        float low[VEC] = {}, high[VEC] = {};
        const dtype *from = is_used ? head_address(layout, dq, dk, dv, sequence, token, head, position) : nullptr;
        if (from) {
            load(from + at, low);
            load(from + half + at, high);
            if (head < heads + kv_heads) rotate_lane<VEC, -1>(layout, position, at, low, high);
        }
        bool is_q = head < heads, is_mine = is_used && head < heads + kv_heads;
        float low_value[VEC] = {}, high_value[VEC] = {};
        vec_t low_weight = {}, high_weight = {};
        float square = 0, along = 0;
        if (is_mine) {
            const dtype *norm = is_q ? q_norm : k_norm, *value = packed + (u64)item * head_dim + at;
            low_weight = load(norm + at);
            high_weight = load(norm + half + at);
            vec_t lows = load(value), highs = load(value + half), low_bias = {}, high_bias = {};
            if (bias) {
                low_bias = load(bias + head * head_dim + at);
                high_bias = load(bias + head * head_dim + half + at);
            }
#pragma unroll
            for (int i = 0; i < VEC; i++) {
                low_value[i] = to_float(lows.at[i]) + to_float(low_bias.at[i]);
                high_value[i] = to_float(highs.at[i]) + to_float(high_bias.at[i]);
                square += low_value[i] * low_value[i] + high_value[i] * high_value[i];
                along += low_value[i] * low[i] * to_float(low_weight.at[i]) +
                         high_value[i] * high[i] * to_float(high_weight.at[i]);
            }
        }
        for (u32 delta = 1u << lane_bits >> 1; delta > 0; delta /= 2) {
            square += __shfl_xor_sync(~0u, square, delta);
            along += __shfl_xor_sync(~0u, along, delta);
        }
        if (is_mine) {
            float scale = rsqrtf(square / head_dim + epsilon);
            along = scale * scale * (along / head_dim);
#pragma unroll
            for (int i = 0; i < VEC; i++) {
                float low_sum = low[i] * low_value[i] * scale, high_sum = high[i] * high_value[i] * scale;
                q_low[i] += is_q ? low_sum : 0;
                q_high[i] += is_q ? high_sum : 0;
                k_low[i] += is_q ? 0 : low_sum;
                k_high[i] += is_q ? 0 : high_sum;
                low[i] = scale * (to_float(low_weight.at[i]) * low[i] - low_value[i] * along);
                high[i] = scale * (to_float(high_weight.at[i]) * high[i] - high_value[i] * along);
            }
        }
        if (!is_used) continue;
        store(d_packed + (u64)item * head_dim + at, low);
        store(d_packed + (u64)item * head_dim + half + at, high);
    }
    float *mine = sums + threadIdx.x / 32 * 2 * head_dim + at;
    bool is_first = (threadIdx.x & 31u) >> lane_bits == 0 && at < half;
#pragma unroll
    for (int i = 0; i < VEC; i++) {
        for (u32 delta = 16; delta >> lane_bits > 0; delta /= 2) {
            q_low[i] += __shfl_xor_sync(~0u, q_low[i], delta);
            q_high[i] += __shfl_xor_sync(~0u, q_high[i], delta);
            k_low[i] += __shfl_xor_sync(~0u, k_low[i], delta);
            k_high[i] += __shfl_xor_sync(~0u, k_high[i], delta);
        }
        if (!is_first) continue;
        mine[i] = q_low[i];
        mine[half + i] = q_high[i];
        mine[head_dim + i] = k_low[i];
        mine[head_dim + half + i] = k_high[i];
    }
    write_partial(sums, partial, 2 * head_dim);
}

// The largest number of pairs per lane: a head has at most 256 elements.
#define PAIRS 4

// For heads of any even size up to 256 and any alignment, with or without norms: one warp per head.
KERNEL __launch_bounds__(512, 1) split_heads_backward_any(JOIN_PARAMETERS) {
    const Heads layout = THESE_HEADS;
    extern __shared__ float sums[];
    launch_dependents();
    u32 all_heads = heads + 2 * kv_heads, half = head_dim / 2, count = rows * all_heads, lane = threadIdx.x % 32;
    auto element = [&](u32 pair, u32 i) { return is_interleaved ? 2 * pair + i : pair + i * half; };
    float q_sum[2 * PAIRS] = {}, k_sum[2 * PAIRS] = {};
    for (u32 item = (blockIdx.x * blockDim.x + threadIdx.x) / 32; item < count; item += gridDim.x * blockDim.x / 32) {
        u32 row = item / all_heads, head = item - row * all_heads, sequence = row / tokens, token = row - sequence * tokens;
        u64 position = (u64)*start + token, table_row = position < positions ? position : positions - 1;
        const dtype *from = head_address(layout, dq, dk, dv, sequence, token, head, position);
        bool is_q = head < heads, is_rotated = head < heads + kv_heads;
        const dtype *norm = !is_rotated ? nullptr : is_q ? q_norm : k_norm;
        float gradient[2 * PAIRS] = {}, value[2 * PAIRS] = {}, square = 0, along = 0;
#pragma unroll
        for (u32 p = 0; p < PAIRS; p++) {
            u32 pair = lane + 32 * p;
            if (pair >= half) continue;
            u32 index[2] = {element(pair, 0), element(pair, 1)};
            float *pair_gradient = gradient + 2 * p;
            if (from) {
                pair_gradient[0] = to_float(from[index[0]]);
                pair_gradient[1] = to_float(from[index[1]]);
                if (is_rotated)
                    rotate(pair_gradient[0], pair_gradient[1], cosines[table_row * half + pair],
                           -sines[table_row * half + pair]);
            }
            if (!norm) continue;
#pragma unroll
            for (u32 i = 0; i < 2; i++) {
                float here = to_float(packed[(u64)item * head_dim + index[i]]);
                if (bias) here += to_float(bias[head * head_dim + index[i]]);
                value[2 * p + i] = here;
                square += here * here;
                along += here * pair_gradient[i] * to_float(norm[index[i]]);
            }
        }
        float scale = 1;
        if (norm) {
            square = warp_sum(square);
            scale = rsqrtf(square / head_dim + epsilon);
            along = scale * scale * (warp_sum(along) / head_dim);
        }
#pragma unroll
        for (u32 p = 0; p < PAIRS; p++) {
            u32 pair = lane + 32 * p;
            if (pair >= half) continue;
            u32 index[2] = {element(pair, 0), element(pair, 1)};
#pragma unroll
            for (u32 i = 0; i < 2; i++) {
                float result = gradient[2 * p + i], here = value[2 * p + i];
                if (norm) {
                    float sum = result * here * scale;
                    q_sum[2 * p + i] += is_q ? sum : 0;
                    k_sum[2 * p + i] += is_q ? 0 : sum;
                    result = scale * (to_float(norm[index[i]]) * result - here * along);
                }
                d_packed[(u64)item * head_dim + index[i]] = to_dtype(result);
            }
        }
    }
    if (!q_norm) return;
#pragma unroll
    for (u32 p = 0; p < PAIRS; p++) {
        u32 pair = lane + 32 * p;
        if (pair >= half) continue;
        float *mine = sums + threadIdx.x / 32 * 2 * head_dim;
#pragma unroll
        for (u32 i = 0; i < 2; i++) {
            mine[element(pair, i)] = q_sum[2 * p + i];
            mine[head_dim + element(pair, i)] = k_sum[2 * p + i];
        }
    }
    write_partial(sums, partial, 2 * head_dim);
}
