//! How large a model is: parameters, bytes of weights, bytes of keys and values.

use crate::{Config, Dtype};

/// Bytes of the widest number that weights are kept in.
const WIDEST: u128 = 4;

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
        let head = if self.tied { 0 } else { self.embedding_parameters() };
        let layers = self.layer_parameters()?.checked_mul(self.layers as u128)?;
        let total =
            [self.embedding_parameters(), head, self.hidden as u128].into_iter().try_fold(layers, u128::checked_add)?;
        let is_countable = total.checked_mul(WIDEST).is_some_and(|bytes| bytes <= i64::MAX as u128);
        is_countable.then_some(total as u64)
    }

    fn embedding_parameters(&self) -> u128 {
        self.vocab as u128 * self.hidden as u128
    }

    fn layer_parameters(&self) -> Option<u128> {
        let (hidden, ffn) = (self.hidden as u128, self.ffn as u128);
        let q = (self.heads as u128).checked_mul(self.head_dim as u128)?;
        let kv = (self.kv_heads as u128).checked_mul(self.head_dim as u128)?;
        let qkv = q.checked_add(kv.checked_mul(2)?)?;
        let parts = [
            hidden.checked_mul(qkv)?,
            hidden.checked_mul(q)?,
            hidden.checked_mul(ffn)?.checked_mul(3)?,
            if self.post_norms { 4 * hidden } else { 2 * hidden },
            if self.qk_norm { 2 * self.head_dim as u128 } else { 0 },
            if self.qkv_bias { qkv } else { 0 },
            if self.ffn_bias { 2 * ffn + hidden } else { 0 },
        ];
        parts.into_iter().try_fold(0_u128, u128::checked_add)
    }
}
