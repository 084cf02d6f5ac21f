//! What a speech model is: its language model, its diffusion head, its tokenizers, and its special token ids.

use std::path::Path;

use crate::check::{Fault, LARGEST, check_parameters, check_sizes, refused};
use crate::{Config, Done, Dtype, HasTensors, ModelError, Tokenizer, error::require};

/// Times at most that a tokenizer doubles its channels, far more than any does.
const MOST_RATIOS: usize = 12;

/// What a speech model is.
#[derive(Debug, Clone, PartialEq)]
pub struct VibeVoiceConfig {
    /// Its name, as results tell it.
    pub name: String,
    /// The language model.
    pub decoder: Config,
    /// What makes latents.
    pub head: HeadConfig,
    /// What makes latents of audio and audio of latents.
    pub acoustic: TokenizerConfig,
    /// What hears the audio that was made.
    pub semantic: TokenizerConfig,
    /// How far the latents of a voice are varied, as a standard deviation.
    pub voice_deviation: f32,
    /// Samples a second.
    pub sample_rate: u32,
    /// The ids that say what a token is.
    pub ids: SpecialIds,
}

/// The diffusion head, as wide as the language model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HeadConfig {
    /// Layers.
    pub layers: usize,
    /// Width inside the feed-forward part.
    pub ffn: usize,
    /// Numbers that tell a time: cosines, then sines.
    pub frequencies: usize,
    /// The longest period of them.
    pub period: f64,
    /// What is added under the root of a norm.
    pub norm_eps: f64,
}

/// What shortens audio to latents, or lengthens latents to audio: stages of causal convolutions.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenizerConfig {
    /// Numbers of a latent.
    pub latent: usize,
    /// Channels nearest to the audio; they double from stage to stage.
    pub filters: usize,
    /// How many positions become one, from the audio to latents.
    pub ratios: Vec<usize>,
    /// Blocks of each stage, from the audio to latents: one more than there are ratios.
    pub depths: Vec<usize>,
    /// Positions that a convolution sees where it does not shorten or lengthen.
    pub kernel: usize,
    /// How much wider the feed-forward part of a block is inside.
    pub widening: usize,
    /// What is added under the root of a norm.
    pub norm_eps: f64,
}

/// The ids that say what a token is. No others are ever chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpecialIds {
    /// A voice begins.
    pub bos: u32,
    /// A voice has ended.
    pub eos: u32,
    /// A token of audio.
    pub audio: u32,
    /// All is said.
    pub end: u32,
}

impl SpecialIds {
    /// All of them, in the order in which logits are.
    pub const fn all(self) -> [u32; 4] {
        [self.bos, self.eos, self.audio, self.end]
    }
}

impl TokenizerConfig {
    /// Samples that one latent stands for.
    pub fn hop(&self) -> usize {
        self.ratios.iter().fold(1, |all, ratio| all.saturating_mul(*ratio))
    }

    /// Channels of a stage, counted from the audio.
    pub fn channels(&self, stage: usize) -> usize {
        let doubled = u32::try_from(stage).ok().and_then(|stage| 1_usize.checked_shl(stage));
        self.filters.saturating_mul(doubled.unwrap_or(usize::MAX))
    }

    fn check(&self, what: &str) -> Fault {
        let counted = [("latent", self.latent), ("filters", self.filters), ("kernel", self.kernel)];
        let counted = counted.into_iter().chain([("widening", self.widening), ("hop", self.hop())]);
        let of = format!(" of its {what} tokenizer");
        check_sizes(&of, counted.chain(self.ratios.iter().map(|ratio| ("ratio", *ratio))))?;
        let (ratios, depths) = (self.ratios.len(), self.depths.len());
        require!(
            (1..=MOST_RATIOS).contains(&ratios) && depths == ratios + 1,
            "its {what} tokenizer has {ratios} ratios and {depths} depths"
        );
        let most = self.depths.iter().copied().max().unwrap_or_default();
        require!(most <= LARGEST, "a stage of its {what} tokenizer has {most} blocks");
        Ok(())
    }
}

impl VibeVoiceConfig {
    /// Samples of a token of audio.
    pub fn token_samples(&self) -> usize {
        self.acoustic.hop()
    }

    /// Seconds that a token of audio lasts.
    pub fn token_seconds(&self) -> f64 {
        self.token_samples() as f64 / f64::from(self.sample_rate.max(1))
    }

    /// The language model as a step runs it: of its head only the rows of the tokens that may be chosen are needed.
    pub fn stepped_decoder(&self) -> Config {
        Config { vocab: self.ids.all().len(), tied: false, ..self.decoder.clone() }
    }

    /// What turns text into its tokens: the tokenizer of a folder, else bytes.
    pub fn tokenizer(&self, folder: Option<&Path>) -> Result<Tokenizer, ModelError> {
        let text = Config { name: self.name.clone(), ..self.decoder.clone() };
        match folder {
            Some(folder) => Tokenizer::open(folder, &text),
            None => Tokenizer::bytes(&text),
        }
    }

    /// Refuses what makes no model, and says what is wrong.
    pub fn check(&self) -> Done {
        self.decoder.check()?;
        let tokenizers = || self.acoustic.check("acoustic").and_then(|()| self.semantic.check("semantic"));
        let fault = self.check_head().and_then(|()| self.check_ids()).and_then(|()| tokenizers());
        refused(&self.name, fault.and_then(|()| check_parameters(self.checked_parameters())))
    }

