//! The words in names that belong to each group.

use std::sync::LazyLock;

use super::Group;

/// Which names belong to a group.
pub struct Rule {
    pub group: Group,
    /// Parts of names.
    parts: Vec<&'static str>,
    /// Whole words, for short words that occur inside others.
    words: Vec<&'static str>,
}

impl Rule {
    /// A rule from its parts and its words, with blanks between them.
    fn new(group: Group, parts: &'static str, words: &'static str) -> Self {
        Self { group, parts: parts.split(' ').collect(), words: words.split_whitespace().collect() }
    }

    /// Whether a text, as [`plain`] returns it, matches the rule.
    pub fn fits(&self, text: &str) -> bool {
        self.parts.iter().any(|part| text.contains(part)) || self.words.iter().any(|word| has_word(text, word))
    }
}

/// Whether a text contains a word with no letter or digit next to it.
fn has_word(text: &str, word: &str) -> bool {
    let is_outside = |letter: Option<char>| letter.is_none_or(|letter| !letter.is_alphanumeric());
    let mut found = text.match_indices(word);
    found
        .any(|(at, _)| is_outside(text[..at].chars().next_back()) && is_outside(text[at + word.len()..].chars().next()))
}

/// A name as the rules expect it: lower case, with underscores for hyphens (XLA writes `all-reduce`), and without
/// words that only resemble those of a rule.
pub fn plain(name: &str) -> String {
    let name = name.to_ascii_lowercase().replace('-', "_");
    MISLEADING.iter().fold(name, |name, word| if name.contains(word) { name.replace(word, "") } else { name })
}

/// `convert` is not a convolution, `property` does not contain RoPE, and FBGEMM has more than GEMMs.
const MISLEADING: [&str; 3] = ["conver", "propert", "fbgemm"];

/// The softmax of a loss and that of expert routing are not attention, wherever they are in a name.
pub const NOT_ATTENTION: [&str; 6] =
    ["log_softmax", "logsoftmax", "nll_loss", "cross_entropy", "topk_softmax", "topkgating"];

/// The first matching rule decides: an attention kernel contains a product, a fused norm a quantisation.
pub static RULES: LazyLock<[Rule; 7]> = LazyLock::new(|| {
    [
        Rule::new(
            Group::Communication,
            "nccl rccl msccl allreduce all_reduce allgather all_gather reduce_scatter reducescatter all_to_all alltoall \
             cross_device_reduce collective_permute collective_broadcast multimem nvshmem rocshmem deepep epdispatch \
             epcombine moea2a oneshot twoshot one_shot two_shot c10d:: gloo:",
            "deep_ep dpsk::ep",
        ),
        Rule::new(
            Group::Attention,
            "attention attn flash_fwd flash_bwd flashmla sage_fwd sage_bwd fmha softmax soft_max rotary rope qknorm \
             kv_cache kvcache kv_indices reshape_and_cache paged sdpa batchprefill batchdecode fwd_kernel_stage \
             fwd_grouped_kernel_stage mqa_logits delta_rule reduce_segments gqa xqa",
            "mha mmha mla flash",
        ),
        // The later ones are helpers of FBGEMM's tables, and of PyTorch's gradient of a table.
        Rule::new(
            Group::Embedding,
            "embedding bounds_check_indices linearize_index linearize_cache lxu_cache lru_cache krn_partial \
             compute_grad_weight sum_and_scatter",
            "",
        ),
        Rule::new(
            Group::Norm,
            "layer_norm layernorm rms_norm rmsnorm batch_norm batchnorm group_norm groupnorm instance_norm instancenorm \
             ln_fwd ln_bwd bn_fw bn_bw cublaslt_norm welford rowwisemoments gammabeta computegradinput",
            "",
        ),
        // The later ones are helpers of products and convolutions: where their operands are, and their transforms.
        Rule::new(
            Group::Matmul,
            "gemm matmul cijk_ nvjet _tensorop conv wgrad dgrad fprop winograd scudnn splitk gemv aten::linear \
             aten::einsum cublas xmma wmma hgmma marlin machete fused_moe fmoe flatmm mul_mat f8f8bf16 im2col col2im \
             computeoffsetskernel computeboffsetskernel epilogue::impl fft2d_",
            "mm bmm addmm baddbmm dot dot_general",
        ),
        Rule::new(
            Group::Activation,
            "silu gelu relu swiglu geglu sigmoid tanh softplus mish act_and_mul doactivation hardswish \
             launch_clamp_scalar threshold_kernel threshold_backward elu_kernel glu_kernel",
            "",
        ),
        Rule::new(
            Group::Copy,
            "memcpy memset copy catarray aten::clone aten::contiguous transpose permute nchwtonhwc nhwctonchw \
             fillfunctor aten::fill_ aten::zero_ cast_kernel",
            "aten::to aten::cat cpy",
        ),
    ]
});
