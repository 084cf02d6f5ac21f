//! The findings of `laptime diagnose`: one table with rule, threshold, meaning and fixes.

use crate::explain::Topic;

/// A finding that `laptime diagnose` can report.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rule {
    /// Its texts.
    pub topic: Topic,
    /// Its threshold: a share of the time from the first to the last work of the devices, or of what the rule says.
    pub limit: f64,
    /// Whether it can be bad. Others are notable at most.
    pub may_be_bad: bool,
    /// How its gain is estimated.
    pub gain: &'static str,
    /// What to do in each framework, where they differ.
    pub fixes: &'static [(&'static str, &'static str)],
}

/// Finds the rule of an id.
pub fn rule(id: &str) -> Option<&'static Rule> {
    RULES.iter().find(|rule| rule.topic.id == id)
}

const IDLE: &str = "the idle time of the GPU that has this cause; each idle moment has one cause";
pub(super) const UNKNOWN: &str = "the trace does not show how much it costs";
const TORCH: &str = "PyTorch";
const JAX: &str = "JAX";
const CANDLE: &str = "candle";

const fn topic(
    id: &'static str,
    title: &'static str,
    rule: &'static str,
    meaning: &'static str,
    remedy: &'static str,
) -> Topic {
    Topic { id, title, rule, meaning, remedy }
}

