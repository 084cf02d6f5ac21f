//! What makes tokens of a model with offloaded layers slow, as `laptime diagnose` reports it.

use super::Topic;

pub(super) const TOPICS: &[Topic] = &[
    Topic {
        id: "async-not-running",
        title: "no layer is prefetched",
        rule: "No copy of an offloaded layer is issued before the layer is needed.",
        meaning: "Copies and compute alternate, so every token pays for all copies in full.",
        remedy: "Use `--mode wrap`. In your own code, issue copies on a separate stream before the previous layer computes.",
    },
    Topic {
        id: "async-partly",
        title: "some layers are not prefetched",
        rule: "Some copies are issued ahead, but not all of them; below 50 % this is bad.",
        meaning: "Compute waits for the whole copy of every layer that is not prefetched.",
        remedy: "Issue the copy of each layer when the previous layer starts to compute.",
    },
    Topic {
        id: "codec-limit",
        title: "audio decoding and encoding take the most time",
        rule: "A token takes longer than its audio lasts (133 ms unless the run knows better), and the audio codec is the \
               largest part.",
        meaning: "Offloading is not the bottleneck.",
        remedy: "Decode several tokens at once, and check with `laptime top` that the codec runs on the GPU.",
    },
    Topic {
        id: "compute-limit",
        title: "the layers themselves take the most time",
        rule: "A token takes longer than its audio lasts (133 ms unless the run knows better), and computing the layers is \
               the largest part.",
        meaning: "Offloading is not the bottleneck.",
        remedy: "`laptime top` shows the slow kernels; `laptime gaps` shows whether the GPU waits for the host.",
    },
    Topic {
        id: "diffusion-limit",
        title: "the diffusion head takes the most time",
        rule: "A token takes longer than its audio lasts (133 ms unless the run knows better), and the diffusion head is the \
               largest part.",
        meaning: "Offloading is not the bottleneck.",
        remedy: "Use fewer diffusion steps, and run the steps as one CUDA graph.",
    },
    Topic {
        id: "first-layer-not-prefetched",
        title: "the first offloaded layer is not prefetched",
        rule: "Only the first offloaded layer of each forward pass is not prefetched.",
        meaning: "Without wrap-around this is normal: no layer before it could prefetch it. With wrap-around, the last \
                  offloaded layer of the previous pass should have done so.",
        remedy: "Use `--mode wrap`. If it is in use, look for what empties the buffers between passes.",
    },
    Topic {
        id: "host-late",
        title: "the host issues work too slowly",
        rule: "The GPU is idle before layers whose weights are ready, or the host needs to issue copies, for more than 5 % \
               of a token.",
        meaning: "The host is slower than the GPU and the link.",
        remedy: "Launch layers as CUDA graphs, and copy each layer as one block.",
    },
    Topic {
        id: "link-below-peak",
        title: "copies are slower than the link",
        rule: "Copies reach less than 60 % of the measured rate of the link, and compute waits for them for more than 5 % of \
               a token.",
        meaning: "The host memory is pageable, the copies are small, the weights are read from a file, or something else \
                  uses the link.",
        remedy: "Pin the host memory, copy each layer as one block, and check for other traffic on the link.",
    },
    Topic {
        id: "link-bound",
        title: "copies take longer than compute",
        rule: "Even with perfect overlap, compute would wait for copies for more than 5 % of a token.",
        meaning: "Copying takes longer than computing, so prefetching cannot hide it.",
        remedy: "Keep more layers on the GPU, batch the forward passes (`--mode batched`), or use smaller weights.",
    },
    Topic {
        id: "long-wait",
        title: "compute waits long for one layer",
        rule: "The median wait for a layer is at least 100 ms; above 300 ms this is bad.",
        meaning: "The copy of this layer is issued too late, or behind other copies.",
        remedy: "Look at the copy stream around this layer in the trace.",
    },
    Topic {
        id: "memory-stalls",
        title: "memory is freed and allocated per token",
        rule: "Clearing caches and allocating memory take more than 5 % of a token on average.",
        meaning: "Memory is returned to the driver and requested again while tokens wait.",
        remedy: "Clear caches less often (`--cache-clear-interval 0` never does), and allocate before the first token.",
    },
    Topic {
        id: "other-limit",
        title: "unmarked code takes the most time",
        rule: "A token takes longer than its audio lasts (133 ms unless the run knows better), and time outside all stages is \
               the largest part.",
        meaning: "The time goes to code that no stage covers.",
        remedy: "See what the host does there (`laptime gaps`, `laptime syncs`), and mark it with `stage!`.",
    },
    Topic {
        id: "release-blocks",
        title: "releasing a layer takes long",
        rule: "The median release of a layer takes at least 1 ms; above 200 ms this is bad.",
        meaning: "Compute waits while the buffer of a layer is freed.",
        remedy: "Weights do not change, so the buffer can be dropped without copying it back (every mode but `sync`).",
    },
];
