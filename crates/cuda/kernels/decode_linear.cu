// Products with vectors that are normalised, or with results that are added: see decode_linear.cuh.

#if defined(ADALN)

#define ENTRY(name, function, kind)                                                                                    \
    KERNEL __launch_bounds__(THREADS, 1) name(WORK_PARAMETERS, const dtype *modulation, u32 modulation_stride) {       \
        function<kind>({THIS_WORK, modulation, modulation_stride});                                                    \
    }

ENTRY(adaln_linear, linear, ADALN_LINEAR)
ENTRY(add_gated, linear, ADD_GATED)
ENTRY(adaln_gate_up, linear, ADALN_GATE_UP)
ENTRY(any_adaln_linear, any_linear, ADALN_LINEAR)
ENTRY(any_add_gated, any_linear, ADD_GATED)
ENTRY(any_adaln_gate_up, any_linear, ADALN_GATE_UP)

#else

// With one vector, few registers, so that blocks of three kernels fit on a multiprocessor; of two with block scales.
#if defined(SCALED_BLOCKS)
#define MIN_BLOCKS (BATCH == 1 ? 1024 / THREADS : 1)
#else
#define MIN_BLOCKS (BATCH == 1 ? 1536 / THREADS : 1)
#endif

#define ENTRY(name, function, kind)                                                                                    \
    KERNEL __launch_bounds__(THREADS, MIN_BLOCKS) name(WORK_PARAMETERS) { function<kind>({THIS_WORK, nullptr, 0}); }

ENTRY(norm_linear, linear, NORM_LINEAR)
ENTRY(linear_add, linear, LINEAR_ADD)
ENTRY(norm_gate_up, linear, NORM_GATE_UP)
ENTRY(any_norm_linear, any_linear, NORM_LINEAR)
ENTRY(any_linear_add, any_linear, LINEAR_ADD)
ENTRY(any_norm_gate_up, any_linear, NORM_GATE_UP)

#endif
