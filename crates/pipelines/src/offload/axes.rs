//! The axes of `offload`, and their aliases.

use laptime_bench::{Alias, AxisSpec, AxisValue, ValueKind::*};

use crate::axis::{
    ABOUT_THREADS, AUTO, DECODER_DTYPES, SEED, THREADS, axes, default_threads, dtype_words, from, names, words,
};

/// The value for the default number of resident layers: `auto`, or half of a tiny model.
pub const USUAL: &str = "usual";

/// The value for all layers: nothing is offloaded.
pub const ALL: &str = "all";
pub const FREE: &str = "free";

const MODES: &[&str] = &["sync", "pinned", "prefetch", "wrap", "batched"];

/// The axis that is derived from the weights if it is not given.
pub const MAX_TOKENS: &str = "max_tokens";

/// Switches that change the list of cases and are not part of a case.
pub const OF_RUN: &[&str] = &["benchmark", "profile"];

/// The flag whose value is always a folder.
pub const FOLDER_FLAG: &str = "model_dir";

/// The flag that takes models and offload presets.
pub const PRESET_FLAG: &str = "preset";
pub const LAYERS: &str = "gpu_layers";

/// The names of the flags that set the number of resident layers.
pub const LAYER_FLAGS: &[&str] = &[LAYERS, "num_gpu_layers", "offload_preset", "auto", "no_offload"];

/// The steps of diffusion training, which are the maximum.
const MOST_STEPS: i64 = 1000;

pub fn axes() -> Vec<AxisSpec> {
    axes! {
        "model", Name, [AUTO], High,
            "tiny, 1.5b or 7b with synthetic weights, or the folder of a checkpoint; with `--pipeline lm` any model of `laptime list models`; auto is 7b on a GPU and tiny on a CPU";
        "pipeline", OneOf(&["speech", "lm"]), ["speech"], High, "text to speech, or only the language model";
        LAYERS, Name, [USUAL], High,
            "layers kept on the device: a number, auto (also `--auto`), all (also `--no-offload`), or one of high_end, mid_range, consumer, budget, minimal, light, moderate, balanced, aggressive, extreme; usual is auto, or half of the layers of a tiny model";
        "dtype", OneOf(DECODER_DTYPES), [AUTO], High, "dtype; fp8, with `--pipeline lm`, is bf16 with e4m3 weights in all layers; auto is that of the model";
        "txt_path", Text(" "), [], Low, "a script with lines `Speaker N: text` [default: a short built-in one]";
        "voice_files", Text(","), [], Low,
            "one WAV file per speaker, in order of first appearance; synthetic voices without them";
        "mode", OneOf(MODES), ["wrap"], High, "how offloaded layers are copied to the device";
        "memory_budget", Name, [FREE], High,
            "memory that `auto` may use, such as 8GB or 500MiB; `free` is all free memory";
        "link_gbps", Number, [AxisValue::Float(0.0)], Low,
            "without a GPU, the rate of the emulated link in GB/s; 0 reads the file at full speed";
        "cache_clear_interval", from(0), [50], High,
            "copies between two clearings of the allocator cache; 0 never clears it";
        "cfg_scale", Number, [AxisValue::Float(1.3)], Low, "classifier-free guidance scale";
        "steps", Int { least: 1, most: MOST_STEPS }, [10], Middle, "diffusion steps per token";
        MAX_TOKENS, from(1), [], Middle,
            "maximum number of generated tokens; 20 with synthetic weights, twice the prompt with a checkpoint";
        "threads", THREADS, [default_threads()], Low, ABOUT_THREADS;
        "seed", SEED, [42], High, "seed of the noise and of synthetic weights";
        "benchmark", Switch, [false], Low, "also measure the same case without offloading";
        "profile", Switch, [false], Low, "accepted for compatibility; layers are always profiled";
    }
}

/// Aliases, among them the names of the original tool.
pub fn aliases() -> Vec<Alias> {
    [
        names("model", &[PRESET_FLAG, FOLDER_FLAG]),
        names(LAYERS, &["num_gpu_layers", "offload_preset"]),
        vec![Alias::switch("auto", LAYERS, AUTO), Alias::switch("no_offload", LAYERS, ALL)],
        dtype_words(),
        words("dtype", &[("half", "f16"), ("float8_e4m3fn", "fp8")]),
    ]
    .concat()
}
