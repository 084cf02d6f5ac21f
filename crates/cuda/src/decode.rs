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

use self::product::Weights;
pub use self::{
    adapted::{Adapted, AdaptedSizes},
    attention::{Attention, Rotation},
    diffusion::{Drawing, DrawingSizes, DrawingStep, Factors, LatentTarget},
    frames::{FrameStep, FrameTables, Frames},
    product::{Linear, Norm},
    sample::{Choice, MOST_SAMPLED, NextRow, Rules, Sampler, Sampling, SamplingPart},
    sizes::{StepSizes, Tuning},
    state::State,
    step::Step,
};
use crate::nn::Fp8Scales;
use crate::nvrtc::{Source, source};

const LINEAR: Source<'static> = source!("decode.cuh", "fp8.cuh", "decode_linear.cuh", in "decode_linear.cu");
const ADAPTED: Source<'static> = source!("decode.cuh", "decode_linear.cuh", in "decode_adapted.cu");
const ATTENTION: Source<'static> = source!("decode.cuh", "decode_heads.cuh", in "decode_attention.cu");
const TOKEN: Source<'static> = source!("decode.cuh", in "decode_token.cu");
const SAMPLE: Source<'static> = source!("decode.cuh", "decode_chance.cuh", in "decode_sample.cu");
const FRAME: Source<'static> = source!("decode.cuh", in "decode_frame.cu");
const DIFFUSION: Source<'static> = source!("decode.cuh", in "decode_diffusion.cu");

/// Every source of step kernels, by file; see [`options`] for the compiler options.
pub const SOURCES: [Source<'static>; 7] = [LINEAR, ADAPTED, ATTENTION, TOKEN, SAMPLE, FRAME, DIFFUSION];

/// The options of some variants of one of [`SOURCES`], to check that it compiles.
pub fn options(source: &Source<'_>) -> Vec<Vec<String>> {
    let types = ["-DNUMBER_F32", "-DNUMBER_BF16", "-DNUMBER_F16"];
    let tuning = Tuning { warps: 16, depth: 5, heads: 1 };
    let further: Vec<Vec<String>> = match source.file {
        "decode_linear.cu" => {
            let weights = [Weights::Numbers, Weights::Fp8(Fp8Scales::Rows), Weights::Fp8(Fp8Scales::Blocks)];
            let each = |weights: Weights| [1, 8].map(|vectors| product::options(vectors, tuning, weights));
            weights.into_iter().flat_map(each).collect()
        }
        "decode_adapted.cu" => vec![product::options(2, adapted::TUNING, Weights::Numbers)],
        "decode_attention.cu" => {
            [(80, None), (128, None), (256, Some(512))].map(|(dim, window)| crate::nn::of_window(dim, window)).to_vec()
        }
        _ => vec![Vec::new()],
    };
    let with = |number: &str, more: &Vec<String>| {
        std::iter::once(number.to_owned()).chain(more.iter().cloned()).collect::<Vec<String>>()
    };
    types.iter().flat_map(|number| further.iter().map(|more| with(number, more))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_is_compiled_for_every_type() {
        for source in &SOURCES {
            for number in ["-DNUMBER_F32", "-DNUMBER_BF16", "-DNUMBER_F16"] {
                assert!(options(source).iter().any(|options| options[0] == number), "{} {number}", source.file);
            }
        }
    }
}
