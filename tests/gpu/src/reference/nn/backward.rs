//! What the gradients must be, computed plainly on the CPU: sums in double precision, results in f32.
//!
//! A gradient is that of the sum of each result times its slope, the slopes being what is handed in.

use laptime_cuda::nn::{HeadSizes, Pairing, Rates};

use super::{Heads, Split, shares};

/// The loss of each row of logits and its target, and the gradient of `scale` times their sum.
pub fn cross_entropy(logits: &[f32], targets: &[u32], vocabulary: usize, scale: f32) -> (Vec<f32>, Vec<f32>) {
    let rows = logits.chunks_exact(vocabulary.max(1)).zip(targets);
    rows.map(|(row, target)| {
        let scores: Vec<f64> = row.iter().map(|logit| f64::from(*logit)).collect();
        let shares = shares(&scores);
        let loss = shares.get(*target as usize).map_or(f64::NAN, |share| -share.ln()) as f32;
        let one = |at: usize| if at == *target as usize { 1.0 } else { 0.0 };
        let gradient = shares.iter().enumerate().map(|(at, share)| ((share - one(at)) * f64::from(scale)) as f32);
        (loss, gradient.map(|value| if loss.is_nan() { f32::NAN } else { value }).collect::<Vec<f32>>())
    })
    .fold((Vec::new(), Vec::new()), |(mut losses, mut gradients), (loss, gradient)| {
        losses.push(loss);
        gradients.extend(gradient);
        (losses, gradients)
    })
}

/// The gradients of an RMS norm's rows and of its weight.
pub fn rms_norm(x: &[f32], weight: &[f32], dy: &[f32], epsilon: f32) -> (Vec<f32>, Vec<f32>) {
    let width = weight.len().max(1);
    let mut d_weight = vec![0_f64; weight.len()];
    let mut dx = Vec::with_capacity(x.len());
    for (row, slopes) in x.chunks_exact(width).zip(dy.chunks_exact(width)) {
        let squares: f64 = row.iter().map(|value| f64::from(*value).powi(2)).sum();
        let scale = 1.0 / (squares / width as f64 + f64::from(epsilon)).sqrt();
        let each = || row.iter().zip(weight).zip(slopes).map(|((x, w), dy)| [*x, *w, *dy].map(f64::from));
        let along = each().map(|[x, w, dy]| x * w * dy).sum::<f64>() / width as f64 * scale * scale;
        dx.extend(each().map(|[x, w, dy]| (scale * (w * dy - x * along)) as f32));
        d_weight.iter_mut().zip(each()).for_each(|(sum, [x, _, dy])| *sum += x * dy * scale);
    }
    (dx, d_weight.into_iter().map(|sum| sum as f32).collect())
}

/// The gradient of SwiGLU's gates and what they let through.
pub fn swiglu(gate_up: &[f32], d_activated: &[f32], ffn: usize) -> Vec<f32> {
    let rows = gate_up.chunks_exact((2 * ffn).max(1)).zip(d_activated.chunks_exact(ffn.max(1)));
    rows.flat_map(|(row, slopes)| {
        let each = |at: usize| [row[at], row[ffn + at], slopes[at]].map(f64::from);
        let open = |gate: f64| 1.0 / (1.0 + (-gate).exp());
        let of_gate = move |[gate, up, by]: [f64; 3]| by * up * open(gate) * (1.0 + gate * (1.0 - open(gate)));
        let of_up = move |[gate, _, by]: [f64; 3]| by * gate * open(gate);
        let gates = (0..ffn).map(move |at| of_gate(each(at)) as f32);
        gates.chain((0..ffn).map(move |at| of_up(each(at)) as f32))
    })
    .collect()
}

