// Samples the next token from up to THREADS * EACH logits, with one block.
//
// Repetition penalty, suppressed tokens, temperature, top-k, top-p, and the draw. The three parts are also separate
// kernels, so that they can be timed separately.
//
// Weights are integers, so that their sums do not depend on the order, and they are computed by the same operations as
// on the CPU. So every device draws the same token from the same logits.

#define THREADS 256
#define WARPS (THREADS / LANES)
#define EACH 16
#define MAX_TOKENS (THREADS * EACH)

// The candidates, in the order of their indices.
struct Candidates {
    u32 count, unused[3];
    u32 bits[MAX_TOKENS];
    u32 weights[MAX_TOKENS];
    unsigned short indices[MAX_TOKENS];
};

// What sampling one code reads and writes.
struct Sampling {
    const dtype *logits;
    u32 vocab;
    const Rules *rules;
    const u32 *suppressed; // 1 for each token that is never sampled, or null
    u32 *seen;             // 1 for each token that was sampled, or null
    u32 *frame;
    u32 ahead;  // 1 if the code begins the next frame
    u32 *codes; // [capacity, groups]
    u32 capacity, groups, group;
    u32 *position;      // advances by one, or null
    u32 *word;          // the token and whether it is the end, for the host, or null
    const dtype *table; // [size, width], whose row of the token becomes x, or null
    u32 size;
    dtype *x;
    u32 width;
};

// Reductions over the block, for every thread. `scratch` has a value per warp, and is not used again before the next
// barrier.
DEVICE u32 block_max(u32 value, u32 *scratch) {
    value = __reduce_max_sync(~0u, value);
    if (threadIdx.x % LANES == 0) scratch[threadIdx.x / LANES] = value;
    __syncthreads();
    u32 most = 0;
#pragma unroll
    for (u32 warp = 0; warp < WARPS; warp++) most = max(most, scratch[warp]);
    return most;
}

// `value` is the same on all lanes of a warp.
DEVICE u64 sum_of_warps(u64 value, u64 *scratch) {
    if (threadIdx.x % LANES == 0) scratch[threadIdx.x / LANES] = value;
    __syncthreads();
    u64 sum = 0;
#pragma unroll
    for (u32 warp = 0; warp < WARPS; warp++) sum += scratch[warp];
    return sum;
}

// The inclusive prefix sum of a warp.
template <class T> DEVICE T warp_scan(T value) {
#pragma unroll
    for (u32 delta = 1; delta < LANES; delta *= 2) {
        T other = __shfl_up_sync(~0u, value, delta);
        if (threadIdx.x % LANES >= delta) value += other;
    }
    return value;
}

// The ordered bits of a thread's logits, after penalty and temperature. Thread t has the indices t, t + THREADS and so
// on.
DEVICE void load_bits(const Sampling &of, const Rules &rules, u32 frame, u32 (&bits)[EACH]) {
    float values[EACH];
    u32 was_seen[EACH], is_out[EACH];
    // All loads are in flight together.
#pragma unroll
    for (u32 j = 0; j < EACH; j++) {
        u32 index = j * THREADS + threadIdx.x;
        bool is_there = index < of.vocab;
        values[j] = is_there ? to_float(of.logits[index]) : 0.0f;
        was_seen[j] = is_there && of.seen ? of.seen[index] : 0;
        is_out[j] = !is_there || (of.suppressed && of.suppressed[index]);
    }
    u32 end = of.word && frame < rules.min_frames ? rules.end : ~0u;
#pragma unroll
    for (u32 j = 0; j < EACH; j++) {
        bits[j] = 0;
        // Skips divisions, the slowest operation here.
        if (j * THREADS >= of.vocab) continue;
        float value = values[j];
        if (was_seen[j]) value = value < 0.0f ? __fmul_rn(value, rules.penalty) : __fdiv_rn(value, rules.penalty);
        if (rules.temperature > 0.0f) value = __fdiv_rn(value, rules.temperature);
        bits[j] = is_out[j] || j * THREADS + threadIdx.x == end ? 0 : logit_bits(value);
    }
}

