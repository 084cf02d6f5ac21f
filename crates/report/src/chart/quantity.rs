//! The kind of numbers on an axis, and how they are written.

/// The kind of numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quantity {
    /// Time in nanoseconds.
    Nanos,
    /// Memory in bytes.
    Bytes,
    /// Tokens: powers of two on a logarithmic axis.
    Tokens,
    /// A count, such as steps.
    Count,
    /// A ratio.
    Ratio,
    /// A share of 1, shown as per cent.
    Share,
    /// FLOP/s.
    FlopsPerSecond,
    /// A plain number.
    Number,
}

/// A unit, and its size in stored units.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Unit {
    pub(crate) name: &'static str,
    pub(crate) size: f64,
}

impl Unit {
    const fn new(name: &'static str, size: f64) -> Self {
        Self { name, size }
    }
}

const NONE: Unit = Unit::new("", 1.0);
const TIMES: [Unit; 4] = [Unit::new("ns", 1.0), Unit::new("µs", 1e3), Unit::new("ms", 1e6), Unit::new("s", 1e9)];
const SIZES: [Unit; 5] = [
    Unit::new("B", 1.0),
    Unit::new("KiB", 1024.0),
    Unit::new("MiB", 1_048_576.0),
    Unit::new("GiB", 1_073_741_824.0),
    Unit::new("TiB", 1_099_511_627_776.0),
];
const RATES: [Unit; 5] = [
    Unit::new("FLOP/s", 1.0),
    Unit::new("MFLOP/s", 1e6),
    Unit::new("GFLOP/s", 1e9),
    Unit::new("TFLOP/s", 1e12),
    Unit::new("PFLOP/s", 1e15),
];
const PER_CENT: [Unit; 1] = [Unit::new("%", 0.01)];
const TIMES_AS_MUCH: [Unit; 1] = [Unit::new("×", 1.0)];
const PLAIN: [Unit; 1] = [NONE];

impl Quantity {
    /// Its units, smallest first.
    pub(crate) const fn units(self) -> &'static [Unit] {
        match self {
            Self::Nanos => &TIMES,
            Self::Bytes => &SIZES,
            Self::FlopsPerSecond => &RATES,
            Self::Share => &PER_CENT,
            Self::Ratio => &TIMES_AS_MUCH,
            Self::Tokens | Self::Count | Self::Number => &PLAIN,
        }
    }

    /// Whether only whole numbers make sense.
    pub(crate) const fn is_whole(self) -> bool {
        matches!(self, Self::Tokens | Self::Count)
    }

    /// The largest unit that is not larger than a value.
    pub(crate) fn unit_of(self, value: f64) -> Unit {
        let fits = |unit: &&Unit| value.abs() >= unit.size;
        *self.units().iter().rev().find(fits).unwrap_or(&self.units()[0])
    }

    /// Writes a value in three figures with its unit.
    pub(crate) fn text(self, value: f64) -> String {
        self.text_in(value, 3)
    }

    /// Writes a value in some figures with its unit.
    pub(crate) fn text_in(self, value: f64, most: usize) -> String {
        if self.is_whole() {
            return self.mark(value, NONE);
        }
        let unit = self.unit_of(value);
        with_unit(&figures(value / unit.size, most), unit)
    }

    /// Writes the value of a tick in a unit, without the unit.
    pub(crate) fn mark(self, value: f64, unit: Unit) -> String {
        match self {
            // Lengths are written as users type them.
            Self::Tokens if value.abs() < 1e9 => format!("{value:.0}"),
            _ => figures(value / unit.size, 6),
        }
    }
}

/// Writes a number with its unit after a blank; `x` follows directly.
pub(crate) fn with_unit(number: &str, unit: Unit) -> String {
    match unit.name {
        "" => number.to_owned(),
        "×" => format!("{number}×"),
        name => format!("{number} {name}"),
    }
}

/// Writes a number in at most some significant figures, without trailing zeros.
fn figures(value: f64, most: usize) -> String {
    let size = value.abs();
    let scientific = format!("{value:.*e}", most.saturating_sub(1));
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    if size != 0.0 && !(1e-4..1e6).contains(&size) {
        let digits = if digits.contains('.') { digits.trim_end_matches('0').trim_end_matches('.') } else { digits };
        return format!("{digits}e{exponent}");
    }
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let decimals = usize::try_from(most as i32 - 1 - exponent).unwrap_or(0);
    let text = format!("{value:.decimals$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    // Four digits are easy to read on an axis.
    let digits = text.trim_start_matches('-').split('.').next().map_or(0, str::len);
    if digits < 5 { text.to_owned() } else { crate::figures::thousands(text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_no_trailing_zeros() {
        let shown = [0.0, 1.0, 0.05, 2.5, 512.0, 12_345.678, -20_000.0, 3e7, 2e-9].map(|value| figures(value, 6));
        assert_eq!(shown, ["0", "1", "0.05", "2.5", "512", "12,345.7", "-20,000", "3e7", "2e-9"]);
    }

    #[test]
    fn a_value_uses_the_largest_unit_that_is_not_above_it() {
        let times = [950.0, 1_234.0, 45_678_901.0, 2e9].map(|nanos| Quantity::Nanos.text(nanos));
        assert_eq!(times, ["950 ns", "1.23 µs", "45.7 ms", "2 s"]);
        assert_eq!(Quantity::Bytes.text(1_610_612_736.0), "1.5 GiB");
        assert_eq!(Quantity::Ratio.text(3.456), "3.46×");
        assert_eq!(Quantity::Share.text(0.934), "93.4 %");
    }

    #[test]
    fn lengths_are_written_without_separators() {
        let lengths = [512.0, 1024.0, 2048.0, 16_384.0, 3000.0].map(|tokens| Quantity::Tokens.text(tokens));
        assert_eq!(lengths, ["512", "1024", "2048", "16384", "3000"]);
    }
}
