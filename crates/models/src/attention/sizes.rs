//! The sizes of attention, and what it has to do at least.

use crate::{Dtype, size::product};

/// The sizes of attention: as many queries as keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttentionSizes {
    /// Sequences.
    pub batch: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads, which divide the query heads.
    pub kv_heads: usize,
    /// Numbers of a head.
    pub head_dim: usize,
    /// Tokens of each sequence.
    pub length: usize,
}

impl AttentionSizes {
    /// Numbers of the queries, and of the result.
    pub fn query_numbers(&self) -> u64 {
        product(&[self.batch, self.heads, self.length, self.head_dim])
    }

    /// Numbers of the keys, and of the values.
    pub fn key_numbers(&self) -> u64 {
        product(&[self.batch, self.kv_heads, self.length, self.head_dim])
    }

    /// Scores of all pairs.
    pub fn scores(&self) -> u64 {
        product(&[self.batch, self.heads, self.length, self.length])
    }

    /// Operations of this many pairs in every head: a product with the query and one with the value, an addition each.
    pub fn flops(&self, pairs: u64) -> u64 {
        product(&[4, self.batch, self.heads, self.head_dim]).saturating_mul(pairs)
    }

    /// Bytes of queries, keys, values and result: what must move at least.
    pub fn bytes(&self, dtype: Dtype) -> u64 {
        let numbers = self.query_numbers().saturating_add(self.key_numbers()).saturating_mul(2);
        numbers.saturating_mul(dtype.bytes())
    }

    /// Why they make no sense, if they do not.
    pub fn refusal(&self) -> Option<String> {
        let Self { heads, kv_heads, .. } = *self;
        let divides = kv_heads > 0 && heads.is_multiple_of(kv_heads);
        (!divides).then(|| format!("{kv_heads} heads of keys do not divide {heads} heads of queries"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_counted_from_the_sizes() {
        let sizes = AttentionSizes { batch: 2, heads: 4, kv_heads: 2, head_dim: 8, length: 10 };
        assert_eq!((sizes.query_numbers(), sizes.key_numbers(), sizes.scores()), (640, 320, 800));
        assert_eq!((sizes.flops(55), sizes.bytes(Dtype::Bf16)), (4 * 2 * 4 * 8 * 55, 2 * 2 * 960));
        assert_eq!(sizes.refusal(), None);
        let odd = AttentionSizes { kv_heads: 3, ..sizes };
        assert_eq!(odd.refusal().unwrap(), "3 heads of keys do not divide 4 heads of queries");
        let vast = AttentionSizes { length: usize::MAX, ..sizes };
        assert_eq!((vast.scores(), vast.bytes(Dtype::F32)), (u64::MAX, u64::MAX));
    }
}
