//! The sizes of attention, its minimal work, and its synthetic inputs.

use crate::{Dtype, Fill, cpu::number::Number, dtype::typed, synthetic::key, tensors::product};

/// The sizes of attention, with as many queries as keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttentionSizes {
    /// Sequences.
    pub batch: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads, a divisor of the query heads.
    pub kv_heads: usize,
    /// The width of a head.
    pub head_dim: usize,
    /// Tokens per sequence.
    pub length: usize,
}

impl AttentionSizes {
    /// Elements of the queries, and of the output.
    pub fn query_numbers(&self) -> u64 {
        product(&[self.batch, self.heads, self.length, self.head_dim])
    }

    /// Elements of the keys, and of the values.
    pub fn key_numbers(&self) -> u64 {
        product(&[self.batch, self.kv_heads, self.length, self.head_dim])
    }

    /// Scores of all pairs.
    pub fn scores(&self) -> u64 {
        product(&[self.batch, self.heads, self.length, self.length])
    }

    /// FLOPs of this many pairs per head: a multiply-add with the query and one with the value for each element.
    pub fn flops(&self, pairs: u64) -> u64 {
        product(&[4, self.batch, self.heads, self.head_dim]).saturating_mul(pairs)
    }

    /// Bytes of queries, keys, values and output: the least that must move.
    pub fn bytes(&self, dtype: Dtype) -> u64 {
        let numbers = self.query_numbers().saturating_add(self.key_numbers()).saturating_mul(2);
        numbers.saturating_mul(dtype.bytes())
    }

    /// Why they are invalid, if they are.
    pub fn refusal(&self) -> Option<String> {
        let Self { heads, kv_heads, .. } = *self;
        let divides = kv_heads > 0 && heads.is_multiple_of(kv_heads);
        (!divides).then(|| format!("{heads} query heads are not a multiple of {kv_heads} key heads"))
    }
}

/// An input of attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Input {
    /// Queries.
    Queries,
    /// Keys.
    Keys,
    /// Values.
    Values,
}

/// Random inputs: uniform with a standard deviation of 1, as the scores then have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Synthetic {
    /// The sizes.
    pub sizes: AttentionSizes,
    /// The dtype they are rounded to.
    pub dtype: Dtype,
    /// The seed.
    pub seed: u64,
}

impl Synthetic {
    /// The formula of an input, `[batch, heads, length, head_dim]`.
    pub fn fill(&self, input: Input) -> Fill {
        let name = match input {
            Input::Queries => "attention.queries",
            Input::Keys => "attention.keys",
            Input::Values => "attention.values",
        };
        Fill::Random { key: key(self.seed, name), amplitude: 3.0_f32.sqrt() }
    }

    /// Some rows of a head of a sequence, rounded.
    pub fn rows(&self, input: Input, [batch, head, from, count]: [usize; 4], rows: &mut Vec<f32>) {
        let AttentionSizes { heads, kv_heads, head_dim, length, .. } = self.sizes;
        let heads = if input == Input::Queries { heads } else { kv_heads };
        let first = ((batch * heads + head) * length + from) * head_dim;
        let fill = self.fill(input);
        rows.clear();
        typed!(self.dtype, |T| {
            rows.extend((first..first + count * head_dim).map(|at| T::narrow(fill.at(at as u64)).wide()));
        });
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
        assert_eq!(odd.refusal().unwrap(), "4 query heads are not a multiple of 3 key heads");
        let vast = AttentionSizes { length: usize::MAX, ..sizes };
        assert_eq!((vast.scores(), vast.bytes(Dtype::F32)), (u64::MAX, u64::MAX));
    }

    #[test]
    fn synthetic_rows_are_rounded_slices_of_the_input() {
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
