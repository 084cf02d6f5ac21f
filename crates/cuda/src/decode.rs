//! One decode step, limited by reading the weights: a few kernels per layer, to be captured into one graph and replayed
//! without the host.
//!
//! Elements are stored as f32, bf16 or f16, and computed in f32; everything is row-major. A [`Step`] runs in stream order,
//! allocates nothing and does not wait. On devices of compute capability 9.0 and above the kernels of a step overlap: each
//! loads its weights while the previous one still runs. A step therefore begins with [`Step::embed`], which waits for all
//! work on the stream, and any other reader of a step's results is launched without overlap.
//!
//! The GPU tests compare all kernels with CPU versions.

mod adaln;
mod attention;
mod diffusion;
mod frames;
mod product;
mod sample;
mod sizes;
mod state;
mod step;
mod tensor;
mod tiles;

pub use self::{
    adaln::{AdaLn, AdaLnSizes},
    attention::{Attention, StepRows},
    diffusion::{DiffusionSizes, DiffusionState, DiffusionStep, LatentTarget},
    frames::{FrameStep, FrameTables, Frames},
    product::{Linear, Norm},
    sample::{MAX_SAMPLED_VOCAB, NextRow, Rules, SampledCode, Sampler, Sampling, SamplingPart},
    sizes::{AttentionTuning, StepSizes, Tuning},
    state::State,
    step::Step,
    tensor::TensorTuning,
};
use crate::nvrtc::{Source, source};

const LINEAR: Source<'static> =
    source!("decode.cuh", "cp_async.cuh", "fp8.cuh", "decode_linear.cuh", in "decode_linear.cu");
const LINEAR_TENSOR: Source<'static> = source!(
    "decode.cuh", "cp_async.cuh", "mma.cuh", "cluster.cuh", "decode_linear.cuh", in "decode_linear_tensor.cu"
);
const ATTENTION: Source<'static> = source!(
    "decode.cuh", "mma.cuh", "cluster.cuh", "decode_attention.cuh", "decode_attention_simt.cuh",
    "decode_attention_tensor.cuh", in "decode_attention.cu"
);
const TOKEN: Source<'static> = source!("decode.cuh", in "decode_token.cu");
const SAMPLE: Source<'static> = source!("decode.cuh", "decode_random.cuh", in "decode_sample.cu");
const FRAME: Source<'static> = source!("decode.cuh", in "decode_frame.cu");
const DIFFUSION: Source<'static> = source!("decode.cuh", in "decode_diffusion.cu");

/// Every source of step kernels.
pub const SOURCES: [Source<'static>; 7] = [LINEAR, LINEAR_TENSOR, ATTENTION, TOKEN, SAMPLE, FRAME, DIFFUSION];
