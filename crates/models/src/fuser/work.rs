//! What a fuse has to do, counted as the work of a pass is.
//!
//! A multiplication and an addition are two operations; norms, activations and the gates are not counted. The weights of
//! open paths are read once, keys and values of both models are read, and those of the receiver are written.

use super::{FuserConfig, Gates, Path};
use crate::tensors::{product, sum};
use crate::{Dtype, Role, StageWork};

impl FuserConfig {
    /// The work of fusing this many tokens of this many sequences, closed gates left out.
    pub fn fuse_work(&self, gates: &Gates, batch: usize, tokens: usize, dtype: Dtype) -> StageWork {
        let rows = (batch as u64).saturating_mul(tokens as u64);
        let paths = gates.open_paths() as u64;
        let bytes = |numbers: u64| numbers.saturating_mul(dtype.bytes());
        let (own, heard) = (self.receiver.width() as u64, self.sharer.width() as u64);
        let a_token = |width: u64| bytes(width.saturating_mul(paths).saturating_mul(rows));
        let path = self.path_tensors(0, Path::Keys);
        let products = sum(path.iter().filter(|spec| spec.role == Role::Linear).map(|spec| product(&spec.shape)));
        let opened = self.opened_once(gates) as u64;
        StageWork {
            flops: [2, rows, paths].into_iter().fold(products, u64::saturating_mul),
            weight_bytes: bytes((self.projector_parameters() / 2).saturating_mul(opened)),
            kv_read: a_token(own.saturating_add(heard)),
            kv_written: a_token(own),
        }
    }

    /// Paths of projectors that are open, those of a projector that several layers share counted once.
    fn opened_once(&self, gates: &Gates) -> usize {
        let projectors: std::collections::HashMap<usize, [bool; 2]> =
            self.pairs.iter().zip(gates.layers()).map(|(pair, open)| (pair.projector, *open)).collect();
        projectors.values().flatten().filter(|open| **open).count()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Config, HasTensors, fuser::Alignment};

    fn fuser() -> FuserConfig {
        let preset = |name| Config::from_preset(name).unwrap();
        FuserConfig::new(&preset("Qwen3-0.6B"), &preset("Qwen3-4B"), Alignment::LastAligned)
    }

    #[test]
    fn a_token_takes_twice_as_many_operations_as_there_are_numbers_in_matrices() {
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
        let gates = Gates::new(vec![[true, false]; 28]);
        let (half, whole) =
            (config.fuse_work(&gates, 1, 9, Dtype::F32), config.fuse_work(&Gates::open(28), 1, 9, Dtype::F32));
        assert_eq!(2 * half.flops, whole.flops);
        assert_eq!(2 * half.weight_bytes, whole.weight_bytes);
        let none = config.fuse_work(&Gates::new(vec![[false; 2]; 28]), 1, 9, Dtype::F32);
        assert_eq!(none, StageWork::default());
    }

    #[test]
    fn a_projector_that_two_layers_share_is_read_once() {
        let mut config = fuser();
        config.pairs.iter_mut().for_each(|pair| pair.projector = 0);
        let work = config.fuse_work(&Gates::open(28), 1, 1, Dtype::F32);
        assert_eq!(work.weight_bytes, 4 * 18_901_010);
        assert_eq!(work.flops, fuser().fuse_work(&Gates::open(28), 1, 1, Dtype::F32).flops);
    }

    proptest! {
        #[test]
        fn sizes_beyond_all_measure_saturate(batch in any::<usize>(), tokens in any::<usize>()) {
            let work = fuser().fuse_work(&Gates::open(28), batch, tokens, Dtype::F32);
            prop_assert!(work.weight_bytes > 0);
        }
    }
}
