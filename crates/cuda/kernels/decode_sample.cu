// The next token by chance, from up to THREADS * EACH logits: one block, which holds all of them.
//
// Applies penalties and removes forbidden tokens, divides the logits by the temperature, keeps the top_k most likely,
// then the most likely of these up to a total weight of top_p, and draws one of them. The three parts are also separate
// kernels, so that they can be timed separately.
//
// Weights are whole numbers, so that their sums do not depend on the order they are added in; and what makes them is
// computed operation by operation as on the CPU, none fused. So every device draws the same from the same logits.

#define THREADS 256
#define WARPS (THREADS / LANES)
#define EACH 16
#define MOST (THREADS * EACH)

// What goes from part to part: the candidates in the order of their indices.
struct Candidates {
    u32 count, unused[3];
    u32 orders[MOST];
    u32 weights[MOST];
    unsigned short indices[MOST];
};

// What a choice reads and leaves behind.
struct Choice {
    const number *logits;
    u32 vocab;
    const Rules *rules;
    const u32 *suppressed; // one for each token that must not be chosen, or none
    u32 *seen;             // one for each token that was chosen, or none
    u32 *frame;
    u32 ahead;             // frames by which the choice is ahead of the count
    u32 *codes;            // [room, groups]
    u32 room, groups, group;
    u32 *position;         // goes on by one, or none
    u32 *word;             // the token and whether it is the end, or none
    const number *table;   // [size, width], of which the token's row becomes x, or none
    u32 size;
    number *x;
    u32 width;
};

// Kernels behind this one may read what those before it wrote: they begin when all of that is there.
__device__ __forceinline__ void wait_before_the_next() {
    wait_for_the_kernel_before();
    let_the_next_kernel_begin();
}

// What all warps found, for every thread; `places` has one a warp and is not used again before the next meeting.
__device__ __forceinline__ u32 most_of_block(u32 value, u32 *places) {
    value = __reduce_max_sync(ALL_LANES, value);
    if (threadIdx.x % LANES == 0) places[threadIdx.x / LANES] = value;
    __syncthreads();
    u32 most = 0;
#pragma unroll
    for (u32 warp = 0; warp < WARPS; warp++) most = max(most, places[warp]);
    return most;
}

__device__ __forceinline__ u64 added_up(u64 value, u64 *places) {
    u32 low = __reduce_add_sync(ALL_LANES, (u32)value), high = __reduce_add_sync(ALL_LANES, (u32)(value >> 32));
    if (threadIdx.x % LANES == 0) places[threadIdx.x / LANES] = (u64)high << 32 | low;
    __syncthreads();
    u64 sum = 0;
#pragma unroll
    for (u32 warp = 0; warp < WARPS; warp++) sum += places[warp];
    return sum;
}

// A thread's logits, penalised and divided, as their order. Thread t has the indices t, t + THREADS and so on.
__device__ __forceinline__ void take_orders(const Choice &of, const Rules &rules, u32 frame, u32 (&orders)[EACH]) {
    float values[EACH];
    u32 was_seen[EACH], is_out[EACH];
    // All are asked for before one is waited for.
#pragma unroll
    for (u32 j = 0; j < EACH; j++) {
        u32 index = j * THREADS + threadIdx.x;
        bool is_there = index < of.vocab;
        values[j] = is_there ? widened(of.logits[index]) : 0.0f;
        was_seen[j] = is_there && of.seen ? of.seen[index] : 0;
        is_out[j] = !is_there || (of.suppressed && of.suppressed[index]);
    }
    u32 end = of.word && frame < rules.least ? rules.end : ~0u;
#pragma unroll
    for (u32 j = 0; j < EACH; j++) {
        orders[j] = 0;
        // Divisions are the slowest operation here.
        if (j * THREADS >= of.vocab) continue;
        float value = values[j];
        if (was_seen[j]) value = value < 0.0f ? __fmul_rn(value, rules.penalty) : __fdiv_rn(value, rules.penalty);
        if (rules.temperature > 0.0f) value = __fdiv_rn(value, rules.temperature);
        orders[j] = is_out[j] || j * THREADS + threadIdx.x == end ? 0 : choice_order(value);
    }
}

