//! The axes of `model`, and their aliases.

use laptime_bench::{Alias, AxisSpec, ValueKind::*};

use super::spec::PASSES;
use crate::attention::pattern_axes;
use crate::axis::{
    ABOUT_THREADS, AUTO, DECODER_DTYPES, GRAPH, SEED, THREADS, axes, default_threads, dtype_words, from,
    length_aliases, names, words,
};

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
pub fn aliases() -> Vec<Alias> {
    [
        names("model", &["model_size", "model_sizes", "preset", "presets", FOLDER_FLAG]),
        names("test", &["tests"]),
        length_aliases(),
        names("batch_size", &["batch_sizes"]),
        names("attention", &["attention_type", "attention_types"]),
        vec![Alias::switch("no_training", "pass_type", "forward")],
        words("pass_type", &[("training", "step")]),
        words("attention", &[("sliding_window", "sliding-window"), ("dca", "sparse")]),
        words("random_per", &[("shared", "block"), ("per-row", "row")]),
        dtype_words(),
        words("dtype", &[("float8_e4m3fn", "fp8")]),
    ]
    .concat()
}

/// The flags that select the defaults of CS336 assignment 2.
pub const COURSE_FLAGS: &[&str] = &["model_size", "model_sizes"];

/// The flag whose value is always a folder.
pub const FOLDER_FLAG: &str = "model_dir";
