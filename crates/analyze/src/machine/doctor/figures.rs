//! Figures of checks.

/// Per cent, rounded up to two figures.
pub(super) fn rounded_up(share: f64) -> String {
    let percent = 100.0 * share;
    let step = if percent < 10.0 { 10.0 } else { 1.0 };
    // Ignore rounding errors in the last bits.
    format!("{}", (percent * step - 1e-9).ceil() / step)
}

pub(super) fn per_cent(share: f64) -> String {
    let percent = 100.0 * share;
    if percent > 0.0 && percent < 0.01 { "<0.01".to_owned() } else { figures(percent) }
}

pub(super) fn time(nanos: f64) -> String {
    let units = [(1e9, "s"), (1e6, "ms"), (1e3, "µs")];
    let unit = units.into_iter().find(|(size, _)| nanos >= *size).unwrap_or((1.0, "ns"));
    format!("{} {}", figures(nanos / unit.0), unit.1)
}

pub(super) fn gib(bytes: u64) -> String {
    figures(bytes as f64 / f64::from(1 << 30))
}

/// Three figures at most, without zeros at the end.
fn figures(value: f64) -> String {
    let decimals = match value {
        100.0.. => 0,
        10.0.. => 1,
        _ => 2,
    };
    let text = format!("{value:.decimals$}");
    if decimals == 0 { text } else { text.trim_end_matches('0').trim_end_matches('.').to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_resolvable_difference_is_rounded_up() {
        assert_eq!([0.01, 0.0101, 0.045, 0.0999, 0.1001, 0.31].map(rounded_up), ["1", "1.1", "4.5", "10", "11", "31"]);
    }

    #[test]
    fn figures_have_few_digits() {
        assert_eq!(
            [950.0, 1_240.0, 61_500.0, 8_041_010.0, 2e9].map(time),
            ["950 ns", "1.24 µs", "61.5 µs", "8.04 ms", "2 s"]
        );
        assert_eq!([0.0, 0.000_01, 0.0025, 0.522].map(per_cent), ["0", "<0.01", "0.25", "52.2"]);
    }
}
