use super::{super as forward, *};
use crate::reference::noise;

const SIZES: HeadSizes = HeadSizes { batch: 2, tokens: 3, heads: 4, kv_heads: 2, head_dim: 6, capacity: 8 };

/// The gradient by differences: how the sum of results times slopes changes with each number that they are made of.
fn by_differences(at: &[f32], slopes: &[f32], results: impl Fn(&[f32]) -> Vec<f32>) -> Vec<f32> {
    const STEP: f32 = 1.0 / 128.0;
    let sum = |values: &[f32]| {
        let results = results(values);
        assert_eq!(results.len(), slopes.len());
        results.iter().zip(slopes).map(|(result, slope)| f64::from(*result) * f64::from(*slope)).sum::<f64>()
    };
    let mut moved = at.to_vec();
    let mut difference = |place: usize| {
        let mut with = |value: f32| {
            moved[place] = value;
            sum(&moved)
        };
        let change = with(at[place] + STEP) - with(at[place] - STEP);
        moved[place] = at[place];
        (change / f64::from(2.0 * STEP)) as f32
    };
    (0..at.len()).map(&mut difference).collect()
}

#[track_caller]
fn expect_near(found: &[f32], expected: &[f32]) {
    let error = crate::reference::worst_error(found, expected);
    assert!(error < 1e-3, "{error}");
    assert!(expected.iter().any(|value| value.abs() > 1e-3));
}

#[test]
fn the_gradient_of_a_loss_is_that_of_its_differences() {
    let (logits, targets) = (noise(3 * 7, 1), [2, 6, 0]);
    let (losses, gradient) = cross_entropy(&logits, &targets, 7, 0.25);
    assert_eq!(losses.len(), 3);
    expect_near(&gradient, &by_differences(&logits, &[0.25; 3], |at| cross_entropy(at, &targets, 7, 1.0).0));
}

#[test]
fn the_loss_of_equal_logits_is_the_logarithm_of_their_number() {
    let (losses, gradient) = cross_entropy(&[0.5; 4], &[1], 4, 1.0);
    assert!((losses[0] - 4_f32.ln()).abs() < 1e-6);
    assert_eq!(gradient, [0.25, -0.75, 0.25, 0.25]);
}

#[test]
fn a_target_beyond_the_vocabulary_has_no_loss() {
    let (losses, gradient) = cross_entropy(&[0.5; 8], &[4, 3], 4, 1.0);
    assert!(losses[0].is_nan() && gradient[..4].iter().all(|value| value.is_nan()));
    assert!(losses[1].is_finite() && gradient[4..].iter().all(|value| value.is_finite()));
}

#[test]
fn the_gradients_of_a_norm_are_those_of_its_differences() {
    let (x, weight, dy) = (noise(3 * 5, 2), noise(5, 3), noise(3 * 5, 4));
    let (dx, d_weight) = rms_norm(&x, &weight, &dy, 0.01);
    expect_near(&dx, &by_differences(&x, &dy, |x| forward::rms_norm(x, &weight, 0.01)));
    expect_near(&d_weight, &by_differences(&weight, &dy, |weight| forward::rms_norm(&x, weight, 0.01)));
}

#[test]
fn the_gradient_of_swiglu_is_that_of_its_differences() {
    let gate_up: Vec<f32> = noise(3 * 10, 5).iter().map(|value| value * 4.0).collect();
    let slopes = noise(3 * 5, 6);
    expect_near(&swiglu(&gate_up, &slopes, 5), &by_differences(&gate_up, &slopes, |at| forward::swiglu(at, 5)));
}

