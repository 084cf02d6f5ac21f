//! What kind of work a kernel or an operation does, told from its name.

use laptime_trace::Activity;

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
    /// Copies and memsets, casts and changes of layout.
    Copy,
    /// Exchange with other devices.
    Communication,
    /// All else.
    Other,
}

impl Group {
    /// All groups, in the order in which they are told.
    pub const ALL: [Self; 7] =
        [Self::Matmul, Self::Attention, Self::Norm, Self::Activation, Self::Copy, Self::Communication, Self::Other];

    /// The group in a word.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Matmul => "matmul",
            Self::Attention => "attention",
            Self::Norm => "norm",
            Self::Activation => "activation",
            Self::Copy => "copy",
            Self::Communication => "communication",
            Self::Other => "other",
        }
    }

    /// The group of a span, from what it is and its name.
    pub fn of(activity: Activity, name: &str) -> Self {
        if matches!(activity, Activity::Copy | Activity::Memset) {
            return Self::Copy;
        }
        let name = name.to_ascii_lowercase();
        if name.starts_with("triton_") || name.starts_with("cpp_fused") {
            return Self::of_fused(&name);
        }
        let name = without_no_words(&name);
        RULES.iter().find(|rule| rule.fits(&name)).map_or(Self::Other, |rule| rule.group)
    }

    /// The group of a kernel that torch.compile made, whose name lists all that was fused into it: the strongest word
    /// counts. It is a copy only if nothing else is in it.
    fn of_fused(name: &str) -> Self {
        let words = || name.split(|letter: char| !letter.is_ascii_alphanumeric());
        let has = |wanted: &[&str]| words().any(|word| wanted.contains(&word));
        let text = without_no_words(name);
        let fits = |group: Self| RULES.iter().any(|rule| rule.group == group && rule.fits(&text));
        let is_norm = has(&["rsqrt"]) && has(&["mean", "pow", "var"]);
        match () {
            () if fits(Self::Communication) => Self::Communication,
            () if has(FUSED_PRODUCTS) || fits(Self::Matmul) => Self::Matmul,
            () if fits(Self::Other) => Self::Other,
            () if fits(Self::Attention) => Self::Attention,
            () if is_norm || fits(Self::Norm) => Self::Norm,
            () if fits(Self::Activation) => Self::Activation,
            () if has(FUSED_COPIES) && words().all(is_said_of_a_copy) => Self::Copy,
            () => Self::Other,
        }
    }
}

/// Operations in the name of a fused kernel that are products.
const FUSED_PRODUCTS: &[&str] = &["mm", "bmm", "addmm", "baddbmm", "convolution"];

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
    // Numbers tell kernels apart, and types of arguments: `0d1d2de`.
    word.is_empty()
        || word.starts_with(|letter: char| letter.is_ascii_digit())
        || FUSED_COPIES.contains(&word)
        || SAID_OF_COPIES.contains(&word)
}

/// Which names are of a group.
struct Rule {
    group: Group,
    /// Parts of names.
    parts: &'static [&'static str],
    /// Words of names, for what is too short to be looked for anywhere.
    words: &'static [&'static str],
}

impl Rule {
    const fn new(group: Group, parts: &'static [&'static str], words: &'static [&'static str]) -> Self {
        Self { group, parts, words }
    }

    fn fits(&self, name: &str) -> bool {
        self.parts.iter().any(|part| name.contains(part)) || self.words.iter().any(|word| has_word(name, word))
    }
}

/// Whether a name has a word in it with no letter or digit at either side.
fn has_word(name: &str, word: &str) -> bool {
    let is_outside = |letter: Option<char>| letter.is_none_or(|letter| !letter.is_alphanumeric());
    let mut found = name.match_indices(word);
    found
        .any(|(at, _)| is_outside(name[..at].chars().next_back()) && is_outside(name[at + word.len()..].chars().next()))
}

fn without_no_words(name: &str) -> String {
    NO_WORDS.iter().fold(name.to_owned(), |name, word| name.replace(word, ""))
}

