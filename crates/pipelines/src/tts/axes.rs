//! The axes of `tts`, and the other names by which people know them.

use laptime_bench::{Alias, AxisSpec, AxisValue, Cost, ValueKind};

use super::corpus::LABELS;
use crate::crew::threads_axis;

/// What stands for what the device or the model has of its own.
pub const AUTO: &str = "auto";

/// The model of a GPU where nobody names one.
pub const ON_GPU: &str = "0.6b";

/// The model of a CPU where nobody names one.
pub const ON_CPU: &str = "tiny";

/// What stands for no text of one's own.
const NONE: &str = "none";

/// The number types.
const DTYPES: &[&str] = &[AUTO, "f32", "bf16", "f16"];

/// Whether frames are replayed as graphs.
const GRAPH: &[&str] = &[AUTO, "on", "off"];

/// Axes that say what is said; a case has those that were given.
pub const OF_TEXT: &[&str] = &["text", "text_file"];

/// The axis that follows from the text where it was not given.
pub const FRAMES: &str = "frames";

/// The flag whose value is a folder whatever it is called.
pub const FOLDER_FLAG: &str = "model_dir";

/// The axes.
pub fn axes() -> Vec<AxisSpec> {
    let axis = |name, about, kind, default, cost| AxisSpec { name, about, kind, default, cost };
    let one = |name, about, kind, default: AxisValue, cost| axis(name, about, kind, vec![default], cost);
    let from = |least| ValueKind::Int { least, most: i64::from(u32::MAX) };
    let number = |name, about, default| one(name, about, ValueKind::Number, AxisValue::Float(default), Cost::Low);
    let mut axes = of_text();
    axes.extend([
        one("dtype", "number type; auto is that of the model", ValueKind::OneOf(DTYPES), AUTO.into(), Cost::High),
        one("speaker", "who says it; an empty name leaves it to the model", ValueKind::Name, "Ryan".into(), Cost::Low),
        one("language", "in which language; auto leaves it to the model", ValueKind::Name, "English".into(), Cost::Low),
        axis(
            FRAMES,
            "frames of 80 ms: so many with synthetic weights, which know no end, by default 4.5 a word; at most so many with a folder's, by default 2048",
            from(1),
            Vec::new(),
            Cost::Middle,
        ),
        one(
            "streaming",
            "whether audio is made chunk by chunk, while frames are",
            ValueKind::Switch,
            false.into(),
            Cost::Low,
        ),
        one("chunk_frames", "frames of a chunk", from(1), 10.into(), Cost::Low),
        number("temperature", "what logits of semantic codes are divided by", 0.9),
        one("top_k", "how many of the likeliest are drawn from; 0 for all", from(0), 50.into(), Cost::Low),
        number("top_p", "what part of all weights those make up; 1 for all", 0.9),
        number("repetition_penalty", "what makes codes that were chosen before less likely; 1 for nothing", 1.05),
        one("greedy", "whether the likeliest code is taken and none is drawn", ValueKind::Switch, false.into(), Cost::Low),
        one(
            "graph",
            "whether frames are replayed as CUDA graphs; auto where that is possible",
            ValueKind::OneOf(GRAPH),
            AUTO.into(),
            Cost::Middle,
        ),
        threads_axis(),
        one(
            "seed",
            "what draws and synthetic weights start from",
            ValueKind::Int { least: 0, most: i64::MAX },
            42.into(),
            Cost::High,
        ),
    ]);
    axes
}

/// The model and what it says.
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
        axis("label", "texts of 13, 53 and 115 words", ValueKind::OneOf(LABELS), labels, Cost::Low),
        axis("text", "a text of your own", ValueKind::Name, vec![NONE.into()], Cost::Low),
        axis("text_file", "the same, in a file", ValueKind::Name, vec![NONE.into()], Cost::Low),
    ]
}

/// Names of the kit and of others.
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