/// The gradient of packed rows, and of the weights of the heads' norms, from those of queries and caches.
pub fn split_heads(packed: &[f32], d: &Heads, sizes: &HeadSizes, split: &Split<'_>) -> (Vec<f32>, [Vec<f32>; 2]) {
    let (tokens, heads, kv_heads) = (sizes.tokens as usize, sizes.heads as usize, sizes.kv_heads as usize);
    let (dim, capacity, all_heads) = (sizes.head_dim as usize, sizes.capacity as usize, heads + 2 * kv_heads);
    let mut d_packed = Vec::with_capacity(packed.len());
    let mut d_norms = [vec![0.0; dim], vec![0.0; dim]];
    for (at, from) in packed.chunks_exact(dim.max(1)).enumerate() {
        let (row, head) = (at / all_heads, at % all_heads);
        let (sequence, token) = (row / tokens, row % tokens);
        let position = split.start + token;
        let place = |of: usize| ((sequence * kv_heads + of) * capacity + position) * dim;
        let (of, place) = match head {
            head if head < heads => (&d.q, ((sequence * heads + head) * tokens + token) * dim),
            _ if position >= capacity => {
                d_packed.extend(vec![0.0; dim]);
                continue;
            }
            head if head < heads + kv_heads => (&d.k, place(head - heads)),
            head => (&d.v, place(head - heads - kv_heads)),
        };
        let slopes = &of[place..place + dim];
        let kind = if head < heads { 0 } else { 1 };
        d_packed.extend(match head < heads + kv_heads {
            true => one_head(from, slopes, kind, split, [head, position], &mut d_norms),
            false => slopes.to_vec(),
        });
    }
    (d_packed, d_norms)
}

fn one_head(
    from: &[f32],
    slopes: &[f32],
    kind: usize,
    split: &Split<'_>,
    [head, position]: [usize; 2],
    d_norms: &mut [Vec<f32>; 2],
) -> Vec<f32> {
    let dim = from.len();
    let row = position.min(split.cosines.len() / (dim / 2) - 1) * (dim / 2);
    let mut slopes = slopes.to_vec();
    for pair in 0..dim / 2 {
        let (a, b) = match split.pairing {
            Pairing::Halves => (pair, pair + dim / 2),
            Pairing::Pairs => (2 * pair, 2 * pair + 1),
        };
        let (cosine, sine) = (split.cosines[row + pair], split.sines[row + pair]);
        (slopes[a], slopes[b]) = (slopes[a] * cosine + slopes[b] * sine, slopes[b] * cosine - slopes[a] * sine);
    }
    let Some((weights, epsilon)) = split.norm else { return slopes };
    let values = match split.bias.get(head * dim..(head + 1) * dim) {
        Some(bias) => super::add_bias(from, bias),
        None => from.to_vec(),
    };
    let (dx, d_weight) = rms_norm(&values, weights[kind], &slopes, epsilon);
    d_norms[kind].iter_mut().zip(d_weight).for_each(|(sum, value)| *sum += value);
    dx
}

/// The gradient of scores, from their shares and the gradient of those. See [`super::softmax_causal`].
pub fn softmax_causal(
    shares: &[f32],
    d_shares: &[f32],
    [tokens, keys]: [usize; 2],
    start: usize,
    scale: f32,
) -> Vec<f32> {
    let rows = shares.chunks_exact(keys.max(1)).zip(d_shares.chunks_exact(keys.max(1))).enumerate();
    rows.flat_map(|(row, (shares, slopes))| {
        let seen = (start + row % tokens + 1).min(keys);
        let each = move || shares[..seen].iter().zip(slopes).map(|(share, slope)| [*share, *slope].map(f64::from));
        let sum: f64 = each().map(|[share, slope]| share * slope).sum();
        let gradients = each().map(move |[share, slope]| (share * (slope - sum) * f64::from(scale)) as f32);
        gradients.chain(std::iter::repeat_n(0.0, keys - seen))
    })
    .collect()
}

/// Heads that lie side by side, [batch, tokens, heads * head_dim], apart: [batch, heads, tokens, head_dim].
pub fn unmerge_heads(rows: &[f32], sizes: &HeadSizes) -> Vec<f32> {
    let (tokens, heads, dim) = (sizes.tokens as usize, sizes.heads as usize, sizes.head_dim as usize);
    let mut apart = vec![0.0; rows.len()];
    for (at, from) in rows.chunks_exact(dim.max(1)).enumerate() {
        let (sequence, token, head) = (at / heads / tokens, at / heads % tokens, at % heads);
        let to = ((sequence * heads + head) * tokens + token) * dim;
        apart[to..to + dim].copy_from_slice(from);
    }
    apart
}

