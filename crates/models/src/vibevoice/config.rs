//! The configuration of VibeVoice.

use std::path::Path;

use crate::check::{Fault, LARGEST, check_parameters, check_sizes, refused};
use crate::{Config, Done, Dtype, HasTensors, ModelError, Tokenizer, error::require};

/// Far more stages than any tokenizer has.
const MOST_RATIOS: usize = 12;

/// The configuration of VibeVoice.
#[derive(Debug, Clone, PartialEq)]
pub struct VibeVoiceConfig {
    /// Its name in results.
    pub name: String,
    /// The language model.
    pub decoder: Config,
    /// The diffusion head.
    pub head: HeadConfig,
    /// The acoustic tokenizer: audio to latents and back.
    pub acoustic: TokenizerConfig,
    /// The semantic tokenizer, which encodes the generated audio.
    pub semantic: TokenizerConfig,
    /// Standard deviation of the noise on the latents of a voice.
    pub voice_deviation: f32,
    /// Samples per second.
    pub sample_rate: u32,
    /// Special token ids.
    pub ids: SpecialIds,
}

/// The diffusion head. It has the width of the language model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HeadConfig {
    /// Number of layers.
    pub layers: usize,
    /// Inner width of the feed-forward parts.
    pub ffn: usize,
    /// Width of the time embedding: cosines, then sines.
    pub frequencies: usize,
    /// Its longest period.
    pub period: f64,
    /// Epsilon of the norms.
    pub norm_eps: f64,
}

/// An encoder from audio to latents, or a decoder back: stages of causal convolutions.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenizerConfig {
    /// Width of a latent.
    pub latent: usize,
    /// Channels nearest to the audio. They double with each stage.
    pub filters: usize,
    /// Downsampling ratios, from audio to latents.
    pub ratios: Vec<usize>,
    /// Blocks per stage, from audio to latents: one more than ratios.
    pub depths: Vec<usize>,
    /// Kernel width of convolutions that keep the length.
    pub kernel: usize,
    /// Expansion of the feed-forward parts.
    pub widening: usize,
    /// Epsilon of the norms.
    pub norm_eps: f64,
}

/// Special token ids, the only ones that are sampled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpecialIds {
    /// Start of a voice or of speech.
    pub bos: u32,
    /// End of a voice.
    pub eos: u32,
    /// A token of audio.
    pub audio: u32,
    /// End of the generation.
    pub end: u32,
}

impl SpecialIds {
    /// All of them, in the order of the logits.
    pub const fn all(self) -> [u32; 4] {
        [self.bos, self.eos, self.audio, self.end]
    }
}

impl TokenizerConfig {
    /// Samples per latent.
    pub fn hop(&self) -> usize {
        self.ratios.iter().fold(1, |all, ratio| all.saturating_mul(*ratio))
    }

    /// Channels of a stage, counted from the audio.
    pub(super) fn channels(&self, stage: usize) -> usize {
        let doubled = u32::try_from(stage).ok().and_then(|stage| 1_usize.checked_shl(stage));
        self.filters.saturating_mul(doubled.unwrap_or(usize::MAX))
    }

    fn check(&self, what: &str) -> Fault {
        let counted = [("latent", self.latent), ("filters", self.filters), ("kernel", self.kernel)];
        let counted = counted.into_iter().chain([("widening", self.widening), ("hop", self.hop())]);
        let of = format!(" of its {what} tokenizer");
        check_sizes(&of, counted.chain(self.ratios.iter().map(|ratio| ("ratio", *ratio))))?;
        let (ratios, depths) = (self.ratios.len(), self.depths.len());
        let is_fine = (1..=MOST_RATIOS).contains(&ratios) && depths == ratios + 1;
        require!(is_fine, "its {what} tokenizer has {ratios} ratios and {depths} depths");
        let most = self.depths.iter().copied().max().unwrap_or_default();
        require!(most <= LARGEST, "a stage of its {what} tokenizer has {most} blocks");
        Ok(())
    }
}

impl VibeVoiceConfig {
    /// Samples per token of audio.
    pub fn token_samples(&self) -> usize {
        self.acoustic.hop()
    }

    /// Seconds per token of audio.
    pub fn token_seconds(&self) -> f64 {
        self.token_samples() as f64 / f64::from(self.sample_rate.max(1))
    }

