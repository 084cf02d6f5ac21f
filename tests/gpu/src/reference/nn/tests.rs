use super::*;

const SIZES: HeadSizes = HeadSizes { batch: 1, tokens: 2, heads: 2, kv_heads: 1, head_dim: 2, capacity: 3 };

fn is_near(found: &[f32], expected: &[f32]) -> bool {
    found.len() == expected.len() && found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6)
}

#[test]
fn a_norm_divides_by_the_root_of_the_mean_square() {
    // The mean square of 3 and 4 is 12.5; with 12.5 added the root is 5.
    assert!(is_near(&rms_norm(&[3.0, 4.0, 0.0, 0.0], &[1.0, 10.0], 12.5), &[0.6, 8.0, 0.0, 0.0]));
}

#[test]
fn a_token_that_is_not_in_the_vocabulary_has_no_number() {
    let found = embed(&[1, 2, 0], &[1.0, 2.0, 3.0, 4.0], 2);
    assert_eq!((&found[..2], &found[4..]), (&[3.0, 4.0][..], &[1.0, 2.0][..]));
    assert!(found[2..4].iter().all(|value| value.is_nan()));
}

#[test]
fn the_gate_comes_first() {
    // silu(0) is 0, silu(1) is 0.731.
    assert!(is_near(&swiglu(&[0.0, 1.0, 5.0, 2.0], 2), &[0.0, 2.0 * 0.731_058_6]));
    assert!(is_near(&geglu(&[0.0, 1.0, 5.0, 2.0], 2), &[0.0, 2.0 * 0.841_192]));
}

#[test]
fn the_lowest_of_several_largest_wins_and_what_is_no_number_never_does() {
    assert_eq!(argmax(&[1.0, 3.0, 3.0, f32::NAN, -1.0, -1.0], 3), [1, 1]);
    assert_eq!(argmax(&[f32::NAN, f32::NAN, f32::NAN, f32::NEG_INFINITY], 2), [0, 1]);
    assert_eq!(argmax(&[-0.0, 0.0], 2), [0]);
}

#[test]
fn the_last_row_of_each_sequence_is_taken() {
    assert_eq!(last_rows(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [3, 1]), [3.0, 6.0]);
}

#[test]
fn a_bias_is_added_to_each_row() {
    assert_eq!(add_bias(&[1.0, 2.0, 3.0, 4.0], &[10.0, 20.0]), [11.0, 22.0, 13.0, 24.0]);
}

/// A quarter turn at every position.
fn quarter(pairing: Pairing) -> Split<'static> {
    Split { bias: &[], norm: None, cosines: &[0.0; 8], sines: &[1.0; 8], pairing, start: 1 }
}

#[test]
fn heads_are_rotated_and_kept_at_their_positions() {
    let packed: Vec<f32> = (1..=16).map(|value| value as f32).collect();
    let found = split_heads(&packed, &SIZES, &quarter(Pairing::Halves), 0.0);
    // Two tokens of q, q, k, v, two numbers each; (a, b) becomes (-b, a), and values stay.
    assert_eq!(found.q, [-2.0, 1.0, -10.0, 9.0, -4.0, 3.0, -12.0, 11.0]);
    assert_eq!(found.k, [0.0, 0.0, -6.0, 5.0, -14.0, 13.0]);
    assert_eq!(found.v, [0.0, 0.0, 7.0, 8.0, 15.0, 16.0]);
}

#[test]
fn what_lies_beyond_the_cache_is_not_kept() {
    let sizes = HeadSizes { capacity: 2, ..SIZES };
    let found = split_heads(&[1.0; 16], &sizes, &quarter(Pairing::Halves), 9.0);
    assert_eq!(found.v, [9.0, 9.0, 1.0, 1.0]);
}

#[test]
fn halves_and_pairs_rotate_other_numbers_together() {
    let sizes = HeadSizes { tokens: 1, heads: 1, head_dim: 4, ..SIZES };
    let packed: Vec<f32> = (1..=12).map(|value| value as f32).collect();
    assert_eq!(split_heads(&packed, &sizes, &quarter(Pairing::Halves), 0.0).q, [-3.0, -4.0, 1.0, 2.0]);
    assert_eq!(split_heads(&packed, &sizes, &quarter(Pairing::Pairs), 0.0).q, [-2.0, 1.0, -4.0, 3.0]);
}

#[test]
fn bias_and_norm_come_before_the_rotation() {
    let (bias, weights) = ([1.0, 0.0, 0.0, 0.0, 0.0, 0.0], [2.0, 1.0]);
    let split = Split { bias: &bias, norm: Some(([&weights, &weights], 12.5)), ..quarter(Pairing::Halves) };
    let sizes = HeadSizes { tokens: 1, heads: 1, ..SIZES };
    // Query (2 + 1, 4) is normed to (1.2, 0.8) and turned.
    assert!(is_near(&split_heads(&[2.0, 4.0, 0.0, 0.0, 5.0, 6.0], &sizes, &split, 0.0).q, &[-0.8, 1.2]));
}

#[test]
fn a_row_of_shares_adds_up_to_one_and_sees_no_later_key() {
    let ln3 = 3_f32.ln();
    let found = softmax_causal(&[0.0, ln3, 99.0, 0.0, ln3, 0.0], [2, 3], 1, 1.0);
    assert!(is_near(&found, &[0.25, 0.75, 0.0, 0.2, 0.6, 0.2]));
    let windowed = softmax_windowed(&[0.0, ln3, 99.0, 9.0, ln3, 0.0], [2, 3], 1, 1.0, 2);
    assert!(is_near(&windowed, &[0.25, 0.75, 0.0, 0.0, 0.75, 0.25]));
    // Rows of another head of the group begin again with the first query.
    assert_eq!(softmax_causal(&[0.0; 8], [2, 2], 0, 1.0), [1.0, 0.0, 0.5, 0.5, 1.0, 0.0, 0.5, 0.5]);
}

#[test]
fn attention_is_the_mean_of_values_by_the_shares_of_keys() {
    let ln3 = 3_f32.ln();
    let q = [1.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0, 1.0];
    let (k, v) = ([0.0, 0.0, ln3, 0.0, 9.0, 9.0], [4.0, 0.0, 8.0, 4.0, 9.0, 9.0]);
    let found = attention([&q, &k, &v], &SIZES, 0, 1.0);
    // Token 0 of both heads sees the first value; token 1 of head 0 shares 1:3, of head 1 equally.
    assert!(is_near(&found, &[4.0, 0.0, 4.0, 0.0, 7.0, 3.0, 6.0, 2.0]), "{found:?}");
}

#[test]
fn merged_heads_lie_side_by_side() {
    let apart = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0];
    assert_eq!(merge_heads(&apart, &SIZES), [1.0, 2.0, 5.0, 6.0, 3.0, 4.0, 7.0, 8.0]);
}
