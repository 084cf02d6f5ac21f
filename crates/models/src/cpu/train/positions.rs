//! Rotation and norms by head, backwards.

#![allow(unsafe_code, reason = "threads write rows of their own side by side; the block has its reason")]

use super::super::{
    crew::Crew,
    number::Number,
    rows::Shared,
    steps::{Norm, rotate},
};
use super::steps::{Sums, norm_row_back_in_place};
use crate::{Config, rope::RopeTable};

pub struct PositionsBack<'a> {
    pub config: &'a Config,
    pub table: &'a RopeTable,
    pub norms: Option<(Norm<'a>, Norm<'a>)>,
    pub tokens: usize,
}

impl PositionsBack<'_> {
    /// Makes the gradients of heads those of what was projected, where they are. The gradients of the norms of queries
    /// and of keys follow one another in `d_norms`, which is empty where there are none.
    pub fn leave<T: Number>(
        &self,
        crew: &Crew,
        (projected, d_heads): (&[T], &mut [T]),
        sums: &mut Sums,
        d_norms: &mut [f32],
    ) {
        let Config { heads, kv_heads, head_dim, .. } = *self.config;
        let width = (heads + 2 * kv_heads) * head_dim;
        let d_rows = Shared::new(d_heads);
        // Without norms there is nothing to sum, but parts must have a width.
        let mut nothing = [0.0];
        let d_norms = if d_norms.is_empty() { &mut nothing } else { d_norms };
        let (rows, sizes) = (projected.len() / width, (d_norms.len(), projected.len()));
        sums.over::<T>(
            crew,
            rows,
            sizes,
            d_norms,
            #[inline(always)]
            |first, count, sums| {
                // SAFETY: parts have no row in common, and each is done once.
                let mut d_rows = unsafe { d_rows.rows(first * width, count, width, width) };
                for at in 0..count {
                    let row = first + at;
                    self.leave_row(&projected[row * width..][..width], d_rows.row(at), row % self.tokens, sums);
                }
            },
        );
    }

    #[inline(always)]
    fn leave_row<T: Number>(&self, projected: &[T], d_row: &mut [T], position: usize, d_norms: &mut [f32]) {
        let Config { heads, kv_heads, head_dim, .. } = *self.config;
        let angles = self.table.at(position);
        let turned = d_row.chunks_mut(head_dim).zip(projected.chunks(head_dim)).take(heads + kv_heads);
        for (head, (d_head, projected)) in turned.enumerate() {
            rotate(self.config.rope.layout, d_head, angles, -1.0);
            if let Some((query_norm, key_norm)) = self.norms {
                let (d_query, d_key) = d_norms.split_at_mut(head_dim);
                let (norm, d_norm) = if head < heads { (query_norm, d_query) } else { (key_norm, d_key) };
                norm_row_back_in_place(norm, projected, d_head, d_norm);
            }
        }
    }
}
