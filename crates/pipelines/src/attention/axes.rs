//! The axes of `attention`, and their aliases.

use laptime_bench::{Alias, AxisSpec, AxisValue, Cost, ValueKind};
use laptime_models::attention::Kind;

use crate::crew::threads_axis;

/// The value for the device's default dtype.
pub const AUTO: &str = "auto";

/// The dtypes; `auto` is bf16 on a GPU and f32 on the CPU.
const DTYPES: &[&str] = &[AUTO, "f32", "bf16", "f16"];

/// The names of patterns; other sizes are `custom`.
const PATTERNS: &[&str] = &["tiny", "small", "medium", CUSTOM];

/// The name of a pattern with other sizes.
pub const CUSTOM: &str = "custom";

/// Which rows a draw of random columns is for.
const RANDOM_PER: &[&str] = &["block", "row"];

/// The value for the built-in mask.
pub const BUILT_IN: &str = "built-in";

/// The longest sequence that layouts support.
const MOST_TOKENS: i64 = (1 << 21) - 1;

fn axis(name: &'static str, about: &'static str, kind: ValueKind, default: Vec<AxisValue>, cost: Cost) -> AxisSpec {
    AxisSpec { name, about, kind, default, cost }
}

fn from(least: i64) -> ValueKind {
    ValueKind::Int { least, most: i64::from(u32::MAX) }
}

/// The axes. Kinds change most often, so that what is compared is measured side by side.
pub fn axes() -> Vec<AxisSpec> {
    let mut axes = vec![
        axis(
            "attention",
            "kernel: naive stores all scores, dense does not, sparse computes the pairs of the pattern",
            ValueKind::OneOf(Kind::WORDS),
            vec!["dense".into(), "sparse".into()],
            Cost::Low,
        ),
        axis(
            "seq_len",
            "sequence length; also small (256,512), medium (1024,2048), large (4096,8192)",
            ValueKind::Int { least: 1, most: MOST_TOKENS },
            vec![1024.into(), 2048.into(), 4096.into()],
            Cost::Middle,
        ),
        axis("batch_size", "batch size", from(1), vec![1.into()], Cost::Middle),
        axis("heads", "query heads", from(1), vec![16.into()], Cost::Middle),
        axis(
            "kv_heads",
            "key and value heads; the same number as query heads by default",
            from(1),
            vec![16.into()],
            Cost::Middle,
        ),
        axis("head_dim", "size of a head", ValueKind::Int { least: 1, most: 1024 }, vec![64.into()], Cost::Middle),
        axis(
            "dtype",
            "dtype; auto is bf16 on a GPU and f32 on the CPU",
            ValueKind::OneOf(DTYPES),
            vec![AUTO.into()],
            Cost::Middle,
        ),
    ];
    axes.extend(pattern_axes());
    axes.push(axis(
        "causal",
        "causal mask: a token attends only to earlier tokens",
        ValueKind::Switch,
        vec![true.into()],
        Cost::Middle,
    ));
    axes.push(axis(
        "block_mask",
        "mask file for block-sparse: rows of 0 and 1, as text or JSON; or the built-in mask",
        ValueKind::Name,
        vec![BUILT_IN.into()],
        Cost::Middle,
    ));
    axes.push(threads_axis());
    axes.push(axis(
        "seed",
        "seed of inputs and random columns",
        ValueKind::Int { least: 0, most: i64::MAX },
        vec![0.into()],
        Cost::Middle,
    ));
    axes
}

/// The axes of a pattern, which `model` has too.
pub fn pattern_axes() -> Vec<AxisSpec> {
    vec![
        axis(
            "pattern",
            "named sizes of window, global tokens and random columns: tiny is 256, 32, 16; small 512, 64, 32; medium 1024, 128, 64",
            ValueKind::OneOf(PATTERNS),
            vec!["small".into()],
            Cost::Middle,
        ),
        axis(
            "window",
            "window around a token, half of it before the token; by default that of the pattern",
            from(0),
            vec![512.into()],
            Cost::Middle,
        ),
        axis(
            "global",
            "tokens at the beginning that attend to all and are attended by all; by default that of the pattern",
            from(0),
            vec![64.into()],
            Cost::Middle,
        ),
        axis(
            "random",
            "random columns per token; by default that of the pattern",
            from(0),
            vec![32.into()],
            Cost::Middle,
        ),
        axis(
            "random_per",
            "block: 64 tokens share their random columns; row: each token has its own, as in Nano XYZ",
            ValueKind::OneOf(RANDOM_PER),
            vec!["block".into()],
            Cost::Middle,
        ),
    ]
}

/// Other names of the axes of a pattern.
pub const PATTERN_ALIASES: &[Alias] = &[
    Alias::of_axis("patterns", "pattern"),
    Alias::of_axis("window_size", "window"),
    Alias::of_axis("global_tokens", "global"),
    Alias::of_axis("random_tokens", "random"),
    Alias::of_values("shared", "random_per", "block"),
    Alias::of_values("per-block", "random_per", "block"),
    Alias::of_values("per-row", "random_per", "row"),
    Alias::of_values("sliding_window", "attention", "sliding-window"),
    Alias::of_values("block_sparse", "attention", "block-sparse"),
    Alias::of_values("dca", "attention", "sparse"),
];

/// Aliases, among them the names of Nano XYZ.
pub const ALIASES: &[Alias] = &[
    Alias::of_axis("attention_type", "attention"),
    Alias::of_axis("attention_types", "attention"),
    Alias::of_axis("seq_lens", "seq_len"),
    Alias::of_axis("context_length", "seq_len"),
    Alias::of_axis("context_lengths", "seq_len"),
    Alias::of_axis("batch_sizes", "batch_size"),
    Alias::of_axis("n_heads", "heads"),
    Alias::switch("no_causal", "causal", "false"),
    Alias::of_values("small", "seq_len", "256,512"),
    Alias::of_values("medium", "seq_len", "1024,2048"),
    Alias::of_values("large", "seq_len", "4096,8192"),
    Alias::of_values("float32", "dtype", "f32"),
    Alias::of_values("fp32", "dtype", "f32"),
    Alias::of_values("bfloat16", "dtype", "bf16"),
    Alias::of_values("float16", "dtype", "f16"),
    Alias::of_values("fp16", "dtype", "f16"),
];