/// Parts of words that only look like those of the rules: `convert` is no convolution, a property has no rope.
const NO_WORDS: [&str; 2] = ["conver", "propert"];

/// The first rule of which a word occurs in the name counts: an attention kernel has a product in it, a fused norm a
/// quantisation.
const RULES: [Rule; 7] = [
    // The softmax of a loss and that of a choice of experts are none of an attention.
    Rule::new(
        Group::Other,
        &["log_softmax", "logsoftmax", "nll_loss", "cross_entropy", "topk_softmax", "topkgating"],
        &[],
    ),
    Rule::new(
        Group::Communication,
        &[
            "nccl",
            "rccl",
            "allreduce",
            "all_reduce",
            "allgather",
            "all_gather",
            "reduce_scatter",
            "reducescatter",
            "all_to_all",
            "alltoall",
            "cross_device_reduce",
            "c10d::",
            "nvshmem",
            "deepep",
            "oneshot",
            "twoshot",
            "gloo:",
        ],
        &[],
    ),
    Rule::new(
        Group::Attention,
        &[
            "attention",
            "flash_fwd",
            "flash_bwd",
            "flashattn",
            "flash_attn",
            "fmha",
            "softmax",
            "soft_max",
            "rotary",
            "rope",
            "mha_",
            "_mha",
            "mla_",
            "kv_cache",
            "kvcache",
            "reshape_and_cache",
            "paged",
            "kv_indices",
            "sdpa",
            "batchprefill",
            "batchdecode",
            "attn",
            "reduce_segments",
        ],
        &[],
    ),
    Rule::new(
        Group::Norm,
        &[
            "layer_norm",
            "layernorm",
            "rms_norm",
            "rmsnorm",
            "batch_norm",
            "batchnorm",
            "group_norm",
            "groupnorm",
            "instance_norm",
            "ln_fwd",
            "ln_bwd",
            "bn_fw",
            "bn_bw",
            "cublaslt_norm",
            "welford",
            "rowwisemoments",
        ],
        &[],
    ),
    Rule::new(
        Group::Matmul,
        &[
            "gemm",
            "matmul",
            "cijk_",
            "nvjet",
            "cutlass",
            "conv",
            "wgrad",
            "dgrad",
            "winograd",
            "scudnn",
            "splitk",
            "gemv",
            "aten::linear",
            "aten::einsum",
            "cublas",
            "xmma",
            "wmma",
            "hgmma",
            "dot_kernel",
            "fprop",
            "tinygemm",
            "deep_gemm",
            "marlin",
            "fused_moe",
            "mul_mat",
            "implicit_gemm",
            // Helpers of convolutions: where their operands lie, and their transforms.
            "computeoffsetskernel",
            "computeboffsetskernel",
            "fft2d_",
        ],
        &["aten::mm", "aten::bmm", "aten::addmm", "aten::baddbmm", "aten::_scaled_mm", "aten::_int_mm"],
    ),
    Rule::new(
        Group::Activation,
        &[
            "silu",
            "gelu",
            "relu",
            "swiglu",
            "geglu",
            "sigmoid",
            "tanh",
            "softplus",
            "mish",
            "act_and_mul",
            "hardswish",
            "launch_clamp_scalar",
            "threshold_kernel",
            "threshold_backward",
            "elu_kernel",
            "glu_kernel",
        ],
        &[],
    ),
    Rule::new(
        Group::Copy,
        &[
            "memcpy",
            "memset",
            "copy",
            "catarray",
            "aten::_to_copy",
            "aten::clone",
            "aten::contiguous",
            "transpose",
            "permute",
            "nchwtonhwc",
            "nhwctonchw",
            "fillfunctor",
            "aten::fill_",
            "aten::zero_",
            "cast_kernel",
        ],
        &["aten::to", "aten::cat", "cpy"],
    ),
];

#[cfg(test)]
mod tests;
