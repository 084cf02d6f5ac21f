//! One decode step, limited by reading the weights: a few kernels per layer, designed to be captured into one graph and
//! replayed without the host.
//!
//! Numbers are stored as f32, bf16 or f16 and computed in f32; everything is row-major. A [`Step`] puts work on a
//! stream, allocates nothing and does not wait. On devices of compute capability 9.0 and above the kernels of a step
//! overlap: each fetches its weights while the previous one still runs. A step therefore begins with [`Step::embed`],
//! which waits for all work on the stream, and any other reader of a step's results is launched without overlap.
//!
//! The GPU tests compare all kernels with plain CPU versions.

mod adapted;
mod attention;
mod diffusion;
mod frames;
mod product;
mod sample;
mod sizes;
mod state;
mod step;
mod tiles;
mod together;

pub use self::{
    adapted::{Adapted, AdaptedSizes},
    attention::Attention,
    diffusion::{Drawing, DrawingSizes, DrawingStep, LatentTarget},
    frames::{FrameStep, FrameTables, Frames},
    product::{Linear, Norm},
    sample::{Choice, MOST_SAMPLED, NextRow, Rules, Sampler, Sampling, SamplingPart},
    sizes::{Spread, StepSizes, Tuning},
    state::State,
    step::Step,
    together::Together,
};
use crate::nvrtc::{Source, source};

const LINEAR: Source<'static> = source!("decode.cuh", "fp8.cuh", "decode_linear.cuh", in "decode_linear.cu");
const TOGETHER: Source<'static> = source!("decode.cuh", "mma.cuh", "decode_linear.cuh", in "decode_linear_tensor.cu");
const ADAPTED: Source<'static> = source!("decode.cuh", "decode_linear.cuh", in "decode_adapted.cu");
const ATTENTION: Source<'static> = source!(
    "decode.cuh", "mma.cuh", "decode_heads.cuh", "decode_look.cuh", "decode_look_tensor.cuh", in "decode_attention.cu"
);
const TOKEN: Source<'static> = source!("decode.cuh", in "decode_token.cu");
const SAMPLE: Source<'static> = source!("decode.cuh", "decode_chance.cuh", in "decode_sample.cu");
const FRAME: Source<'static> = source!("decode.cuh", in "decode_frame.cu");
const DIFFUSION: Source<'static> = source!("decode.cuh", in "decode_diffusion.cu");

/// Every source of step kernels.
pub const SOURCES: [Source<'static>; 8] = [LINEAR, TOGETHER, ADAPTED, ATTENTION, TOKEN, SAMPLE, FRAME, DIFFUSION];
