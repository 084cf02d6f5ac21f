//! The buffers, memory and work of fusers.
//!
//! A multiply-add is two operations; norms, activations and gates are not counted. A fuse reads the weights of open paths
//! once and the keys and values of both models, and writes those of the receiver.

use std::convert::Infallible;

use super::{FuseOptions, Fused, FuserConfig, Gates, Path};
use crate::tensors::{product, sum};
use crate::{Dtype, HasTensors, Role, StageWork, parts::parts};

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

    /// How many paths of this size fit in this many bytes; one without a limit.
    pub fn paths_at_once(&self, dtype: Dtype, together_bytes: Option<u64>) -> usize {
        let a_path = self.numbers().saturating_mul(dtype.bytes()).max(1);
        together_bytes.map_or(1, |bytes| usize::try_from(bytes / a_path).unwrap_or(usize::MAX).max(1))
    }
}

/// Bytes of the weights with all gates open, and of the buffers for this many rows. `together_bytes` is that of the backend.
pub(crate) fn fuser_bytes(
    configs: &[FuserConfig],
    options: &FuseOptions,
    rows: usize,
    together_bytes: Option<u64>,
) -> u64 {
    let weights = configs.iter().map(|config| match together_bytes {
        None => config.parameters(),
        // Layers with the same projector have copies of it.
        Some(_) => config.projector_parameters().saturating_mul(config.pairs.len() as u64),
    });
    let together = |config: &FuserConfig| {
        let a_path = Sizes::of_path(config, rows);
        a_path.times(a_path.paths_at_once(options.dtype, together_bytes).min(2 * config.pairs.len()))
    };
    let buffers = configs.iter().map(together).fold(Sizes::default(), Sizes::max);
    weights.fold(buffers.numbers(), u64::saturating_add).saturating_mul(options.dtype.bytes())
}

impl FuserConfig {
    /// The work of fusing this many tokens of this many sequences.
    pub fn fuse_work(&self, gates: &Gates, batch: usize, tokens: usize, dtype: Dtype) -> StageWork {
        let rows = (batch as u64).saturating_mul(tokens as u64);
        let paths = Fused::of(gates).paths as u64;
        let bytes = |numbers: u64| numbers.saturating_mul(dtype.bytes());
        let (own, shared) = (self.receiver.width() as u64, self.sharer.width() as u64);
        let by_token = |width: u64| bytes(width.saturating_mul(paths).saturating_mul(rows));
        let path = self.path_tensors(0, Path::Keys);
        let products = sum(path.iter().filter(|spec| spec.role == Role::Linear).map(|spec| product(&spec.shape)));
        let opened = self.opened_once(gates) as u64;
        StageWork {
            flops: [2, rows, paths].into_iter().fold(products, u64::saturating_mul),
            weight_bytes: bytes((self.projector_parameters() / 2).saturating_mul(opened)),
            kv_read: by_token(own.saturating_add(shared)),
            kv_written: by_token(own),
        }
    }

    /// Open paths, counting those of a shared projector once.
    fn opened_once(&self, gates: &Gates) -> usize {
        let projectors: std::collections::HashMap<usize, [bool; 2]> =
            self.pairs.iter().zip(&gates.0).map(|(pair, open)| (pair.projector, *open)).collect();
        projectors.values().flatten().filter(|open| **open).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, HasTensors, fuser::Alignment};
    use proptest::prelude::*;

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
    fn a_fuser_needs_its_weights_and_buffers() {
        let need = |tokens, together| fuser_bytes(&[config()], &FuseOptions::new(Dtype::Bf16), tokens, together);
        let weights = config().weight_bytes(Dtype::Bf16);
        // Seven rows of 1024, one of which is of both models, and eight weights for each token of 56 paths.
        assert_eq!(need(512, TOGETHER) - weights, 56 * 512 * 2 * (7 * 1024 + 8));
        assert_eq!(need(512, None) - weights, 512 * 2 * (7 * 1024 + 8));
        assert!(need(1 << 20, TOGETHER) >= weights + 2 * (1 << 20) * 7 * 1024);
        assert_eq!(need(usize::MAX, TOGETHER), u64::MAX);
    }

    fn fuser() -> FuserConfig {
        let preset = |name| Config::from_preset(name).unwrap();
        FuserConfig::new(&preset("Qwen3-0.6B"), &preset("Qwen3-4B"), Alignment::LastAligned)
    }

    #[test]
    fn a_token_needs_two_operations_per_matrix_element() {
        let config = fuser();
        let gates = Gates::open(28);
        let one = config.fuse_work(&gates, 1, 1, Dtype::Bf16);
        // Per path: 2048 x 1024 in, three blocks of 2 x 1024 x 1024, 1024 x 8 weights, 1024 x 1024 out.
        assert_eq!(one.flops, 2 * 28 * 2 * (2048 * 1024 + 6 * 1024 * 1024 + 8 * 1024 + 1024 * 1024));
        assert_eq!(one.flops / 10_000_000, 105);
        assert_eq!(one.weight_bytes, config.weight_bytes(Dtype::Bf16));
        assert_eq!((one.kv_read, one.kv_written), (28 * 2 * 2 * 2048, 28 * 2 * 2 * 1024));
        let many = config.fuse_work(&gates, 2, 256, Dtype::Bf16);
        assert_eq!((many.flops, many.weight_bytes), (512 * one.flops, one.weight_bytes));
        assert_eq!(many.work(Dtype::Bf16).bytes, many.weight_bytes + many.kv_read);
    }

    #[test]
    fn closed_paths_have_no_work() {
        let config = fuser();
        let gates = Gates(vec![[true, false]; 28]);
        let (half, whole) =
            (config.fuse_work(&gates, 1, 9, Dtype::F32), config.fuse_work(&Gates::open(28), 1, 9, Dtype::F32));
        assert_eq!(2 * half.flops, whole.flops);
        assert_eq!(2 * half.weight_bytes, whole.weight_bytes);
        let none = config.fuse_work(&Gates(vec![[false; 2]; 28]), 1, 9, Dtype::F32);
        assert_eq!(none, StageWork::default());
    }

    #[test]
    fn a_shared_projector_is_read_once() {
        let mut config = fuser();
        config.pairs.iter_mut().for_each(|pair| pair.projector = 0);
        let work = config.fuse_work(&Gates::open(28), 1, 1, Dtype::F32);
        assert_eq!(work.weight_bytes, 4 * 18_901_010);
        assert_eq!(work.flops, fuser().fuse_work(&Gates::open(28), 1, 1, Dtype::F32).flops);
    }

    proptest! {
        #[test]
        fn huge_sizes_saturate(batch in any::<usize>(), tokens in any::<usize>()) {
            let work = fuser().fuse_work(&Gates::open(28), batch, tokens, Dtype::F32);
            prop_assert!(work.weight_bytes > 0);
        }
    }
}
