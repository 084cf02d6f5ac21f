// What the codes of a frame become: the sum of their rows with the text's, or the row of one of them.

__device__ __forceinline__ float row_value(const number *table, u32 size, u32 code, u32 width, u32 column) {
    return code < size ? widened(table[(u64)code * width + column]) : NOT_A_NUMBER;
}

// Adds up the rows of all codes of the frame, each from its own table, and the text's row of the frame: the last of the
// text's rows from there on. The first code has a table of another size than the others, which lie one behind the other.
extern "C" __global__ void sum_frame_step(const u32 *codes, const u32 *frame, u32 room, u32 groups, const number *first,
                                          u32 first_size, const number *tables, u32 size, const number *text,
                                          const u32 *text_rows, number *x, u32 width) {
    // Kernels behind this one may read what those before it wrote.
    wait_for_the_kernel_before();
    let_the_next_kernel_begin();
    u32 column = blockIdx.x * blockDim.x + threadIdx.x, at = *frame;
    if (column >= width) return;
    const u32 *mine = codes + (u64)min(at, room - 1) * groups;
    float sum = row_value(first, first_size, mine[0], width, column);
#pragma unroll 8
    for (u32 group = 1; group < groups; group++)
        sum += row_value(tables + (u64)(group - 1) * size * width, size, mine[group], width, column);
    u32 rows = *text_rows;
    if (rows > 0) sum += widened(text[(u64)min(at, rows - 1) * width + column]);
    x[column] = narrowed(sum);
}

// Puts the row of one code of the frame into x.
extern "C" __global__ void code_row_step(const u32 *codes, const u32 *frame, u32 room, u32 groups, u32 group,
                                         const number *table, u32 size, number *x, u32 width) {
    // Kernels behind this one may read what those before it wrote.
    wait_for_the_kernel_before();
    let_the_next_kernel_begin();
    u32 code = codes[(u64)min(*frame, room - 1) * groups + group];
    for (u32 column = blockIdx.x * blockDim.x + threadIdx.x; column < width; column += gridDim.x * blockDim.x)
        x[column] = narrowed(row_value(table, size, code, width, column));
}
