//! A few values as a curve of block characters, for a table cell.

const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The curve spans at least this share of its lowest value, so that noise looks flat.
const LEAST_RANGE: f64 = 0.1;

/// From this ratio of the largest to the smallest value on, the scale is logarithmic: on a linear scale, one cold
/// iteration of fifty times the time would flatten all others.
const LOG_FROM: f64 = 4.0;

/// Draws values, one block each.
pub(crate) fn curve(values: &[u64]) -> String {
    let Some((least, most)) = values.iter().min().zip(values.iter().max()) else { return String::new() };
    // Zeros, which a coarse clock can return, have no logarithm.
    let value = |nanos: u64| nanos.max(1) as f64;
    let (least, most) = (value(*least), value(*most).max(value(*least) * (1.0 + LEAST_RANGE)));
    let place = |value: f64| match most / least >= LOG_FROM {
        true => (value / least).ln() / (most / least).ln(),
        false => (value - least) / (most - least),
    };
    let block = |share: f64| BLOCKS[((share * BLOCKS.len() as f64) as usize).min(BLOCKS.len() - 1)];
    values.iter().map(|&nanos| block(place(value(nanos)))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_looks_flat() {
        assert_eq!(curve(&[1000, 1004, 1010, 1001]), "▁▁▁▁");
    }

    #[test]
    fn a_warm_up_falls_in_even_steps() {
        assert_eq!(curve(&[200, 180, 160, 140, 120, 100]), "█▇▅▄▂▁");
    }

    #[test]
    fn a_cold_iteration_does_not_flatten_the_others() {
        assert_eq!(curve(&[6400, 800, 200, 100, 100]), "█▅▂▁▁");
    }

    #[test]
    fn zeros_and_an_empty_list_can_be_drawn() {
        assert_eq!(curve(&[0, 0]), "▁▁");
        assert_eq!(curve(&[]), "");
    }
}