// The threshold from which this number of tokens is kept: two bits at a time, until the number is reached or all bits
// are known.
template <u32 COUNT>
__device__ __forceinline__ u32 threshold_of(const u32 (&orders)[COUNT], u32 wanted, u64 (*places)[WARPS]) {
    u32 threshold = 0;
    for (u32 round = 0; round < 16; round++) {
        u32 shift = 30 - 2 * round;
        u64 counts = 0;
#pragma unroll
        for (u32 j = 0; j < COUNT; j++) {
            u32 above = orders[j] >= threshold ? (orders[j] - threshold) >> shift : 0;
            // Counts of those that are at least one, two and three steps above, 16 bits each.
            counts += (above >= 1 ? 1ull : 0) + (above >= 2 ? 1ull << 16 : 0) + (above >= 3 ? 1ull << 32 : 0);
        }
        u64 all = added_up(counts, places[round % 2]);
        u32 found[4] = {~0u, (u32)(all & 0xffff), (u32)(all >> 16 & 0xffff), (u32)(all >> 32)};
        u32 steps = found[3] >= wanted ? 3 : found[2] >= wanted ? 2 : found[1] >= wanted ? 1 : 0;
        threshold += steps << shift;
        if (steps > 0 && found[steps] == wanted) break;
    }
    return threshold;
}

// Lays down who is kept, in the order of indices.
__device__ __forceinline__ void keep(const u32 (&orders)[EACH], u32 threshold, u32 most, Candidates &to, u32 *counts) {
    u32 warp = threadIdx.x / LANES, lane = threadIdx.x % LANES;
    u32 least = max(threshold, 1u);
#pragma unroll
    for (u32 j = 0; j < EACH; j++) {
        u32 kept = __ballot_sync(ALL_LANES, orders[j] >= least);
        if (lane == 0) counts[j * WARPS + warp] = __popc(kept);
    }
    __syncthreads();
    if (warp == 0) {
        // Each lane has as many neighbours as make all of them.
        const u32 own = EACH * WARPS / LANES;
        u32 sum = 0;
        for (u32 i = 0; i < own; i++) sum += counts[lane * own + i];
        u32 before = sum;
#pragma unroll
        for (u32 apart = 1; apart < LANES; apart *= 2) {
            u32 other = __shfl_up_sync(ALL_LANES, before, apart);
            if (lane >= apart) before += other;
        }
        if (lane == LANES - 1) to.count = before;
        before -= sum;
        for (u32 i = 0; i < own; i++) {
            u32 here = counts[lane * own + i];
            counts[lane * own + i] = before;
            before += here;
        }
    }
    __syncthreads();
    float highest = value_of(most);
#pragma unroll
    for (u32 j = 0; j < EACH; j++) {
        u32 kept = __ballot_sync(ALL_LANES, orders[j] >= least);
        if (orders[j] < least) continue;
        u32 place = counts[j * WARPS + warp] + __popc(kept & ((1u << lane) - 1));
        to.orders[place] = orders[j];
        to.weights[place] = weight_of(value_of(orders[j]), highest);
        to.indices[place] = (unsigned short)(j * THREADS + threadIdx.x);
    }
    __syncthreads();
}

// Removes the weight of candidates (there are few) that have this number above them.
__device__ __forceinline__ void leave(u32 wanted, Candidates &of) {
    for (u32 at = threadIdx.x; at < of.count; at += THREADS) {
        u32 mine = of.orders[at], above = 0;
#pragma unroll 8
        for (u32 other = 0; other < of.count; other++) above += of.orders[other] > mine;
        if (above >= wanted) of.weights[at] = 0;
    }
    __syncthreads();
}

struct Places {
    u64 of_warps[2][WARPS];
    u32 most[WARPS];
    u32 counts[EACH * WARPS];
    u32 found;
};

