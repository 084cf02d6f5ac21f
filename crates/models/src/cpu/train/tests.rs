//! Every operation's gradient against finite differences of its definition, which is written out here in f64.

use super::{
    super::{
        attention::{Attention, Heads, Inputs, Span, Strides},
        crew::Crew,
        number::Number,
        rows::Shared,
        steps::{Norm, Positions},
    },
    steps::{Places, Sums, cross_entropy, swiglu, swiglu_back},
};
use crate::{Config, Fill, Marks, RopeLayout, rope::RopeTable};

/// Numbers between -1 and 1, others for every key.
fn numbers(key: u64, count: usize) -> Vec<f32> {
    Fill::Random { key, amplitude: 1.0 }.numbers(count)
}

fn wide(numbers: &[f32]) -> Vec<f64> {
    numbers.iter().map(|number| f64::from(*number)).collect()
}

/// The sum of what comes out, weighted by its gradient: what is differentiated.
fn weighted(out: &[f64], d_out: &[f32]) -> f64 {
    assert_eq!(out.len(), d_out.len());
    out.iter().zip(d_out).map(|(out, d_out)| out * f64::from(*d_out)).sum()
}

/// Asserts that a gradient is what central differences give.
fn assert_gradient(name: &str, at: &[f32], gradient: &[f32], loss: impl Fn(&[f64]) -> f64) {
    assert_eq!(at.len(), gradient.len(), "{name}");
    let mut at = wide(at);
    for index in 0..at.len() {
        let (before, step) = (at[index], 1e-5);
        let mut moved = |to: f64| {
            at[index] = to;
            loss(&at)
        };
        let expected = (moved(before + step) - moved(before - step)) / (2.0 * step);
        moved(before);
        let off = (f64::from(gradient[index]) - expected).abs();
        assert!(off <= 2e-5 * (1.0 + expected.abs()), "{name} at {index}: {} and not {expected}", gradient[index]);
    }
}

fn crews() -> [Crew; 2] {
    [1, 3].map(|threads| Crew::new(threads).unwrap())
}

const EPS: f64 = 1e-3;

fn normed(from: &[f64], weight: &[f64]) -> Vec<f64> {
    let rows = from.chunks(weight.len()).flat_map(|row| {
        let square = row.iter().map(|number| number * number).sum::<f64>() / row.len() as f64;
        let factor = (square + EPS).sqrt().recip();
        row.iter().zip(weight).map(move |(number, weight)| number * factor * weight)
    });
    rows.collect()
}

#[test]
fn norm_gradients_match_finite_differences() {
    for (crew, (rows, width)) in crews().iter().flat_map(|crew| [(1, 5), (7, 33), (40, 3)].map(|size| (crew, size))) {
        let (from, d_out, weight) = (numbers(1, rows * width), numbers(2, rows * width), numbers(3, width));
        let norm = Norm { weight: &weight, eps: EPS as f32 };
        let (mut d_from, mut d_weight) = (vec![0.5; rows * width], vec![9.0; width]);
        Sums::default().norm_back(crew, norm, (&from, &d_out), (&mut d_from, true), &mut d_weight);
        let added: Vec<f32> = d_from.iter().map(|number| number - 0.5).collect();
        let (from_64, weight_64) = (wide(&from), wide(&weight));
        assert_gradient("input", &from, &added, |from| weighted(&normed(from, &weight_64), &d_out));
        assert_gradient("weight", &weight, &d_weight, |weight| weighted(&normed(&from_64, weight), &d_out));
        Sums::default().norm_back(crew, norm, (&from, &d_out), (&mut d_from, false), &mut d_weight);
        let is_near = |(over, added): (&f32, &f32)| (over - added).abs() < 1e-6;
        assert!(d_from.iter().zip(&added).all(is_near), "a gradient that is not added is put over what was there");
    }
}

