//! The axes of `attention`, and their aliases.

use laptime_bench::{Alias, AxisSpec, ValueKind::*};
use laptime_models::attention::Kind;

use crate::axis::{
    ABOUT_THREADS, AUTO, DTYPES, SEED, THREADS, axes, default_threads, dtype_words, from, length_aliases, names, words,
};

/// The name of a pattern with sizes of its own.
pub const CUSTOM: &str = "custom";

const PATTERNS: &[&str] = &["tiny", "small", "medium", CUSTOM];
pub const BUILT_IN: &str = "built-in";

/// The longest sequence that layouts support.
const MOST_TOKENS: i64 = (1 << 21) - 1;

/// The axes. Kinds change most often, so that compared cases run one after the other.
pub fn axes() -> Vec<AxisSpec> {
    let of_inputs = axes! {
        "attention", OneOf(Kind::WORDS), ["dense", "sparse"], Low,
            "kernel: naive stores all scores, dense does not, sparse computes the pairs of the pattern";
        "seq_len", Int { least: 1, most: MOST_TOKENS }, [1024, 2048, 4096], Middle,
            "sequence length; also small (256,512), medium (1024,2048), large (4096,8192)";
        "batch_size", from(1), [1], Middle, "batch size";
        "heads", from(1), [16], Middle, "query heads";
        "kv_heads", from(1), [16], Middle, "key and value heads; the same number as query heads by default";
        "head_dim", Int { least: 1, most: 1024 }, [64], Middle, "size of a head";
        "dtype", OneOf(DTYPES), [AUTO], Middle, "dtype; auto is bf16 on a GPU and f32 on the CPU";
    };
    let rest = axes! {
        "causal", Switch, [true], Middle, "causal mask: a token attends only to earlier tokens";
        "block_mask", Name, [BUILT_IN], Middle,
            "mask file for block-sparse: rows of 0 and 1, as text or JSON; or the built-in mask";
        "threads", THREADS, [default_threads()], Low, ABOUT_THREADS;
        "seed", SEED, [0], Middle, "seed of inputs and random columns";
    };
    [of_inputs, pattern_axes(), rest].concat()
}

/// The axes of a pattern, shared with `model`.
pub fn pattern_axes() -> Vec<AxisSpec> {
    axes! {
        "pattern", OneOf(PATTERNS), ["small"], Middle,
            "named sizes of window, global tokens and random columns: tiny is 256, 32, 16; small 512, 64, 32; medium 1024, 128, 64";
        "window", from(0), [512], Middle,
            "window around a token, half of it before the token; by default that of the pattern";
        "global", from(0), [64], Middle,
            "leading tokens that attend to all tokens and are attended to by all; by default that of the pattern";
        "random", from(0), [32], Middle, "random columns per token; by default that of the pattern";
        "random_per", OneOf(&["block", "row"]), ["block"], Middle,
            "block: 64 tokens share their random columns; row: each token has its own, as in Nano XYZ";
    }
}

/// Aliases, among them the names of Nano XYZ.
pub fn aliases() -> Vec<Alias> {
    [
        names("attention", &["attention_type", "attention_types"]),
        length_aliases(),
        names("batch_size", &["batch_sizes"]),
        names("heads", &["n_heads"]),
        names("pattern", &["patterns"]),
        names("window", &["window_size"]),
        names("global", &["global_tokens"]),
        names("random", &["random_tokens"]),
        vec![Alias::switch("no_causal", "causal", "false")],
        words("random_per", &[("shared", "block"), ("per-block", "block"), ("per-row", "row")]),
        words(
            "attention",
            &[("sliding_window", "sliding-window"), ("block_sparse", "block-sparse"), ("dca", "sparse")],
        ),
        dtype_words(),
    ]
    .concat()
}