    /// The language model with a head for the special ids only.
    pub fn stepped_decoder(&self) -> Config {
        Config { vocab: self.ids.all().len(), tied: false, ..self.decoder.clone() }
    }

    /// The tokenizer of a folder, or one over bytes.
    pub fn tokenizer(&self, folder: Option<&Path>) -> Result<Tokenizer, ModelError> {
        let text = Config { name: self.name.clone(), ..self.decoder.clone() };
        folder.map_or_else(|| Tokenizer::bytes(&text), |folder| Tokenizer::open(folder, &text))
    }

    /// Refuses an invalid configuration.
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
        require!(is_even, "`frequencies` of its diffusion head is {frequencies}, expected an even number");
        let is_fine = period >= 1.0 && period.is_finite() && norm_eps >= 0.0 && norm_eps.is_finite();
        require!(is_fine, "its diffusion head has a period of {period} and an epsilon of {norm_eps}");
        let (acoustic, semantic) = (self.acoustic.hop(), self.semantic.hop());
        require!(acoustic == semantic, "an acoustic latent is {acoustic} samples, but a semantic one {semantic}");
        let (deviation, rate) = (self.voice_deviation, self.sample_rate);
        let is_fine = deviation >= 0.0 && deviation.is_finite() && rate > 0;
        require!(is_fine, "its voice deviation is {deviation} and its sample rate {rate}");
        Ok(())
    }

    fn check_ids(&self) -> Fault {
        let (ids, vocab) = (self.ids.all(), self.decoder.vocab);
        let largest = ids.into_iter().max().unwrap_or_default();
        require!((largest as usize) < vocab, "id {largest} is outside its vocabulary of {vocab}");
        let is_twice = (1..ids.len()).any(|at| ids[..at].contains(&ids[at]));
        require!(!is_twice, "two of its special ids {ids:?} are the same");
        Ok(())
    }

    /// Bytes of the weights in memory. A separate head keeps only the rows of the special ids.
    pub(crate) fn kept_weight_bytes(&self, dtype: Dtype) -> u64 {
        let head = (self.decoder.vocab as u64).saturating_mul(self.decoder.hidden as u64);
        let own = if self.decoder.tied { 0 } else { head };
        let rows = (self.ids.all().len() as u64).saturating_mul(self.decoder.hidden as u64);
        self.parameters().saturating_sub(own).saturating_add(rows).saturating_mul(dtype.bytes())
    }

    /// Bytes of the KV caches of both streams for this many positions of each.
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
    fn an_invalid_configuration_is_refused_by_field() {
        assert_eq!(refused(|config| config.head.ffn = 0), "`tiny`: `ffn` of its diffusion head is 0");
        assert!(refused(|config| config.head.frequencies = 31).ends_with("is 31, expected an even number"));
        assert!(refused(|config| config.ids.end = 9999).ends_with("id 9999 is outside its vocabulary of 512"));
        assert!(refused(|config| config.ids.end = config.ids.bos).contains("are the same"));
        assert!(refused(|config| config.acoustic.ratios = vec![2]).contains("but a semantic one 3200"));
        let deeper = refused(|config| config.semantic.depths = vec![1]);
        assert!(deeper.ends_with("its semantic tokenizer has 6 ratios and 1 depths"), "{deeper}");
        assert!(refused(|config| config.acoustic.filters = 0).ends_with("`filters` of its acoustic tokenizer is 0"));
        assert!(refused(|config| config.sample_rate = 0).contains("its sample rate 0"));
    }

    #[test]
    fn channels_double_per_stage() {
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
    fn only_four_rows_of_a_separate_head_are_kept() {
        let config = VibeVoiceConfig::from_preset("7b").unwrap();
        let left_out = 2 * (152_064 - 4) * 3584;
        assert_eq!(config.weight_bytes(Dtype::Bf16) - config.kept_weight_bytes(Dtype::Bf16), left_out);
        let tied = VibeVoiceConfig::from_preset("1.5b").unwrap();
        assert_eq!(tied.kept_weight_bytes(Dtype::Bf16) - tied.weight_bytes(Dtype::Bf16), 2 * 4 * 1536);
        assert_eq!(config.cache_bytes(1000, 24, Dtype::Bf16), 1024 * 57_344);
    }
}
