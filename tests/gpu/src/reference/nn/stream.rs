//! Rows between convolutions that go on from what came before.

/// Each row of `x` plus that of `y` with `bias`, times `scale`, rounded; and the same normed.
pub fn add_norm(
    x: &[f32],
    added: Option<(&[f32], [&[f32]; 2])>,
    norm: Option<&[f32]>,
    (width, epsilon): (usize, f32),
    rounded: impl Fn(f64) -> f32,
) -> [Vec<f32>; 2] {
    let sum = |at: usize, x: f32| match added {
        Some((y, [bias, scale])) => {
            let more = f64::from(y[at]) + f64::from(bias[at % width]);
            rounded(f64::from(x) + f64::from(scale[at % width]) * more)
        }
        None => x,
    };
    let sums: Vec<f32> = x.iter().enumerate().map(|(at, x)| sum(at, *x)).collect();
    let normed = sums.chunks(width).flat_map(|row| normed(row, norm, epsilon, &rounded)).collect();
    [sums, normed]
}

fn normed(row: &[f32], norm: Option<&[f32]>, epsilon: f32, rounded: impl Fn(f64) -> f32) -> Vec<f32> {
    let Some(weight) = norm else { return row.to_vec() };
    let square = row.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>() / row.len() as f64;
    let scale = 1.0 / (square + f64::from(epsilon)).sqrt();
    row.iter().zip(weight).map(|(value, weight)| rounded(f64::from(*value) * scale * f64::from(*weight))).collect()
}

/// What each channel by itself makes of the rows that it sees, `[rows + taps - 1, channels]`, with weights
/// `[channels, taps]`.
pub fn mixed(seen: &[f32], weight: &[f32], bias: &[f32]) -> Vec<f64> {
    let channels = bias.len();
    let taps = weight.len() / channels;
    let rows = (seen.len() / channels).saturating_sub(taps - 1);
    let one = |row: usize, channel: usize| {
        let product =
            |tap: usize| f64::from(seen[(row + tap) * channels + channel]) * f64::from(weight[channel * taps + tap]);
        f64::from(bias[channel]) + (0..taps).map(product).sum::<f64>()
    };
    (0..rows).flat_map(|row| (0..channels).map(move |channel| one(row, channel))).collect()
}

/// A list of rows after this number of rows passed through it: the last ones are at its beginning.
pub fn keep(list: &mut [f32], width: usize, kept: usize, rows: usize) {
    list.copy_within(rows * width..(rows + kept) * width, 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_added_and_normed() {
        let [sums, normed] =
            add_norm(&[1.0, 2.0], Some((&[1.0, 1.0], [&[1.0, 0.0], &[1.0, 1.0]])), Some(&[1.0, 2.0]), (2, 0.0), |x| {
                x as f32
            });
        assert_eq!((sums, normed), (vec![3.0, 3.0], vec![1.0, 2.0]));
        let [same, copied] = add_norm(&[1.0, 2.0], None, None, (1, 0.0), |x| x as f32);
        assert_eq!(same, copied);
    }

    #[test]
    fn channels_see_the_rows_before_them() {
        // Two channels, two taps, one row before.
        let seen = [1.0, 10.0, 2.0, 20.0, 3.0, 30.0];
        assert_eq!(mixed(&seen, &[100.0, 1.0, 0.0, 1.0], &[0.0, 0.5]), [102.0, 20.5, 203.0, 30.5]);
    }

    #[test]
    fn the_last_rows_become_the_first() {
        let mut list = [0.0, 0.0, 1.0, 2.0, 3.0];
        keep(&mut list, 1, 2, 3);
        assert_eq!(list[..2], [2.0, 3.0]);
        let mut short = [1.0, 2.0, 3.0];
        keep(&mut short, 1, 2, 1);
        assert_eq!(short[..2], [2.0, 3.0]);
    }
}
