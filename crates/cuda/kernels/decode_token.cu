// The two ends of a decode step: from a token to its embedding, and from logits to the next token.

// One block per sequence. A token outside the vocabulary gives NaN.
KERNEL embed_step(const u32 *token, const dtype *table, dtype *x, u32 hidden, u32 vocab, u64 *timestamp) {
    launch_dependents();
    write_timestamp(timestamp);
    u32 id = token[blockIdx.x];
    const dtype *from = table + (u64)id * hidden;
    dtype *to = x + (u64)blockIdx.x * hidden;
    for (u32 i = threadIdx.x; i < hidden; i += blockDim.x) to[i] = id < vocab ? from[i] : to_dtype(QUIET_NAN);
}

DEVICE u64 thread_max(const dtype *row, u32 vocab) {
    u64 key = 0;
    u32 first = blockIdx.x * blockDim.x + threadIdx.x, stride = gridDim.x * blockDim.x;
    if (vocab % VEC != 0) {
        for (u32 i = first; i < vocab; i += stride) key = max(key, argmax_key(to_float(row[i]), i));
        return key;
    }
    for (u32 i = first; i < vocab / VEC; i += stride) {
        float values[VEC];
        unpack(load_packed(row + (u64)i * VEC), values);
#pragma unroll
        for (u32 j = 0; j < VEC; j++) key = max(key, argmax_key(values[j], i * VEC + j));
    }
    return key;
}

// Stores the next token of each sequence, also in the list of generated tokens, and advances the position.
DEVICE void finish(u64 *keys, u32 *token, u32 *position, u32 *count, u32 *generated, u32 capacity, u32 batch) {
    u32 step = *count;
    if (threadIdx.x < batch) {
        u32 id = index_of_key(atomicExch(keys + threadIdx.x, 0ull));
        token[threadIdx.x] = id;
        if (step < capacity) generated[(u64)step * batch + threadIdx.x] = id;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        *count = step + 1;
        *position += 1;
    }
}

// A grid of [blocks, batch]; `keys` [batch] and `done` are zero before and after.
KERNEL argmax_step(const dtype *logits, u32 vocab, u64 *keys, u32 *done, u32 *token, u32 *position, u32 *count,
                   u32 *generated, u32 capacity, u64 *timestamp) {
    __shared__ u64 warp_keys[LANES];
    __shared__ bool is_last;
    launch_dependents();
    wait_for_previous_kernel();
    write_timestamp(timestamp);
    u64 key = warp_max(thread_max(logits + (u64)blockIdx.y * vocab, vocab));
    if (threadIdx.x % LANES == 0) warp_keys[threadIdx.x / LANES] = key;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (u32 warp = 1; warp < blockDim.x / LANES; warp++) key = max(key, warp_keys[warp]);
        atomicMax(keys + blockIdx.y, key);
        __threadfence();
        is_last = atomicAdd(done, 1u) == gridDim.x * gridDim.y - 1;
    }
    __syncthreads();
    if (!is_last) return;
    __threadfence();
    finish(keys, token, position, count, generated, capacity, gridDim.y);
    if (threadIdx.x == 0) *done = 0;
}
