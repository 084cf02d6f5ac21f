//! VibeVoice on a GPU: every part of a token is a graph, and a token is sampled on the device, so that the host reads one word
//! per token.

mod backend;
mod connector;
mod diffusion;
mod graphs;
mod language;
mod memory;
mod tokenizer;

use laptime_cuda::nn::{Convolution, StreamRows};
use laptime_cuda::{Buffer, Cache, Device};
use laptime_probe::stage;

use self::backend::Cuda;
use self::graphs::{first_replay, prepare};
use self::language::Language;
pub use self::memory::needed_vibevoice_bytes;
use super::audio::{ConvWeights, Kit, KitLoader};
use super::{size, streamed::Streamed, weights::Number};
use crate::tts::{ConvTensors, Linear};
use crate::vibevoice::{
    ConvShape, Engine, Kinds, VibeVoice, VibeVoiceConfig, VibeVoiceOptions, VibeVoiceWeights, VoiceLoad,
};
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

impl<T: Number> Kinds for Cuda<'_, T> {
    type Matrix = Buffer<T>;
    type Vector = Buffer<T>;
    type Conv = ConvWeights<T>;
    /// `[taps, channels]`, and a bias.
    type Depthwise = Linear<Buffer<T>>;
}

impl<'a, T: Number> VoiceLoad<Cuda<'a, T>> for KitLoader<'_, T, &StreamRows<T>> {
    fn conv(&mut self, tensors: &ConvTensors, shape: ConvShape) -> Result<ConvWeights<T>, ModelError> {
        let [inputs, outputs, kernel, stride] = [shape.inputs, shape.outputs, shape.kernel, shape.stride].map(size);
        let (channels, kernel, stride) = ([inputs?, outputs?], kernel?, stride?);
        let of = match shape.is_transposed {
            true => Convolution::transposed(channels, kernel, stride),
            false => Convolution { stride, ..Convolution::plain(channels, kernel, 1) },
        };
        // It continues from what came before.
        let of = of.going_on();
        if shape.makes_samples { self.as_stored(of, tensors) } else { self.packed(of, tensors) }
    }

    fn depthwise(&mut self, tensors: &ConvTensors) -> Result<Linear<Buffer<T>>, ModelError> {
        let (Linear { weight: stored, bias }, Kit { device, .. }) = (self.stored(tensors)?, self.kit);
        let channels = size(bias.length())?;
        let taps = size(stored.length())? / channels.max(1);
        let mut weight = device.allocate(stored.length())?;
        self.kernels.turn_taps(device.stream(), &stored, &mut weight, [channels, taps])?;
        Ok(Linear { weight, bias })
    }
}