// Penalties, temperature and the top_k likeliest. The likeliest alone is kept where there is no temperature.
__device__ __forceinline__ void take_top_k(const Choice &of, const Rules &rules, Candidates &to, Places &places) {
    u32 orders[EACH];
    take_orders(of, rules, *of.frame + of.ahead, orders);
    u32 highest = 0;
#pragma unroll
    for (u32 j = 0; j < EACH; j++) highest = max(highest, orders[j]);
    u32 most = most_of_block(highest, places.most);
    bool is_drawn = rules.temperature > 0.0f, is_cut = is_drawn && rules.top_k > 0 && rules.top_k < of.vocab;
    // As many threads have one that is at least as likely as the k-th likeliest of the threads' likeliest.
    u32 of_threads[1] = {highest}, threshold = is_drawn ? 0 : most;
    if (is_cut && rules.top_k <= THREADS) threshold = threshold_of(of_threads, rules.top_k, places.of_warps);
    keep(orders, threshold, most, to, places.counts);
    if (is_cut && rules.top_k <= THREADS && to.count <= 2 * THREADS) {
        leave(rules.top_k, to);
    } else if (is_cut) {
        keep(orders, threshold_of(orders, rules.top_k, places.of_warps), most, to, places.counts);
    }
    if (is_drawn) return;
    // The lowest of equal ones.
    if (threadIdx.x == 0) to.count = min(to.count, 1u);
    __syncthreads();
}

// The sum of all weights.
__device__ __forceinline__ u64 sum_of(const Candidates &of, Places &places) {
    u64 sum = 0;
    for (u32 at = threadIdx.x; at < of.count; at += THREADS) sum += of.weights[at];
#pragma unroll
    for (u32 apart = LANES / 2; apart > 0; apart /= 2) sum += __shfl_xor_sync(ALL_LANES, sum, apart);
    __syncthreads();
    if (threadIdx.x % LANES == 0) places.of_warps[0][threadIdx.x / LANES] = sum;
    __syncthreads();
    sum = 0;
#pragma unroll
    for (u32 warp = 0; warp < WARPS; warp++) sum += places.of_warps[0][warp];
    return sum;
}

// Takes the weight of those whose likelier ones make up top_p of all weights already.
__device__ __forceinline__ void take_top_p(const Rules &rules, Candidates &of, Places &places) {
    if (!(rules.top_p < 1.0) || of.count == 0) return;
    u64 enough = (u64)ceil(__dmul_rn(rules.top_p, (double)sum_of(of, places)));
    u32 out = 0;
    // A bit for each of a thread's candidates: all must be looked at before one goes.
    for (u32 at = threadIdx.x, bit = 1; at < of.count; at += THREADS, bit *= 2) {
        u32 mine = of.orders[at];
        u64 above = 0;
        for (u32 other = 0; other < of.count; other++) above += of.orders[other] > mine ? of.weights[other] : 0;
        if (above > 0 && above >= enough) out |= bit;
    }
    __syncthreads();
    for (u32 at = threadIdx.x, bit = 1; at < of.count; at += THREADS, bit *= 2) {
        if (out & bit) of.weights[at] = 0;
    }
    __syncthreads();
}

// The first candidate up to which the weights come to more than the random bits have of all.
__device__ __forceinline__ u32 drawn(u32 bits, const Candidates &of, Places &places) {
    u32 warp = threadIdx.x / LANES, lane = threadIdx.x % LANES;
    u32 own = (of.count + THREADS - 1) / THREADS, first = min(threadIdx.x * own, of.count);
    u32 end = min(first + own, of.count);
    u64 sum = 0;
    for (u32 at = first; at < end; at++) sum += of.weights[at];
    u64 upto = sum;
#pragma unroll
    for (u32 apart = 1; apart < LANES; apart *= 2) {
        u64 other = __shfl_up_sync(ALL_LANES, upto, apart);
        if (lane >= apart) upto += other;
    }
    if (threadIdx.x == 0) places.found = 0;
    __syncthreads();
    if (lane == LANES - 1) places.of_warps[0][warp] = upto;
    __syncthreads();
    u64 before = upto - sum, total = 0;
    for (u32 other = 0; other < WARPS; other++) {
        if (other == warp) before += total;
        total += places.of_warps[0][other];
    }
    // The product has 32 bits more than the sum.
    u64 place = __umul64hi((u64)bits << 32, total);
    for (u32 at = first; at < end; at++) {
        if (before <= place && place < before + of.weights[at]) places.found = at;
        before += of.weights[at];
    }
    // Where there is no weight at all, it is the likeliest, of which there is an endless one.
    if (total == 0) {
        u32 most = 0;
        for (u32 at = first; at < end; at++) most = max(most, of.orders[at]);
        most = most_of_block(most, places.most);
        if (threadIdx.x == 0) places.found = of.count;
        __syncthreads();
        for (u32 at = first; at < end; at++) {
            if (of.orders[at] == most) atomicMin(&places.found, at);
        }
    }
    __syncthreads();
    return of.count == 0 ? 0 : of.indices[places.found];
}

