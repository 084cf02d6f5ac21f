//! Whether the traces of every model have the stage trees that those of the CPU have: both are compared with one list.

use laptime_cuda::{Device, Region};
use laptime_models::fuser::{FuseOptions, FuserConfig, Fusing};
use laptime_models::gpu::{self, GpuModel};
use laptime_models::tts::{QwenTts, TtsConfig, TtsOptions};
use laptime_models::vibevoice::{VibeVoice, VibeVoiceConfig, VibeVoiceOptions};
use laptime_models::{Config, Decoder, ModelError, Options, TrainOptions, Trainer};

use crate::models::trees::{self, CASES};
use crate::{Answer, Bench, Failed, expect};

struct Gpu<'a> {
    device: &'a Device,
    copies: Device,
}

impl trees::Device for Gpu<'_> {
    fn decoder(&self, config: &Config, options: Options) -> Result<Box<dyn Decoder + '_>, ModelError> {
        let (weights, dtype) = (trees::weights(config), options.dtype);
        match &options.offload {
            None => GpuModel::load(self.device, config, &weights, dtype, None)?.decoder(self.device, None, options),
            Some(offload) => GpuModel::load(self.device, config, &weights, dtype, Some((offload, &Region::pinned)))?
                .decoder(self.device, Some(&self.copies), options),
        }
    }

    fn trainer(&self, config: &Config, options: TrainOptions) -> Result<Box<dyn Trainer + '_>, ModelError> {
        gpu::trainer(self.device, config, &trees::weights(config), options)
    }

    fn fuser(&self, config: &FuserConfig, options: FuseOptions) -> Result<Box<dyn Fusing + '_>, ModelError> {
        gpu::fuser(self.device, vec![(config.clone(), &trees::fuser_weights())], options)
    }

    fn qwen_tts(&self, config: TtsConfig, options: TtsOptions) -> Result<QwenTts<'_>, ModelError> {
        gpu::qwen_tts(self.device, config, &trees::tts_weights(), options)
    }

    fn vibevoice(
        &self,
        config: VibeVoiceConfig,
        options: VibeVoiceOptions,
    ) -> Result<Box<dyn VibeVoice + '_>, ModelError> {
        gpu::vibevoice(self.device, None, config, &trees::vibevoice_weights(), options)
    }
}

pub fn alike(bench: &Bench) -> Answer {
    let gpu = Gpu { device: &bench.device, copies: bench.device.with_new_stream()? };
    let mut wrong = Vec::new();
    for case in CASES {
        let found = case.found(&gpu).map_err(|error| Failed::Wrong(format!("{}: {error}", case.name)))?;
        if found != case.expected {
            wrong.push(format!("{}:\n{found}expected:\n{}", case.name, case.expected));
        }
    }
    expect(wrong.is_empty(), || wrong.join("\n"))?;
    Ok(CASES.iter().map(|case| case.name).collect::<Vec<_>>().join(", "))
}
