//! What kind of work a kernel or an operation does, judged by its name.

mod levels;
mod rules;

use laptime_trace::Activity;

use self::{
    levels::{Levels, levels},
    rules::{NOT_ATTENTION, RULES, plain},
};

/// A kind of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Group {
    /// Products of matrices, convolutions among them.
    Matmul,
    /// Attention, whole or in parts: scores, softmax, the cache of keys and values, rotary positions.
    Attention,
    /// Layer, RMS, batch and group norms.
    Norm,
    /// Activations, with or without their gates.
    Activation,
    /// Embedding tables: look-ups, their gradients and their caches.
    Embedding,
    /// Copies and memsets, casts and changes of layout.
    Copy,
    /// Exchange with other devices.
    Communication,
    /// All else.
    Other,
}

impl Group {
    /// All groups, in the order in which tables list them.
    pub const ALL: [Self; 8] = [
        Self::Matmul,
        Self::Attention,
        Self::Norm,
        Self::Activation,
        Self::Embedding,
        Self::Copy,
        Self::Communication,
        Self::Other,
    ];

    /// The group in a word.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Matmul => "matmul",
            Self::Attention => "attention",
            Self::Norm => "norm",
            Self::Activation => "activation",
            Self::Embedding => "embedding",
            Self::Copy => "copy",
            Self::Communication => "communication",
            Self::Other => "other",
        }
    }

    /// The group of a span, from what it is and its name.
    ///
    /// The name of a kernel is a C++ declaration. Its function decides; then the namespaces around the function; then
    /// the template arguments, outer ones first. Types and parameters never count: a kernel over
    /// `cutlass::bfloat16_t` is not a matrix product for that.
    pub fn of(activity: Activity, name: &str) -> Self {
        if matches!(activity, Activity::Copy | Activity::Memset) {
            return Self::Copy;
        }
        let whole = plain(name);
        if whole.starts_with("triton_") || whole.starts_with("cpp_fused") {
            return Self::of_fused(&name.to_ascii_lowercase(), &whole);
        }
        if NOT_ATTENTION.iter().any(|part| whole.contains(part)) {
            return Self::Other;
        }
        if activity != Activity::Kernel {
            return Self::of_text(&whole).unwrap_or(Self::Other);
        }
        let Levels { function, path, arguments } = levels(name);
        let texts = [function, path].into_iter().chain(arguments);
        texts.into_iter().find_map(|text| Self::of_text(&plain(&text))).unwrap_or(Self::Other)
    }

    /// The group of the first rule that fits a text.
    fn of_text(text: &str) -> Option<Self> {
        RULES.iter().find(|rule| rule.fits(text)).map(|rule| rule.group)
    }

    /// The group of a kernel that torch.compile generated. Its name lists the fused operations, and the strongest one
    /// decides. It is a copy only if every operation moves data.
    fn of_fused(name: &str, plain: &str) -> Self {
        let words = || name.split(|letter: char| !letter.is_ascii_alphanumeric());
        let has = |wanted: &[&str]| words().any(|word| wanted.contains(&word));
        let fits = |group: Self| RULES.iter().any(|rule| rule.group == group && rule.fits(plain));
        let is_norm = has(&["rsqrt"]) && has(&["mean", "pow", "var"]);
        match () {
            () if fits(Self::Communication) => Self::Communication,
            () if fits(Self::Matmul) || has(&["convolution"]) => Self::Matmul,
            () if NOT_ATTENTION.iter().any(|part| name.contains(part)) => Self::Other,
            () if fits(Self::Attention) => Self::Attention,
            () if is_norm || fits(Self::Norm) => Self::Norm,
            () if fits(Self::Activation) => Self::Activation,
            () if fits(Self::Embedding) => Self::Embedding,
            () if has(FUSED_COPIES) && words().all(is_said_of_a_copy) => Self::Copy,
            () => Self::Other,
        }
    }
}

/// Operations in the name of a fused kernel that move data.
const FUSED_COPIES: &[&str] = &[
    "copy",
    "clone",
    "cat",
    "stack",
    "transpose",
    "permute",
    "contiguous",
    "convert",
    "fill",
    "zeros",
    "ones",
    "full",
];

/// What the name of a fused kernel may say besides and still move data only: the kind of kernel, and views.
const SAID_OF_COPIES: &[&str] = &[
    "triton",
    "cpp",
    "poi",
    "red",
    "per",
    "for",
    "fused",
    "to",
    "t",
    "unsafe",
    "view",
    "reshape",
    "expand",
    "slice",
    "select",
    "split",
    "squeeze",
    "unsqueeze",
    "as",
    "strided",
    "unbind",
    "alias",
    "detach",
    "lift",
    "fresh",
    "empty",
    "like",
    "new",
    "element",
    "type",
    "repeat",
    "flatten",
    "unfold",
    "scatter",
];

fn is_said_of_a_copy(word: &str) -> bool {
    // Numbers distinguish kernels, and types of arguments: `0d1d2de`.
    word.is_empty()
        || word.starts_with(|letter: char| letter.is_ascii_digit())
        || FUSED_COPIES.contains(&word)
        || SAID_OF_COPIES.contains(&word)
}

#[cfg(test)]
mod tests;
