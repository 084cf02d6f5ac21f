//! The speech model on a GPU: every part of a token is a graph, and a token is chosen on the device, so that the host reads
//! one word a token.

mod connect;
mod diffusion;
mod engine;
mod language;
mod parts;
mod plan;
mod prompting;
mod room;
mod tokenizer;
mod tokenizer_weights;
mod weights;

use half::{bf16, f16};
use laptime_cuda::Device;

use self::engine::Engine;
pub use self::room::needed_vibevoice_bytes;
use crate::{
    Dtype, ModelError, Options, Room, StreamMode,
    vibevoice::{VibeVoice, VibeVoiceConfig, VibeVoiceOptions, VibeVoiceWeights},
};

/// Loads VibeVoice on a device. Synthetic weights are generated there.
///
/// Offloaded layers are copied on the stream of `copies`, which is the same device with its own streams
/// ([`Device::with_new_streams`]) and has the lane of the copies.
pub fn vibevoice<'a>(
    device: &'a Device,
    copies: Option<&'a Device>,
    config: VibeVoiceConfig,
    weights: &VibeVoiceWeights,
    options: VibeVoiceOptions,
) -> Result<Box<dyn VibeVoice + 'a>, ModelError> {
    config.check()?;
    let device = (device, copies);
    Ok(match options.dtype {
        Dtype::F32 => Box::new(Engine::<f32>::new(device, config, weights, options)?),
        Dtype::Bf16 => Box::new(Engine::<bf16>::new(device, config, weights, options)?),
        Dtype::F16 => Box::new(Engine::<f16>::new(device, config, weights, options)?),
    })
}

/// Whether both streams run as one batch: where layers are streamed so.
fn batches(options: &VibeVoiceOptions) -> bool {
    options.offload.as_ref().is_some_and(|offload| offload.mode == StreamMode::Batched)
}

/// How the language model is made ready.
fn decoder_options(options: &VibeVoiceOptions) -> Options {
    Options { marks: options.marks.clone(), ..Options::new(options.dtype, Room::Static(options.room)) }
}