// The threshold that this number of tokens reach, found two bits at a time.
template <u32 COUNT>
DEVICE u32 threshold_of(const u32 (&bits)[COUNT], u32 wanted, u64 (*scratch)[WARPS]) {
    u32 threshold = 0;
    for (u32 round = 0; round < 16; round++) {
        u32 shift = 30 - 2 * round;
        u64 counts = 0;
#pragma unroll
        for (u32 j = 0; j < COUNT; j++) {
            u32 above = bits[j] >= threshold ? (bits[j] - threshold) >> shift : 0;
            // Counts of tokens at least one, two and three steps above, 16 bits each.
            counts += (above >= 1 ? 1ull : 0) + (above >= 2 ? 1ull << 16 : 0) + (above >= 3 ? 1ull << 32 : 0);
        }
        u32 low = __reduce_add_sync(~0u, (u32)counts), high = __reduce_add_sync(~0u, (u32)(counts >> 32));
        u64 all = sum_of_warps((u64)high << 32 | low, scratch[round % 2]);
        u32 found[4] = {~0u, (u32)(all & 0xffff), (u32)(all >> 16 & 0xffff), (u32)(all >> 32)};
        u32 steps = found[3] >= wanted ? 3 : found[2] >= wanted ? 2 : found[1] >= wanted ? 1 : 0;
        threshold += steps << shift;
        if (steps > 0 && found[steps] == wanted) break;
    }
    return threshold;
}

// Writes the tokens from the threshold on to the candidates, in the order of their indices.
DEVICE void keep(const u32 (&bits)[EACH], u32 threshold, u32 most, Candidates &to, u32 *counts) {
    u32 warp = threadIdx.x / LANES, lane = threadIdx.x % LANES;
    u32 least = max(threshold, 1u);
#pragma unroll
    for (u32 j = 0; j < EACH; j++) {
        u32 kept = __ballot_sync(~0u, bits[j] >= least);
        if (lane == 0) counts[j * WARPS + warp] = __popc(kept);
    }
    __syncthreads();
    if (warp == 0) {
        // Each lane has `own` neighbouring counts.
        const u32 own = EACH * WARPS / LANES;
        u32 sum = 0;
        for (u32 i = 0; i < own; i++) sum += counts[lane * own + i];
        u32 before = warp_scan(sum);
        if (lane == LANES - 1) to.count = before;
        before -= sum;
        for (u32 i = 0; i < own; i++) {
            u32 here = counts[lane * own + i];
            counts[lane * own + i] = before;
            before += here;
        }
    }
    __syncthreads();
    float highest = logit_of(most);
#pragma unroll
    for (u32 j = 0; j < EACH; j++) {
        u32 kept = __ballot_sync(~0u, bits[j] >= least);
        if (bits[j] < least) continue;
        u32 place = counts[j * WARPS + warp] + __popc(kept & ((1u << lane) - 1));
        to.bits[place] = bits[j];
        to.weights[place] = weight_of(logit_of(bits[j]), highest);
        to.indices[place] = (unsigned short)(j * THREADS + threadIdx.x);
    }
    __syncthreads();
}

// Zeroes the weights of candidates (there are few) with this number of more likely ones.
DEVICE void drop(u32 wanted, Candidates &of) {
    for (u32 at = threadIdx.x; at < of.count; at += THREADS) {
        u32 mine = of.bits[at], above = 0;
#pragma unroll 8
        for (u32 other = 0; other < of.count; other++) above += of.bits[other] > mine;
        if (above >= wanted) of.weights[at] = 0;
    }
    __syncthreads();
}

struct Scratch {
    u64 of_warps[2][WARPS];
    u32 most[WARPS];
    u32 counts[EACH * WARPS];
    u32 found;
};

