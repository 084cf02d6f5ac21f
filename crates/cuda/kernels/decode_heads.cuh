// Attention of a step: its sizes, how the blocks of a cluster meet, and how a head of the new token is made ready.
// This text stands after decode.cuh and before decode_attention.cu, which says what the options are.

#define THREADS (WARPS * LANES)
#if __CUDA_ARCH__ < 900
#undef SPLITS
#define SPLITS 1
#endif

// Values of one head that a lane of a warp holds when a warp takes a whole head.
constexpr u32 PAIRS_EACH = (HEAD_DIM / 2 + LANES - 1) / LANES;
// Less than every score, and finite: its difference to itself is zero.
constexpr float NO_SCORE = -1e30f;
constexpr float LOG2_E = 1.4426950408889634f;

struct Attention {
    const number *qkv;        // [batch, (heads + 2 kv_heads) * HEAD_DIM]
    const number *query_norm; // [HEAD_DIM], or none
    const number *key_norm;
    float epsilon, scale;
    const float *cosines, *sines; // [positions, HEAD_DIM / 2]
    u32 positions, in_pairs;
    const u32 *position;
    number *keys, *values;    // [batch, kv_heads, capacity, HEAD_DIM]
    u32 capacity, heads, kv_heads;
    number *out;              // [batch, heads * HEAD_DIM]
    u64 *border;              // where the time is written, or none
};

// The cache of one key and value head as a block looks at it: up to `end`, of which the first `filled` are there.
struct Cached {
    const number *keys, *values;
    u32 end, filled;
    __device__ __forceinline__ bool has(u32 index) const { return index < end && index < filled; }
};

// A part of the attention of one head: the weighted values, the largest score, the sum of weights.
struct alignas(16) Part {
    float values[(HEAD_DIM + 3) / 4 * 4];
    float most, sum;
};

template <u32 HEADS> struct Shared {
    // This token's queries, its key and its value.
    alignas(16) float token[HEADS + 2][HEAD_DIM];
    Part of_warp[WARPS][HEADS];
    // In the first block of a cluster, from all.
    Part of_block[SPLITS][HEADS];
};

__device__ __forceinline__ u32 rank_in_cluster() {
#if SPLITS > 1
    u32 rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
#else
    return 0;
#endif
}

// The two halves of a meeting of all blocks of the cluster: what is written before the one is seen after the other.
__device__ __forceinline__ void arrive() {
#if SPLITS > 1
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#else
    __syncthreads();
#endif
}

__device__ __forceinline__ void wait_for_all() {
#if SPLITS > 1
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}

// Writes to the same place of the first block of the cluster.
__device__ __forceinline__ void tell_first(float *place, float value) {
#if SPLITS > 1
    u32 here = (u32)__cvta_generic_to_shared(place), there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, 0;" : "=r"(there) : "r"(here));
    asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(there), "f"(value) : "memory");
#else
    *place = value;
#endif
}

// What a warp takes a head with: a lane has the pairs that are turned together.
struct Pairs {
    float first[PAIRS_EACH], second[PAIRS_EACH];
};

// Which numbers of a head a lane has.
struct Lanes {
    u32 step, apart;
    __device__ explicit Lanes(bool in_pairs) : step(in_pairs ? 2 : 1), apart(in_pairs ? 1 : HEAD_DIM / 2) {}
    __device__ __forceinline__ Pairs load(const number *from) const {
        Pairs pairs;
#pragma unroll
        for (u32 j = 0; j < PAIRS_EACH; j++) {
            u32 i = threadIdx.x % LANES + j * LANES;
            bool there = from != nullptr && i < HEAD_DIM / 2;
            pairs.first[j] = there ? widened(from[i * step]) : 0.0f;
            pairs.second[j] = there ? widened(from[i * step + apart]) : 0.0f;
        }
        return pairs;
    }
};

// The cosines and sines of a position.
__device__ __forceinline__ Pairs load_turn(const Attention &a, u32 at) {
    Pairs turn;
#pragma unroll
    for (u32 j = 0; j < PAIRS_EACH; j++) {
        u32 i = threadIdx.x % LANES + j * LANES;
        bool there = i < HEAD_DIM / 2;
        turn.first[j] = there ? a.cosines[(u64)at * (HEAD_DIM / 2) + i] : 1.0f;
        turn.second[j] = there ? a.sines[(u64)at * (HEAD_DIM / 2) + i] : 0.0f;
    }
    return turn;
}

// Lays one head of this token into shared memory: normed, turned and rounded as if it had been stored. One warp does.
__device__ __forceinline__ void take_head(const Pairs &head, bool is_normed, const Pairs &norm, float epsilon, bool turns,
                                          const Pairs &turn, const Lanes &lanes, float *to) {
    float square = 0.0f;
#pragma unroll
    for (u32 j = 0; j < PAIRS_EACH; j++) square += head.first[j] * head.first[j] + head.second[j] * head.second[j];
    float scale = rsqrtf(sum_of_warp(square) / HEAD_DIM + epsilon);
#pragma unroll
    for (u32 j = 0; j < PAIRS_EACH; j++) {
        u32 i = threadIdx.x % LANES + j * LANES;
        if (i >= HEAD_DIM / 2) break;
        float one = head.first[j] * (is_normed ? scale * norm.first[j] : 1.0f);
        float two = head.second[j] * (is_normed ? scale * norm.second[j] : 1.0f);
        float turned = turns ? one * turn.first[j] - two * turn.second[j] : one;
        two = turns ? two * turn.first[j] + one * turn.second[j] : two;
        to[i * lanes.step] = rounded(turned);
        to[i * lanes.step + lanes.apart] = rounded(two);
    }
}
