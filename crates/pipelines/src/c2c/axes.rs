//! The axes of `c2c`, and their aliases.

use laptime_bench::{Alias, AxisSpec, AxisValue, Cost, ValueKind};

use crate::crew::threads_axis;

/// The value for the dtype of the base model, and for the default pair of a device.
pub const AUTO: &str = "auto";

/// The value for a synthetic fuser.
pub const SYNTHETIC: &str = "synthetic";

/// The value for a prompt of random tokens.
pub const RANDOM: &str = "random";

/// The value for no file.
pub const NONE: &str = "none";

/// The dtypes.
const DTYPES: &[&str] = &[AUTO, "f32", "bf16", "f16"];

/// In which order the paths of layers are computed.
const ORDERS: &[&str] = &["batched", "by-layer"];

/// How layers of the two models are paired.
const ALIGNMENTS: &[&str] = &["last_aligned", "k_nearest"];

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

/// Axes of a case that is compared with text.
pub const OF_AGAINST: &[&str] = &["against", "text_tokens"];

/// The value for a comparison with text.
pub const TEXT: &str = "text";

/// What a case can be compared with.
const AGAINST: &[&str] = &[NONE, TEXT];

/// The default numbers of tokens that the teacher writes.
const TEXT_TOKENS: [i64; 5] = [1, 2, 4, 16, 64];

/// The axes.
pub fn axes() -> Vec<AxisSpec> {
    let axis =
        |name, about, kind, default: AxisValue, cost| AxisSpec { name, about, kind, default: vec![default], cost };
    let from = |least| ValueKind::Int { least, most: i64::from(u32::MAX) };
    vec![
        axis(
            "base_model",
            "the model that generates the answer: a preset or a folder with a config.json; auto is Qwen3-0.6B on a GPU and tiny on a CPU",
            ValueKind::Name,
            AUTO.into(),
            Cost::High,
        ),
        axis(
            "teacher_model",
            "the model whose KV cache is fused into the base model's; auto is Qwen3-4B-Base on a GPU and tiny-qwen2 on a CPU",
            ValueKind::Name,
            AUTO.into(),
            Cost::High,
        ),
        axis(
            "preset",
            "a pair of models; auto is default on a GPU and tiny on a CPU",
            ValueKind::OneOf(PAIR_NAMES),
            AUTO.into(),
            Cost::High,
        ),
        axis(
            "fuser_checkpoint",
            "folder of a published fuser, or synthetic",
            ValueKind::Name,
            SYNTHETIC.into(),
            Cost::High,
        ),
        axis(
            "prompt_tokens",
            "length of the random prompt; at most half the context of the models",
            from(1),
            AxisValue::Int(PROMPT_TOKENS as i64),
            Cost::Low,
        ),
        axis("max_new_tokens", "tokens to generate", from(1), 32.into(), Cost::Low),
        axis(
            "fuse",
            "batched computes all layers together; by-layer records a stage per layer and path",
            ValueKind::OneOf(ORDERS),
            ORDERS[0].into(),
            Cost::Middle,
        ),
        axis(
            "alignment",
            "which teacher layer is fused into a base layer, unless the checkpoint says so",
            ValueKind::OneOf(ALIGNMENTS),
            ALIGNMENTS[0].into(),
            Cost::Middle,
        ),
        axis(
            "include_response",
            "also fuse new tokens: the teacher processes each of them",
            ValueKind::Switch,
            false.into(),
            Cost::Middle,
        ),
        axis(
            "overlap",
            "prefill both models at the same time, on two GPU streams",
            ValueKind::Switch,
            false.into(),
            Cost::Middle,
        ),
        axis(
            "against",
            "text compares C2C with a text written by the teacher and read by the base model, and with the base model alone",
            ValueKind::OneOf(AGAINST),
            NONE.into(),
            Cost::High,
        ),
        AxisSpec {
            name: "text_tokens",
            about: "tokens of that text",
            kind: from(1),
            default: TEXT_TOKENS.map(AxisValue::Int).to_vec(),
            cost: Cost::Low,
        },
        axis("dtype", "dtype; auto is that of the base model", ValueKind::OneOf(DTYPES), AUTO.into(), Cost::High),
        axis("prompt", "the prompt, as text", ValueKind::Name, RANDOM.into(), Cost::Low),
        axis(
            "prompt_file",
            "JSONL file with a `prompt` or `question` per line",
            ValueKind::Name,
            NONE.into(),
            Cost::Low,
        ),
        axis("samples", "number of lines to use from the file", from(1), 1.into(), Cost::Low),
        axis("sample", "a single line of the file, counted from 1", from(1), 1.into(), Cost::Low),
        threads_axis(),
        axis(
            "seed",
            "seed of random tokens and synthetic weights",
            ValueKind::Int { least: 0, most: i64::MAX },
            0.into(),
            Cost::High,
        ),
    ]
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
