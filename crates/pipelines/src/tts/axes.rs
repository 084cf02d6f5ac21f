//! The axes of `tts`, and their aliases.

use laptime_bench::{Alias, AxisSpec, AxisValue, Cost, ValueKind};

use super::corpus::LABELS;
use crate::crew::threads_axis;

/// The value for the default of the device or model.
pub const AUTO: &str = "auto";

/// The default model on a GPU.
pub const ON_GPU: &str = "0.6b";

/// The default model on a CPU.
pub const ON_CPU: &str = "tiny";

/// The value for no text.
const NONE: &str = "none";

/// The dtypes.
const DTYPES: &[&str] = &[AUTO, "f32", "bf16", "f16"];

/// Whether frames are replayed as graphs.
const GRAPH: &[&str] = &[AUTO, "on", "off"];

/// Axes that select the text; a case has those that were given.
pub const OF_TEXT: &[&str] = &["text", "text_file"];

/// The axis that is derived from the text if it is not given.
pub const FRAMES: &str = "frames";

/// The flag whose value is always a folder.
pub const FOLDER_FLAG: &str = "model_dir";

/// The axes.
pub fn axes() -> Vec<AxisSpec> {
    let axis = |name, about, kind, default, cost| AxisSpec { name, about, kind, default, cost };
    let one = |name, about, kind, default: AxisValue, cost| axis(name, about, kind, vec![default], cost);
    let from = |least| ValueKind::Int { least, most: i64::from(u32::MAX) };
    let number = |name, about, default| one(name, about, ValueKind::Number, AxisValue::Float(default), Cost::Low);
    let mut axes = of_text();
    axes.extend([
        one("dtype", "dtype; auto is that of the model", ValueKind::OneOf(DTYPES), AUTO.into(), Cost::High),
        one("speaker", "the speaker; an empty name leaves it to the model", ValueKind::Name, "Ryan".into(), Cost::Low),
        one("language", "the language; auto leaves it to the model", ValueKind::Name, "English".into(), Cost::Low),
        axis(
            FRAMES,
            "number of frames (80 ms each): exact with synthetic weights [default: 4.5 per word], a maximum with a checkpoint [default: 2048]",
            from(1),
            Vec::new(),
            Cost::Middle,
        ),
        one(
            "streaming",
            "decode audio in chunks while frames are generated",
            ValueKind::Switch,
            false.into(),
            Cost::Low,
        ),
        one("chunk_frames", "frames per chunk", from(1), 10.into(), Cost::Low),
        number("temperature", "sampling temperature of the semantic codes", 0.9),
        one("top_k", "sample from this many most likely codes; 0 for all", from(0), 50.into(), Cost::Low),
        number("top_p", "sample from the most likely codes with this total probability; 1 for all", 0.9),
        number("repetition_penalty", "penalty for repeated codes; 1 for none", 1.05),
        one("greedy", "always choose the most likely code", ValueKind::Switch, false.into(), Cost::Low),
        one(
            "graph",
            "replay frames as CUDA graphs; auto where possible",
            ValueKind::OneOf(GRAPH),
            AUTO.into(),
            Cost::Middle,
        ),
        threads_axis(),
        one(
            "seed",
            "seed of sampling and of synthetic weights",
            ValueKind::Int { least: 0, most: i64::MAX },
            42.into(),
            Cost::High,
        ),
    ]);
    axes
}

/// The model and its text.
fn of_text() -> Vec<AxisSpec> {
    let axis = |name, about, kind, default, cost| AxisSpec { name, about, kind, default, cost };
    let labels = LABELS.iter().map(|label| AxisValue::from(*label)).collect();
    vec![
        axis(
            "model",
            "0.6b, 1.7b or tiny, with synthetic weights, or the folder of a checkpoint; auto is 0.6b on a GPU and tiny on a CPU",
            ValueKind::Name,
            vec![AUTO.into()],
            Cost::High,
        ),
        axis("label", "built-in texts of 13, 53 and 115 words", ValueKind::OneOf(LABELS), labels, Cost::Low),
        axis("text", "a text of your own", ValueKind::Name, vec![NONE.into()], Cost::Low),
        axis("text_file", "a file with your own text", ValueKind::Name, vec![NONE.into()], Cost::Low),
    ]
}

/// Aliases, among them the names of the original tool.
pub const ALIASES: &[Alias] = &[
    Alias::of_axis("preset", "model"),
    Alias::of_axis("presets", "model"),
    Alias::of_axis(FOLDER_FLAG, "model"),
    Alias::of_axis("labels", "label"),
    Alias::of_axis("lang", "language"),
    Alias::of_values("float32", "dtype", "f32"),
    Alias::of_values("bfloat16", "dtype", "bf16"),
    Alias::of_values("float16", "dtype", "f16"),
];
