//! How large a model is: parameters, bytes of weights, bytes of keys and values.

use crate::tensors::{checked_count, countable};
use crate::{Config, Dtype};

impl Config {
    /// Numbers in its weights; a tied head is counted once.
    pub fn parameters(&self) -> u64 {
        self.checked_parameters().unwrap_or(u64::MAX)
    }

    /// Bytes of its weights in a number type.
    pub fn weight_bytes(&self, dtype: Dtype) -> u64 {
        let others = self.parameters().saturating_sub(layer_numbers(self).saturating_mul(self.layers as u64));
        let layers = self.layer_bytes(dtype).saturating_mul(self.layers as u64);
        others.saturating_mul(dtype.bytes()).saturating_add(layers)
    }

    /// Bytes of the weights of a layer.
    pub(crate) fn layer_bytes(&self, dtype: Dtype) -> u64 {
        sum(self.layer_tensors(0).iter().map(|tensor| tensor.bytes(dtype, self.weight_scales)))
    }

    /// Bytes that one token of one sequence takes in the cache: a key and a value in every layer.
    pub fn kv_bytes_per_token(&self, dtype: Dtype) -> u64 {
        product(&[2, self.layers, self.kv_heads, self.head_dim]).saturating_mul(dtype.bytes())
    }

    /// The parameters, or none if their bytes cannot be counted in 63 bits.
    pub(crate) fn checked_parameters(&self) -> Option<u64> {
        let ends = [self.embedding_tensor(), self.final_norm_tensor()].into_iter().chain(self.head_tensor());
        let layers = checked_count(&self.layer_tensors(0))?.checked_mul(self.layers as u64)?;
        countable(layers.checked_add(checked_count(&ends.collect::<Vec<_>>())?)?)
    }
}

fn layer_numbers(config: &Config) -> u64 {
    sum(config.layer_tensors(0).iter().map(|tensor| product(&tensor.shape)))
}

/// A product of sizes, or the largest number.
pub(crate) fn product(sizes: &[usize]) -> u64 {
    sizes.iter().fold(1, |all: u64, size| all.saturating_mul(*size as u64))
}

/// A sum, or the largest number.
pub(crate) fn sum(parts: impl IntoIterator<Item = u64>) -> u64 {
    parts.into_iter().fold(0, u64::saturating_add)
}
