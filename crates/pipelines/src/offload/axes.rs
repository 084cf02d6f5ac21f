//! The axes of `offload`, and their aliases.

use laptime_bench::{Alias, AxisSpec, AxisValue, Cost, ValueKind};

use crate::crew::threads_axis;

/// The value for the default of the device or model.
pub const AUTO: &str = "auto";

/// The value for the default number of resident layers: `auto`, or half of a tiny model.
pub const USUAL: &str = "usual";

/// The value for all layers: nothing is offloaded.
pub const ALL: &str = "all";

/// The value for the free memory.
pub const FREE: &str = "free";

/// The value for no file.
const NONE: &str = "none";

/// The dtypes.
const DTYPES: &[&str] = &[AUTO, "f32", "bf16", "f16"];

/// The model and its prompt.
const PIPELINES: &[&str] = &["speech", "lm"];

/// How offloaded layers are copied.
const MODES: &[&str] = &["sync", "pinned", "prefetch", "wrap", "batched"];

/// The axis that is derived from the weights if it is not given.
pub const MAX_TOKENS: &str = "max_tokens";

/// Axes that select the script; a case has those that were given.
pub const OF_TEXT: &[&str] = &["txt_path", "voice_files"];

/// Switches that change the list of cases and are not part of a case.
pub const OF_RUN: &[&str] = &["benchmark", "profile"];

/// The flag whose value is always a folder.
pub const FOLDER_FLAG: &str = "model_dir";

/// The flag that takes models and offload presets.
pub const PRESET_FLAG: &str = "preset";

/// The axis of resident layers.
pub const LAYERS: &str = "gpu_layers";

/// The names of the flags that set the number of resident layers.
pub const LAYER_FLAGS: &[&str] = &[LAYERS, "num_gpu_layers", "offload_preset", "auto", "no_offload"];

/// The axes.
pub fn axes() -> Vec<AxisSpec> {
    let axis = |name, about, kind, default, cost| AxisSpec { name, about, kind, default, cost };
    let one = |name, about, kind, default: AxisValue, cost| axis(name, about, kind, vec![default], cost);
    let from = |least| ValueKind::Int { least, most: i64::from(u32::MAX) };
    let number = |name, about, default| one(name, about, ValueKind::Number, AxisValue::Float(default), Cost::Low);
    let mut axes = of_model();
    axes.extend([
        one(
            "mode",
            "how offloaded layers are copied to the device",
            ValueKind::OneOf(MODES),
            "wrap".into(),
            Cost::High,
        ),
        one(
            "memory_budget",
            "memory that `auto` may use, such as 8GB or 500MiB; `free` is all free memory",
            ValueKind::Name,
            FREE.into(),
            Cost::High,
        ),
        number(
            "link_gbps",
            "without a GPU, the rate of the emulated link in GB/s; 0 reads the file at full speed",
            0.0,
        ),
        one(
            "cache_clear_interval",
            "copies between two clearings of the allocator cache; 0 never clears it",
            from(0),
            50.into(),
            Cost::High,
        ),
        number("cfg_scale", "classifier-free guidance scale", 1.3),
        one(
            "steps",
            "diffusion steps per token",
            ValueKind::Int { least: 1, most: MOST_STEPS },
            10.into(),
            Cost::Middle,
        ),
        axis(
            MAX_TOKENS,
            "maximum number of generated tokens; 20 with synthetic weights, twice the prompt with a checkpoint",
            from(1),
            Vec::new(),
            Cost::Middle,
        ),
        threads_axis(),
        one(
            "seed",
            "seed of the noise and of synthetic weights",
            ValueKind::Int { least: 0, most: i64::MAX },
            42.into(),
            Cost::High,
        ),
        one("benchmark", "also measure the same case without offloading", ValueKind::Switch, false.into(), Cost::Low),
        one(
            "profile",
            "accepted for compatibility; layers are always profiled",
            ValueKind::Switch,
            false.into(),
            Cost::Low,
        ),
    ]);
    axes
}

/// The steps of diffusion training, which are the maximum.
const MOST_STEPS: i64 = 1000;

/// The model, its resident layers and its prompt.
fn of_model() -> Vec<AxisSpec> {
    let one =
        |name, about, kind, default: AxisValue, cost| AxisSpec { name, about, kind, default: vec![default], cost };
    vec![
        one(
            "model",
            "tiny, 1.5b or 7b with synthetic weights, or the folder of a checkpoint; with `--pipeline lm` any model of `laptime list models`; auto is 7b on a GPU and tiny on a CPU",
            ValueKind::Name,
            AUTO.into(),
            Cost::High,
        ),
        one(
            "pipeline",
            "text to speech, or only the language model",
            ValueKind::OneOf(PIPELINES),
            "speech".into(),
            Cost::High,
        ),
        one(
            LAYERS,
            "layers kept on the device: a number, auto (also `--auto`), all (also `--no-offload`), or one of high_end, mid_range, consumer, budget, minimal, light, moderate, balanced, aggressive, extreme; usual is auto, or half of the layers of a tiny model",
            ValueKind::Name,
            USUAL.into(),
            Cost::High,
        ),
        one("dtype", "dtype; auto is that of the model", ValueKind::OneOf(DTYPES), AUTO.into(), Cost::High),
        one(
            "txt_path",
            "a script with lines `Speaker N: text` [default: a short built-in one]",
            ValueKind::Name,
            NONE.into(),
            Cost::Low,
        ),
        one(
            "voice_files",
            "one WAV file per speaker, in order of first appearance; synthetic voices without them",
            ValueKind::Name,
            NONE.into(),
            Cost::Low,
        ),
    ]
}

/// Aliases, among them the names of the original tool.
pub const ALIASES: &[Alias] = &[
    Alias::of_axis(PRESET_FLAG, "model"),
    Alias::of_axis(FOLDER_FLAG, "model"),
    Alias::of_axis("num_gpu_layers", LAYERS),
    Alias::of_axis("offload_preset", LAYERS),
    Alias::switch("auto", LAYERS, AUTO),
    Alias::switch("no_offload", LAYERS, ALL),
    Alias::of_values("float32", "dtype", "f32"),
    Alias::of_values("bfloat16", "dtype", "bf16"),
    Alias::of_values("float16", "dtype", "f16"),
    Alias::of_values("half", "dtype", "f16"),
];
