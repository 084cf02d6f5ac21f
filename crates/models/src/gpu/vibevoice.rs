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

use laptime_cuda::{Cache, Device, nn::StreamRows};
use laptime_probe::stage;

use self::backend::Cuda;
use self::graphs::{first_replay, prepare};
use self::language::Language;
pub use self::memory::needed_vibevoice_bytes;
use super::audio::{Kit, KitLoader};
use super::streamed::Streamed;
use crate::vibevoice::{Engine, VibeVoice, VibeVoiceConfig, VibeVoiceOptions, VibeVoiceWeights};
use crate::{ModelError, dtype::typed, error::fit};

/// Loads VibeVoice on a device. Synthetic weights are generated there.
///
/// Offloaded layers are copied on the stream of `copies`, which is the same device with its own stream
/// ([`Device::with_new_stream`]) and has the lane of the copies.
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
        let (kit, streams) = (Kit::<T>::load(device)?, StreamRows::load(device, &Cache::of_user())?);
        let (language, host_layers, loaded) = {
            let _stage = stage!("weights");
            let (language, host_layers) = Language::load(&kit, &config, weights, &options)?;
            let loaded = config.load(&mut KitLoader::new(&kit, &streams, weights))?;
            device.stream().synchronise()?;
            (language, host_layers, loaded)
        };
        let streamed = Streamed::of((device, copies), host_layers.as_ref(), options.offload.as_ref(), &options.marks)?;
        let backend = Cuda::new((kit, streams), &config, &options, replay, language, streamed)?;
        let mut engine = Engine::new(backend, config, options, (weights, loaded))?;
        let parts: Vec<_> = engine.parts().collect();
        prepare(&mut engine, &parts)?;
        Box::new(engine)
    }))
}
