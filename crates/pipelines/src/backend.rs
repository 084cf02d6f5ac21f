//! Loads models on the device of a case: the CPU, or a GPU if the build has CUDA.

use laptime_bench::{Device, Iteration, OutOfMemory, ParsedCase, Prepared, Work};
use laptime_models::fuser::{FuseOptions, FuserConfig, FuserWeights, Fusing};
use laptime_models::tts::{QwenTts, TtsConfig, TtsOptions, TtsWeights};
use laptime_models::vibevoice::{VibeVoice, VibeVoiceConfig, VibeVoiceOptions, VibeVoiceWeights};
use laptime_models::{Config, Decoder, GraphMode, Marks, ModelError, Options, TrainOptions, Trainer, Weights, cpu};
use laptime_probe::Lane;

/// Returns from the function if the device is a GPU.
#[cfg(feature = "cuda")]
macro_rules! if_gpu {
    ($device:expr, $gpu:ident => $answer:expr) => {
        if let Some($gpu) = crate::gpu::gpu($device) {
            return $answer;
        }
    };
}

#[cfg(not(feature = "cuda"))]
macro_rules! if_gpu {
    ($device:expr, $gpu:ident => $answer:expr) => {
        let _ = $device;
    };
}

pub(crate) use if_gpu;

pub fn is_gpu(device: &dyn Device) -> bool {
    if_gpu!(device, _gpu => true);
    false
}

/// Why a device cannot replay graphs, if they were requested.
pub fn no_graphs(device: &dyn Device, asked: GraphMode) -> Option<String> {
    (asked == GraphMode::On && !is_gpu(device)).then(|| format!("device `{}` has no graphs", device.name()))
}

pub fn marks(device: &dyn Device) -> Marks {
    Marks { depth: device.depth(), lane: device.lane().cloned(), ..Marks::default() }
}

/// A model and where its weights come from: `synthetic` or `folder`.
pub struct Loaded<Of: ?Sized> {
    pub model: Box<Of>,
    pub weights: &'static str,
}

#[derive(Clone, Copy)]
pub struct Target<'a> {
    pub device: &'a dyn Device,
    pub threads: usize,
}

type Boxed<T> = Result<Box<T>, ModelError>;

/// A decoder. On a GPU, offloaded layers are copied on a second stream.
pub fn decoder<'a>(config: &Config, weights: &Weights, options: Options, on: Target<'a>) -> Boxed<dyn Decoder + 'a> {
    if_gpu!(on.device, gpu => crate::gpu::models::decoder(gpu, config, weights, options));
    cpu::decoder(config.clone(), weights, options, on.threads)
}

/// A decoder that runs in parallel with [`decoder`]: on a GPU it uses the second stream.
pub fn second<'a>(config: &Config, weights: &Weights, options: Options, on: Target<'a>) -> Boxed<dyn Decoder + 'a> {
    if_gpu!(on.device, gpu => crate::gpu::models::on_stream(gpu.side_stream()?.cuda(), config, weights, options));
    decoder(config, weights, options, on)
}

pub fn second_lane(device: &dyn Device) -> Result<Option<&Lane>, ModelError> {
    if_gpu!(device, gpu => Ok(Some(gpu.side_stream()?.lane())));
    Ok(device.lane())
}

pub fn trainer<'a>(
    model: &Config,
    weights: &Weights,
    options: TrainOptions,
    on: Target<'a>,
) -> Boxed<dyn Trainer + 'a> {
    if_gpu!(on.device, gpu => laptime_models::gpu::trainer(gpu.cuda(), model, weights, options));
    cpu::trainer(model.clone(), weights, options, on.threads)
}

type Fusers<'f> = Vec<(FuserConfig, &'f FuserWeights)>;

pub fn fuser<'a>(fusers: Fusers<'_>, options: FuseOptions, on: Target<'a>) -> Boxed<dyn Fusing + 'a> {
    if_gpu!(on.device, gpu => laptime_models::gpu::fuser(gpu.cuda(), fusers, options));
    cpu::fuser(fusers, options, on.threads)
}

pub fn tts<'a>(config: TtsConfig, weights: &TtsWeights, options: TtsOptions, on: Target<'a>) -> Boxed<QwenTts<'a>> {
    if_gpu!(on.device, gpu => laptime_models::gpu::qwen_tts(gpu.cuda(), config, weights, options).map(Box::new));
    cpu::qwen_tts(config, weights, options, on.threads).map(Box::new)
}

/// On a GPU, offloaded layers are copied on a second stream.
pub fn vibevoice<'a>(
    config: VibeVoiceConfig,
    weights: &VibeVoiceWeights,
    options: VibeVoiceOptions,
    on: Target<'a>,
) -> Boxed<dyn VibeVoice + 'a> {
    if_gpu!(on.device, gpu => crate::gpu::models::vibevoice(gpu, config, weights, options));
    cpu::vibevoice(config, weights, options, on.threads)
}

/// A parsed case whose memory is known.
pub struct Parsed<'a, S> {
    pub spec: S,
    pub device: &'a dyn Device,
    pub bytes: u64,
    /// Why the device cannot run it, if it cannot.
    pub refusal: Option<String>,
    pub work: fn(&S) -> Option<Work>,
    pub make: fn(S, &'a dyn Device) -> anyhow::Result<Box<dyn Iteration + 'a>>,
}

impl<'a, S> ParsedCase<'a> for Parsed<'a, S> {
    fn predicted_bytes(&self) -> Option<u64> {
        Some(self.bytes)
    }

    fn predicted_work(&self) -> Option<Work> {
        (self.work)(&self.spec)
    }

    fn prepare(self: Box<Self>) -> anyhow::Result<Prepared<'a>> {
        let Self { spec, device, bytes, refusal, make, .. } = *self;
        match refusal {
            Some(reason) => Ok(Prepared::DoesNotApply(reason)),
            None => Prepared::if_it_fits(bytes, device, || make(spec, device)),
        }
    }
}

/// A parsed case that cannot run on any device.
pub fn does_not_apply<'a>(reason: String) -> anyhow::Result<Box<dyn ParsedCase<'a> + 'a>> {
    Ok(Box::new(|| Ok(Prepared::DoesNotApply(reason))))
}

/// Detects out of memory in an error of a model or a GPU.
pub fn out_of_memory(error: &anyhow::Error) -> Option<OutOfMemory> {
    let of_model = |error: &ModelError| match error {
        ModelError::OutOfMemory { bytes } => Some(OutOfMemory { needed_bytes: Some(*bytes), available_bytes: None }),
        #[cfg(feature = "cuda")]
        ModelError::Cuda(error) => crate::gpu::out_of_memory(error),
        _ => None,
    };
    error.chain().find_map(|cause| {
        #[cfg(feature = "cuda")]
        if let Some(error) = cause.downcast_ref() {
            return crate::gpu::out_of_memory(error);
        }
        cause.downcast_ref().and_then(of_model)
    })
}

/// An error of weights with its hint: a row of a table has no other place for it.
pub fn hinted(error: ModelError) -> anyhow::Error {
    match error.hint() {
        Some(hint) => anyhow::Error::new(error).context(format!("the weights cannot be used ({hint})")),
        None => error.into(),
    }
}
