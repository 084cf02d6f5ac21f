//! The axes of `model`, and their aliases.

use laptime_bench::{Alias, AxisSpec, ValueKind::*};

use super::spec::PASSES;
use crate::attention::pattern_axes;
use crate::axis::{ABOUT_THREADS, AUTO, DECODER_DTYPES, GRAPH, SEED, THREADS, axes, default_threads, from};

const ATTENTION: &[&str] = &["naive", "dense", "sparse", "sliding-window"];

/// The axes, with the defaults for a model that was not named.
pub fn axes() -> Vec<AxisSpec> {
    let mut axes = axes! {
        "model", Name, ["tiny"], High,
            "a preset (upper or lower case) or a folder with a config.json; `laptime list models` shows the presets";
        "test", Name, ["pp512", "tg128"], Low,
            "short name of the test: ppN prefills N tokens, tgN decodes N tokens, forwardN runs without a cache, stepN is a training step; @dD adds D cached tokens";
        "pass_type", OneOf(PASSES), ["forward"], Low, "the pass to run; forward_backward with `--model-size`";
        "seq_len", from(1), [512], Low,
            "sequence length; a length without a pass means forward; also small (256,512), medium (1024,2048), large (4096,8192)";
        "cache_tokens", from(0), [0], Low, "tokens in the KV cache before the pass";
        "batch_size", from(1), [1], Low, "batch size; 4 with `--model-size`";
        "dtype", OneOf(&DECODER_DTYPES[1..]), ["f32"], Middle,
            "dtype of weights, activations and KV cache; fp8 is bf16 with e4m3 weights in all layers; that of the model, or f32 with `--model-size`";
        "attention", OneOf(ATTENTION), ["dense"], Low,
            "attention kernel; that of the model, or naive with `--model-size`; sparse and sliding-window follow the pattern";
        "graph", OneOf(GRAPH), [AUTO], Low, "replay decode steps as a CUDA graph; auto where possible";
        "threads", THREADS, [default_threads()], Low, ABOUT_THREADS;
        "seed", SEED, [0], High, "seed of random tokens and synthetic weights";
        "reduced", Switch, [false], Low, "for small GPUs: `xl` runs 2 sequences of 256 tokens, `2.7B` one of 128";
    };
    axes.extend(pattern_axes());
    axes
}

/// Aliases, among them the names of CS336 assignment 2 and Nano XYZ.
pub const ALIASES: &[Alias] = &[
    Alias::of_axis("model_size", "model"),
    Alias::of_axis("model_sizes", "model"),
    Alias::of_axis("preset", "model"),
    Alias::of_axis("presets", "model"),
    Alias::of_axis("model_dir", "model"),
    Alias::of_axis("tests", "test"),
    Alias::of_axis("context_length", "seq_len"),
    Alias::of_axis("context_lengths", "seq_len"),
    Alias::of_axis("seq_lens", "seq_len"),
    Alias::of_axis("batch_sizes", "batch_size"),
    Alias::of_axis("attention_type", "attention"),
    Alias::of_axis("attention_types", "attention"),
    Alias::switch("no_training", "pass_type", "forward"),
    Alias::of_values("training", "pass_type", "step"),
    Alias::of_values("sliding_window", "attention", "sliding-window"),
    Alias::of_values("dca", "attention", "sparse"),
    Alias::of_values("shared", "random_per", "block"),
    Alias::of_values("per-row", "random_per", "row"),
    Alias::of_values("small", "seq_len", "256,512"),
    Alias::of_values("medium", "seq_len", "1024,2048"),
    Alias::of_values("large", "seq_len", "4096,8192"),
    Alias::of_values("float32", "dtype", "f32"),
    Alias::of_values("fp32", "dtype", "f32"),
    Alias::of_values("bfloat16", "dtype", "bf16"),
    Alias::of_values("float16", "dtype", "f16"),
    Alias::of_values("fp16", "dtype", "f16"),
    Alias::of_values("float8_e4m3fn", "dtype", "fp8"),
];

/// The flags that select the defaults of CS336 assignment 2.
pub const COURSE_FLAGS: &[&str] = &["model_size", "model_sizes"];

/// The flag whose value is always a folder.
pub const FOLDER_FLAG: &str = "model_dir";
