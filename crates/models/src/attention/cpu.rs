//! Attention on the CPU over synthetic inputs.

use super::{AttentionSizes, Input, Layout, Sampled, Synthetic, Tiling};
use crate::cpu::attention::{Attention, Heads, Inputs, Span, Strides};
use crate::cpu::memory::{SMALL_BYTES, blocks_bytes};
use crate::cpu::{blocks, cache::zeros, crew::Crew, number::Number, tiles::LANES};
use crate::{Dtype, Marks, ModelError, dtype::typed, tensors::sum};

/// The tiling of the CPU.
pub const CPU_TILING: Tiling = Tiling { rows: LANES as u32, keys: 64 };

/// The most heap bytes of attention: inputs, output, workspaces, and the scores if they are stored. A layout comes on top.
pub fn needed_bytes(sizes: &AttentionSizes, dtype: Dtype, threads: usize, stores_scores: bool) -> u64 {
    let scores = if stores_scores { sizes.scores().saturating_mul(dtype.bytes()) } else { 0 };
    let blocks = blocks::thread_bytes(sizes.head_dim);
    let a_thread = blocks_bytes(dtype).saturating_add(blocks).saturating_mul(threads.max(1) as u64);
    sum([SMALL_BYTES, sizes.bytes(dtype), scores, a_thread])
}

/// Attention on the CPU over synthetic inputs.
pub trait CpuAttention: Send + Sync {
    /// Attends to the pairs of a layout of [`CPU_TILING`].
    fn attend(&mut self, marks: &Marks, layout: &Layout);

    /// Attends to all keys, or those that causality allows, with stored scores.
    fn attend_naive(&mut self, marks: &Marks, is_causal: bool);

    /// A row of the output.
    fn row(&self, at: Sampled) -> Vec<f32>;
}

/// Generates the inputs. `stores_scores` allocates the memory for [`CpuAttention::attend_naive`].
pub fn cpu_attention(
    inputs: &Synthetic,
    threads: usize,
    stores_scores: bool,
) -> Result<Box<dyn CpuAttention>, ModelError> {
    let crew = Crew::new(threads)?;
    Ok(typed!(inputs.dtype, |T| Box::new(Of::<T>::new(inputs, crew, stores_scores)?)))
}

struct Of<T> {
    crew: Crew,
    sizes: AttentionSizes,
    queries: Vec<T>,
    keys: Vec<T>,
    values: Vec<T>,
    scores: Vec<T>,
    out: Vec<T>,
}

impl<T: Number> Of<T> {
    fn new(inputs: &Synthetic, crew: Crew, stores_scores: bool) -> Result<Self, ModelError> {
        let sizes = inputs.sizes;
        let count = |numbers: u64| usize::try_from(numbers).unwrap_or(usize::MAX);
        let generate = |input: Input, count_of: u64| {
            let (fill, mut numbers) = (inputs.fill(input), zeros::<T>(count(count_of))?);
            numbers.iter_mut().enumerate().for_each(|(at, number)| *number = T::narrow(fill.at(at as u64)));
            Ok::<_, ModelError>(numbers)
        };
        Ok(Self {
            crew,
            sizes,
            queries: generate(Input::Queries, sizes.query_numbers())?,
            keys: generate(Input::Keys, sizes.key_numbers())?,
            values: generate(Input::Values, sizes.key_numbers())?,
            scores: zeros(if stores_scores { count(sizes.scores()) } else { 0 })?,
            out: zeros(count(sizes.query_numbers()))?,
        })
    }

    fn span(&self, is_causal: bool) -> Span {
        let AttentionSizes { batch, heads, kv_heads, head_dim, length } = self.sizes;
        Span { batch, heads, kv_heads, head_dim, queries: length, start: 0, is_causal, window: None }
    }

    fn strides(&self, heads: usize) -> Strides {
        let head = self.sizes.length * self.sizes.head_dim;
        Strides { batch: heads * head, head, row: self.sizes.head_dim }
    }

    fn out_strides(&self) -> Strides {
        let AttentionSizes { heads, head_dim, length, .. } = self.sizes;
        Strides::by_token(length, heads, head_dim)
    }

    fn run(&mut self, marks: &Marks, is_causal: bool, layout: Option<&Layout>) {
        let (of_queries, of_keys) = (self.strides(self.sizes.heads), self.strides(self.sizes.kv_heads));
        let (span, out_strides) = (self.span(is_causal), self.out_strides());
        let inputs = Inputs {
            queries: Heads { numbers: &self.queries, strides: of_queries },
            keys: Heads { numbers: &self.keys, strides: of_keys },
            values: Heads { numbers: &self.values, strides: of_keys },
        };
        let out = (&mut *self.out, out_strides);
        let attention = Attention { crew: &self.crew, marks, span, inputs };
        match layout {
            Some(_) => attention.fused(layout, out),
            None => attention.naive(&mut self.scores, out),
        }
    }
}

