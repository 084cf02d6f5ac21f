//! What the operations must give, computed plainly on the CPU: sums in double precision, results in f32.

pub mod backward;
pub mod blocks;
pub mod conv;
pub mod fuse;
pub mod stream;

use laptime_cuda::nn::{HeadSizes, Pairing};

/// Each row divided by the root of its mean square plus `epsilon`, times `weight`, whose length is a row's.
pub fn rms_norm(x: &[f32], weight: &[f32], epsilon: f32) -> Vec<f32> {
    let rows = x.chunks_exact(weight.len().max(1));
    rows.flat_map(|row| {
        let squares: f64 = row.iter().map(|value| f64::from(*value).powi(2)).sum();
        let root = (squares / row.len() as f64 + f64::from(epsilon)).sqrt();
        row.iter().zip(weight).map(move |(value, weight)| (f64::from(*value) / root * f64::from(*weight)) as f32)
    })
    .collect()
}

/// The row of `table` for each token; a row that is no number for one that is not in it.
pub fn embed(tokens: &[u32], table: &[f32], width: usize) -> Vec<f32> {
    let row = |token: u32| table.chunks_exact(width.max(1)).nth(token as usize).map(<[f32]>::to_vec);
    tokens.iter().flat_map(|token| row(*token).unwrap_or_else(|| vec![f32::NAN; width])).collect()
}

/// The sum of each row of `x` and `bias`, whose length is a row's.
pub fn add_bias(x: &[f32], bias: &[f32]) -> Vec<f32> {
    x.chunks_exact(bias.len().max(1)).flat_map(|row| row.iter().zip(bias).map(|(a, b)| a + b)).collect()
}

/// `silu(gate) * up` of rows that are the gate and then what it lets through, `ffn` numbers each.
pub fn swiglu(gate_up: &[f32], ffn: usize) -> Vec<f32> {
    let gated = |gate: f64, up: f64| (gate / (1.0 + (-gate).exp()) * up) as f32;
    let rows = gate_up.chunks_exact((2 * ffn).max(1));
    rows.flat_map(|row| (0..ffn).map(move |i| gated(row[i].into(), row[ffn + i].into()))).collect()
}

/// The same with GELU, approximated by tanh, in place of SiLU.
pub fn geglu(gate_up: &[f32], ffn: usize) -> Vec<f32> {
    let inner = |gate: f64| std::f64::consts::FRAC_2_PI.sqrt() * (gate + 0.044_715 * gate.powi(3));
    let gated = |gate: f64, up: f64| (0.5 * gate * (1.0 + inner(gate).tanh()) * up) as f32;
    let rows = gate_up.chunks_exact((2 * ffn).max(1));
    rows.flat_map(|row| (0..ffn).map(move |i| gated(row[i].into(), row[ffn + i].into()))).collect()
}

/// Argmax of each row. Ties go to the lowest index, and a row of NaN gives 0.
pub fn argmax(x: &[f32], width: usize) -> Vec<u32> {
    let best = |row: &[f32]| {
        let numbers = row.iter().enumerate().filter(|(_, value)| !value.is_nan());
        let best = numbers.fold(None, |best: Option<(usize, f32)>, (at, value)| match best {
            Some((_, most)) if *value <= most => best,
            _ => Some((at, *value)),
        });
        best.map_or(0, |(at, _)| at as u32)
    };
    x.chunks_exact(width.max(1)).map(best).collect()
}

/// The last row of each sequence.
pub fn last_rows(x: &[f32], [tokens, width]: [usize; 2]) -> Vec<f32> {
    x.chunks_exact((tokens * width).max(1)).flat_map(|rows| rows[(tokens - 1) * width..].to_vec()).collect()
}

