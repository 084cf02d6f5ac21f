//! Which words in a name belong to which group.

use super::Group;

/// Which names belong to a group.
pub struct Rule {
    pub group: Group,
    /// Parts of names.
    parts: &'static [&'static str],
    /// Whole words, for what is too short to be searched for anywhere in a name.
    words: &'static [&'static str],
}

impl Rule {
    const fn new(group: Group, parts: &'static [&'static str], words: &'static [&'static str]) -> Self {
        Self { group, parts, words }
    }

    /// Whether a text, as [`plain`] gives it, fits the rule.
    pub fn fits(&self, text: &str) -> bool {
        self.parts.iter().any(|part| text.contains(part)) || self.words.iter().any(|word| has_word(text, word))
    }
}

/// Whether a text has a word in it with no letter or digit on either side.
fn has_word(text: &str, word: &str) -> bool {
    let is_outside = |letter: Option<char>| letter.is_none_or(|letter| !letter.is_alphanumeric());
    let mut found = text.match_indices(word);
    found
        .any(|(at, _)| is_outside(text[..at].chars().next_back()) && is_outside(text[at + word.len()..].chars().next()))
}

/// A name as the rules expect it: lower case, with underscores for hyphens (XLA writes `all-reduce`), and without
/// the words that only look like those of a rule.
pub fn plain(name: &str) -> String {
    let name = name.to_ascii_lowercase().replace('-', "_");
    MISLEADING.iter().fold(name, |name, word| if name.contains(word) { name.replace(word, "") } else { name })
}

/// `convert` is not a convolution, a property has no RoPE, and the library FBGEMM has more than products.
const MISLEADING: [&str; 3] = ["conver", "propert", "fbgemm"];

/// The softmax of a loss and that of expert routing are not attention, wherever in a name they are.
pub const NOT_ATTENTION: [&str; 6] =
    ["log_softmax", "logsoftmax", "nll_loss", "cross_entropy", "topk_softmax", "topkgating"];

/// The first rule that fits decides: an attention kernel has a product in it, a fused norm a quantisation.
pub const RULES: [Rule; 7] = [
    Rule::new(
        Group::Communication,
        &[
            "nccl",
            "rccl",
            "msccl",
            "allreduce",
            "all_reduce",
            "allgather",
            "all_gather",
            "reduce_scatter",
            "reducescatter",
            "all_to_all",
            "alltoall",
            "cross_device_reduce",
            "collective_permute",
            "collective_broadcast",
            "multimem",
            "nvshmem",
            "rocshmem",
            "deepep",
            "epdispatch",
            "epcombine",
            "moea2a",
            "oneshot",
            "twoshot",
            "one_shot",
            "two_shot",
            "c10d::",
            "gloo:",
        ],
        &["deep_ep", "dpsk::ep"],
    ),
    Rule::new(
        Group::Attention,
        &[
            "attention",
            "attn",
            "flash_fwd",
            "flash_bwd",
            "flashmla",
            "sage_fwd",
            "sage_bwd",
            "fmha",
            "softmax",
            "soft_max",
            "rotary",
            "rope",
            "qknorm",
            "kv_cache",
            "kvcache",
            "kv_indices",
            "reshape_and_cache",
            "paged",
            "sdpa",
            "batchprefill",
            "batchdecode",
            "fwd_kernel_stage",
            "fwd_grouped_kernel_stage",
            "mqa_logits",
            "delta_rule",
            "reduce_segments",
            "gqa",
            "xqa",
        ],
        &["mha", "mmha", "mla", "flash"],
    ),
    Rule::new(
        Group::Embedding,
        &[
            "embedding",
            // Helpers of FBGEMM's tables, and of PyTorch's gradient of a table.
            "bounds_check_indices",
            "linearize_index",
            "linearize_cache",
            "lxu_cache",
            "lru_cache",
            "krn_partial",
            "compute_grad_weight",
            "sum_and_scatter",
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
            "instancenorm",
            "ln_fwd",
            "ln_bwd",
            "bn_fw",
            "bn_bw",
            "cublaslt_norm",
            "welford",
            "rowwisemoments",
            "gammabeta",
            "computegradinput",
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
            "_tensorop",
            "conv",
            "wgrad",
            "dgrad",
            "fprop",
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
            "marlin",
            "machete",
            "fused_moe",
            "fmoe",
            "flatmm",
            "mul_mat",
            "f8f8bf16",
            // Helpers of products and convolutions: where their operands are, and their transforms.
            "im2col",
            "col2im",
            "computeoffsetskernel",
            "computeboffsetskernel",
            "epilogue::impl",
            "fft2d_",
        ],
        &["mm", "bmm", "addmm", "baddbmm", "dot", "dot_general"],
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
            "doactivation",
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
