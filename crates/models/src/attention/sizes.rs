//! The sizes of attention, and what it has to do at least.

use crate::{Dtype, Fill, cpu::number::Number, dtype::typed, synthetic::key, tensors::product};

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

/// What attention reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Input {
    /// What asks.
    Queries,
    /// What is asked.
    Keys,
    /// What is mixed.
    Values,
}

/// Random inputs of attention: even, with a deviation of 1, so that scores have one of 1 too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Synthetic {
    /// The sizes.
    pub sizes: AttentionSizes,
    /// The type that the numbers are rounded to.
    pub dtype: Dtype,
    /// What the numbers start from.
    pub seed: u64,
}

impl Synthetic {
    /// What fills an input, `[batch, heads, length, head_dim]`.
    pub fn fill(&self, input: Input) -> Fill {
        let name = match input {
            Input::Queries => "attention.queries",
            Input::Keys => "attention.keys",
            Input::Values => "attention.values",
        };
        Fill::Random { key: key(self.seed, name), amplitude: 3.0_f32.sqrt() }
    }

    /// Some rows of a head of a sequence, as they are rounded.
    pub fn rows(&self, input: Input, [batch, head, from, count]: [usize; 4], rows: &mut Vec<f32>) {
        let AttentionSizes { heads, kv_heads, head_dim, length, .. } = self.sizes;
        let heads = if input == Input::Queries { heads } else { kv_heads };
        let first = ((batch * heads + head) * length + from) * head_dim;
        let fill = self.fill(input);
        rows.clear();
        rows.extend((first..first + count * head_dim).map(|at| rounded(self.dtype, fill.at(at as u64))));
    }
}

/// A number as a type holds it.
fn rounded(dtype: Dtype, number: f32) -> f32 {
    typed!(dtype, |T| T::narrow(number).wide())
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

    #[test]
    fn rows_are_those_of_their_places_and_rounded() {
        let sizes = AttentionSizes { batch: 2, heads: 4, kv_heads: 2, head_dim: 8, length: 10 };
        let mut synthetic = Synthetic { sizes, dtype: Dtype::F32, seed: 5 };
        let mut rows = Vec::new();
        synthetic.rows(Input::Keys, [1, 1, 9, 1], &mut rows);
        let all = synthetic.fill(Input::Keys).numbers(2 * 2 * 10 * 8);
        assert_eq!(rows, all[all.len() - 8..]);
        synthetic.dtype = Dtype::Bf16;
        synthetic.rows(Input::Queries, [0, 3, 2, 2], &mut rows);
        let all = synthetic.fill(Input::Queries).numbers(2 * 4 * 10 * 8);
        let expected: Vec<f32> =
            all[(3 * 10 + 2) * 8..][..16].iter().map(|number| half::bf16::from_f32(*number).to_f32()).collect();
        assert_eq!(rows, expected);
    }
}
