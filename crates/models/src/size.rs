//! How large a model is: parameters, bytes of weights, bytes of keys and values.

use crate::{
    Config, Dtype,
    tensors::{checked_count, countable},
};

impl Config {
    /// Numbers in its weights; a tied head is counted once.
    pub fn parameters(&self) -> u64 {
        self.checked_parameters().unwrap_or(u64::MAX)
    }

    /// Bytes of its weights in a number type.
    pub fn weight_bytes(&self, dtype: Dtype) -> u64 {
        self.parameters().saturating_mul(dtype.bytes())
    }

    /// Bytes that one token of one sequence takes in the cache: a key and a value in every layer.
    pub fn kv_bytes_per_token(&self, dtype: Dtype) -> u64 {
        let numbers = [2, self.layers as u64, self.kv_heads as u64, self.head_dim as u64];
        numbers.into_iter().fold(dtype.bytes(), u64::saturating_mul)
    }

    /// The parameters, or none if their bytes cannot be counted in 63 bits.
    pub(crate) fn checked_parameters(&self) -> Option<u64> {
        let ends = [self.embedding_tensor(), self.final_norm_tensor()].into_iter().chain(self.head_tensor());
        let layers = checked_count(&self.layer_tensors(0))?.checked_mul(self.layers as u64)?;
        countable(layers.checked_add(checked_count(&ends.collect::<Vec<_>>())?)?)
    }
}