// Penalty, temperature and top-k. Without a temperature, only the most likely token is kept.
DEVICE void take_top_k(const Sampling &of, const Rules &rules, Candidates &to, Scratch &scratch) {
    u32 bits[EACH];
    load_bits(of, rules, *of.frame + of.ahead, bits);
    u32 highest = 0;
#pragma unroll
    for (u32 j = 0; j < EACH; j++) highest = max(highest, bits[j]);
    u32 most = block_max(highest, scratch.most);
    bool is_drawn = rules.temperature > 0.0f, is_cut = is_drawn && rules.top_k > 0 && rules.top_k < of.vocab;
    // The k-th most likely of the threads' most likely tokens is a lower bound of the threshold.
    u32 of_threads[1] = {highest}, threshold = is_drawn ? 0 : most;
    if (is_cut && rules.top_k <= THREADS) threshold = threshold_of(of_threads, rules.top_k, scratch.of_warps);
    keep(bits, threshold, most, to, scratch.counts);
    if (is_cut && rules.top_k <= THREADS && to.count <= 2 * THREADS) {
        drop(rules.top_k, to);
    } else if (is_cut) {
        keep(bits, threshold_of(bits, rules.top_k, scratch.of_warps), most, to, scratch.counts);
    }
    if (is_drawn) return;
    // Ties go to the lowest index.
    if (threadIdx.x == 0) to.count = min(to.count, 1u);
    __syncthreads();
}

// The sum of all weights.
DEVICE u64 sum_of(const Candidates &of, Scratch &scratch) {
    u64 sum = 0;
    for (u32 at = threadIdx.x; at < of.count; at += THREADS) sum += of.weights[at];
#pragma unroll
    for (u32 delta = LANES / 2; delta > 0; delta /= 2) sum += __shfl_xor_sync(~0u, sum, delta);
    __syncthreads();
    return sum_of_warps(sum, scratch.of_warps[0]);
}

// Top-p: zeroes the weights of candidates whose more likely ones reach top_p of all weights.
DEVICE void take_top_p(const Rules &rules, Candidates &of, Scratch &scratch) {
    if (!(rules.top_p < 1.0) || of.count == 0) return;
    u64 enough = (u64)ceil(__dmul_rn(rules.top_p, (double)sum_of(of, scratch)));
    u32 out = 0;
    // A bit for each of a thread's candidates: weights only change after all have been read.
    for (u32 at = threadIdx.x, bit = 1; at < of.count; at += THREADS, bit *= 2) {
        u32 mine = of.bits[at];
        u64 above = 0;
        for (u32 other = 0; other < of.count; other++) above += of.bits[other] > mine ? of.weights[other] : 0;
        if (above > 0 && above >= enough) out |= bit;
    }
    __syncthreads();
    for (u32 at = threadIdx.x, bit = 1; at < of.count; at += THREADS, bit *= 2) {
        if (out & bit) of.weights[at] = 0;
    }
    __syncthreads();
}

// Draws a candidate: the first whose cumulative weight exceeds the random share of all weights.
DEVICE u32 drawn(u32 random, const Candidates &of, Scratch &scratch) {
    u32 warp = threadIdx.x / LANES, lane = threadIdx.x % LANES;
    u32 own = (of.count + THREADS - 1) / THREADS, first = min(threadIdx.x * own, of.count);
    u32 end = min(first + own, of.count);
    u64 sum = 0;
    for (u32 at = first; at < end; at++) sum += of.weights[at];
    u64 upto = warp_scan(sum);
    if (threadIdx.x == 0) scratch.found = 0;
    __syncthreads();
    if (lane == LANES - 1) scratch.of_warps[0][warp] = upto;
    __syncthreads();
    u64 before = upto - sum, total = 0;
    for (u32 other = 0; other < WARPS; other++) {
        if (other == warp) before += total;
        total += scratch.of_warps[0][other];
    }
    // The product has 32 bits more than the sum.
    u64 target = __umul64hi((u64)random << 32, total);
    for (u32 at = first; at < end; at++) {
        if (before <= target && target < before + of.weights[at]) scratch.found = at;
        before += of.weights[at];
    }
    // Without any weight, because a logit is infinite, it is the most likely token.
    if (total == 0) {
        u32 most = 0;
        for (u32 at = first; at < end; at++) most = max(most, of.bits[at]);
        most = block_max(most, scratch.most);
        if (threadIdx.x == 0) scratch.found = of.count;
        __syncthreads();
        for (u32 at = first; at < end; at++) {
            if (of.bits[at] == most) atomicMin(&scratch.found, at);
        }
    }
    __syncthreads();
    return of.count == 0 ? 0 : of.indices[scratch.found];
}