impl<T: Number> CpuAttention for Of<T> {
    fn attend(&mut self, marks: &Marks, layout: &Layout) {
        self.run(marks, layout.rule.is_causal, Some(layout));
    }

    fn attend_naive(&mut self, marks: &Marks, is_causal: bool) {
        self.run(marks, is_causal, None);
    }

    fn row(&self, at: Sampled) -> Vec<f32> {
        let (Strides { batch, head, row }, width) = (self.out_strides(), self.sizes.head_dim);
        let first = at.batch * batch + at.head * head + at.row * row;
        self.out[first..first + width].iter().map(|number| number.wide()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attention::{BlockMask, Kept, Kind, Pattern, Random, Reference, tolerance};
    use crate::cpu::blocks::executed;
    use proptest::prelude::*;

    fn pattern(is_causal: bool, shared: Random) -> Pattern {
        Pattern { window: 40, global: 5, random: 7, is_causal, shared, seed: 3 }
    }

    /// The error of a kind of attention, as a share of the tolerance.
    fn off(inputs: &Synthetic, kind: Kind, kept: &Kept, threads: usize) -> f64 {
        let mut attention = cpu_attention(inputs, threads, kind == Kind::Naive).unwrap();
        match kind {
            Kind::Naive => attention.attend_naive(&Marks::default(), kept.rule().is_causal),
            _ => attention.attend(&Marks::default(), &Layout::build(kept, inputs.sizes.length, CPU_TILING)),
        }
        let judged = Reference::new(*inputs, kept.clone()).judge(|at| attention.row(at));
        judged.error / tolerance(inputs.dtype)
    }

    #[test]
    fn every_kind_is_accurate_in_every_dtype_causal_or_not() {
        let sizes = AttentionSizes { batch: 2, heads: 4, kv_heads: 2, head_dim: 16, length: 300 };
        for dtype in [Dtype::F32, Dtype::Bf16, Dtype::F16] {
            for (is_causal, shared) in [(true, Random::PerBlock), (false, Random::PerRow), (true, Random::PerRow)] {
                for kind in Kind::ALL {
                    let inputs = Synthetic { sizes, dtype, seed: 4 };
                    let kept = Kept::of(kind, pattern(is_causal, shared), None);
                    let off = off(&inputs, kind, &kept, 2);
                    assert!(off < 1.0, "{kind} {dtype:?} {is_causal} {shared:?}: {off}");
                }
            }
        }
    }

    #[test]
    fn a_mask_with_blocks_smaller_than_tiles_is_accurate() {
        let mask = BlockMask::parse("100\n110\n001").unwrap();
        for is_causal in [true, false] {
            let sizes = AttentionSizes { batch: 1, heads: 2, kv_heads: 1, head_dim: 8, length: 150 };
            let kept = Kept::of(Kind::BlockSparse, pattern(is_causal, Random::PerRow), Some(mask.clone()));
            let inputs = Synthetic { sizes, dtype: Dtype::F32, seed: 4 };
            assert!(off(&inputs, Kind::BlockSparse, &kept, 1) < 1.0);
        }
    }

    #[test]
    fn columns_kept_by_few_rows_are_computed_only_for_them() {
        let kept =
            |shared| Kept::Pattern(Pattern { window: 2, global: 0, random: 4, is_causal: true, shared, seed: 0 });
        let layout = |shared| Layout::build(&kept(shared), 1024, CPU_TILING);
        let (row, block) = (layout(Random::PerRow), layout(Random::PerBlock));
        assert_eq!(executed(&block), block.executed());
        assert!(executed(&row) < row.executed() / 2, "{} of {}", executed(&row), row.executed());
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_pattern_of_any_length_is_right(
            length in 1_usize..400, window in 0_usize..300, global in 0_usize..80, random in 0_usize..40,
            is_causal: bool, per_row: bool, threads in 1_usize..4, group in 1_usize..4,
        ) {
            let shared = if per_row { Random::PerRow } else { Random::PerBlock };
            let kept = Kept::Pattern(Pattern { window, global, random, is_causal, shared, seed: 9 });
            let sizes = AttentionSizes { batch: 1, heads: group, kv_heads: 1, head_dim: 8, length };
            let off = off(&Synthetic { sizes, dtype: Dtype::F32, seed: 1 }, Kind::Sparse, &kept, threads);
            prop_assert!(off < 1.0, "{}", off);
        }
    }
}
