// Attention of a decode step: its parameters and shared memory, and the preparation of the new token's heads. The
// compile-time options are described in decode_attention.cu.

#define THREADS (WARPS * LANES)
#if __CUDA_ARCH__ < 900
#undef SPLITS
#define SPLITS 1
#endif

// Pairs of a head per lane when a warp has a whole head.
constexpr u32 PAIRS_EACH = (HEAD_DIM / 2 + LANES - 1) / LANES;
// Less than every score, and finite, so that the difference of two of them is zero.
constexpr float MASKED = -1e30f;

struct Attention {
    const dtype *qkv;        // [batch, (heads + 2 kv_heads) * HEAD_DIM]
    const dtype *query_norm; // [HEAD_DIM], or null
    const dtype *key_norm;
    float epsilon, scale;
    const float *cosines, *sines; // [positions, HEAD_DIM / 2]
    u32 positions, is_interleaved;
    const u32 *position;
    dtype *keys, *values; // [batch, kv_heads, capacity, HEAD_DIM]
    u32 capacity, heads, kv_heads;
    dtype *out; // [batch, heads * HEAD_DIM]
    u64 *timestamp;
};

// The cache of a key and value head as a block sees it: up to `end`, of which the first `filled` positions are stored.
struct Cache {
    const dtype *keys, *values;
    u32 end, filled;
    DEVICE bool has(u32 index) const { return index < end && index < filled; }
};

// A partial result of one head: the weighted values, the largest score and the sum of the weights.
struct alignas(16) Partial {
    float values[(HEAD_DIM + 3) / 4 * 4];
    float largest, sum;
};

struct Shared {
    // The new token's queries, its key and its value.
    alignas(16) float token[HEADS + 2][HEAD_DIM];
    Partial of_warp[WARPS][HEADS];
    // In the first block of a cluster, from all blocks.
    Partial of_block[SPLITS][HEADS];
};

// Writes to the same variable of the cluster's first block.
DEVICE void store_in_first(float *local, float value) {
#if SPLITS > 1
    asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(map_shared(local, 0)), "f"(value) : "memory");
#endif
}

// A warp's part of a head: the pairs of each lane that are rotated together.
struct Pairs {
    float first[PAIRS_EACH], second[PAIRS_EACH];
};

// Which elements of a head a lane has.
struct Lanes {
    u32 step, distance;
    __device__ explicit Lanes(bool is_interleaved)
        : step(is_interleaved ? 2 : 1), distance(is_interleaved ? 1 : HEAD_DIM / 2) {}
    DEVICE Pairs load(const dtype *from) const {
        Pairs pairs;
#pragma unroll
        for (u32 j = 0; j < PAIRS_EACH; j++) {
            u32 i = threadIdx.x % LANES + j * LANES;
            bool is_there = from != nullptr && i < HEAD_DIM / 2;
            pairs.first[j] = is_there ? to_float(from[i * step]) : 0.0f;
            pairs.second[j] = is_there ? to_float(from[i * step + distance]) : 0.0f;
        }
        return pairs;
    }
};

// The cosines and sines of a position.
DEVICE Pairs load_rope(const Attention &a, u32 position) {
    Pairs rope;
#pragma unroll
    for (u32 j = 0; j < PAIRS_EACH; j++) {
        u32 i = threadIdx.x % LANES + j * LANES;
        bool is_there = i < HEAD_DIM / 2;
        rope.first[j] = is_there ? a.cosines[(u64)position * (HEAD_DIM / 2) + i] : 1.0f;
        rope.second[j] = is_there ? a.sines[(u64)position * (HEAD_DIM / 2) + i] : 0.0f;
    }
    return rope;
}

// Writes a head of the new token to shared memory: normalised, rotated, and rounded as if it had been stored. One warp.
DEVICE void prepare_head(const Pairs &head, bool is_normed, const Pairs &norm, float epsilon, bool is_rotated,
                         const Pairs &rope, const Lanes &lanes, float *to) {
    float square = 0.0f;
#pragma unroll
    for (u32 j = 0; j < PAIRS_EACH; j++) square += head.first[j] * head.first[j] + head.second[j] * head.second[j];
    float scale = rsqrtf(warp_sum(square) / HEAD_DIM + epsilon);
#pragma unroll
    for (u32 j = 0; j < PAIRS_EACH; j++) {
        u32 i = threadIdx.x % LANES + j * LANES;
        if (i >= HEAD_DIM / 2) break;
        float first = head.first[j] * (is_normed ? scale * norm.first[j] : 1.0f);
        float second = head.second[j] * (is_normed ? scale * norm.second[j] : 1.0f);
        float rotated = is_rotated ? first * rope.first[j] - second * rope.second[j] : first;
        second = is_rotated ? second * rope.first[j] + first * rope.second[j] : second;
        to[i * lanes.step] = rounded(rotated);
        to[i * lanes.step + lanes.distance] = rounded(second);
    }
}
