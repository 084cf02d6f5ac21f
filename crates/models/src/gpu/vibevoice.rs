//! VibeVoice on a GPU: every part of a token is a graph, and a token is sampled on the device, so that the host reads one word
//! per token.

mod backend;
mod connector;
mod diffusion;
mod graphs;
mod language;
mod loader;
mod memory;
mod tokenizer;

use laptime_cuda::Device;
use laptime_probe::stage;

use self::backend::{Cuda, On};
use self::graphs::{first_replay, prepare};
pub use self::memory::needed_vibevoice_bytes;
use self::{language::Language, loader::Put};
use super::streamed::Streamed;
use crate::vibevoice::{Engine, VibeVoice, VibeVoiceConfig, VibeVoiceOptions, VibeVoiceWeights};
use crate::{ModelError, dtype::typed, error::fit};

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
    options.dtype.refuse_quantised("text to speech")?;
    let longest = options.capacity.max(options.negative_capacity);
    fit(longest, &config.name, config.decoder.context)?;
    let replay = first_replay(&options);
    Ok(typed!(options.dtype, |T| {
        let on = On::<T>::new(device)?;
        let (language, host_layers, loaded) = {
            let _stage = stage!("weights");
            let (language, host_layers) = Language::load(&on, &config, weights, &options)?;
            let loaded = config.load(&mut Put::new(&on, weights))?;
            device.stream().synchronise()?;
            (language, host_layers, loaded)
        };
        let none = || ModelError::Refused("offloaded layers need a stream for their copies".to_owned());
        let streamed = match (&host_layers, &options.offload) {
            (Some(host_layers), Some(offload)) => {
                Some(Streamed::new(device, copies.ok_or_else(none)?, host_layers, offload, &options.marks)?)
            }
            _ => None,
        };
        let backend = Cuda::new(on, &config, &options, replay, language, streamed)?;
        let mut engine = Engine::new(backend, config, options, (weights, loaded))?;
        let parts: Vec<_> = engine.parts().collect();
        prepare(&mut engine, &parts)?;
        Box::new(engine)
    }))
}