/// The sums of rows of the same token, a row for each token of the vocabulary.
pub fn embed(tokens: &[u32], d_rows: &[f32], [vocabulary, width]: [usize; 2]) -> Vec<f32> {
    let mut sums = vec![0_f64; vocabulary * width];
    for (token, row) in tokens.iter().zip(d_rows.chunks_exact(width.max(1))) {
        let place = *token as usize * width;
        let Some(sums) = sums.get_mut(place..place + width) else { continue };
        sums.iter_mut().zip(row).for_each(|(sum, value)| *sum += f64::from(*value));
    }
    sums.into_iter().map(|sum| sum as f32).collect()
}

/// The sum of each column.
pub fn column_sums(x: &[f32], width: usize) -> Vec<f32> {
    let mut sums = vec![0_f64; width];
    for row in x.chunks_exact(width.max(1)) {
        sums.iter_mut().zip(row).for_each(|(sum, value)| *sum += f64::from(*value));
    }
    sums.into_iter().map(|sum| sum as f32).collect()
}

/// One step of AdamW, number `step` counted from 1: the parameter and both moments after it.
pub fn adamw([value, gradient, first, second]: [&[f32]; 4], rates: &Rates, step: u32) -> [Vec<f32>; 3] {
    let [beta, other_beta] = rates.betas.map(f64::from);
    let (rate, decay) = (f64::from(rates.learning_rate), f64::from(rates.weight_decay));
    let mixed = |old: &[f32], beta: f64, power: i32| -> Vec<f64> {
        let each = old.iter().zip(gradient);
        each.map(|(old, new)| beta * f64::from(*old) + (1.0 - beta) * f64::from(*new).powi(power)).collect()
    };
    let (means, squares) = (mixed(first, beta, 1), mixed(second, other_beta, 2));
    let corrected = |beta: f64| 1.0 - beta.powf(f64::from(step));
    let moved = value.iter().zip(means.iter().zip(&squares)).map(|(value, (mean, square))| {
        let root = (square / corrected(other_beta)).sqrt() + f64::from(rates.epsilon);
        (f64::from(*value) * (1.0 - rate * decay) - rate * mean / corrected(beta) / root) as f32
    });
    let rounded = |values: &[f64]| values.iter().map(|value| *value as f32).collect();
    [moved.collect(), rounded(&means), rounded(&squares)]
}

/// The gradients of queries, keys and values of causal attention, from that of its result,
/// [batch, tokens, heads * head_dim]. See [`super::attention`]; the heads of a group add up.
pub fn attention([q, k, v]: [&[f32]; 3], d_out: &[f32], sizes: &HeadSizes, start: usize, scale: f32) -> [Vec<f32>; 3] {
    let (tokens, dim, capacity) = (sizes.tokens as usize, sizes.head_dim as usize, sizes.capacity as usize);
    let d_out = unmerge_heads(d_out, sizes);
    let [mut dk, mut dv] = [vec![0_f64; k.len()], vec![0_f64; v.len()]];
    let mut dq = Vec::with_capacity(q.len());
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
    let add = |to: &mut [f64], share: f64, from: &[f32]| {
        to.iter_mut().zip(from).for_each(|(sum, value)| *sum += share * f64::from(*value));
    };
    for (at, (query, slopes)) in q.chunks_exact(dim.max(1)).zip(d_out.chunks_exact(dim.max(1))).enumerate() {
        let seen = (start + at % tokens + 1).min(capacity);
        let first = at / tokens / sizes.group() as usize * capacity * dim;
        let row = |key: usize| first + key * dim..first + (key + 1) * dim;
        let scores: Vec<f64> = (0..seen).map(|key| dot(query, &k[row(key)]) * f64::from(scale)).collect();
        let shares = shares(&scores);
        let d_shares: Vec<f64> = (0..seen).map(|key| dot(slopes, &v[row(key)])).collect();
        let sum: f64 = shares.iter().zip(&d_shares).map(|(share, slope)| share * slope).sum();
        let mut d_query = vec![0_f64; dim];
        for key in 0..seen {
            let d_score = shares[key] * (d_shares[key] - sum) * f64::from(scale);
            add(&mut d_query, d_score, &k[row(key)]);
            add(&mut dk[row(key)], d_score, query);
            add(&mut dv[row(key)], shares[key], slopes);
        }
        dq.extend(d_query.into_iter().map(|sum| sum as f32));
    }
    let rounded = |sums: Vec<f64>| sums.into_iter().map(|sum| sum as f32).collect();
    [dq, rounded(dk), rounded(dv)]
}

#[cfg(test)]
mod tests;
