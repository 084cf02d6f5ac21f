//! The stage trees of the CPU, compared with the lists that a GPU's are compared with too.

use laptime_models::{
    Config, Decoder, ModelError, Options, TrainOptions, Trainer, cpu,
    fuser::{FuseOptions, FuserConfig, Fusing},
    tts::{QwenTts, TtsConfig, TtsOptions},
    vibevoice::{VibeVoice, VibeVoiceConfig, VibeVoiceOptions},
};

use crate::trees::{self, CASES, Device};

struct Cpu;

impl Device for Cpu {
    fn decoder(&self, config: &Config, options: Options) -> Result<Box<dyn Decoder + '_>, ModelError> {
        cpu::decoder(config.clone(), &trees::weights(config), options, 2)
    }

    fn trainer(&self, config: &Config, options: TrainOptions) -> Result<Box<dyn Trainer + '_>, ModelError> {
        cpu::trainer(config.clone(), &trees::weights(config), options, 2)
    }

    fn fuser(&self, config: &FuserConfig, options: FuseOptions) -> Result<Box<dyn Fusing + '_>, ModelError> {
        cpu::fuser(vec![(config.clone(), &trees::fuser_weights())], options, 2)
    }

    fn qwen_tts(&self, config: TtsConfig, options: TtsOptions) -> Result<QwenTts<'_>, ModelError> {
        cpu::qwen_tts(config, &trees::tts_weights(), options, 2)
    }

    fn vibevoice(
        &self,
        config: VibeVoiceConfig,
        options: VibeVoiceOptions,
    ) -> Result<Box<dyn VibeVoice + '_>, ModelError> {
        cpu::vibevoice(config, &trees::vibevoice_weights(), options, 2)
    }
}

#[test]
fn every_model_has_the_stage_tree_of_its_list() {
    let _alone = crate::alone();
    for case in CASES {
        let found = case.found(&Cpu).unwrap();
        if std::env::var_os("LAPTIME_BLESS").is_some() {
            let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/stage_marks/trees");
            std::fs::write(format!("{folder}/{}.txt", case.name), &found).unwrap();
        } else {
            assert_eq!(found, case.expected, "{}", case.name);
        }
    }
}