/// What [`split_heads`] does on the way.
#[derive(Debug, Clone, Copy)]
pub struct Split<'a> {
    /// Added to each row; empty for nothing.
    pub bias: &'a [f32],
    /// The norm's weights of queries and of keys, and what is added to the mean square.
    pub norm: Option<([&'a [f32]; 2], f32)>,
    /// Cosines, positions by `head_dim / 2`.
    pub cosines: &'a [f32],
    /// Sines, positions by `head_dim / 2`.
    pub sines: &'a [f32],
    /// What is rotated together.
    pub pairing: Pairing,
    /// The position of the first token.
    pub start: usize,
}

/// Queries, and the caches with keys and values at their positions.
#[derive(Debug, Clone, PartialEq)]
pub struct Heads {
    /// [batch, heads, tokens, head_dim].
    pub q: Vec<f32>,
    /// [batch, kv_heads, capacity, head_dim].
    pub k: Vec<f32>,
    /// [batch, kv_heads, capacity, head_dim].
    pub v: Vec<f32>,
}

/// Takes packed rows apart. The caches are `fill` where nothing is written.
pub fn split_heads(packed: &[f32], sizes: &HeadSizes, split: &Split<'_>, fill: f32) -> Heads {
    let (tokens, heads, kv_heads) = (sizes.tokens as usize, sizes.heads as usize, sizes.kv_heads as usize);
    let (dim, capacity) = (sizes.head_dim as usize, sizes.capacity as usize);
    let cache = vec![fill; sizes.cache_elements() as usize];
    let mut result = Heads { q: vec![0.0; sizes.query_elements() as usize], k: cache.clone(), v: cache };
    let all_heads = heads + 2 * kv_heads;
    for (at, from) in packed.chunks_exact(dim.max(1)).enumerate() {
        let (row, head) = (at / all_heads, at % all_heads);
        let (sequence, token) = (row / tokens, row % tokens);
        let position = split.start + token;
        let place = |of: usize| ((sequence * kv_heads + of) * capacity + position) * dim;
        let values = one_head(from, head, sizes, split, position);
        let (to, place) = match head {
            head if head < heads => (&mut result.q, ((sequence * heads + head) * tokens + token) * dim),
            _ if position >= capacity => continue,
            head if head < heads + kv_heads => (&mut result.k, place(head - heads)),
            head => (&mut result.v, place(head - heads - kv_heads)),
        };
        to[place..place + dim].copy_from_slice(&values);
    }
    result
}

fn one_head(from: &[f32], head: usize, sizes: &HeadSizes, split: &Split<'_>, position: usize) -> Vec<f32> {
    let (heads, kv_heads, dim) = (sizes.heads as usize, sizes.kv_heads as usize, from.len());
    let mut values = from.to_vec();
    if let Some(bias) = split.bias.get(head * dim..(head + 1) * dim) {
        values = add_bias(&values, bias);
    }
    if head >= heads + kv_heads {
        return values;
    }
    if let Some((weights, epsilon)) = split.norm {
        values = rms_norm(&values, weights[usize::from(head >= heads)], epsilon);
    }
    let row = position.min(split.cosines.len() / (dim / 2) - 1) * (dim / 2);
    for pair in 0..dim / 2 {
        let (a, b) = match split.pairing {
            Pairing::Halves => (pair, pair + dim / 2),
            Pairing::Pairs => (2 * pair, 2 * pair + 1),
        };
        let (cosine, sine) = (split.cosines[row + pair], split.sines[row + pair]);
        (values[a], values[b]) = (values[a] * cosine - values[b] * sine, values[b] * cosine + values[a] * sine);
    }
    values
}

/// Shares of scores: row r of `keys` scores is of query r modulo `tokens`, which sees the keys up to `start` plus it.
pub fn softmax_causal(scores: &[f32], sizes: [usize; 2], start: usize, scale: f32) -> Vec<f32> {
    softmax_windowed(scores, sizes, start, scale, usize::MAX)
}

/// The same with only the last `window` of these keys.
pub fn softmax_windowed(
    scores: &[f32],
    [tokens, keys]: [usize; 2],
    start: usize,
    scale: f32,
    window: usize,
) -> Vec<f32> {
    let rows = scores.chunks_exact(keys.max(1)).enumerate();
    rows.flat_map(|(row, scores)| {
        let seen = (start + row % tokens + 1).min(keys);
        let first = seen.saturating_sub(window);
        let scaled: Vec<f64> = scores[first..seen].iter().map(|score| f64::from(*score) * f64::from(scale)).collect();
        let mut shares = [vec![0.0; first], shares(&scaled)].concat();
        shares.resize(keys, 0.0);
        shares.into_iter().map(|share| share as f32)
    })
    .collect()
}

fn shares(scores: &[f64]) -> Vec<f64> {
    let most = scores.iter().fold(f64::NEG_INFINITY, |most, score| most.max(*score));
    let powers: Vec<f64> = scores.iter().map(|score| (score - most).exp()).collect();
    let sum: f64 = powers.iter().sum();
    powers.into_iter().map(|power| power / sum).collect()
}

/// Heads that lie apart, [batch, heads, tokens, head_dim], side by side: [batch, tokens, heads * head_dim].
pub fn merge_heads(heads_apart: &[f32], sizes: &HeadSizes) -> Vec<f32> {
    let (tokens, heads, dim) = (sizes.tokens as usize, sizes.heads as usize, sizes.head_dim as usize);
    let mut merged = vec![0.0; heads_apart.len()];
    for (at, from) in heads_apart.chunks_exact(dim.max(1)).enumerate() {
        let (sequence, head, token) = (at / tokens / heads, at / tokens % heads, at % tokens);
        let to = ((sequence * tokens + token) * heads + head) * dim;
        merged[to..to + dim].copy_from_slice(from);
    }
    merged
}

/// Causal attention of `q`, [batch, heads, tokens, head_dim], over the caches, [batch, kv_heads, capacity, head_dim];
/// query i sees the keys up to `start` plus i. The result is [batch, tokens, heads * head_dim].
pub fn attention(inputs: [&[f32]; 3], sizes: &HeadSizes, start: usize, scale: f32) -> Vec<f32> {
    attention_windowed(inputs, sizes, start, scale, usize::MAX)
}

/// The same with only the last `window` of these keys.
pub fn attention_windowed(
    [q, k, v]: [&[f32]; 3],
    sizes: &HeadSizes,
    start: usize,
    scale: f32,
    window: usize,
) -> Vec<f32> {
    let (tokens, dim, capacity) = (sizes.tokens as usize, sizes.head_dim as usize, sizes.capacity as usize);
    let mut apart = Vec::with_capacity(q.len());
    for (at, query) in q.chunks_exact(dim.max(1)).enumerate() {
        let seen = (start + at % tokens + 1).min(capacity);
        let first = at / tokens / sizes.group() as usize * capacity * dim;
        let left_behind = seen.saturating_sub(window);
        let rows = |cache: &'_ [f32]| cache[first + left_behind * dim..first + seen * dim].to_vec();
        let dot = |key: &[f32]| query.iter().zip(key).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
        let scores: Vec<f64> = rows(k).chunks_exact(dim).map(|key| dot(key) * f64::from(scale)).collect();
        let mut sums = vec![0_f64; dim];
        for (share, value) in shares(&scores).iter().zip(rows(v).chunks_exact(dim)) {
            sums.iter_mut().zip(value).for_each(|(sum, value)| *sum += share * f64::from(*value));
        }
        apart.extend(sums.into_iter().map(|sum| sum as f32));
    }
    merge_heads(&apart, sizes)
}

#[cfg(test)]
mod tests;