#[test]
fn gate_gradients_match_finite_differences() {
    let (rows, width) = (3, 37);
    let gate_up: Vec<f32> = numbers(4, rows * 2 * width).iter().map(|number| 4.0 * number).collect();
    let d_out = numbers(5, rows * width);
    let gated = |gate_up: &[f64]| -> Vec<f64> {
        let rows = gate_up.chunks(2 * width).flat_map(|row| {
            let (gate, up) = row.split_at(width);
            gate.iter().zip(up).map(|(gate, up)| gate / (1.0 + (-gate).exp()) * up).collect::<Vec<_>>()
        });
        rows.collect()
    };
    for crew in &crews() {
        let (mut d_gate_up, mut activated) = (gate_up.clone(), vec![0.0; rows * width]);
        swiglu_back(crew, width, &mut d_gate_up, &d_out, &mut activated);
        assert_gradient("gate and up", &gate_up, &d_gate_up, |gate_up| weighted(&gated(gate_up), &d_out));
        let mut forward = vec![0.0; rows * width];
        swiglu(crew, width, &gate_up, &mut forward);
        for ((again, forward), exact) in activated.iter().zip(&forward).zip(gated(&wide(&gate_up))) {
            assert!((again - forward).abs() < 1e-6 && (f64::from(*forward) - exact).abs() < 1e-5);
        }
    }
}

#[test]
fn loss_gradients_match_finite_differences() {
    let (rows, width, targets) = (3, 41, [0, 40, 7]);
    let logits: Vec<f32> = numbers(6, rows * width).iter().map(|number| 6.0 * number).collect();
    let row_loss = |row: &[f64], target: u32| {
        let sum: f64 = row.iter().map(|logit| logit.exp()).sum();
        sum.ln() - row[target as usize]
    };
    let loss = |logits: &[f64]| {
        let rows = logits.chunks(width).zip(targets);
        rows.map(|(row, target)| row_loss(row, target)).sum::<f64>() / targets.len() as f64
    };
    for crew in &crews() {
        let (mut d_logits, mut losses) = (logits.clone(), vec![0.0; rows]);
        cross_entropy(crew, &targets, &mut d_logits, &mut losses);
        assert_gradient("logits", &logits, &d_logits, loss);
        let mean = losses.iter().sum::<f32>() / rows as f32;
        assert!((f64::from(mean) - loss(&wide(&logits))).abs() < 1e-5);
    }
}

#[test]
fn column_sums_match_the_definition() {
    for (rows, width) in [(1, 3), (50, 7), (2000, 65)] {
        let rows_of = numbers(7, rows * width);
        let expected = |column: usize| rows_of.iter().skip(column).step_by(width).map(|x| f64::from(*x)).sum::<f64>();
        let sums = crews().map(|crew| {
            let mut sums = vec![1.0; width];
            Sums::default().columns(&crew, &rows_of, &mut sums);
            sums
        });
        assert_eq!(sums[0], sums[1], "threads change nothing");
        assert!(sums[0].iter().enumerate().all(|(at, sum)| (f64::from(*sum) - expected(at)).abs() < 1e-4));
    }
}

#[test]
fn embedding_gradients_add_up_per_token_and_clear_the_last_batch() {
    let crew = Crew::new(2).unwrap();
    let (mut places, mut table) = (Places::default(), vec![0.0; 5 * 2]);
    places.renew(&[3, 1, 3], &mut table, 2, false);
    places.add(&crew, &[1.0, 2.0, 10.0, 20.0, 100.0, 200.0], &mut table, 2);
    assert_eq!(table, [0.0, 0.0, 10.0, 20.0, 0.0, 0.0, 101.0, 202.0, 0.0, 0.0]);
    places.renew(&[4, 4, 4], &mut table, 2, false);
    places.add(&crew, &[1.0; 6], &mut table, 2);
    assert_eq!(table, [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 3.0, 3.0]);
}

/// A small model of one layer.
fn config(layout: RopeLayout, heads: usize, kv_heads: usize) -> Config {
    let mut config = Config::from_preset("tiny").unwrap();
    (config.heads, config.kv_heads, config.head_dim) = (heads, kv_heads, 6);
    (config.rope.layout, config.rope.theta) = (layout, 10.0);
    config
}

