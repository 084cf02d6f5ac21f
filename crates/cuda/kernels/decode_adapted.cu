// Products whose vectors are adapted, for the layers of a diffusion head: see decode_linear.cuh.

#define ENTRY(name, function, kind)                                                                                    \
    extern "C" __global__ void __launch_bounds__(THREADS, 1)                                                           \
        name(const number *x, const number *norm, float epsilon, const number *weight, const number *bias, number *out, \
             u32 batch, u32 rows, u32 width, u32 segments, u32 segment, u64 *border, const number *adapt,              \
             u32 adapt_width) {                                                                                        \
        function<kind>({x, norm, epsilon, weight, bias, out, batch, rows, width, segments, segment, adapt,             \
                        adapt_width, border});                                                                         \
    }

ENTRY(adapt_linear, linear, ADAPT_LINEAR)
ENTRY(add_gated, linear, ADD_GATED)
ENTRY(adapt_gate_up, linear, ADAPT_GATE_UP)
ENTRY(any_adapt_linear, any_linear, ADAPT_LINEAR)
ENTRY(any_add_gated, any_linear, ADD_GATED)
ENTRY(any_adapt_gate_up, any_linear, ADAPT_GATE_UP)