__device__ __forceinline__ void choose(const Choice &of, const Rules &rules, const Candidates &from, Places &places) {
    u32 frame = *of.frame + of.ahead;
    u32 token = drawn(random_bits(rules, frame, of.group), from, places);
    if (of.table) {
        const number *row = of.table + (u64)token * of.width;
        for (u32 at = threadIdx.x; at < of.width; at += THREADS)
            of.x[at] = token < of.size ? row[at] : narrowed(NOT_A_NUMBER);
    }
    if (threadIdx.x != 0) return;
    if (frame < of.room) of.codes[(u64)frame * of.groups + of.group] = token;
    if (of.seen && token < of.vocab) of.seen[token] = 1;
    if (of.position) *of.position += 1;
    if (of.ahead) *of.frame = frame;
    if (of.word) {
        of.word[0] = token;
        of.word[1] = token == rules.end;
    }
}

// The candidates as they lie between two kernels.
__device__ __forceinline__ void bring(Candidates &to, const Candidates &from) {
    if (threadIdx.x == 0) to.count = from.count;
    for (u32 at = threadIdx.x; at < from.count; at += THREADS) {
        to.orders[at] = from.orders[at];
        to.weights[at] = from.weights[at];
        to.indices[at] = from.indices[at];
    }
    __syncthreads();
}

#define CHOICE                                                                                                         \
    const number *logits, u32 vocab, const Rules *rules, const u32 *suppressed, u32 *seen, u32 *frame, u32 ahead,      \
        u32 *codes, u32 room, u32 groups, u32 group, u32 *position, u32 *word,                          \
        const number *table, u32 size, number *x, u32 width, Candidates *between
#define THIS_CHOICE                                                                                                    \
    {logits, vocab, rules, suppressed, seen, frame, ahead, codes, room, groups, group, position, word, table, size, x, width}

extern "C" __global__ void __launch_bounds__(THREADS) sample_step(CHOICE) {
    __shared__ Candidates candidates;
    __shared__ Places places;
    wait_before_the_next();
    Choice of = THIS_CHOICE;
    Rules by = *rules;
    take_top_k(of, by, candidates, places);
    take_top_p(by, candidates, places);
    choose(of, by, candidates, places);
}

extern "C" __global__ void __launch_bounds__(THREADS) top_k_step(CHOICE) {
    __shared__ Candidates candidates;
    __shared__ Places places;
    wait_before_the_next();
    take_top_k(THIS_CHOICE, *rules, candidates, places);
    bring(*between, candidates);
}

extern "C" __global__ void __launch_bounds__(THREADS) top_p_step(CHOICE) {
    __shared__ Candidates candidates;
    __shared__ Places places;
    wait_before_the_next();
    bring(candidates, *between);
    take_top_p(*rules, candidates, places);
    bring(*between, candidates);
}

extern "C" __global__ void __launch_bounds__(THREADS) draw_step(CHOICE) {
    __shared__ Candidates candidates;
    __shared__ Places places;
    wait_before_the_next();
    bring(candidates, *between);
    choose(THIS_CHOICE, *rules, candidates, places);
}