DEVICE void sample(const Sampling &of, const Rules &rules, const Candidates &from, Scratch &scratch) {
    u32 frame = *of.frame + of.ahead;
    u32 token = drawn(random_bits(rules, frame, of.group), from, scratch);
    if (of.table) {
        const dtype *row = of.table + (u64)token * of.width;
        for (u32 at = threadIdx.x; at < of.width; at += THREADS)
            of.x[at] = token < of.size ? row[at] : to_dtype(QUIET_NAN);
    }
    if (threadIdx.x != 0) return;
    if (frame < of.capacity) of.codes[(u64)frame * of.groups + of.group] = token;
    if (of.seen && token < of.vocab) of.seen[token] = 1;
    if (of.position) *of.position += 1;
    if (of.ahead) *of.frame = frame;
    if (of.word) {
        of.word[0] = token;
        of.word[1] = token == rules.end;
    }
}

// Copies the candidates to or from global memory, between two kernels.
DEVICE void copy(Candidates &to, const Candidates &from) {
    if (threadIdx.x == 0) to.count = from.count;
    for (u32 at = threadIdx.x; at < from.count; at += THREADS) {
        to.bits[at] = from.bits[at];
        to.weights[at] = from.weights[at];
        to.indices[at] = from.indices[at];
    }
    __syncthreads();
}

#define SAMPLING                                                                                                         \
    const dtype *logits, u32 vocab, const Rules *rules, const u32 *suppressed, u32 *seen, u32 *frame, u32 ahead,      \
        u32 *codes, u32 capacity, u32 groups, u32 group, u32 *position, u32 *word, const dtype *table, u32 size,           \
        dtype *x, u32 width, Candidates *between
#define THIS_SAMPLING                                                                                                    \
    {logits, vocab, rules, suppressed, seen, frame, ahead, codes, capacity, groups, group, position, word, table, size, x, width}

KERNEL __launch_bounds__(THREADS) sample_step(SAMPLING) {
    __shared__ Candidates candidates;
    __shared__ Scratch scratch;
    wait_then_launch();
    Sampling of = THIS_SAMPLING;
    Rules by = *rules;
    take_top_k(of, by, candidates, scratch);
    take_top_p(by, candidates, scratch);
    sample(of, by, candidates, scratch);
}

KERNEL __launch_bounds__(THREADS) top_k_step(SAMPLING) {
    __shared__ Candidates candidates;
    __shared__ Scratch scratch;
    wait_then_launch();
    take_top_k(THIS_SAMPLING, *rules, candidates, scratch);
    copy(*between, candidates);
}

KERNEL __launch_bounds__(THREADS) top_p_step(SAMPLING) {
    __shared__ Candidates candidates;
    __shared__ Scratch scratch;
    wait_then_launch();
    copy(candidates, *between);
    take_top_p(*rules, candidates, scratch);
    copy(*between, candidates);
}

KERNEL __launch_bounds__(THREADS) draw_step(SAMPLING) {
    __shared__ Candidates candidates;
    __shared__ Scratch scratch;
    wait_then_launch();
    copy(candidates, *between);
    sample(THIS_SAMPLING, *rules, candidates, scratch);
}
