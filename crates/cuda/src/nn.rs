//! The operations of a transformer on the device: numbers are stored as f32, bf16 or f16 and computed in f32.
//!
//! Everything is row-major. Each operation puts its work on a stream, allocates nothing and does not wait, so that it
//! can be captured into a graph; sizes are checked first. The GPU tests compare each with a plain CPU version.

mod adamw;
mod attention;
mod attention_backward;
mod audio_rows;
mod block_attention;
mod conv;
mod fp8;
mod fuse;
mod gradients;
mod heads;
mod operations;
mod random;
mod sizes;
mod softmax;
mod stream_rows;

use half::{bf16, f16};

pub use self::{
    adamw::{AdamW, Parameter, Rates},
    attention::Attention,
    attention_backward::{Attended, AttentionGradients},
    audio_rows::{AudioRows, Codebooks, Gate},
    block_attention::{BlockAttention, BlockLayout, Engine, LayoutParts, Rule, TILING, Tiling},
    conv::{Convolution, Convolutions, Signal, Snake},
    fp8::{Fp8, Fp8Scales},
    fuse::{Additions, CachePlaces, CacheSection, CacheTable, Fuse, FuseSizes},
    gradients::{Gradients, HeadNormGradients, Normed},
    heads::{HeadNorm, Packed, Pairing, Rotation},
    operations::Operations,
    random::random_value,
    sizes::HeadSizes,
    stream_rows::{Addition, Kept, Mixer, StreamRows},
};
use crate::blas::Element;
use crate::nvrtc::{Source, source};

