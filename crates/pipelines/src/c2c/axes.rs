//! The axes of `c2c`, and their aliases.

use laptime_bench::{Alias, AxisSpec, ValueKind::*};

use crate::axis::{
    ABOUT_THREADS, AUTO, DTYPES, NONE, SEED, THREADS, axes, default_threads, dtype_words, from, names, words,
};

pub const SYNTHETIC: &str = "synthetic";

/// The pairs that have a name: name, base model, teacher model.
pub const PAIRS: &[(&str, &str, &str)] = &[("default", "Qwen3-0.6B", "Qwen3-4B-Base"), ("tiny", "tiny", "tiny-qwen2")];

const PAIR_NAMES: &[&str] = &[AUTO, "default", "tiny"];

/// The default base model and teacher on a device.
pub fn usual_pair(is_gpu: bool) -> [&'static str; 2] {
    let (_, base, teacher) = PAIRS[usize::from(!is_gpu)];
    [base, teacher]
}

/// The default length of a random prompt; models with a short context use half of it.
pub const PROMPT_TOKENS: usize = 512;

/// Axes that select cases and are not part of a case.
pub const OF_PLAN: &[&str] = &["preset", "samples"];

pub const PROMPT_AXIS: &str = "prompt_tokens";

/// Axes that select the prompt; only one may be given.
pub const OF_PROMPT: &[&str] = &["prompt", "prompt_file", PROMPT_AXIS];

/// Axes of a comparison with a text.
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
        PROMPT_AXIS, from(1), [PROMPT_TOKENS as i64], Low,
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
        "prompt", Text(" "), [], Low, "the prompt, as text";
        "prompt_file", Text(" "), [], Low, "JSONL file with a `prompt` or `question` per line";
        "samples", from(1), [1], Low, "number of lines to use from the file";
        "sample", from(1), [], Low, "a single line of the file, counted from 1";
        "threads", THREADS, [default_threads()], Low, ABOUT_THREADS;
        "seed", SEED, [0], High, "seed of random tokens and synthetic weights";
    }
}

/// Aliases, among them the names of the original tool.
pub fn aliases() -> Vec<Alias> {
    [
        names("base_model", &["base"]),
        names("teacher_model", &["teacher"]),
        names("fuser_checkpoint", &["checkpoints_dir"]),
        names("samples", &["num_samples"]),
        names("prompt_file", &["dataset_file"]),
        words("fuse", &[("by_layer", "by-layer")]),
        words("alignment", &[("last-aligned", "last_aligned"), ("k-nearest", "k_nearest")]),
        dtype_words(),
    ]
    .concat()
}