/// All findings of `laptime diagnose` on traces, in alphabetical order.
pub const RULES: &[Rule] = &[
    Rule {
        topic: topic(
            "allocation-in-loop",
            "memory is allocated in the loop",
            "The GPU is idle for at least 2 % of its time while the host allocates or frees memory (`cudaMalloc`, `cudaFree`, \
             pinned memory), outside of one-off initialisation.",
            "Allocation calls are slow, and freeing waits until the GPU has finished.",
            "Allocate before the loop and reuse the memory.",
        ),
        limit: 0.02,
        may_be_bad: true,
        gain: IDLE,
        fixes: &[
            (
                TORCH,
                "Do not call `torch.cuda.empty_cache()` in the loop, keep shapes constant, and set \
                     `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`.",
            ),
            (JAX, "Keep `XLA_PYTHON_CLIENT_PREALLOCATE` on, and donate buffers (`jax.jit(..., donate_argnums=...)`)."),
            (CANDLE, "Create tensors once and write into them (`slice_set`, in-place operations)."),
        ],
    },
    Rule {
        topic: topic(
            "cold-start",
            "the recording includes one-off initialisation",
            "Module loading, graph capture, compilation, context creation or cold laps make the GPU idle for at least 5 % of \
             its time.",
            "The GPU is idle while the program starts. Later laps are faster than this recording suggests.",
            "Record after the warm-up.",
        ),
        limit: 0.05,
        may_be_bad: false,
        gain: IDLE,
        fixes: &[
            (TORCH, "`torch.profiler.schedule(wait=1, warmup=3, active=5)`."),
            (JAX, "Call the compiled function once and `block_until_ready()` before `jax.profiler.start_trace`."),
        ],
    },
    Rule {
        topic: topic(
            "compute-bound",
            "kernels run at the arithmetic limit",
            "Matrix products with recorded shapes take at least 25 % of the kernel time and reach at least 60 % of the measured \
             peak (`laptime peaks`).",
            "The arithmetic units are the limit. Removing idle time helps less than doing less arithmetic.",
            "Use a smaller dtype, a smaller model or sparsity.",
        ),
        limit: 0.25,
        may_be_bad: false,
        gain: UNKNOWN,
        fixes: &[
            (TORCH, "`torch.autocast(\"cuda\", torch.bfloat16)`, `torch.set_float32_matmul_precision(\"high\")`."),
            (JAX, "`jax.default_matmul_precision(\"bfloat16\")`, or parameters in `bfloat16`."),
        ],
    },
    Rule {
        topic: topic(
            "data-loading",
            "the GPU waits for input data",
            "The GPU is idle for at least 3 % of its time while the host loads data (a `DataLoader`, an iterator, decoding).",
            "Batches are prepared more slowly than the GPU processes them.",
            "Load batches in other processes and ahead of time, and make decoding and augmentation cheaper.",
        ),
        limit: 0.03,
        may_be_bad: true,
        gain: IDLE,
        fixes: &[
            (TORCH, "`DataLoader(num_workers=8, pin_memory=True, persistent_workers=True, prefetch_factor=4)`."),
            (JAX, "Prefetch with `grain` or `tf.data` (`.prefetch`), and keep two batches on the device."),
            (CANDLE, "Decode in a thread that sends batches through a bounded channel."),
        ],
    },
    Rule {
        topic: topic(
            "device-copies",
            "copies within the GPU take time",
            "Copies that stay on the GPU (memsets included) take at least 5 % of its time while nothing else runs.",
            "Tensors are copied from one place in GPU memory to another.",
            "Write results where they are needed, or fuse the copies into kernels. `laptime top` shows the copies.",
        ),
        limit: 0.05,
        may_be_bad: true,
        gain: "the time of these copies while no kernel ran",
        fixes: &[
            (TORCH, "Avoid `contiguous()`, `clone()` and `cat`; `zero_grad(set_to_none=True)`."),
            (JAX, "Donate arguments (`donate_argnums`), so that results reuse their memory."),
            (CANDLE, "Avoid `contiguous()` and `cat`; preallocate and use `slice_set`."),
        ],
    },
    Rule {
        topic: topic(
            "dominant-stage",
            "one stage takes most of the time",
            "One stage takes at least 50 % of the self time of all host operations, its nested stages not included, and the \
             trace has no GPU work.",
            "Other stages hardly matter: making this one twice as fast saves a quarter of the time or more.",
            "Mark what is inside the stage, or profile it alone.",
        ),
        limit: 0.5,
        may_be_bad: false,
        gain: "half of its time: what it would gain if it were twice as fast",
        fixes: &[],
    },
    Rule {
        topic: topic(
            "dropped-events",
            "events were dropped while recording",
            "The recorder dropped at least one event because its buffers were full.",
            "Counts and sums are too low, and gaps may be work that was not recorded.",
            "Record a shorter section, record fewer kinds of events, or use larger buffers.",
        ),
        limit: 0.0,
        may_be_bad: false,
        gain: UNKNOWN,
        fixes: &[],
    },
    Rule {
        topic: topic(
            "exposed-communication",
            "compute waits for communication",
            "Communication kernels run alone for at least 5 % of the time of a GPU.",
            "Ranks wait for the network.",
            "Overlap communication with compute (`laptime overlap`), or send less.",
        ),
        limit: 0.05,
        may_be_bad: true,
        gain: "the time in which communication ran and no compute kernel did",
        fixes: &[
            (
                TORCH,
                "DDP: larger `bucket_cap_mb`, `gradient_as_bucket_view=True`. FSDP: \
                     `backward_prefetch=BACKWARD_PRE`, `forward_prefetch=True`.",
            ),
            (JAX, "`--xla_gpu_enable_latency_hiding_scheduler=true`."),
        ],
    },
    Rule {
        topic: topic(
            "exposed-copy",
            "the GPU waits for copies",
            "Copies between host and GPU run alone, or make the GPU idle, for at least 5 % of its time.",
            "Compute stalls until its data has arrived.",
            "Copy ahead on a separate stream, or copy less. `laptime overlap` shows which copies are hidden.",
        ),
        limit: 0.05,
        may_be_bad: true,
        gain: "the time in which a copy ran alone or the GPU waited for one; an upper bound if the link is already full",
        fixes: &[
            (
                TORCH,
                "Copy the next batch with `non_blocking=True` inside `with torch.cuda.stream(copy_stream)`, and \
                     `wait_stream` before use.",
            ),
            (JAX, "`jax.device_put` the next batch before computing the current one; dispatch is asynchronous."),
            (CANDLE, "Move the next batch with `to_device` in another thread."),
        ],
    },
    Rule {
        topic: topic(
            "host-starved",
            "the GPU waits for host code",
            "The GPU is idle for at least 5 % of its time in gaps in which the host launches nothing for over 200 µs, and no \
             other finding explains them.",
            "The host does something else before it launches the next work. A faster GPU would not help.",
            "Shorten the host code that the evidence names, or move it to another thread or behind the launches.",
        ),
        limit: 0.05,
        may_be_bad: true,
        gain: IDLE,
        fixes: &[
            (TORCH, "Log, save and compute metrics every N steps; tokenize ahead in workers."),
            (JAX, "Keep Python out of the step: `jax.lax.scan` over several steps."),
            (CANDLE, "Sample tokens on the GPU, and do I/O in another thread."),
        ],
    },
    Rule {
        topic: topic(
            "interpreter-contention",
            "Python threads compete for the interpreter",
            "The GPU is idle for at least 5 % of its time while the launching thread and another thread of the process both run \
             Python code.",
            "Only one thread runs Python code at a time, so the other one delays launches.",
            "Move the other thread's work to a process, or into code that releases the interpreter lock.",
        ),
        limit: 0.05,
        may_be_bad: true,
        gain: IDLE,
        fixes: &[(TORCH, "Use `DataLoader` workers (processes) instead of threads.")],
    },
    Rule {
        topic: topic(
            "launch-bound",
            "the host launches kernels too slowly",
            "The GPU is idle for at least 5 % of its time in gaps in which the host is late by at most 200 µs, mostly after \
             kernels of at least 10 µs.",
            "The host needs longer to launch work than the GPU needs to run it. A faster GPU would not help.",
            "Launch less: larger batches, fused operations, CUDA graphs.",
        ),
        limit: 0.05,
        may_be_bad: true,
        gain: IDLE,
        fixes: &[
            (TORCH, "`torch.compile(mode=\"reduce-overhead\")`, or capture the step with `torch.cuda.CUDAGraph`."),
            (JAX, "`jax.jit` the whole step, and loop with `jax.lax.scan`."),
            (CANDLE, "Use fused kernels (`candle-flash-attn`, `rms_norm`), and larger batches."),
        ],
    },
    Rule {
        topic: topic(
            "low-occupancy",
            "kernels are too small to fill the GPU",
            "Kernels with fewer blocks than the GPU has multiprocessors take at least 25 % of the kernel time.",
            "Part of the GPU is idle while these kernels run.",
            "Give each kernel more work: larger batches, split-K, or several streams.",
        ),
        limit: 0.25,
        may_be_bad: false,
        gain: "the idle share of the multiprocessors during these kernels; an upper bound",
        fixes: &[
            (TORCH, "Batch requests; `torch.compile(mode=\"max-autotune\")` tries other tilings."),
            (JAX, "`jax.vmap` over requests."),
        ],
    },
    Rule {
        topic: topic(
            "memory-bound",
            "kernels run at the memory limit",
            "Matrix products with recorded shapes take at least 25 % of the kernel time and reach at least 60 % of the measured \
             memory bandwidth (`laptime peaks`).",
            "Reading weights and activations is the limit, not arithmetic.",
            "Read less: larger batches reuse weights, smaller dtypes and fusion move fewer bytes.",
        ),
        limit: 0.25,
        may_be_bad: false,
        gain: UNKNOWN,
        fixes: &[
            (TORCH, "Quantise the weights (`torchao`), batch requests, or use `torch.compile` to fuse."),
            (JAX, "Batch requests; keep weights in `bfloat16` or `int8`."),
            (CANDLE, "Use quantised weights (GGUF), and batch requests."),
        ],
    },
    Rule {
        topic: topic(
            "pageable-copy",
            "copies use pageable host memory",
            "Copies of at least 64 KiB from or to pageable memory run alone, or make the GPU idle, for at least 1 % of its time.",
            "The driver copies such data through a pinned buffer of its own. The copy is slower, cannot overlap with compute, \
             and blocks the host.",
            "Pin the host memory, and copy asynchronously.",
        ),
        limit: 0.01,
        may_be_bad: true,
        gain: "the time in which such a copy ran alone or the GPU waited for one; an upper bound",
        fixes: &[
            (TORCH, "`DataLoader(pin_memory=True)` or `tensor.pin_memory()`, and `.to(device, non_blocking=True)`."),
            (JAX, "Keep inputs on the device, or shard them with `jax.device_put` ahead of time."),
        ],
    },
    Rule {
        topic: topic(
            "profiler-overhead",
            "the profiler itself takes time",
            "The GPU is idle for at least 5 % of its time in spans that the profiler reports as its own overhead.",
            "The program is faster without the profiler, so other findings may look larger than they are.",
            "Record less: no stacks, no shapes, fewer steps, or `laptime record`.",
        ),
        limit: 0.05,
        may_be_bad: false,
        gain: IDLE,
        fixes: &[(TORCH, "`profile(with_stack=False, record_shapes=False, profile_memory=False)`.")],
    },
    Rule {
        topic: topic(
            "rank-skew",
            "ranks wait for a straggler",
            "A GPU runs a collective alone for at least 3 % of its time before the last rank has started the same collective.",
            "One rank arrives late, and all others wait for it inside the collective.",
            "Find out what the late rank does before the collective (`laptime gaps` on its trace).",
        ),
        limit: 0.03,
        may_be_bad: true,
        gain: "the time from the start of each collective on a GPU to its start on the last one, while no compute kernel ran",
        fixes: &[
            (TORCH, "Balance the batches of ranks by length, and give every rank the same data-loading work."),
            (JAX, "Balance shards; check for one slow host."),
        ],
    },
    Rule {
        topic: topic(
            "slow-laps",
            "some laps are much slower than the others",
            "Laps that exceed the median by 3 robust standard deviations and by 10 % lose at least 3 % of the time of all laps.",
            "Something happens now and then: evaluation, checkpoints, garbage collection, other programs.",
            "`laptime laps` shows which laps are slow and what took longer in them.",
        ),
        limit: 0.03,
        may_be_bad: true,
        gain: "the time by which slow laps exceed the median lap, without what other findings explain",
        fixes: &[
            (TORCH, "Save checkpoints in another thread, and call `gc.disable()` with `gc.collect()` every N steps."),
            (JAX, "Keep shapes constant: a new shape compiles again."),
        ],
    },
    Rule {
        topic: topic(
            "stream-bound",
            "GPU streams wait for each other",
            "The GPU is idle for at least 5 % of its time before work that waits for work on another stream or device.",
            "Events between streams serialise work that could overlap.",
            "Look at the events between the streams in a timeline (`laptime convert` writes one for Perfetto).",
        ),
        limit: 0.05,
        may_be_bad: true,
        gain: IDLE,
        fixes: &[],
    },
    Rule {
        topic: topic(
            "sync-in-loop",
            "host syncs make the GPU idle",
            "Idle time that would disappear if the host did not wait for the GPU is at least 3 % of its time. Copies of less \
             than 64 KiB through pageable memory, as by `.item()`, are syncs.",
            "The host waits until the GPU has finished everything and launches the next work only then.",
            "Launch the next work before the sync, or sync less often. `laptime syncs` shows where the host waits, and \
             `laptime audit` finds such calls in source code.",
        ),
        limit: 0.03,
        may_be_bad: true,
        gain: "the launches are replayed without the syncs: the idle time that disappears",
        fixes: &[
            (
                TORCH,
                "Replace `.item()`, `.cpu()`, `print(loss)` and `torch.cuda.synchronize()` in the loop by values that \
                     stay on the GPU; read them every N steps.",
            ),
            (JAX, "Call `block_until_ready()` and `float(...)` after the loop only."),
            (CANDLE, "Avoid `to_scalar` and `to_vec1` in the loop; sample on the device."),
        ],
    },
    Rule {
        topic: topic(
            "throttled",
            "the GPU slows down",
            "Kernels of the same name and shape take at least 8 % longer in the last third of the trace than in the first, \
             and these kernels are most of the kernel time. In a benchmark: the driver reported that it lowered the clock.",
            "The clock of the GPU drops: power or temperature limits. Timings depend on them.",
            "Check `nvidia-smi -q -d PERFORMANCE,CLOCK`, the power limit and the cooling.",
        ),
        limit: 0.08,
        may_be_bad: true,
        gain: "the time by which kernels exceed the same kernels in the first third",
        fixes: &[],
    },
    Rule {
        topic: topic(
            "tiny-kernels",
            "kernels are too short",
            "The GPU is idle for at least 5 % of its time in pauses between queued kernels, or in launch gaps that mostly \
             follow kernels under 10 µs.",
            "Each kernel takes less time than launching the next one, so the GPU waits between kernels.",
            "Run fewer and longer kernels: fuse them, use larger batches, or CUDA graphs.",
        ),
        limit: 0.05,
        may_be_bad: true,
        gain: "the pauses with this cause, and the time of kernels under 5 µs before them, which fusing removes too",
        fixes: &[
            (TORCH, "`torch.compile` fuses elementwise operations; use `foreach=True` or `fused=True` optimizers."),
            (JAX, "`jax.jit` the whole step, so that XLA fuses it."),
            (CANDLE, "Use fused operations (`candle_nn::ops::rms_norm`, flash attention)."),
        ],
    },
    Rule {
        topic: topic(
            "unexplained-idle",
            "the trace does not explain the idle time",
            "For at least 10 % of the GPU's time work was queued but did not start, or its launch is not in the trace.",
            "The cause lies outside the recording: another process on the GPU, calls that were not recorded, or events.",
            "Start the recording before the work, record runtime calls, and check for other users of the GPU.",
        ),
        limit: 0.1,
        may_be_bad: false,
        gain: IDLE,
        fixes: &[],
    },
];

/// The topics of all rules, for `laptime explain`.
pub(crate) const TOPICS: [Topic; RULES.len()] = {
    let mut topics = [RULES[0].topic; RULES.len()];
    let mut at = 0;
    while at < RULES.len() {
        topics[at] = RULES[at].topic;
        at += 1;
    }
    topics
};

/// Ids that were renamed: the old one, and the new one.
pub(crate) const RENAMED: [(&str, &str); 9] = [
    ("communication-bound", "exposed-communication"),
    ("copy-bound", "exposed-copy"),
    ("host-bound", "host-starved"),
    ("link-limit", "link-bound"),
    ("pageable-copies", "pageable-copy"),
    ("sync-bound", "sync-in-loop"),
    ("sync-drain", "sync-in-loop"),
    ("turnaround-bound", "tiny-kernels"),
    ("unexplained-gaps", "unexplained-idle"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_each_rule_states_its_threshold() {
        for rule in RULES.iter().filter(|rule| rule.limit > 0.0) {
            let threshold = format!("{} %", 100.0 * rule.limit);
            assert!(rule.topic.rule.contains(&threshold), "{}: {threshold}", rule.topic.id);
        }
    }
}
