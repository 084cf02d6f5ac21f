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

use self::product::Weights;
pub use self::{
    adapted::{Adapted, AdaptedSizes},
    attention::{Attention, Rotation},
    diffusion::{Drawing, DrawingSizes, DrawingStep, Factors, LatentTarget},
    frames::{FrameStep, FrameTables, Frames},
    product::{Linear, Norm},
    sample::{Choice, MOST_SAMPLED, NextRow, Rules, Sampler, Sampling, SamplingPart},
    sizes::{Spread, StepSizes, Tuning},
    state::State,
    step::Step,
    together::Together,
};
use half::{bf16, f16};

use crate::{
    launch::Element,
    nn::Fp8Scales,
    nvrtc::{Source, source},
};

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

/// Every source of step kernels, by file; see [`options`] for the compiler options.
pub const SOURCES: [Source<'static>; 8] = [LINEAR, TOGETHER, ADAPTED, ATTENTION, TOKEN, SAMPLE, FRAME, DIFFUSION];

/// The options of some variants of one of [`SOURCES`], to check that it compiles.
pub fn options(source: &Source<'_>) -> Vec<Vec<String>> {
    let number = |option: &str, further: Vec<Vec<String>>| {
        further.into_iter().map(move |more| [vec![option.to_owned()], more].concat()).collect::<Vec<_>>()
    };
    let tensor = [bf16::OPTION, f16::OPTION].into_iter().flat_map(|option| number(option, on_tensor_cores(source)));
    let types = [f32::OPTION, bf16::OPTION, f16::OPTION];
    types.into_iter().flat_map(|option| number(option, of_any_type(source))).chain(tensor).collect()
}

fn of_any_type(source: &Source<'_>) -> Vec<Vec<String>> {
    let tuning = Tuning { warps: 16, depth: 5, attention: Spread::PLAIN, together: None };
    match source.file {
        "decode_linear.cu" => {
            let weights = [Weights::Numbers, Weights::Fp8(Fp8Scales::Rows), Weights::Fp8(Fp8Scales::Blocks)];
            let each = |weights: Weights| [1, 8].map(|vectors| product::options(vectors, tuning, weights));
            weights.into_iter().flat_map(each).collect()
        }
        "decode_linear_tensor.cu" => Vec::new(),
        "decode_adapted.cu" => vec![product::options(2, adapted::TUNING, Weights::Numbers)],
        "decode_attention.cu" => vec![
            attention::options(80, None, Spread { splits: 8, ..Spread::PLAIN }),
            attention::options(128, None, Spread { heads: 4, splits: 8, ..Spread::PLAIN }),
            attention::options(256, Some(512), Spread { heads: 8, ..Spread::PLAIN }),
        ],
        _ => vec![Vec::new()],
    }
}

fn on_tensor_cores(source: &Source<'_>) -> Vec<Vec<String>> {
    let spread = |heads, splits| Spread { heads, splits, warps: 8, on_tensor_cores: true };
    let together = |vectors, splits| {
        let together = Some(Together { vectors, splits, warps: 8, depth: 4 });
        let tuning = Tuning { warps: 8, depth: 4, attention: Spread::PLAIN, together };
        product::options(8, tuning, Weights::Numbers)
    };
    match source.file {
        "decode_linear_tensor.cu" => vec![together(8, 8), together(16, 4), together(32, 1)],
        "decode_attention.cu" => vec![
            attention::options(64, None, spread(8, 1)),
            attention::options(128, Some(512), spread(2, 16)),
            attention::options(128, None, spread(4, 4)),
        ],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_is_compiled_for_every_type_that_it_serves() {
        for source in &SOURCES {
            for number in ["-DNUMBER_F32", "-DNUMBER_BF16", "-DNUMBER_F16"] {
                let is_there = options(source).iter().any(|options| options[0] == number);
                let is_for_it = number != f32::OPTION || *source != TOGETHER;
                assert_eq!(is_there, is_for_it, "{} {number}", source.file);
            }
        }
    }
}
