//! What attention over blocks must give.

use laptime_cuda::nn::{HeadSizes, LayoutParts, Rule, Tiling};

use super::{merge_heads, shares};

/// Whether a layout for this number of tokens keeps a pair: by a whole tile, by a partial one and the rule, or by a
/// column.
pub fn is_kept(parts: &LayoutParts<'_>, rule: Rule, tiling: Tiling, [row, key]: [u32; 2]) -> bool {
    let (block, tile) = ((row / tiling.rows) as usize, key / tiling.keys);
    let range = |starts: &[u32]| starts[block] as usize..starts[block + 1] as usize;
    let tiles = &parts.tiles[range(parts.tile_starts)];
    let is_in_tile = |at: usize| tiles[at].is_multiple_of(2) || rule.allows(row, key);
    if tiles.binary_search_by_key(&tile, |word| word >> 1).is_ok_and(is_in_tile) {
        return true;
    }
    let (columns, within) = (range(parts.column_starts), row % tiling.rows);
    let bits = |at: usize| parts.column_rows[(columns.start + at) * tiling.row_words() + (within / 64) as usize];
    parts.columns[columns.clone()].binary_search(&key).is_ok_and(|at| bits(at) >> (within % 64) & 1 == 1)
}

/// Attention of `q`, [batch, heads, tokens, head_dim], over the caches, [batch, kv_heads, capacity, head_dim], where each
/// row keeps the keys that `kept` says, ascending or not. The result is [batch, tokens, heads * head_dim]; a row that
/// keeps nothing is zero.
pub fn attention([q, k, v]: [&[f32]; 3], sizes: &HeadSizes, kept: &[Vec<u32>]) -> Vec<f32> {
    let (tokens, dim, capacity) = (sizes.tokens as usize, sizes.head_dim as usize, sizes.capacity as usize);
    let scale = 1.0 / f64::from(sizes.head_dim).sqrt();
    let mut apart = Vec::with_capacity(q.len());
    for (at, query) in q.chunks_exact(dim.max(1)).enumerate() {
        let first = at / tokens / sizes.group() as usize * capacity;
        let row = |key: u32| (first + key as usize) * dim..(first + key as usize + 1) * dim;
        let dot = |key: &[f32]| query.iter().zip(key).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
        let keys = &kept[at % tokens];
        let scores: Vec<f64> = keys.iter().map(|key| dot(&k[row(*key)]) * scale).collect();
        let mut sums = vec![0_f64; dim];
        for (share, key) in shares(&scores).iter().zip(keys) {
            sums.iter_mut().zip(&v[row(*key)]).for_each(|(sum, value)| *sum += share * f64::from(*value));
        }
        apart.extend(sums.into_iter().map(|sum| sum as f32));
    }
    merge_heads(&apart, sizes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::nn as reference;

    const SIZES: HeadSizes = HeadSizes { batch: 1, tokens: 2, heads: 2, kv_heads: 1, head_dim: 1, capacity: 3 };

    #[test]
    fn a_row_is_the_mean_of_what_it_keeps_where_scores_are_alike() {
        let (q, k, v) = ([0.0; 4], [1.0; 3], [3.0, 5.0, 100.0]);
        let found = attention([&q, &k, &v], &SIZES, &[vec![], vec![1, 0]]);
        // Two heads side by side: the first token keeps nothing, the second both.
        assert_eq!(found, [0.0, 0.0, 4.0, 4.0]);
    }

    #[test]
    fn keeping_all_up_to_itself_is_causal_attention() {
        let (q, k, v) = ([1.0, -2.0, 0.5, 3.0], [1.0, 2.0, 9.0], [3.0, 5.0, 100.0]);
        let found = attention([&q, &k, &v], &SIZES, &[vec![0], vec![0, 1]]);
        assert_eq!(found, reference::attention([&q, &k, &v], &SIZES, 0, 1.0));
    }

    #[test]
    fn a_pair_is_kept_by_a_tile_or_by_a_column() {
        // Blocks of 64 queries and tiles of two keys: the first block has a whole tile, a partial one and a column.
        let tiling = Tiling { rows: 64, keys: 2 };
        let parts = LayoutParts {
            tile_starts: &[0, 2],
            tiles: &[0, 3],
            column_starts: &[0, 1],
            columns: &[7],
            column_rows: &[0b10],
        };
        let rule = Rule { is_causal: true, half_window: Some(0), global: 0 };
        let kept = |row| (0..9).filter(|key| is_kept(&parts, rule, tiling, [row, *key])).collect::<Vec<u32>>();
        assert_eq!((kept(0), kept(1), kept(2), kept(3)), (vec![0, 1], vec![0, 1, 7], vec![0, 1, 2], vec![0, 1, 3]));
    }
}