    fn check_head(&self) -> Fault {
        let HeadConfig { layers, ffn, frequencies, period, norm_eps } = self.head;
        check_sizes(" of its diffusion head", [("layers", layers), ("ffn", ffn), ("frequencies", frequencies)])?;
        let is_even = frequencies.is_multiple_of(2);
        require!(is_even, "`frequencies` of its diffusion head is {frequencies}, which is odd");
        require!(
            period >= 1.0 && period.is_finite() && norm_eps >= 0.0 && norm_eps.is_finite(),
            "its diffusion head has a period of {period} and an epsilon of {norm_eps}"
        );
        let (made, heard) = (self.acoustic.hop(), self.semantic.hop());
        require!(made == heard, "a latent is {made} samples, and its semantic encoder hears {heard} at a time");
        let (deviation, rate) = (self.voice_deviation, self.sample_rate);
        let is_fine = deviation >= 0.0 && deviation.is_finite() && rate > 0;
        require!(is_fine, "it varies voices by {deviation} at {rate} samples a second");
        Ok(())
    }

    fn check_ids(&self) -> Fault {
        let (ids, vocab) = (self.ids.all(), self.decoder.vocab);
        if let Some(id) = ids.into_iter().find(|id| *id as usize >= vocab) {
            return Err(format!("id {id} is beyond its {vocab} tokens"));
        }
        let is_twice = (1..ids.len()).any(|at| ids[..at].contains(&ids[at]));
        require!(!is_twice, "two of its ids {ids:?} are the same");
        Ok(())
    }
}

impl VibeVoiceConfig {
    /// Bytes of its weights as they are kept: of a head of its own the language model needs four rows.
    pub fn kept_weight_bytes(&self, dtype: Dtype) -> u64 {
        let head = (self.decoder.vocab as u64).saturating_mul(self.decoder.hidden as u64);
        let own = if self.decoder.tied { 0 } else { head };
        let rows = (self.ids.all().len() as u64).saturating_mul(self.decoder.hidden as u64);
        self.parameters().saturating_sub(own).saturating_add(rows).saturating_mul(dtype.bytes())
    }

    /// Bytes that the caches of both streams need for this many positions of each.
    pub fn cache_bytes(&self, positive: usize, negative: usize, dtype: Dtype) -> u64 {
        self.decoder.kv_bytes_per_token(dtype).saturating_mul((positive as u64).saturating_add(negative as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{decoder::count::Specs, tensors::checked_count};

    fn refused(change: impl Fn(&mut VibeVoiceConfig)) -> String {
        let mut config = VibeVoiceConfig::from_preset("tiny").unwrap();
        change(&mut config);
        config.check().unwrap_err().to_string()
    }

    #[test]
    fn what_makes_no_model_is_named() {
        assert_eq!(refused(|config| config.head.ffn = 0), "`tiny`: `ffn` of its diffusion head is 0");
        assert!(refused(|config| config.head.frequencies = 31).ends_with("is 31, which is odd"));
        assert!(refused(|config| config.ids.end = 9999).ends_with("id 9999 is beyond its 512 tokens"));
        assert!(refused(|config| config.ids.end = config.ids.bos).contains("are the same"));
        assert!(refused(|config| config.acoustic.ratios = vec![2]).contains("semantic encoder hears"));
        let deeper = refused(|config| config.semantic.depths = vec![1]);
        assert!(deeper.ends_with("its semantic tokenizer has 6 ratios and 1 depths"), "{deeper}");
        assert!(refused(|config| config.acoustic.filters = 0).ends_with("`filters` of its acoustic tokenizer is 0"));
        assert!(refused(|config| config.sample_rate = 0).contains("at 0 samples a second"));
    }

    #[test]
    fn channels_double_from_stage_to_stage() {
        let config = VibeVoiceConfig::from_preset("1.5b").unwrap();
        assert_eq!((config.acoustic.channels(0), config.acoustic.channels(6)), (32, 2048));
        assert_eq!(config.acoustic.channels(1000), usize::MAX);
        assert_eq!((config.token_samples(), config.stepped_decoder().vocab), (3200, 4));
        assert!((config.token_seconds() - 1.0 / 7.5).abs() < 1e-12);
    }

    #[test]
    fn parameters_are_those_of_the_published_models() {
        let sizes = ["1.5b", "7b"].map(|name| {
            let config = VibeVoiceConfig::from_preset(name).unwrap();
            let mut head = Specs::default();
            let Ok(_) = config.diffusion_head(&mut head);
            let (decoder, head) = (config.decoder.parameters(), checked_count(&head.0).unwrap());
            (head, config.parameters() - decoder - head)
        });
        // The diffusion head, and tokenizers with connectors as the same classes of `transformers` with the published sizes.
        assert_eq!(sizes, [(123_279_360, 1_037_028_323), (669_333_504, 1_058_405_347)]);
    }

    #[test]
    fn four_rows_of_a_head_are_kept() {
        let config = VibeVoiceConfig::from_preset("7b").unwrap();
        let left_out = 2 * (152_064 - 4) * 3584;
        assert_eq!(config.weight_bytes(Dtype::Bf16) - config.kept_weight_bytes(Dtype::Bf16), left_out);
        let tied = VibeVoiceConfig::from_preset("1.5b").unwrap();
        assert_eq!(tied.kept_weight_bytes(Dtype::Bf16) - tied.weight_bytes(Dtype::Bf16), 2 * 4 * 1536);
        assert_eq!(config.cache_bytes(1000, 24, Dtype::Bf16), 1024 * 57_344);
    }
}