#[test]
fn the_gradients_of_split_heads_are_those_of_their_differences() {
    let width = SIZES.packed_width() as usize;
    let (packed, bias) = (noise(6 * width, 7), noise(width, 8));
    let weights = [noise(6, 9), noise(6, 10)];
    let (cosines, sines): (Vec<f32>, Vec<f32>) =
        noise(8 * 3, 11).iter().map(|angle| (angle.cos(), angle.sin())).unzip();
    let slopes = Heads { q: noise(144, 12), k: noise(192, 13), v: noise(192, 14) };
    let flat = |heads: Heads| [heads.q, heads.k, heads.v].concat();
    // The last token of the second start has no place in the caches.
    for (pairing, start) in [(Pairing::Halves, 0), (Pairing::Pairs, 6)] {
        let (cosines, sines) = (&cosines[..], &sines[..]);
        let plain = Split { bias: &[], norm: None, cosines, sines, pairing, start };
        let normed = Split { bias: &bias, norm: Some(([&weights[0], &weights[1]], 0.01)), ..plain };
        let all = flat(slopes.clone());
        for split in [plain, normed] {
            let expected = by_differences(&packed, &all, |at| flat(forward::split_heads(at, &SIZES, &split, 0.0)));
            expect_near(&split_heads(&packed, &slopes, &SIZES, &split).0, &expected);
        }
        let (_, d_norms) = split_heads(&packed, &slopes, &SIZES, &normed);
        let with = |q: &[f32], k: &[f32]| {
            let split = Split { norm: Some(([q, k], 0.01)), ..normed };
            flat(forward::split_heads(&packed, &SIZES, &split, 0.0))
        };
        expect_near(&d_norms[0], &by_differences(&weights[0], &all, |at| with(at, &weights[1])));
        expect_near(&d_norms[1], &by_differences(&weights[1], &all, |at| with(&weights[0], at)));
    }
}

#[test]
fn the_gradient_of_a_softmax_is_that_of_its_differences() {
    let (scores, slopes) = (noise(6 * 5, 15), noise(6 * 5, 16));
    let results = |at: &[f32]| forward::softmax_causal(at, [3, 5], 1, 2.0);
    let found = softmax_causal(&results(&scores), &slopes, [3, 5], 1, 2.0);
    expect_near(&found, &by_differences(&scores, &slopes, results));
    assert_eq!(found[2..5], [0.0; 3]);
}

#[test]
fn the_gradients_of_attention_are_those_of_its_differences() {
    let sizes = HeadSizes { batch: 1, heads: 4, kv_heads: 2, capacity: 5, ..SIZES };
    let (q, k, v) = (noise(72, 17), noise(60, 18), noise(60, 19));
    let slopes = noise(72, 20);
    let [dq, dk, dv] = attention([&q, &k, &v], &slopes, &sizes, 1, 0.7);
    let attended = |q: &[f32], k: &[f32], v: &[f32]| forward::attention([q, k, v], &sizes, 1, 0.7);
    expect_near(&dq, &by_differences(&q, &slopes, |at| attended(at, &k, &v)));
    expect_near(&dk, &by_differences(&k, &slopes, |at| attended(&q, at, &v)));
    expect_near(&dv, &by_differences(&v, &slopes, |at| attended(&q, &k, at)));
}

#[test]
fn the_gradient_of_an_embedding_is_that_of_its_differences() {
    let (table, slopes, tokens) = (noise(4 * 3, 21), noise(5 * 3, 22), [1, 3, 1, 0, 1]);
    let expected = by_differences(&table, &slopes, |at| forward::embed(&tokens, at, 3));
    expect_near(&embed(&tokens, &slopes, [4, 3]), &expected);
    // A token that is not in the vocabulary is passed over.
    assert_eq!(embed(&[9, 0], &[1.0, 2.0], [2, 1]), [2.0, 0.0]);
}

#[test]
fn the_gradient_of_a_bias_is_the_sum_of_its_column() {
    assert_eq!(column_sums(&[1.0, 2.0, 3.0, 4.0], 2), [4.0, 6.0]);
}

#[test]
fn heads_taken_apart_and_merged_are_as_before() {
    let rows = noise(SIZES.query_elements() as usize, 23);
    assert_eq!(forward::merge_heads(&unmerge_heads(&rows, &SIZES), &SIZES), rows);
}

#[test]
fn a_step_of_adamw_is_as_by_hand() {
    let rates = Rates { learning_rate: 0.1, betas: [0.5, 0.75], epsilon: 0.0, weight_decay: 0.5 };
    // The first step goes by the learning rate in the gradient's direction, after the decay.
    let [value, first, second] = adamw([&[1.0, 2.0], &[2.0, -4.0], &[0.0; 2], &[0.0; 2]], &rates, 1);
    assert!((value[0] - 0.85).abs() < 1e-6 && (value[1] - 2.0).abs() < 1e-6, "{value:?}");
    assert_eq!((first, second), (vec![1.0, -2.0], vec![1.0, 4.0]));
    // Moments 1.5 and 1.75 of the second are corrected by 3/4 and 7/16: 2 over the root of 4.
    let [value, ..] = adamw([&[1.0], &[2.0], &[1.0], &[1.0]], &rates, 2);
    assert!((value[0] - 0.85).abs() < 1e-6, "{value:?}");
}
