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
        let name = NO_WORDS.iter().fold(name.to_ascii_lowercase(), |name, word| name.replace(word, ""));
        let has = |words: &[&str]| words.iter().any(|word| name.contains(word));
        RULES.iter().find(|(_, words)| has(words)).map_or(Self::Other, |(group, _)| *group)
    }
}

/// Parts of words that only look like those of the rules: `convert` is no convolution, a property has no rope.
const NO_WORDS: [&str; 2] = ["conver", "propert"];

/// The first rule of which a word occurs in the name counts: an attention kernel has a product in it, a fused norm a
/// quantisation.
const RULES: [(Group, &[&str]); 7] = [
    // The softmax of a loss is none of an attention.
    (Group::Other, &["log_softmax", "logsoftmax", "nll_loss", "cross_entropy"]),
    (
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
    ),
    (
        Group::Attention,
        &[
            "attention",
            "flash_fwd",
            "flash_bwd",
            "flashattn",
            "flash_attn",
            "fmha",
            "softmax",
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
    ),
    (
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
    ),
    (
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
            "aten::mm",
            "aten::bmm",
            "aten::addmm",
            "aten::baddbmm",
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
            "implicit_gemm",
            // Helpers of convolutions: where their operands lie, and their transforms.
            "computeoffsetskernel",
            "computeboffsetskernel",
            "fft2d_",
        ],
    ),
    (
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
    ),
    (
        Group::Copy,
        &[
            "memcpy",
            "memset",
            "copy",
            "catarray",
            "aten::cat",
            "aten::to",
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
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_of_several_makers_find_their_group() {
        let of = |name| Group::of(Activity::Kernel, name);
        let matmul = [
            "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64",
            "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT64x32x256",
            "nvjet_tst_192x192_64x3_2x1_v_bz_TNT",
            "volta_sgemm_64x64_nt",
            "void cudnn::winograd_nonfused::winogradForwardData4x4<float, float>(…)",
            "_matmul_ogs_NNT_bf16xbf16xmxfp4_16x128x256x1_swiglu",
        ];
        for name in matmul {
            assert_eq!(of(name), Group::Matmul, "{name}");
        }
        let attention = [
            "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128, 128, 4, cutlass::…>>",
            "void paged_attention_ll4mi_QKV_mfma16_kernel<0, __hip_bfloat16>",
            "void vllm::rotary_embedding_kernel<c10::BFloat16, true>(long const*)",
            "void (anonymous namespace)::softmax_warp_forward<float, float, float, 9, false>",
            "fmha_cutlassF_bf16_aligned_64x128_rf_sm80",
        ];
        for name in attention {
            assert_eq!(of(name), Group::Attention, "{name}");
        }
        let others = [
            ("_ZN5aiter24add_rmsnorm_quant_kernelIDF16bDF16bLi64E", Group::Norm),
            ("void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16>", Group::Norm),
            (
                "void at::native::vectorized_elementwise_kernel<4, at::native::(anonymous namespace)::silu_kernel",
                Group::Activation,
            ),
            ("_ZN7sgl_hip10activation18act_and_mul_kernelI14__hip_bfloat16", Group::Activation),
            ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", Group::Communication),
            ("void at::native::elementwise_kernel<128, 4, at::native::direct_copy_kernel_cuda", Group::Copy),
            (
                "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::BFloat16>>",
                Group::Other,
            ),
        ];
        for (name, group) in others {
            assert_eq!(of(name), group, "{name}");
        }
    }

    #[test]
    fn operations_of_the_host_find_the_same_groups() {
        let of = |name| Group::of(Activity::Operation, name);
        let found = ["aten::mm", "aten::linear", "aten::native_layer_norm", "aten::silu", "aten::copy_"].map(of);
        assert_eq!(found, [Group::Matmul, Group::Matmul, Group::Norm, Group::Activation, Group::Copy]);
        assert_eq!(of("aten::scaled_dot_product_attention"), Group::Attention);
    }

    #[test]
    fn what_only_looks_like_a_word_of_a_rule_is_other() {
        let of = |name| Group::of(Activity::Kernel, name);
        for name in ["convert_element_type", "get_device_properties", "cunn_SoftMaxForward<LogSoftMaxForwardEpilogue>"]
        {
            assert_eq!(of(name), Group::Other, "{name}");
        }
        assert_eq!(of("convolve_sgemm"), Group::Matmul);
    }

    #[test]
    fn helpers_belong_to_what_they_help() {
        let of = |name| Group::of(Activity::Kernel, name);
        assert_eq!(of("void cask_cudnn_infer::computeOffsetsKernel<true, false>"), Group::Matmul);
        assert_eq!(of("void fft2d_r2c_32x32<float, false, 5u, true>"), Group::Matmul);
        assert_eq!(of("reduce_segments"), Group::Attention);
        assert_eq!(of("elementwise_kernel<4, BinaryFunctor<float, threshold_kernel_impl<float>>>"), Group::Activation);
    }

    #[test]
    fn a_copy_is_one_whatever_its_name() {
        assert_eq!(Group::of(Activity::Copy, "CopyHostToDevice"), Group::Copy);
    }
}
