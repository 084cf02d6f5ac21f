//! Notes of `laptime gaps`, `overlap` and `scaling`. The findings of `diagnose` are in [`crate::diagnose`].

use super::Topic;

pub(super) const TOPICS: &[Topic] = &[
    Topic {
        id: "copies-never-overlap",
        title: "copies do not overlap with compute",
        rule: "Copies to or from the GPU have a stream of their own and take at least 1 % of the time, but less than 1 % of \
               their time overlaps with compute.",
        meaning: "Something serialises copies and compute: pageable memory, host syncs, or events between the streams.",
        remedy: "Pin the host memory, look at `laptime syncs`, and copy the next batch while the current one is computed.",
    },
    Topic {
        id: "copies-on-compute-stream",
        title: "copies run on the compute stream",
        rule: "Copies to or from the GPU take at least 1 % of the time, less than 1 % of their time overlaps with compute, \
               and they run on streams that also run kernels.",
        meaning: "Work on one stream runs in order, so these copies can never overlap with the kernels of that stream.",
        remedy: "Issue the copies on a separate stream, and make compute wait for them with an event.",
    },
    Topic {
        id: "far-from-limit",
        title: "far from the hardware limit",
        rule: "A case takes more than 3 times the lower bound that follows from its FLOPs, its bytes and the peaks that \
               `laptime peaks` measured.",
        meaning: "Neither the arithmetic units nor the memory are busy most of the time.",
        remedy: "Record the case with `laptime profile`, then run `laptime diagnose` on the recording.",
    },
    Topic {
        id: "quadratic-memory",
        title: "memory grows with the square of the length",
        rule: "Over the last doubling of the sequence length N, peak memory grows faster than N^1.7.",
        meaning: "Something is stored for every pair of positions, usually materialised attention scores.",
        remedy: "Use an attention that does not store scores (`--attention dense` or `sparse`), shorter sequences or smaller \
                 batches.",
    },
    Topic {
        id: "quadratic-time",
        title: "time grows with the square of the length",
        rule: "Over the last doubling of the sequence length N, time grows faster than N^1.7 (the whole 95 % interval does), and \
               attention is at least 10 % of the FLOPs.",
        meaning: "Attention dominates at these lengths.",
        remedy: "Measure a sparse pattern: `laptime bench model … --attention dense,sparse`.",
    },
    Topic {
        id: "saturated",
        title: "the GPU is busy",
        rule: "Kernels run at least 90 % of the time between the first and the last work.",
        meaning: "There is little idle time to remove: faster kernels are what is left.",
        remedy: "`laptime top` shows which kernels take the time.",
    },
    Topic {
        id: "superlinear-time",
        title: "time grows faster than the work",
        rule: "Over the last doubling of the sequence length N, time grows faster than N^1.7 (the whole 95 % interval does), but \
               attention is less than 10 % of the FLOPs.",
        meaning: "Something other than attention grows: activations that no longer fit into a cache, or memory that runs out.",
        remedy: "Compare `laptime profile model … --depth layer` at both lengths.",
    },
    Topic {
        id: "too-little",
        title: "too little GPU work for a verdict",
        rule: "The trace has fewer than 2 kernels or copies on the device, or they cover less than 1 % of the wall time.",
        meaning: "Busy shares and causes of idle time would describe chance.",
        remedy: "Record longer, or start the recording closer to the work.",
    },
];
