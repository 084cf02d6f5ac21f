use super::*;

#[test]
fn kernels_of_several_vendors_are_grouped() {
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
        ("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::BFloat16>>", Group::Other),
    ];
    for (name, group) in others {
        assert_eq!(of(name), group, "{name}");
    }
}

#[test]
fn host_operations_have_the_same_groups() {
    let of = |name| Group::of(Activity::Operation, name);
    let found = ["aten::mm", "aten::linear", "aten::native_layer_norm", "aten::silu", "aten::copy_"].map(of);
    assert_eq!(found, [Group::Matmul, Group::Matmul, Group::Norm, Group::Activation, Group::Copy]);
    assert_eq!(of("aten::scaled_dot_product_attention"), Group::Attention);
}

#[test]
fn partial_matches_of_a_word_are_group_other() {
    let of = |name| Group::of(Activity::Kernel, name);
    for name in ["convert_element_type", "get_device_properties", "cunn_SoftMaxForward<LogSoftMaxForwardEpilogue>"] {
        assert_eq!(of(name), Group::Other, "{name}");
    }
    assert_eq!(of("convolve_sgemm"), Group::Matmul);
}

#[test]
fn short_words_match_only_whole_words() {
    let of = |name| Group::of(Activity::Operation, name);
    for name in ["aten::topk", "aten::tolist", "aten::category", "aten::mmap"] {
        assert_eq!(of(name), Group::Other, "{name}");
    }
    assert_eq!(["aten::to", "aten::to, op_id = 7", "aten::cat"].map(of), [Group::Copy; 3]);
    assert_eq!(["aten::mm", "aten::bmm, op_id = 7", "aten::_scaled_mm"].map(of), [Group::Matmul; 3]);
}

#[test]
fn a_fused_kernel_belongs_to_its_highest_ranked_operation() {
    let of = |name| Group::of(Activity::Kernel, name);
    let expected = [
        ("triton_tem_fused_mm_3", Group::Matmul),
        ("triton_tem_fused_addmm_5", Group::Matmul),
        ("triton_mm_12", Group::Matmul),
        ("triton_tem_fused__to_copy_bmm_silu_1", Group::Matmul),
        ("triton_per_fused__softmax__to_copy_mean_rsqrt_2", Group::Attention),
        ("triton_tem_fused_flex_attention_0", Group::Attention),
        ("triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_0", Group::Norm),
        ("triton_per_fused_native_layer_norm_gelu_4", Group::Norm),
        ("triton_poi_fused__to_copy_mul_silu_7", Group::Activation),
        ("triton_poi_fused__to_copy_3", Group::Copy),
        ("triton_poi_fused__unsafe_view_clone_transpose_2_0d1d2de", Group::Copy),
        ("triton_poi_fused_convert_element_type_1", Group::Copy),
        ("triton_poi_fused__to_copy_add_3", Group::Other),
        ("triton_poi_fused_mul_rsqrt_3", Group::Other),
        ("triton_red_fused__log_softmax_nll_loss_forward_1", Group::Other),
        ("triton_poi_fused_view_1", Group::Other),
    ];
    for (name, group) in expected {
        assert_eq!(of(name), group, "{name}");
    }
}

#[test]
fn expert_and_quantised_gemms_are_gemms() {
    let of = |name| Group::of(Activity::Kernel, name);
    let products = ["fused_moe_kernel", "mul_mat_q<q4_0>", "void mul_mat_vec_q<(ggml_type)2, 1>(void const*)"];
    assert_eq!(products.map(of), [Group::Matmul; 3]);
    assert_eq!(["cpy_f32_f16<cpy_1_f32_f16>", "copyPackedKernel"].map(of), [Group::Copy; 2]);
    assert_eq!([of("soft_max_f32<true>"), of("topkGatingSoftmax<4>")], [Group::Attention, Group::Other]);
}

#[test]
fn helper_kernels_belong_to_the_operation_they_serve() {
    let of = |name| Group::of(Activity::Kernel, name);
    assert_eq!(of("void cask_cudnn_infer::computeOffsetsKernel<true, false>"), Group::Matmul);
    assert_eq!(of("void fft2d_r2c_32x32<float, false, 5u, true>"), Group::Matmul);
    assert_eq!(of("reduce_segments"), Group::Attention);
    assert_eq!(of("elementwise_kernel<4, BinaryFunctor<float, threshold_kernel_impl<float>>>"), Group::Activation);
}

#[test]
fn a_copy_is_a_copy_whatever_its_name() {
    assert_eq!(Group::of(Activity::Copy, "CopyHostToDevice"), Group::Copy);
}

#[test]
fn types_in_template_arguments_are_ignored() {
    let of = |name: &str| Group::of(Activity::Kernel, name);
    for argument in
        ["cutlass::bfloat16_t", "cutlass::float_e4m3_t", "(vllm::Fp8KVCacheDataType)0", "c10::Float8_e4m3fn"]
    {
        assert_eq!(of(&format!("void a::dequantize<{argument}, 4>({argument}*)")), Group::Other, "{argument}");
        assert_eq!(of(&format!("void deep_ep::intranode::combine<{argument}>(int)")), Group::Communication);
    }
    assert_eq!(of("void a::run(cublasLtEpilogue_t, int)"), Group::Other);
}

#[test]
fn the_function_name_takes_precedence_over_namespaces_and_arguments() {
    let of = |name| Group::of(Activity::Kernel, name);
    assert_eq!(of("void flash::transpose<float>(int)"), Group::Copy);
    assert_eq!(of("void a::rms_norm<b::gemm<float>>(int)"), Group::Norm);
    assert_eq!(of("void a::run<b::silu<c::gemm<float>>>(int)"), Group::Activation);
    assert_eq!(of("_ZN5cudnn8softmax_ILi64EN1a4gemmEEEvv"), Group::Attention);
}

/// Names of real kernels with their groups, one a line.
const REAL_KERNELS: &str = include_str!("../../../../../tests/data/top/kernel_groups.tsv");

#[test]
fn real_kernel_names_of_many_libraries_are_grouped() {
    let kernels: Vec<(&str, &str)> = REAL_KERNELS.lines().filter_map(|line| line.split_once('\t')).collect();
    assert!(kernels.len() >= 150, "{} names", kernels.len());
    let wrong: Vec<String> = kernels
        .iter()
        .map(|&(group, name)| (group, Group::of(Activity::Kernel, name).word(), name))
        .filter(|(group, found, _)| group != found)
        .map(|(group, found, name)| format!("{group}, not {found}: {name}"))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
