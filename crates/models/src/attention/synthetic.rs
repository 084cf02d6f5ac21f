//! Queries, keys and values by formula: the same on every device.

use super::AttentionSizes;
use crate::{Dtype, Fill, cpu::number::Number, dtype::typed, synthetic::key};

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
