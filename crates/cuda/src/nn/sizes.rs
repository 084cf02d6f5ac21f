//! The dimensions of attention.

use crate::launch::*;

/// The dimensions of queries and of the KV cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeadSizes {
    /// Sequences.
    pub batch: u32,
    /// New tokens (queries) per sequence.
    pub tokens: u32,
    /// Query heads, a multiple of `kv_heads`.
    pub heads: u32,
    /// Key and value heads.
    pub kv_heads: u32,
    /// The head size.
    pub head_dim: u32,
    /// The capacity of the cache in positions.
    pub capacity: u32,
}

impl HeadSizes {
    /// Sequences times tokens.
    pub fn rows(&self) -> u64 {
        u64::from(self.batch) * u64::from(self.tokens)
    }

    /// Query rows of all heads.
    pub(crate) fn query_rows(&self) -> u64 {
        self.rows().saturating_mul(self.heads.into())
    }

    pub(crate) fn all_heads(&self) -> u64 {
        u64::from(self.heads) + 2 * u64::from(self.kv_heads)
    }

    /// The width of the packed QKV projection.
    pub fn packed_width(&self) -> u64 {
        self.all_heads() * u64::from(self.head_dim)
    }

    /// Elements of all queries.
    pub fn query_elements(&self) -> u64 {
        product([self.batch, self.tokens, self.heads, self.head_dim])
    }

    /// Elements of the keys in the cache, and of the values.
    pub fn cache_elements(&self) -> u64 {
        product([self.batch, self.kv_heads, self.capacity, self.head_dim])
    }

    /// Query heads per key and value head.
    pub fn group(&self) -> u32 {
        self.heads.checked_div(self.kv_heads).unwrap_or(0)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.query_elements() == 0
    }

    pub(crate) fn check(&self, doing: &str) -> Done {
        let divides = self.kv_heads > 0 && self.heads.is_multiple_of(self.kv_heads);
        expect(doing, divides, "the number of query heads must be a multiple of the number of key and value heads")?;
        expect(doing, self.head_dim <= 256, "heads of more than 256 elements are not supported")?;
        // A grid has less than 2^31 blocks along x, and 2^16 along y.
        let blocks = product([self.batch, self.heads, 1, 1]).max(self.rows());
        expect(doing, blocks < 1 << 31 && self.tokens < 1 << 21 && self.batch < 1 << 16, "too many tokens")
    }
}

fn product(sizes: [u32; 4]) -> u64 {
    sizes.iter().fold(1, |product: u64, size| product.saturating_mul(u64::from(*size)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: HeadSizes = HeadSizes { batch: 2, tokens: 3, heads: 14, kv_heads: 2, head_dim: 64, capacity: 10 };

    #[test]
    fn element_counts_match_the_layouts() {
        assert_eq!((SIZES.rows(), SIZES.packed_width(), SIZES.group()), (6, 18 * 64, 7));
        assert_eq!((SIZES.query_elements(), SIZES.cache_elements()), (2 * 3 * 14 * 64, 2 * 2 * 10 * 64));
        assert_eq!(HeadSizes { kv_heads: 0, ..SIZES }.group(), 0);
    }

    #[test]
    fn heads_that_do_not_divide_and_sizes_beyond_the_grid_are_refused() {
        assert!(SIZES.check("x").is_ok());
        assert!(HeadSizes { kv_heads: 3, ..SIZES }.check("x").is_err());
        assert!(HeadSizes { kv_heads: 0, ..SIZES }.check("x").is_err());
        assert!(HeadSizes { head_dim: 257, ..SIZES }.check("x").is_err());
        assert!(HeadSizes { batch: u32::MAX, tokens: u32::MAX, ..SIZES }.check("x").is_err());
        assert_eq!(HeadSizes { batch: u32::MAX, tokens: u32::MAX, ..SIZES }.query_elements(), u64::MAX);
    }
}
