//! The axes of `tts`, and their aliases.

use laptime_bench::{Alias, AxisSpec, AxisValue, ValueKind::*};

use super::speech::LABELS;
use crate::axis::{ABOUT_THREADS, AUTO, DTYPES, GRAPH, SEED, THREADS, axes, default_threads, dtype_words, from, names};

pub const ON_GPU: &str = "0.6b";
pub const ON_CPU: &str = "tiny";

/// The axis that is derived from the text if it is not given.
pub const FRAMES: &str = "frames";

/// The flag whose value is always a folder.
pub const FOLDER_FLAG: &str = "model_dir";

pub fn axes() -> Vec<AxisSpec> {
    axes! {
        "model", Name, [AUTO], High,
            "0.6b, 1.7b or tiny, with synthetic weights, or the folder of a checkpoint; auto is 0.6b on a GPU and tiny on a CPU";
        "label", OneOf(LABELS), [LABELS[0], LABELS[1], LABELS[2]], Low, "built-in texts of 13, 53 and 115 words";
        "text", Text(" "), [], Low, "a text of your own";
        "text_file", Text(" "), [], Low, "a file with your own text";
        "dtype", OneOf(DTYPES), [AUTO], High, "dtype; auto is that of the model";
        "speaker", Name, ["Ryan"], Low, "the speaker; an empty name leaves it to the model";
        "language", Name, ["English"], Low, "the language; auto leaves it to the model";
        FRAMES, from(1), [], Middle,
            "number of frames (80 ms each): exact with synthetic weights [default: 4.5 per word], a maximum with a checkpoint [default: 2048]";
        "streaming", Switch, [false], Low, "decode audio in chunks while frames are generated";
        "chunk_frames", from(1), [10], Low, "frames per chunk";
        "temperature", Number, [AxisValue::Float(0.9)], Low, "sampling temperature of the semantic codes";
        "top_k", from(0), [50], Low, "sample from this many most likely codes; 0 for all";
        "top_p", Number, [AxisValue::Float(0.9)], Low,
            "sample from the most likely codes with this total probability; 1 for all";
        "repetition_penalty", Number, [AxisValue::Float(1.05)], Low, "penalty for repeated codes; 1 for none";
        "greedy", Switch, [false], Low, "always choose the most likely code";
        "graph", OneOf(GRAPH), [AUTO], Middle, "replay frames as CUDA graphs; auto where possible";
        "threads", THREADS, [default_threads()], Low, ABOUT_THREADS;
        "seed", SEED, [42], High, "seed of sampling and of synthetic weights";
    }
}

/// Aliases, among them the names of the original tool.
pub fn aliases() -> Vec<Alias> {
    [
        names("model", &["preset", "presets", FOLDER_FLAG]),
        names("label", &["labels"]),
        names("language", &["lang"]),
        dtype_words(),
    ]
    .concat()
}