/// Norm by head and rotation of projected rows, as they are defined.
fn turned(config: &Config, tokens: usize, projected: &[f64], norms: Option<[&[f64]; 2]>) -> Vec<f64> {
    let Config { heads, kv_heads, head_dim, .. } = *config;
    let pairs = head_dim / 2;
    let mut all = Vec::new();
    for (row, numbers) in projected.chunks((heads + 2 * kv_heads) * head_dim).enumerate() {
        for (head, numbers) in numbers.chunks(head_dim).enumerate() {
            if head >= heads + kv_heads {
                all.extend(numbers);
                continue;
            }
            let numbers = match norms {
                None => numbers.to_vec(),
                Some(norms) => normed(numbers, norms[usize::from(head >= heads)]),
            };
            let mut turned = vec![0.0; head_dim];
            for pair in 0..pairs {
                let angle = (row % tokens) as f64 * config.rope.theta.powf(-(pair as f64) / pairs as f64);
                let (a, b) = match config.rope.layout {
                    RopeLayout::Halves => (pair, pair + pairs),
                    RopeLayout::Pairs => (2 * pair, 2 * pair + 1),
                };
                turned[a] = numbers[a] * angle.cos() - numbers[b] * angle.sin();
                turned[b] = numbers[b] * angle.cos() + numbers[a] * angle.sin();
            }
            all.extend(turned);
        }
    }
    all
}

#[test]
fn rope_and_head_norm_gradients_match_finite_differences() {
    let (batch, tokens) = (2, 4);
    for layout in [RopeLayout::Halves, RopeLayout::Pairs] {
        let config = config(layout, 4, 2);
        let width = 8 * config.head_dim;
        let (projected, d_heads) = (numbers(8, batch * tokens * width), numbers(9, batch * tokens * width));
        let (query, key) = (numbers(10, config.head_dim), numbers(11, config.head_dim));
        let mut table = RopeTable::new(&config);
        table.reach(tokens);
        for (crew, has_norms) in crews().iter().zip([false, true]) {
            let norm = |weight| Norm { weight, eps: EPS as f32 };
            let positions = Positions {
                config: &config,
                table: &table,
                bias: None,
                query_norm: has_norms.then(|| norm(&query)),
                key_norm: has_norms.then(|| norm(&key)),
                tokens,
                start: 0,
            };
            let mut d_norms = vec![0.0; if has_norms { 2 * config.head_dim } else { 0 }];
            let mut d_projected = d_heads.clone();
            positions.leave(crew, (&projected, &mut d_projected), &mut Sums::default(), &mut d_norms);
            let (query_64, key_64, projected_64) = (wide(&query), wide(&key), wide(&projected));
            let norms_64 = has_norms.then_some([query_64.as_slice(), key_64.as_slice()]);
            let loss = |projected: &[f64], norms: Option<[&[f64]; 2]>| {
                weighted(&turned(&config, tokens, projected, norms), &d_heads)
            };
            assert_gradient("projected", &projected, &d_projected, |projected| loss(projected, norms_64));
            if has_norms {
                let (d_query, d_key) = d_norms.split_at(config.head_dim);
                assert_gradient("query norm", &query, d_query, |query| loss(&projected_64, Some([query, &key_64])));
                assert_gradient("key norm", &key, d_key, |key| loss(&projected_64, Some([&query_64, key])));
            }
            let mut heads = projected.clone();
            positions.enter(crew, &mut heads);
            let exact = turned(&config, tokens, &projected_64, norms_64);
            assert!(heads.iter().zip(exact).all(|(head, exact)| (f64::from(*head) - exact).abs() < 1e-5));
        }
    }
}

/// Attention of rows of queries, keys and values, as it is defined.
fn attended(span: &Span, rows: &[f64]) -> Vec<f64> {
    let Span { batch, heads, kv_heads, head_dim, queries, .. } = *span;
    let width = (heads + 2 * kv_heads) * head_dim;
    let head_of =
        |batch: usize, at: usize, head: usize| &rows[(batch * queries + at) * width + head * head_dim..][..head_dim];
    let mut all = Vec::new();
    for (batch, at) in (0..batch).flat_map(|batch| (0..queries).map(move |at| (batch, at))) {
        for head in 0..heads {
            let kv_head = head / (heads / kv_heads);
            let query = head_of(batch, at, head);
            let score = |key: usize| {
                let products = query.iter().zip(head_of(batch, key, heads + kv_head)).map(|(a, b)| a * b);
                (products.sum::<f64>() / (head_dim as f64).sqrt()).exp()
            };
            let powers: Vec<f64> = (0..=at).map(score).collect();
            let sum: f64 = powers.iter().sum();
            let value = |key: usize, number: usize| head_of(batch, key, heads + kv_heads + kv_head)[number];
            let mixed =
                |number| powers.iter().enumerate().map(|(key, power)| power / sum * value(key, number)).sum::<f64>();
            all.extend((0..head_dim).map(mixed));
        }
    }
    all
}

