// Products of normed vectors, and of vectors that are added to: see decode_linear.cuh.

// Few registers for one vector, so that blocks of three kernels find room on a multiprocessor; with scales of blocks two.
#if defined(SCALED_BLOCKS)
#define LEAST_BLOCKS (BATCH == 1 ? 1024 / THREADS : 1)
#else
#define LEAST_BLOCKS (BATCH == 1 ? 1536 / THREADS : 1)
#endif

#define ENTRY(name, function, kind)                                                                                    \
    extern "C" __global__ void __launch_bounds__(THREADS, LEAST_BLOCKS)                                                \
        name(const number *x, const number *norm, float epsilon, const weight_type *weight, const number *bias,        \
             number *out, u32 batch, u32 rows, u32 width, u32 segments, u32 segment, u64 *border) {                    \
        function<kind>({x, norm, epsilon, weight, bias, out, batch, rows, width, segments, segment, nullptr, 0,        \
                        border});                                                                                      \
    }

ENTRY(norm_linear, linear, NORM_LINEAR)
ENTRY(linear_add, linear, LINEAR_ADD)
ENTRY(norm_gate_up, linear, NORM_GATE_UP)
ENTRY(any_norm_linear, any_linear, NORM_LINEAR)
ENTRY(any_linear_add, any_linear, LINEAR_ADD)
ENTRY(any_norm_gate_up, any_linear, NORM_GATE_UP)
