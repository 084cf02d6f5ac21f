//! What fusers compute in, and how much memory they need on any device.

use std::convert::Infallible;

use super::{FuseOptions, FuserConfig};
use crate::{Dtype, HasTensors, parts::parts};

parts! {
    pub(crate) struct Parts { input, stream, second, normed, inner, value, weights }
}

pub(crate) type Sizes = Parts<usize>;

impl Sizes {
    pub fn of_path(config: &FuserConfig, rows: usize) -> Self {
        let by_rows = |width: usize| rows.saturating_mul(width);
        Self {
            input: by_rows(config.sharer.width().saturating_add(config.receiver.width())),
            stream: by_rows(config.hidden),
            second: by_rows(config.hidden),
            normed: by_rows(config.hidden),
            inner: by_rows(config.hidden.max(config.intermediate)),
            value: by_rows(config.receiver.width()),
            weights: by_rows(config.receiver.kv_heads),
        }
    }

    pub fn times(self, paths: usize) -> Self {
        let Ok(all) = self.try_map(|numbers| Ok::<_, Infallible>(numbers.saturating_mul(paths)));
        all
    }

    pub fn max(self, other: Self) -> Self {
        let Ok(both) = self.zip(other).try_map(|(one, other)| Ok::<_, Infallible>(one.max(other)));
        both
    }

    /// How many paths of this size are computed together in this many bytes; one without a number of bytes.
    pub fn paths_at_once(&self, dtype: Dtype, together_bytes: Option<u64>) -> usize {
        let a_path = self.numbers().saturating_mul(dtype.bytes()).max(1);
        together_bytes.map_or(1, |bytes| usize::try_from(bytes / a_path).unwrap_or(usize::MAX).max(1))
    }
}

/// Bytes of the weights of fusers, all gates open, and of what paths over this many tokens are computed in.
/// `together_bytes` is that of the backend.
pub(crate) fn fuser_bytes(
    configs: &[FuserConfig],
    options: &FuseOptions,
    rows: usize,
    together_bytes: Option<u64>,
) -> u64 {
    let weights = configs.iter().map(|config| match together_bytes {
        None => config.parameters(),
        // A projector that several layers share is there for each.
        Some(_) => config.projector_parameters().saturating_mul(config.pairs.len() as u64),
    });
    let together = |config: &FuserConfig| {
        let a_path = Sizes::of_path(config, rows);
        a_path.times(a_path.paths_at_once(options.dtype, together_bytes).min(2 * config.pairs.len()))
    };
    let buffers = configs.iter().map(together).fold(Sizes::default(), Sizes::max);
    weights.fold(buffers.numbers(), u64::saturating_add).saturating_mul(options.dtype.bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, fuser::Alignment};

    const TOGETHER: Option<u64> = Some(4 << 30);

    fn config() -> FuserConfig {
        let preset = |name| Config::from_preset(name).unwrap();
        FuserConfig::new(&preset("Qwen3-0.6B"), &preset("Qwen3-4B"), Alignment::LastAligned)
    }

    #[test]
    fn all_paths_are_computed_together_up_to_4096_tokens() {
        let at_once = |rows| Sizes::of_path(&config(), rows).paths_at_once(Dtype::Bf16, TOGETHER);
        assert!(at_once(4096) >= 56);
        assert!((1..56).contains(&at_once(8192)));
        assert_eq!(at_once(usize::MAX), 1);
        assert_eq!(Sizes::of_path(&config(), 1).paths_at_once(Dtype::Bf16, None), 1);
    }

    #[test]
    fn a_fuser_needs_its_weights_and_what_it_computes_in() {
        let need = |tokens, together| fuser_bytes(&[config()], &FuseOptions::new(Dtype::Bf16), tokens, together);
        let weights = config().weight_bytes(Dtype::Bf16);
        // Seven rows of 1024, one of which is of both models, and eight weights for each token of 56 paths.
        assert_eq!(need(512, TOGETHER) - weights, 56 * 512 * 2 * (7 * 1024 + 8));
        assert_eq!(need(512, None) - weights, 512 * 2 * (7 * 1024 + 8));
        assert!(need(1 << 20, TOGETHER) >= weights + 2 * (1 << 20) * 7 * 1024);
        assert_eq!(need(usize::MAX, TOGETHER), u64::MAX);
    }
}
