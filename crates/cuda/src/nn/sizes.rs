//! The sizes of attention.

use crate::launch::*;

/// Heads of queries, keys and values, and the cache that keys and values are kept in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeadSizes {
    /// Sequences.
    pub batch: u32,
    /// New tokens of each sequence: queries.
    pub tokens: u32,
    /// Heads of queries.
    pub heads: u32,
    /// Heads of keys and values, of which `heads` is a multiple.
    pub kv_heads: u32,
    /// Numbers of a head.
    pub head_dim: u32,
    /// The capacity of the cache in positions.
    pub capacity: u32,
}

impl HeadSizes {
    /// Sequences times tokens.
    pub fn rows(&self) -> u64 {
        u64::from(self.batch) * u64::from(self.tokens)
    }

    pub(crate) fn all_heads(&self) -> u64 {
        u64::from(self.heads) + 2 * u64::from(self.kv_heads)
    }

    /// Numbers of a row of the packed product: all heads of q, k and v.
    pub fn packed_width(&self) -> u64 {
        self.all_heads() * u64::from(self.head_dim)
    }

    /// Numbers of all queries.
    pub fn query_numbers(&self) -> u64 {
        product([self.batch, self.tokens, self.heads, self.head_dim])
    }

    /// Numbers of the cache of keys, and of that of values.
    pub fn cache_numbers(&self) -> u64 {
        product([self.batch, self.kv_heads, self.capacity, self.head_dim])
    }

    /// How many heads of queries share a head of keys and values.
    pub fn group(&self) -> u32 {
        self.heads.checked_div(self.kv_heads).unwrap_or(0)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.query_numbers() == 0
    }

    pub(crate) fn check(&self, doing: &str) -> Done {
        let divides = self.kv_heads > 0 && self.heads.is_multiple_of(self.kv_heads);
        expect(doing, divides, "the heads of queries are no multiple of those of keys")?;
        expect(doing, self.head_dim <= 256, "heads of more than 256 numbers are not supported")?;
        // Blocks are numbered in 31 bits, and in 16 along the second side of the grid.
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
    fn sizes_are_counted_as_the_layouts_say() {
        assert_eq!((SIZES.rows(), SIZES.packed_width(), SIZES.group()), (6, 18 * 64, 7));
        assert_eq!((SIZES.query_numbers(), SIZES.cache_numbers()), (2 * 3 * 14 * 64, 2 * 2 * 10 * 64));
        assert_eq!(HeadSizes { kv_heads: 0, ..SIZES }.group(), 0);
    }

    #[test]
    fn heads_that_do_not_divide_and_sizes_beyond_the_grid_are_refused() {
        assert!(SIZES.check("x").is_ok());
        assert!(HeadSizes { kv_heads: 3, ..SIZES }.check("x").is_err());
        assert!(HeadSizes { kv_heads: 0, ..SIZES }.check("x").is_err());
        assert!(HeadSizes { head_dim: 257, ..SIZES }.check("x").is_err());
        assert!(HeadSizes { batch: u32::MAX, tokens: u32::MAX, ..SIZES }.check("x").is_err());
        assert_eq!(HeadSizes { batch: u32::MAX, tokens: u32::MAX, ..SIZES }.query_numbers(), u64::MAX);
    }
}
