//! The axes of `c2c`, and the other names by which people know them.

use laptime_bench::{Alias, AxisSpec, AxisValue, Cost, Takes};

use crate::crew::threads_axis;

/// What stands for the number type of the base model, and for the pair that suits a device.
pub const AUTO: &str = "auto";

/// What stands for a fuser by formula.
pub const SYNTHETIC: &str = "synthetic";

/// What stands for a prompt of random tokens.
pub const RANDOM: &str = "random";

/// What stands for no file.
pub const NONE: &str = "none";

/// The number types.
const DTYPES: &[&str] = &[AUTO, "f32", "bf16", "f16"];

/// In which order the paths of layers are computed.
const ORDERS: &[&str] = &["batched", "by-layer"];

/// How layers find each other.
const ALIGNMENTS: &[&str] = &["last_aligned", "k_nearest"];

/// The pairs that have a name: name, base model, teacher model.
pub const PAIRS: &[(&str, &str, &str)] = &[("default", "Qwen3-0.6B", "Qwen3-4B-Base"), ("tiny", "tiny", "tiny-qwen2")];

const PAIR_NAMES: &[&str] = &[AUTO, "default", "tiny"];

/// The base model and the teacher model that [`AUTO`] stands for on a device.
pub fn usual_pair(is_gpu: bool) -> [&'static str; 2] {
    let (_, base, teacher) = PAIRS[usize::from(!is_gpu)];
    [base, teacher]
}

/// Random tokens of a prompt where nobody says how many; models with a short context read half of it.
pub const PROMPT_TOKENS: usize = 512;

/// Axes that say which cases are meant, and that no case has.
pub const OF_PLAN: &[&str] = &["preset", "samples"];

/// Axes that a case has only if they were given.
pub const OF_PROMPT: &[&str] = &["prompt", "prompt_file", "sample"];

/// Axes that a case has only where it is held against text.
pub const OF_AGAINST: &[&str] = &["against", "text_tokens"];

/// What stands for a text between the models.
pub const TEXT: &str = "text";

/// What a case can be held against.
const AGAINST: &[&str] = &[NONE, TEXT];

/// Tokens that the teacher writes where nobody says so.
const TEXT_TOKENS: [i64; 5] = [1, 2, 4, 16, 64];

/// The axes.
pub fn axes() -> Vec<AxisSpec> {
    let axis =
        |name, about, takes, default: AxisValue, cost| AxisSpec { name, about, takes, default: vec![default], cost };
    let from = |least| Takes::Int { least, most: i64::from(u32::MAX) };
    vec![
        axis(
            "base_model",
            "the model that answers: preset, or folder with a config.json; auto is Qwen3-0.6B on a GPU and tiny on a CPU",
            Takes::Name,
            AUTO.into(),
            Cost::High,
        ),
        axis(
            "teacher_model",
            "the model whose cache is fused in; auto is Qwen3-4B-Base on a GPU and tiny-qwen2 on a CPU",
            Takes::Name,
            AUTO.into(),
            Cost::High,
        ),
        axis(
            "preset",
            "both models by a name; auto is default on a GPU and tiny on a CPU",
            Takes::OneOf(PAIR_NAMES),
            AUTO.into(),
            Cost::High,
        ),
        axis(
            "fuser_checkpoint",
            "folder of the fuser, as they are published; or one by formula",
            Takes::Name,
            SYNTHETIC.into(),
            Cost::High,
        ),
        axis(
            "prompt_tokens",
            "random tokens of the prompt, if none is given; half the context of models that are shorter",
            from(1),
            AxisValue::Int(PROMPT_TOKENS as i64),
            Cost::Low,
        ),
        axis("max_new_tokens", "tokens that are generated", from(1), 32.into(), Cost::Low),
        axis(
            "fuse",
            "batched computes all layers together; by-layer shows a stage for each layer and path",
            Takes::OneOf(ORDERS),
            ORDERS[0].into(),
            Cost::Middle,
        ),
        axis(
            "alignment",
            "which layer of the teacher a layer hears, where no folder says so",
            Takes::OneOf(ALIGNMENTS),
            ALIGNMENTS[0].into(),
            Cost::Middle,
        ),
        axis(
            "include_response",
            "whether new tokens are fused too: the teacher runs each of them",
            Takes::Switch,
            false.into(),
            Cost::Middle,
        ),
        axis(
            "overlap",
            "whether both prompts are read at the same time, on two streams of a GPU",
            Takes::Switch,
            false.into(),
            Cost::Middle,
        ),
        axis(
            "against",
            "text: beside a text that the teacher writes and the base model reads, and the base model alone",
            Takes::OneOf(AGAINST),
            NONE.into(),
            Cost::High,
        ),
        AxisSpec {
            name: "text_tokens",
            about: "tokens of that text",
            takes: from(1),
            default: TEXT_TOKENS.map(AxisValue::Int).to_vec(),
            cost: Cost::Low,
        },
        axis("dtype", "number type; auto is that of the base model", Takes::OneOf(DTYPES), AUTO.into(), Cost::High),
        axis("prompt", "a message", Takes::Name, RANDOM.into(), Cost::Low),
        axis("prompt_file", "JSONL with a `prompt` or `question` a line", Takes::Name, NONE.into(), Cost::Low),
        axis("samples", "so many lines of the file, from the first on", from(1), 1.into(), Cost::Low),
        axis("sample", "one line of the file instead, counted from 1", from(1), 1.into(), Cost::Low),
        threads_axis(),
        axis(
            "seed",
            "what random tokens and synthetic weights start from",
            Takes::Int { least: 0, most: i64::MAX },
            0.into(),
            Cost::High,
        ),
    ]
}

/// Names of the kit and of others.
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
