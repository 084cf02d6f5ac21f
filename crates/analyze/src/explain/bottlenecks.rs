//! What makes a device idle or slow, as `laptime gaps`, `overlap`, `scaling` and `diagnose` report it.

use super::Topic;

pub(super) const TOPICS: &[Topic] = &[
    Topic {
        id: "cold-start",
        title: "the recording includes one-off initialisation",
        rule: "Module loading, graph capture, compilation, context creation or cold laps are the largest cause of idle time, \
               or at least 10 % of the time without kernels.",
        meaning: "The GPU is idle while the program starts. Later laps are faster than this recording suggests.",
        remedy: "Record after the warm-up: `torch.profiler.schedule(wait=…, warmup=…)`, or start the recording later.",
    },
    Topic {
        id: "communication-bound",
        title: "compute waits for communication",
        rule: "The GPU runs compute kernels less than 90 % of the time, and communication kernels that run alone are the \
               largest part of the rest.",
        meaning: "Ranks wait for each other or for the network. One slow rank delays all of them.",
        remedy: "Run `laptime gaps` on the traces of all ranks to find a straggler. Overlap communication with compute \
                 (`laptime overlap`), or send less.",
    },
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
        id: "copy-bound",
        title: "the GPU waits for copies",
        rule: "The GPU runs kernels less than 90 % of the time, and copies, or gaps that a copy causes, are the largest part \
               of the rest.",
        meaning: "Compute stalls until its data has arrived.",
        remedy: "Pin the host memory, copy ahead on a separate stream, and copy less. `laptime overlap` shows which copies \
                 are hidden behind compute.",
    },
    Topic {
        id: "data-loading",
        title: "the GPU waits for input data",
        rule: "The host spends the largest part of the GPU's idle time in data loading (a `DataLoader`, an iterator, \
               decoding), or at least 10 % of the time without kernels.",
        meaning: "Batches are prepared more slowly than the GPU processes them.",
        remedy: "Load batches in other processes and ahead of time: \
                 `DataLoader(num_workers=…, pin_memory=True, prefetch_factor=…)`. Make decoding and augmentation cheaper.",
    },
    Topic {
        id: "device-copies",
        title: "copies within the GPU take time",
        rule: "Copies that stay on the GPU (memsets included) take at least 5 % of its time while nothing else is computed.",
        meaning: "Tensors are copied from one place in GPU memory to another.",
        remedy: "Avoid `contiguous()`, `clone()` and `cat`, write results where they are needed, or fuse the copies into \
                 kernels. `laptime top` shows the copies.",
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
        id: "host-bound",
        title: "the GPU waits for the host",
        rule: "The GPU runs kernels less than 90 % of the time, and the largest part of the rest is host code that launches \
               work too late.",
        meaning: "The host needs longer to launch work than the GPU needs to run it. A faster GPU would not help.",
        remedy: "Launch less: larger batches, fused operations, CUDA graphs, `torch.compile`. Shorten the host code that \
                 `laptime gaps` names.",
    },
    Topic {
        id: "pageable-copies",
        title: "copies use pageable host memory",
        rule: "Copies from or to pageable memory move at least 1 MiB and take at least 0.1 % of the GPU's time.",
        meaning: "The driver copies such data through a pinned buffer of its own. The copy is often slower, cannot overlap \
                  with compute, and may block the host.",
        remedy: "Pin the host memory (`pin_memory=True`, `tensor.pin_memory()`) and copy with `non_blocking=True`.",
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
        id: "stream-bound",
        title: "GPU streams wait for each other",
        rule: "The GPU runs kernels less than 90 % of the time, and the largest part of the rest is work on one stream that \
               waits for work on another stream or device.",
        meaning: "Events between streams serialise work that could overlap.",
        remedy: "Look at the events between the streams in a timeline (`laptime export` writes one for Perfetto).",
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
        id: "sync-bound",
        title: "host syncs make the GPU idle",
        rule: "The largest part of the GPU's idle time, or at least 10 % of its time without kernels, would disappear if the \
               host did not wait for the GPU.",
        meaning: "The host waits until the GPU has finished everything and launches the next work only then.",
        remedy: "Launch the next work before the sync, or sync less often. `laptime syncs` shows where the host waits, and \
                 `laptime audit` finds such calls in source code.",
    },
    Topic {
        id: "sync-drain",
        title: "the GPU ran out of work during host syncs",
        rule: "Idle time that follows host syncs is at least 10 % of the idle time and at least 1 % of the time between the \
               first and the last work.",
        meaning: "The host waits until the GPU has finished everything and launches the next work only then.",
        remedy: "Launch the next work before the sync, or sync less often. `laptime syncs` shows where the host waits.",
    },
    Topic {
        id: "too-little",
        title: "too little GPU work for a verdict",
        rule: "The trace has fewer than 2 kernels or copies on the device, or they cover less than 1 % of the wall time.",
        meaning: "Busy shares and causes of idle time would describe chance.",
        remedy: "Record longer, or start the recording closer to the work.",
    },
    Topic {
        id: "turnaround-bound",
        title: "kernels are too short",
        rule: "The GPU runs kernels less than 90 % of the time, and the largest part of the rest is the GPU's own pause \
               between queued kernels (up to 20 µs each).",
        meaning: "Each kernel is so short that the pause between two kernels matters.",
        remedy: "Run fewer and longer kernels: fuse them, use larger batches, or use CUDA graphs.",
    },
    Topic {
        id: "unexplained-gaps",
        title: "the trace does not explain the idle time",
        rule: "The GPU runs kernels less than 90 % of the time, and for the largest part of the rest work was queued but did \
               not start, or its launch is not in the trace.",
        meaning: "The cause lies outside the recording: another process on the GPU, calls that were not recorded, or events.",
        remedy: "Start the recording before the work, record runtime calls, and check for other users of the GPU.",
    },
];
