//! The axes of `model`, and their aliases.

use laptime_bench::{Alias, AxisSpec, AxisValue, Cost, ValueKind};

use super::test_name::PASSES;
use crate::{attention::pattern_axes, crew::threads_axis};

/// The dtypes of a model.
const DTYPES: &[&str] = &["f32", "bf16", "f16"];

/// How attention is computed.
const ATTENTION: &[&str] = &["naive", "dense", "sparse", "sliding-window"];

/// Whether decode steps are replayed as a graph.
const GRAPH: &[&str] = &["auto", "on", "off"];

/// The axes, with the defaults for a model that was not named.
pub fn axes() -> Vec<AxisSpec> {
    let axis = |name, about, kind, default: Vec<AxisValue>, cost| AxisSpec { name, about, kind, default, cost };
    let from = |least| ValueKind::Int { least, most: i64::from(u32::MAX) };
    let names = |names| ValueKind::OneOf(names);
    let mut axes = vec![
        axis(
            "model",
            "a preset (upper or lower case) or a folder with a config.json; `laptime list models` shows the presets",
            ValueKind::Name,
            vec!["tiny".into()],
            Cost::High,
        ),
        axis(
            "test",
            "short name of the test: ppN prefills N tokens, tgN decodes N tokens, forwardN runs without a cache, stepN is a training step; @dD adds D cached tokens",
            ValueKind::Name,
            vec!["pp512".into(), "tg128".into()],
            Cost::Low,
        ),
        axis(
            "pass_type",
            "the pass to run; forward_backward with `--model-size`",
            names(PASSES),
            vec!["forward".into()],
            Cost::Low,
        ),
        axis(
            "seq_len",
            "sequence length; a length without a pass means forward; also small (256,512), medium (1024,2048), large (4096,8192)",
            from(1),
            vec![512.into()],
            Cost::Low,
        ),
        axis("cache_tokens", "tokens in the KV cache before the pass", from(0), vec![0.into()], Cost::Low),
        axis("batch_size", "batch size; 4 with `--model-size`", from(1), vec![1.into()], Cost::Low),
        axis(
            "dtype",
            "dtype of weights, activations and KV cache; that of the model, or f32 with `--model-size`",
            names(DTYPES),
            vec!["f32".into()],
            Cost::Middle,
        ),
        axis(
            "attention",
            "attention kernel; that of the model, or naive with `--model-size`; sparse and sliding-window follow the pattern",
            names(ATTENTION),
            vec!["dense".into()],
            Cost::Low,
        ),
        axis(
            "graph",
            "replay decode steps as a CUDA graph; auto where possible",
            names(GRAPH),
            vec!["auto".into()],
            Cost::Low,
        ),
        threads_axis(),
        axis(
            "seed",
            "seed of random tokens and synthetic weights",
            ValueKind::Int { least: 0, most: i64::MAX },
            vec![0.into()],
            Cost::High,
        ),
        axis(
            "reduced",
            "for small GPUs: `xl` runs 2 sequences of 256 tokens, `2.7B` one of 128",
            ValueKind::Switch,
            vec![false.into()],
            Cost::Low,
        ),
    ];
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
];

/// The flags that select the defaults of CS336 assignment 2.
pub const COURSE_FLAGS: &[&str] = &["model_size", "model_sizes"];

/// The flag whose value is always a folder.
pub const FOLDER_FLAG: &str = "model_dir";
