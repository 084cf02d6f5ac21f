//! The operations of a transformer: elements are stored as f32, bf16 or f16, and computed in f32.
//!
//! Everything is row-major. Operations run in stream order, allocate nothing and do not wait, so that they can be captured
//! into a graph. Sizes are checked first. The GPU tests compare each operation with a CPU version.

mod adamw;
mod attention;
mod attention_backward;
mod block_attention;
mod codec;
mod conv;
mod fp8;
mod fuse;
mod gradients;
mod heads;
mod operations;
mod sizes;
mod softmax;
mod streaming;

pub use self::{
    adamw::{AdamW, Parameter, Rates},
    attention::Attention,
    attention_backward::{Attended, AttentionGradients},
    block_attention::{BlockAttention, BlockLayout, Engine, LayoutParts, Rule, TILING, Tiling},
    codec::{Activation, Codebooks, CodecOperations},
    conv::{Convolution, Convolutions, Signal, Snake},
    fp8::{Fp8, Fp8Scales},
    fuse::{Additions, CacheAddresses, CacheSection, CacheTable, Fuse, FuseSizes},
    gradients::{Gradients, HeadNormGradients, Normed},
    heads::{HeadNorm, Packed, Pairing, Rotation},
    operations::Operations,
    sizes::HeadSizes,
    streaming::{History, Mixer, Residual, StreamingOperations},
};
use crate::nvrtc::{Source, source};

/// Declares kernel sources by their files, headers first, and the list of all of them.
macro_rules! sources {
    ($($name:ident($($file:tt)+),)*) => {
        $(const $name: Source<'static> = source!($($file)+);)*

        /// Every kernel source for a dtype.
        pub const SOURCES: &[Source<'static>] = &[$($name),*];
    };
}

sources! {
    ROWS(in "rows.cu"),
    RMS_NORM("reduce.cuh", "norm.cuh", in "rms_norm.cu"),
    HEADS("rope.cuh", in "heads.cu"),
    SOFTMAX("reduce.cuh", "softmax.cuh", in "softmax.cu"),
    SWIGLU(in "swiglu.cu"),
    ARGMAX("cluster.cuh", in "argmax.cu"),
    RANDOM("elementwise.cuh", in "random.cu"),
    ATTENTION("attention.cuh", "attention_simt.cuh", in "attention.cu"),
    ATTENTION_TENSOR("cp_async.cuh", "mma.cuh", "attention.cuh", "attention_tensor.cuh", in "attention_tensor.cu"),
    LOSS("reduce.cuh", in "loss.cu"),
    RMS_NORM_BACKWARD(in "rms_norm_backward.cu"),
    SWIGLU_BACKWARD(in "swiglu_backward.cu"),
    HEADS_BACKWARD("rope.cuh", in "heads_backward.cu"),
    SOFTMAX_BACKWARD("reduce.cuh", "softmax.cuh", in "softmax_backward.cu"),
    ROWS_BACKWARD(in "rows_backward.cu"),
    ADAMW(in "adamw.cu"),
    ATTENTION_BACKWARD("attention.cuh", "attention_simt.cuh", in "attention_backward.cu"),
    ATTENTION_BACKWARD_TENSOR(
        "cp_async.cuh", "mma.cuh", "attention.cuh", "attention_tensor.cuh", in "attention_backward_tensor.cu"
    ),
    BLOCK_ATTENTION("attention.cuh", "attention_simt.cuh", "block_layout.cuh", in "block_attention.cu"),
    BLOCK_ATTENTION_TENSOR(
        "cp_async.cuh", "mma.cuh", "attention.cuh", "attention_tensor.cuh", "block_layout.cuh",
        in "block_attention_tensor.cu"
    ),
    BLOCK_ATTENTION_HOPPER(
        "cp_async.cuh", "mma.cuh", "hopper.cuh", "attention.cuh", "block_layout.cuh", in "block_attention_hopper.cu"
    ),
    FUSE("reduce.cuh", "norm.cuh", "gelu.cuh", "elementwise.cuh", in "fuse.cu"),
    CONV(in "conv.cu"),
    CODEC("reduce.cuh", "gelu.cuh", in "codec.cu"),
    STREAMING("reduce.cuh", in "streaming.cu"),
    FP8("reduce.cuh", "fp8.cuh", in "fp8.cu"),
}

/// The compiler options for a head size.
pub(crate) fn of_head(head_dim: u32) -> Vec<String> {
    vec![format!("-DHEAD_DIM={head_dim}")]
}

/// The same with a window.
pub(crate) fn of_window(head_dim: u32, window: Option<u32>) -> Vec<String> {
    of_head(head_dim).into_iter().chain(window.map(|keys| format!("-DWINDOW={keys}"))).collect()
}