/// Declares kernel sources by their files, and the list of all of them.
macro_rules! sources {
    ($($name:ident($($file:tt)+),)*) => {
        $(const $name: Source<'static> = source!($($file)+);)*

        /// Every kernel source for a dtype. [`variants`] lists the compiler options.
        pub const SOURCES: &[Source<'static>] = &[$($name),*];
    };
}

sources! {
    ROWS(in "rows.cu"),
    RMS_NORM(in "rms_norm.cu"),
    HEADS("rotate.cuh", in "heads.cu"),
    SOFTMAX(in "softmax.cu"),
    SWIGLU(in "swiglu.cu"),
    ARGMAX(in "argmax.cu"),
    RANDOM(in "random.cu"),
    ATTENTION(in "attention.cu"),
    ATTENTION_TENSOR("mma.cuh", "tensor.cuh", in "attention_tensor.cu"),
    LOSS("gradient.cuh", in "loss.cu"),
    RMS_NORM_BACKWARD("gradient.cuh", in "rms_norm_backward.cu"),
    SWIGLU_BACKWARD("gradient.cuh", in "swiglu_backward.cu"),
    HEADS_BACKWARD("gradient.cuh", "rotate.cuh", in "heads_backward.cu"),
    SOFTMAX_BACKWARD("gradient.cuh", in "softmax_backward.cu"),
    ROWS_BACKWARD("gradient.cuh", in "rows_backward.cu"),
    ADAMW(in "adamw.cu"),
    ATTENTION_BACKWARD("gradient.cuh", in "attention_backward.cu"),
    ATTENTION_BACKWARD_TENSOR("mma.cuh", "tensor.cuh", in "attention_backward_tensor.cu"),
    BLOCK_ATTENTION("block.cuh", in "block_attention.cu"),
    BLOCK_ATTENTION_TENSOR("mma.cuh", "tensor.cuh", "block.cuh", in "block_attention_tensor.cu"),
    BLOCK_ATTENTION_HOPPER("mma.cuh", "tensor.cuh", "hopper.cuh", "block.cuh", in "block_attention_hopper.cu"),
    FUSE("gelu.cuh", in "fuse.cu"),
    CONV(in "conv.cu"),
    AUDIO_ROWS("gelu.cuh", in "audio_rows.cu"),
    STREAM_ROWS(in "stream_rows.cu"),
    FP8("fp8.cuh", in "fp8.cu"),
}

/// The head sizes for which a check compiles attention; others are possible.
const HEAD_DIMS: [u32; 8] = [6, 16, 32, 64, 80, 96, 128, 256];

/// Each text with the options it is compiled with, one list for each variant that a check compiles.
pub fn variants() -> Vec<(Source<'static>, Vec<String>)> {
    let types = [f32::OPTION, bf16::OPTION, f16::OPTION];
    let of_heads = [
        (ATTENTION, Serves::All),
        (ATTENTION_BACKWARD, Serves::All),
        (ATTENTION_TENSOR, Serves::TensorCores),
        (ATTENTION_BACKWARD_TENSOR, Serves::TensorCores),
        (BLOCK_ATTENTION, Serves::All),
        (BLOCK_ATTENTION_TENSOR, Serves::TensorCores),
        (BLOCK_ATTENTION_HOPPER, Serves::Warpgroups),
    ];
    let is_of_heads = |source: &Source<'_>| of_heads.iter().any(|(other, _)| other == source);
    let plain = SOURCES.iter().copied().filter(|source| !is_of_heads(source));
    let mut variants: Vec<_> = plain.flat_map(|source| types.map(|option| (source, vec![option.to_owned()]))).collect();
    variants.extend(types.map(|option| (ATTENTION, [vec![option.to_owned()], of_window(256, Some(512))].concat())));
    for (source, serves) in of_heads {
        let each = types.into_iter().flat_map(|option| HEAD_DIMS.map(|dim| (option, dim)));
        let each = each.filter(|(option, dim)| serves.has(option, *dim));
        variants.extend(each.map(|(option, dim)| (source, [vec![option.to_owned()], of_head(dim)].concat())));
    }
    variants
}

/// The architecture for which a source is compiled if this one is requested; none if it is not supported.
pub fn architecture_for(source: &Source<'_>, asked: &str) -> Option<String> {
    match *source == BLOCK_ATTENTION_HOPPER {
        true => asked.starts_with("sm_90").then(|| block_attention::HOPPER.to_owned()),
        false => Some(asked.to_owned()),
    }
}

/// Which dtypes and head sizes an attention source supports.
#[derive(Clone, Copy)]
enum Serves {
    All,
    TensorCores,
    Warpgroups,
}

impl Serves {
    fn has(self, option: &str, head_dim: u32) -> bool {
        match self {
            Self::All => true,
            Self::TensorCores => option != f32::OPTION && attention::is_for_tensor_cores(head_dim),
            Self::Warpgroups => option != f32::OPTION && block_attention::is_for_warpgroups(head_dim),
        }
    }
}

/// The compiler options for a head size, in addition to the dtype.
pub(crate) fn of_head(head_dim: u32) -> Vec<String> {
    vec![format!("-DHEAD_DIM={head_dim}")]
}

/// The same for queries that see this number of keys at most.
pub(crate) fn of_window(head_dim: u32, window: Option<u32>) -> Vec<String> {
    of_head(head_dim).into_iter().chain(window.map(|keys| format!("-DWINDOW={keys}"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_is_compiled_for_the_types_it_serves() {
        let variants = variants();
        let count = |file: &str| variants.iter().filter(|(source, _)| source.file == file).count();
        assert_eq!((count("rows.cu"), count("attention.cu"), count("attention_tensor.cu")), (3, 27, 12));
        assert_eq!((count("attention_backward.cu"), count("attention_backward_tensor.cu")), (24, 12));
        assert_eq!((count("block_attention.cu"), count("block_attention_tensor.cu")), (24, 12));
        assert_eq!(count("block_attention_hopper.cu"), 4);
        let tensor = variants.iter().filter(|(source, _)| *source == ATTENTION_TENSOR);
        assert!(tensor.into_iter().all(|(_, options)| options[0] != f32::OPTION));
    }
    #[test]
    fn what_only_hopper_has_is_compiled_for_hopper_alone() {
        assert_eq!(architecture_for(&ATTENTION, "sm_80").as_deref(), Some("sm_80"));
        assert_eq!(architecture_for(&BLOCK_ATTENTION_HOPPER, "sm_90").as_deref(), Some("sm_90a"));
        assert_eq!(architecture_for(&BLOCK_ATTENTION_HOPPER, "sm_80"), None);
    }
}
