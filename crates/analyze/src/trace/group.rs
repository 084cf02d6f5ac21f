//! The kind of work of a kernel or operation, by its name.

mod levels;
mod rules;

use laptime_trace::Activity;

pub use self::levels::mangled_path;
use self::levels::{Levels, levels};
use self::rules::{NOT_ATTENTION, RULES, plain};

laptime_trace::words! {
    /// A kind of work.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum Group, ALL: word {
        /// Matrix products, including convolutions.
        Matmul = "matmul",
        /// Attention, whole or in parts: scores, softmax, KV cache, RoPE.
        Attention = "attention",
        /// Layer, RMS, batch and group norms.
        Norm = "norm",
        /// Activations, with or without their gates.
        Activation = "activation",
        /// Embedding tables: lookups, gradients and caches.
        Embedding = "embedding",
        /// Copies and memsets, casts and layout changes.
        Copy = "copy",
        /// Communication with other devices.
        Communication = "communication",
        /// Everything else.
        Other = "other",
    }
}

impl Group {
    /// The group of a span, by its kind and name.
    ///
    /// The name of a kernel is a C++ declaration. Its function decides; then the namespaces around the function; then
    /// the template arguments, outer ones first. Types and parameters never count: `cutlass::bfloat16_t` as a parameter does
    /// not make a kernel a matrix product.
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

    /// The group of the first rule that matches.
    fn of_text(text: &str) -> Option<Self> {
        RULES.iter().find(|rule| rule.fits(text)).map(|rule| rule.group)
    }

    /// The group of a kernel that torch.compile generated. Its name lists the fused operations, and the strongest one
    /// decides. It is a copy only if every operation moves data.
    fn of_fused(name: &str, plain: &str) -> Self {
        let words = || name.split(|letter: char| !letter.is_ascii_alphanumeric());
        let has = |wanted: &str| words().any(|word| is_among(word, wanted));
        let fits = |group: Self| RULES.iter().any(|rule| rule.group == group && rule.fits(plain));
        let is_norm = has("rsqrt") && has("mean pow var");
        match () {
            () if fits(Self::Communication) => Self::Communication,
            () if fits(Self::Matmul) || has("convolution") => Self::Matmul,
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
const FUSED_COPIES: &str = "copy clone cat stack transpose permute contiguous convert fill zeros ones full";

/// Other words in the name of a fused kernel that only moves data: the kind of kernel, and views.
const SAID_OF_COPIES: &str = "triton cpp poi red per for fused to t unsafe view reshape expand slice select split squeeze unsqueeze as strided \
     unbind alias detach lift fresh empty like new element type repeat flatten unfold scatter";

fn is_said_of_a_copy(word: &str) -> bool {
    // Numbers that distinguish kernels, and argument types: `0d1d2de`.
    word.is_empty()
        || word.starts_with(|letter: char| letter.is_ascii_digit())
        || is_among(word, FUSED_COPIES)
        || is_among(word, SAID_OF_COPIES)
}

/// Whether a word is in a list of words with blanks between them.
fn is_among(word: &str, list: &str) -> bool {
    list.split(' ').any(|known| known == word)
}

#[cfg(test)]
mod tests;