/// Sizes of attention: one token, shared keys, none shared.
const SPANS: [(usize, usize, usize, usize); 4] = [(1, 2, 1, 1), (2, 4, 2, 5), (1, 2, 2, 9), (2, 3, 1, 3)];

fn span((batch, heads, kv_heads, queries): (usize, usize, usize, usize)) -> Span {
    Span::new(&config(RopeLayout::Halves, heads, kv_heads), batch, queries, 0)
}

fn strides(span: &Span, heads: usize) -> Strides {
    let row = heads * span.head_dim;
    Strides { batch: span.queries * row, head: span.head_dim, row }
}

fn inputs<'a, T>(span: &Span, rows: &'a [T]) -> Inputs<'a, T> {
    let strides = strides(span, span.heads + 2 * span.kv_heads);
    let from = |head: usize| Heads { numbers: &rows[head * span.head_dim..], strides };
    Inputs { queries: from(0), keys: from(span.heads), values: from(span.heads + span.kv_heads) }
}

/// What forward gives, and the gradients of its input, both ways.
fn both_ways(crew: &Crew, span: &Span, rows: &[f32], d_out: &[f32]) -> [(Vec<f32>, Vec<f32>); 2] {
    let (marks, out_strides) = (Marks::default(), strides(span, span.heads));
    let attention = Attention { crew, marks: &marks, span: *span, inputs: inputs(span, rows) };
    let d_out_heads = Heads { numbers: d_out, strides: out_strides };
    [false, true].map(|is_fused| {
        let (mut out, mut d_rows) = (vec![0.0; d_out.len()], vec![7.0; rows.len()]);
        let d_heads = (d_rows.as_mut_slice(), strides(span, span.heads + 2 * span.kv_heads));
        let to = (out.as_mut_slice(), out_strides);
        if is_fused {
            let mut row_sums = vec![0.0; span.batch * span.heads * span.queries];
            keep_row_sums(&attention, to, &mut row_sums);
            let out = Heads { numbers: &out, strides: out_strides };
            attention.fused_back(d_out_heads, out, &row_sums, d_heads);
        } else {
            let (mut weights, mut d_scores) = (vec![0.0; span.scores()], vec![5.0; span.scores()]);
            attention.naive(&mut weights, to);
            attention.naive_back(d_out_heads, (&mut weights, &mut d_scores), d_heads);
        }
        (out, d_rows)
    })
}

#[allow(unsafe_code)]
fn keep_row_sums<T: Number>(attention: &Attention<'_, T>, out: (&mut [T], Strides), row_sums: &mut [f32]) {
    let row_sums = Shared::new(row_sums);
    attention.fused_with(None, out, |first, tops| {
        // SAFETY: blocks have no row in common.
        let mut row_sums = unsafe { row_sums.rows(first, 1, tops.len(), tops.len()) };
        row_sums.row(0).iter_mut().zip(tops).for_each(|(row_sum, (top, sum))| *row_sum = top + sum.ln());
    });
}

#[test]
fn naive_and_fused_attention_gradients_match_finite_differences() {
    for (crew, size) in crews().iter().flat_map(|crew| SPANS.map(|size| (crew, size))) {
        let span = span(size);
        let count = span.batch * span.queries * span.head_dim;
        let rows: Vec<f32> = numbers(12, count * (span.heads + 2 * span.kv_heads)).iter().map(|x| 2.0 * x).collect();
        let d_out = numbers(13, count * span.heads);
        for (out, d_rows) in both_ways(crew, &span, &rows, &d_out) {
            let exact = attended(&span, &wide(&rows));
            assert!(out.iter().zip(exact).all(|(out, exact)| (f64::from(*out) - exact).abs() < 1e-5));
            assert_gradient("heads", &rows, &d_rows, |rows| weighted(&attended(&span, rows), &d_out));
        }
    }
}

#[test]
fn naive_and_fused_attention_over_many_tiles_have_the_same_gradients() {
    let span = span((1, 2, 1, 300));
    let count = span.queries * span.head_dim;
    let (rows, d_out) = (numbers(14, count * 4), numbers(15, count * 2));
    let crew = Crew::new(2).unwrap();
    let [(_, stored), (_, fused)] = both_ways(&crew, &span, &rows, &d_out);
    for (at, (stored, fused)) in stored.iter().zip(&fused).enumerate() {
        assert!((stored - fused).abs() < 1e-4, "at {at}: {stored} and {fused}");
    }
}
