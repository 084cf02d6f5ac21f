//! The operations of a transformer, on the device: numbers are stored as f32, bf16 or f16 and computed with in f32.
//!
//! Everything is row-major. Each operation puts its work on a stream, allocates nothing and does not wait, so that all of
//! it can be captured into a graph; sizes are checked before. What the results must be is computed plainly in
//! [`mod@reference`].

mod adamw;
mod attention;
mod attention_backward;
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
    gradients::{Gradients, HeadNormGradients, Normed},
    heads::{HeadNorm, Packed, Pairing, Rotation},
    operations::Operations,
    random::random_value,
    sizes::HeadSizes,
};
use crate::{blas::Element, nvrtc::Source};

/// A text of kernels over numbers, behind what they all begin with and the headers that it names.
macro_rules! text {
    ($($header:literal,)* in $file:literal) => {
        Source {
            file: $file,
            text: concat!(
                include_str!("../kernels/number.cuh"),
                $(include_str!(concat!("../kernels/", $header)),)*
                include_str!(concat!("../kernels/", $file))
            ),
        }
    };
}

/// Every text of kernels over numbers, by file. [`variants`] says what each is compiled with.
pub const SOURCES: [Source<'static>; 18] = [
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
];

const ROWS: Source<'static> = text!(in "rows.cu");
const RMS_NORM: Source<'static> = text!(in "rms_norm.cu");
const HEADS: Source<'static> = text!("rotate.cuh", in "heads.cu");
const SOFTMAX: Source<'static> = text!(in "softmax.cu");
const SWIGLU: Source<'static> = text!(in "swiglu.cu");
const ARGMAX: Source<'static> = text!(in "argmax.cu");
const RANDOM: Source<'static> = text!(in "random.cu");
const ATTENTION: Source<'static> = text!(in "attention.cu");
const ATTENTION_TENSOR: Source<'static> = text!("tensor.cuh", in "attention_tensor.cu");
const LOSS: Source<'static> = text!("gradient.cuh", in "loss.cu");
const RMS_NORM_BACKWARD: Source<'static> = text!("gradient.cuh", in "rms_norm_backward.cu");
const SWIGLU_BACKWARD: Source<'static> = text!("gradient.cuh", in "swiglu_backward.cu");
const HEADS_BACKWARD: Source<'static> = text!("gradient.cuh", "rotate.cuh", in "heads_backward.cu");
const SOFTMAX_BACKWARD: Source<'static> = text!("gradient.cuh", in "softmax_backward.cu");
const ROWS_BACKWARD: Source<'static> = text!("gradient.cuh", in "rows_backward.cu");
const ADAMW: Source<'static> = text!(in "adamw.cu");
const ATTENTION_BACKWARD: Source<'static> = text!("gradient.cuh", in "attention_backward.cu");
const ATTENTION_BACKWARD_TENSOR: Source<'static> = text!("tensor.cuh", in "attention_backward_tensor.cu");

/// The sizes of heads that a check compiles attention for; it can be compiled for others.
const HEAD_DIMS: [u32; 8] = [6, 16, 32, 64, 80, 96, 128, 256];

/// Each text with the options it is compiled with, one list for each variant that a check compiles.
pub fn variants() -> Vec<(Source<'static>, Vec<String>)> {
    let types = [f32::OPTION, bf16::OPTION, f16::OPTION];
    let each_type = |source| types.map(|option| (source, vec![option.to_owned()]));
    let each_head =
        |source| types.into_iter().flat_map(move |option| HEAD_DIMS.map(|dim| (source, with_head(option, dim))));
    let of_tensor_cores =
        |options: &[String], head_dim: u32| options[0] != f32::OPTION && attention::is_for_tensor_cores(head_dim);
    let tensor = types.into_iter().flat_map(|option| HEAD_DIMS.map(|dim| (dim, with_head(option, dim))));
    let tensor = tensor.filter(|(dim, options)| of_tensor_cores(options, *dim));
    let of_heads = [ATTENTION, ATTENTION_TENSOR, ATTENTION_BACKWARD, ATTENTION_BACKWARD_TENSOR];
    let plain = SOURCES.into_iter().filter(|source| !of_heads.contains(source)).flat_map(each_type);
    let plain = plain.chain(each_head(ATTENTION)).chain(each_head(ATTENTION_BACKWARD));
    let tensor =
        tensor.flat_map(|(_, options)| [(ATTENTION_TENSOR, options.clone()), (ATTENTION_BACKWARD_TENSOR, options)]);
    plain.chain(tensor).collect()
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
        let tensor = variants.iter().filter(|(source, _)| *source == ATTENTION_TENSOR);
        assert!(tensor.into_iter().all(|(_, options)| options[0] != f32::OPTION));
    }
}
