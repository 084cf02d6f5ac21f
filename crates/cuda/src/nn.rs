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
    sizes::HeadSizes,
    stream_rows::{Addition, Kept, Mixer, StreamRows},
};
use crate::nvrtc::{Source, source};

/// Declares kernel sources by their files, and the list of all of them.
macro_rules! sources {
    ($($name:ident($($file:tt)+),)*) => {
        $(const $name: Source<'static> = source!($($file)+);)*

        /// Every kernel source for a dtype.
        pub const SOURCES: &[Source<'static>] = &[$($name),*];
    };
}

sources! {
    ROWS(in "rows.cu"),
    RMS_NORM("norm.cuh", in "rms_norm.cu"),
    HEADS("rotate.cuh", in "heads.cu"),
    SOFTMAX("sums.cuh", in "softmax.cu"),
    SWIGLU(in "swiglu.cu"),
    ARGMAX(in "argmax.cu"),
    RANDOM(in "random.cu"),
    ATTENTION("attention_rows.cuh", "attention_plain.cuh", in "attention.cu"),
    ATTENTION_TENSOR(
        "mma.cuh", "tensor.cuh", "attention_rows.cuh", "attention_tensor.cuh", in "attention_tensor.cu"
    ),
    LOSS("sums.cuh", in "loss.cu"),
    RMS_NORM_BACKWARD("sums.cuh", in "rms_norm_backward.cu"),
    SWIGLU_BACKWARD("sums.cuh", in "swiglu_backward.cu"),
    HEADS_BACKWARD("sums.cuh", "rotate.cuh", in "heads_backward.cu"),
    SOFTMAX_BACKWARD("sums.cuh", in "softmax_backward.cu"),
    ROWS_BACKWARD("sums.cuh", in "rows_backward.cu"),
    ADAMW(in "adamw.cu"),
    ATTENTION_BACKWARD("attention_rows.cuh", "attention_plain.cuh", in "attention_backward.cu"),
    ATTENTION_BACKWARD_TENSOR(
        "mma.cuh", "tensor.cuh", "attention_rows.cuh", "attention_tensor.cuh", in "attention_backward_tensor.cu"
    ),
    BLOCK_ATTENTION("attention_rows.cuh", "attention_plain.cuh", "block.cuh", in "block_attention.cu"),
    BLOCK_ATTENTION_TENSOR(
        "mma.cuh", "tensor.cuh", "attention_rows.cuh", "attention_tensor.cuh", "block.cuh", in "block_attention_tensor.cu"
    ),
    BLOCK_ATTENTION_HOPPER("mma.cuh", "tensor.cuh", "hopper.cuh", "attention_rows.cuh", "block.cuh", in "block_attention_hopper.cu"),
    FUSE("gelu.cuh", "norm.cuh", in "fuse.cu"),
    CONV(in "conv.cu"),
    AUDIO_ROWS("gelu.cuh", in "audio_rows.cu"),
    STREAM_ROWS(in "stream_rows.cu"),
    FP8("fp8.cuh", in "fp8.cu"),
}

/// The compiler options for a head size, in addition to the dtype.
pub(crate) fn of_head(head_dim: u32) -> Vec<String> {
    vec![format!("-DHEAD_DIM={head_dim}")]
}

/// The same for queries that see this number of keys at most.
pub(crate) fn of_window(head_dim: u32, window: Option<u32>) -> Vec<String> {
    of_head(head_dim).into_iter().chain(window.map(|keys| format!("-DWINDOW={keys}"))).collect()
}
