//! Times and shares within a sentence.

/// A time in three figures, with the unit that leaves few digits: `12.4 ms`.
pub(crate) fn time(nanos: f64) -> String {
    let units = [(1e9, "s"), (1e6, "ms"), (1e3, "µs")];
    // 999.5 of a unit would be written as 1000 of it.
    let (size, unit) = units.into_iter().find(|(size, _)| nanos >= 0.9995 * size).unwrap_or((1.0, "ns"));
    format!("{} {unit}", three_figures(nanos / size))
}

/// A share as per cent: `3.4 %`.
pub(crate) fn per_cent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

/// A number in three figures, without more decimals than two.
pub(crate) fn three_figures(number: f64) -> String {
    let decimals = match number.abs() {
        size if size >= 99.95 => 0,
        size if size >= 9.995 => 1,
        _ => 2,
    };
    format!("{number:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_three_significant_figures() {
        let text = [12.0, 1_500.0, 12_400_000.0, 183e6, 999_600.0, 25.04e9].map(time);
        assert_eq!(text, ["12.0 ns", "1.50 µs", "12.4 ms", "183 ms", "1.00 ms", "25.0 s"]);
    }
}
