// From the codes of a frame to the input of a step: the sum of their embeddings and the text's, or the embedding of one
// code.

DEVICE float code_embedding(const dtype *table, u32 size, u32 code, u32 width, u32 column) {
    return code < size ? to_float(table[(u64)code * width + column]) : QUIET_NAN;
}

// The first code has its own table; the tables of the others are consecutive. Frames beyond the text use its last row.
KERNEL sum_frame_step(const u32 *codes, const u32 *frame, u32 capacity, u32 groups, const dtype *first, u32 first_size,
                      const dtype *tables, u32 size, const dtype *text, const u32 *text_rows, dtype *x, u32 width) {
    wait_then_launch();
    u32 column = blockIdx.x * blockDim.x + threadIdx.x, at = *frame;
    if (column >= width) return;
    const u32 *frame_codes = codes + (u64)min(at, capacity - 1) * groups;
    float sum = code_embedding(first, first_size, frame_codes[0], width, column);
#pragma unroll 8
    for (u32 group = 1; group < groups; group++)
        sum += code_embedding(tables + (u64)(group - 1) * size * width, size, frame_codes[group], width, column);
    u32 rows = *text_rows;
    if (rows > 0) sum += to_float(text[(u64)min(at, rows - 1) * width + column]);
    x[column] = to_dtype(sum);
}

KERNEL embed_code_step(const u32 *codes, const u32 *frame, u32 capacity, u32 groups, u32 group, const dtype *table, u32 size,
                       dtype *x, u32 width) {
    wait_then_launch();
    u32 code = codes[(u64)min(*frame, capacity - 1) * groups + group];
    for (u32 column = blockIdx.x * blockDim.x + threadIdx.x; column < width; column += gridDim.x * blockDim.x)
        x[column] = to_dtype(code_embedding(table, size, code, width, column));
}
