//! The operations of a transformer, on the device: numbers are stored as f32, bf16 or f16 and computed with in f32.
//!
//! Everything is row-major. Each operation puts its work on a stream, allocates nothing and does not wait, so that all of
//! it can be captured into a graph; sizes are checked before. What the results must be is computed plainly in
//! [`mod@reference`].

mod adamw;
mod attention;
mod attention_backward;
mod block_attention;
mod fuse;
mod gradients;
mod heads;
mod operations;
mod random;
pub mod reference;
mod sizes;
mod softmax;

use half::{bf16, f16};

pub use self::{
    adamw::{AdamW, Parameter, Rates},
    attention::Attention,
    attention_backward::{Attended, AttentionGradients},
    block_attention::{BlockAttention, BlockLayout, Engine, LayoutParts, Rule, TILING, Tiling},
    fuse::{Additions, CachePlaces, CacheSection, CacheTable, Fuse, FuseSizes},
    gradients::{Gradients, HeadNormGradients, Normed},
    heads::{HeadNorm, Packed, Pairing, Rotation},
    operations::Operations,
    random::random_value,
    sizes::HeadSizes,
};
use crate::{blas::Element, nvrtc::Source};

/// A text of kernels over numbers, behind what they all begin with.
macro_rules! text {
    ($file:literal) => {
        Source {
            file: $file,
            text: concat!(include_str!("../kernels/number.cuh"), include_str!(concat!("../kernels/", $file))),
        }
    };
}

/// The same for gradients, behind what those have in common too.
macro_rules! gradient_text {
    ($file:literal) => {
        Source {
            file: $file,
            text: concat!(
                include_str!("../kernels/number.cuh"),
                include_str!("../kernels/gradient.cuh"),
                include_str!(concat!("../kernels/", $file))
            ),
        }
    };
}

/// The same for tensor cores.
macro_rules! tensor_text {
    ($file:literal) => {
        Source {
            file: $file,
            text: concat!(
                include_str!("../kernels/number.cuh"),
                include_str!("../kernels/tensor.cuh"),
                include_str!(concat!("../kernels/", $file))
            ),
        }
    };
}

/// The same for attention over blocks, with and without tensor cores.
macro_rules! block_text {
    ($file:literal) => {
        Source {
            file: $file,
            text: concat!(
                include_str!("../kernels/number.cuh"),
                include_str!("../kernels/block.cuh"),
                include_str!(concat!("../kernels/", $file))
            ),
        }
    };
    (tensor $file:literal) => {
        Source {
            file: $file,
            text: concat!(
                include_str!("../kernels/number.cuh"),
                include_str!("../kernels/tensor.cuh"),
                include_str!("../kernels/block.cuh"),
                include_str!(concat!("../kernels/", $file))
            ),
        }
    };
    (hopper $file:literal) => {
        Source {
            file: $file,
            text: concat!(
                include_str!("../kernels/number.cuh"),
                include_str!("../kernels/tensor.cuh"),
                include_str!("../kernels/hopper.cuh"),
                include_str!("../kernels/block.cuh"),
                include_str!(concat!("../kernels/", $file))
            ),
        }
    };
}

/// Every text of kernels over numbers, by file. [`variants`] says what each is compiled with.
pub const SOURCES: [Source<'static>; 22] = [
    ROWS,
    RMS_NORM,
    HEADS,
    SOFTMAX,
    SWIGLU,
    ARGMAX,
    RANDOM,
    ATTENTION,
    ATTENTION_TENSOR,
    LOSS,
    RMS_NORM_BACKWARD,
    SWIGLU_BACKWARD,
    HEADS_BACKWARD,
    SOFTMAX_BACKWARD,
    ROWS_BACKWARD,
    ADAMW,
    ATTENTION_BACKWARD,
    ATTENTION_BACKWARD_TENSOR,
    BLOCK_ATTENTION,
    BLOCK_ATTENTION_TENSOR,
    BLOCK_ATTENTION_HOPPER,
    FUSE,
];

const ROWS: Source<'static> = text!("rows.cu");
const RMS_NORM: Source<'static> = text!("rms_norm.cu");
const HEADS: Source<'static> = text!("heads.cu");
const SOFTMAX: Source<'static> = text!("softmax.cu");
const SWIGLU: Source<'static> = text!("swiglu.cu");
const ARGMAX: Source<'static> = text!("argmax.cu");
const RANDOM: Source<'static> = text!("random.cu");
const ATTENTION: Source<'static> = text!("attention.cu");
const ATTENTION_TENSOR: Source<'static> = tensor_text!("attention_tensor.cu");
const LOSS: Source<'static> = gradient_text!("loss.cu");
const RMS_NORM_BACKWARD: Source<'static> = gradient_text!("rms_norm_backward.cu");
const SWIGLU_BACKWARD: Source<'static> = gradient_text!("swiglu_backward.cu");
const HEADS_BACKWARD: Source<'static> = gradient_text!("heads_backward.cu");
const SOFTMAX_BACKWARD: Source<'static> = gradient_text!("softmax_backward.cu");
const ROWS_BACKWARD: Source<'static> = gradient_text!("rows_backward.cu");
const ADAMW: Source<'static> = text!("adamw.cu");
const ATTENTION_BACKWARD: Source<'static> = gradient_text!("attention_backward.cu");
const ATTENTION_BACKWARD_TENSOR: Source<'static> = tensor_text!("attention_backward_tensor.cu");
const FUSE: Source<'static> = text!("fuse.cu");
const BLOCK_ATTENTION: Source<'static> = block_text!("block_attention.cu");
const BLOCK_ATTENTION_TENSOR: Source<'static> = block_text!(tensor "block_attention_tensor.cu");
const BLOCK_ATTENTION_HOPPER: Source<'static> = block_text!(hopper "block_attention_hopper.cu");

/// The sizes of heads that a check compiles attention for; it can be compiled for others.
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
    let plain = SOURCES.into_iter().filter(|source| !is_of_heads(source));
    let mut variants: Vec<_> = plain.flat_map(|source| types.map(|option| (source, vec![option.to_owned()]))).collect();
    for (source, serves) in of_heads {
        let each = types.into_iter().flat_map(|option| HEAD_DIMS.map(|dim| (option, dim)));
        let each = each.filter(|(option, dim)| serves.has(option, *dim));
        variants.extend(each.map(|(option, dim)| (source, with_head(option, dim))));
    }
    variants
}

/// The architecture that a text is compiled for where this one is asked for; none if it cannot be.
pub fn architecture_for(source: &Source<'_>, asked: &str) -> Option<String> {
    match *source == BLOCK_ATTENTION_HOPPER {
        true => asked.starts_with("sm_90").then(|| block_attention::HOPPER.to_owned()),
        false => Some(asked.to_owned()),
    }
}

/// Which types and heads a text of attention serves.
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

fn with_head(option: &str, head_dim: u32) -> Vec<String> {
    vec![option.to_owned(), format!("-DHEAD_DIM={head_dim}")]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_is_compiled_for_the_types_it_serves() {
        let variants = variants();
        let count = |file: &str| variants.iter().filter(|(source, _)| source.file == file).count();
        assert_eq!((count("rows.cu"), count("attention.cu"), count("attention_tensor.cu")), (3, 24, 12));
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
