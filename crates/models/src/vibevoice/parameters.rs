//! How large a model is: parameters and bytes.

use super::VibeVoiceConfig;
use crate::{Dtype, HasTensors};

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
