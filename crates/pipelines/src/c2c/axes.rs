//! The axes of `c2c`, and their aliases.

use laptime_bench::{Alias, AxisSpec, ValueKind::*};

use crate::axis::{ABOUT_THREADS, AUTO, DTYPES, NONE, SEED, THREADS, axes, default_threads, from};

pub const SYNTHETIC: &str = "synthetic";
const RANDOM: &str = "random";

/// The pairs that have a name: name, base model, teacher model.
pub const PAIRS: &[(&str, &str, &str)] = &[("default", "Qwen3-0.6B", "Qwen3-4B-Base"), ("tiny", "tiny", "tiny-qwen2")];

const PAIR_NAMES: &[&str] = &[AUTO, "default", "tiny"];

/// The base model and the teacher model that [`AUTO`] stands for on a device.
pub fn usual_pair(is_gpu: bool) -> [&'static str; 2] {
    let (_, base, teacher) = PAIRS[usize::from(!is_gpu)];
    [base, teacher]
}

/// The default length of a random prompt; models with a short context use half of it.
pub const PROMPT_TOKENS: usize = 512;

/// Axes that select cases and are not part of a case.
pub const OF_PLAN: &[&str] = &["preset", "samples"];

/// Axes that a case has only if they were given.
pub const OF_PROMPT: &[&str] = &["prompt", "prompt_file", "sample"];
pub const OF_AGAINST: &[&str] = &["against", "text_tokens"];
pub const TEXT: &str = "text";

pub fn axes() -> Vec<AxisSpec> {
    axes! {
        "base_model", Name, [AUTO], High,
            "the model that generates the answer: a preset or a folder with a config.json; auto is Qwen3-0.6B on a GPU and tiny on a CPU";
        "teacher_model", Name, [AUTO], High,
            "the model whose KV cache is fused into the base model's; auto is Qwen3-4B-Base on a GPU and tiny-qwen2 on a CPU";
        "preset", OneOf(PAIR_NAMES), [AUTO], High, "a pair of models; auto is default on a GPU and tiny on a CPU";
        "fuser_checkpoint", Name, [SYNTHETIC], High, "folder of a published fuser, or synthetic";
        "prompt_tokens", from(1), [PROMPT_TOKENS as i64], Low,
            "length of the random prompt; at most half the context of the models";
        "max_new_tokens", from(1), [32], Low, "tokens to generate";
        "fuse", OneOf(&["batched", "by-layer"]), ["batched"], Middle,
            "batched computes all layers together; by-layer records a stage per layer and path";
        "alignment", OneOf(&["last_aligned", "k_nearest"]), ["last_aligned"], Middle,
            "which teacher layer is fused into a base layer, unless the checkpoint says so";
        "include_response", Switch, [false], Middle, "also fuse new tokens: the teacher processes each of them";
        "overlap", Switch, [false], Middle, "prefill both models at the same time, on two GPU streams";
        "against", OneOf(&[NONE, TEXT]), [NONE], High,
            "text compares C2C with a text written by the teacher and read by the base model, and with the base model alone";
        "text_tokens", from(1), [1, 2, 4, 16, 64], Low, "tokens of that text";
        "dtype", OneOf(DTYPES), [AUTO], High, "dtype; auto is that of the base model";
        "prompt", Name, [RANDOM], Low, "the prompt, as text";
        "prompt_file", Name, [NONE], Low, "JSONL file with a `prompt` or `question` per line";
        "samples", from(1), [1], Low, "number of lines to use from the file";
        "sample", from(1), [1], Low, "a single line of the file, counted from 1";
        "threads", THREADS, [default_threads()], Low, ABOUT_THREADS;
        "seed", SEED, [0], High, "seed of random tokens and synthetic weights";
    }
}

/// Aliases, among them the names of the original tool.
pub const ALIASES: &[Alias] = &[
    Alias::of_axis("base", "base_model"),
    Alias::of_axis("teacher", "teacher_model"),
    Alias::of_axis("checkpoints_dir", "fuser_checkpoint"),
    Alias::of_axis("num_samples", "samples"),
    Alias::of_axis("dataset_file", "prompt_file"),
    Alias::of_values("by_layer", "fuse", "by-layer"),
    Alias::of_values("last-aligned", "alignment", "last_aligned"),
    Alias::of_values("k-nearest", "alignment", "k_nearest"),
    Alias::of_values("float32", "dtype", "f32"),
    Alias::of_values("bfloat16", "dtype", "bf16"),
    Alias::of_values("float16", "dtype", "f16"),
];
