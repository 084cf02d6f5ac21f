//! What a crossover says, in a sentence.

use std::fmt;

use super::{Answer, Crossing, Crossover, Ends, Ratio};

impl Crossover {
    /// Where the kind is faster; none if no length was measured of both.
    pub fn time_sentence(&self) -> Option<String> {
        let mut said = self.sentence(self.time.as_ref()?, &self.faster, "faster", "slower");
        let longest = self.faster.last();
        if let Some((longest, share)) = longest.and_then(|longest| Some((longest, share(longest)?))) {
            said.push_str(&format!("; at {} tokens it takes {share}", longest.length));
        }
        Some(said)
    }

    /// Where the kind is smaller in memory; none if that is not known.
    pub fn memory_sentence(&self) -> Option<String> {
        let said = self.sentence(self.memory.as_ref()?, &self.smaller, "smaller in memory", "larger");
        Some(said)
    }

    /// Where the other kind does not fit, and this one does.
    pub fn alone_sentence(&self) -> Option<String> {
        let lengths: Vec<String> = self.alone.iter().map(ToString::to_string).collect();
        let (kind, base) = (&self.kind, &self.base);
        (!lengths.is_empty()).then(|| format!("`{base}` does not fit at {} tokens, `{kind}` does", lengths.join(", ")))
    }

    fn sentence(&self, answer: &Answer, points: &[Ratio], less: &str, more: &str) -> String {
        let (kind, base) = (&self.kind, &self.base);
        let is = format!("`{kind}` is {less} than `{base}`");
        let measured = measured(points);
        match answer {
            Answer::Always => format!("{is} at every length measured ({measured})"),
            Answer::AtSome { less: at, more: against } => {
                let at = match (at.as_slice(), against.as_slice()) {
                    ([], against) => format!("`{kind}` is {more} than `{base}` at {}", list(against)),
                    (at, []) => format!("{is} at {}", list(at)),
                    (at, against) => format!("{is} at {}, and {more} at {}", list(at), list(against)),
                };
                format!("{at} tokens; at the other lengths measured the difference is not distinguishable")
            }
            Answer::Never { extrapolated: None } => format!("{is} at no length measured ({measured})"),
            Answer::Never { extrapolated: Some(length) } => format!(
                "{is} at no length measured ({measured}); the last two point at about {}, which is an extrapolation",
                rounded(*length)
            ),
            Answer::From(crossing) => format!("{is} from {} tokens on", Told { crossing, points }),
            Answer::Until(crossing) => format!("{is} up to {} tokens and {more} beyond", Told { crossing, points }),
            Answer::Several(lengths) => {
                let lengths: Vec<String> = lengths.iter().map(|&length| rounded(length)).collect();
                let which = if less == "faster" { "which is faster" } else { "which is smaller in memory" };
                format!(
                    "`{kind}` and `{base}` change places in {which} more than once, at about {} tokens",
                    lengths.join(", ")
                )
            }
            Answer::Unclear => {
                let what = if less == "faster" { "time" } else { "memory" };
                format!(
                    "the difference in {what} between `{kind}` and `{base}` is not distinguishable at any length measured ({measured})"
                )
            }
        }
    }
}

fn measured(points: &[Ratio]) -> String {
    match points {
        [] => String::new(),
        [only] => only.length.to_string(),
        [first, .., last] => format!("{} to {}", first.length, last.length),
    }
}

/// This kind's time over the other's, with its interval: `0.21 [0.20, 0.22] times as long`.
fn share(point: &Ratio) -> Option<String> {
    let ends = point.interval?;
    Some(format!("{:.2} [{:.2}, {:.2}] times as long", 1.0 / point.ratio, 1.0 / ends.high, 1.0 / ends.low))
}

/// Lengths in a row: `512, 1024`.
pub(crate) fn list(lengths: &[u64]) -> String {
    lengths.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// A crossing with its ends.
struct Told<'a> {
    crossing: &'a Crossing,
    points: &'a [Ratio],
}

impl fmt::Display for Told<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&rounded(self.crossing.length))?;
        let Some(Ends { low, high }) = self.crossing.ends else { return Ok(()) };
        let ends = [self.points.first(), self.points.last()].map(|point| point.map_or(0, |point| point.length));
        let low = low.map_or_else(|| format!("below {}", ends[0]), rounded);
        let high = high.map_or_else(|| format!("beyond {}", ends[1]), rounded);
        write!(f, " [{low}, {high}]")
    }
}

/// A length that nobody measured, in three figures: `1,300`.
fn rounded(length: f64) -> String {
    let digits = length.max(1.0).log10().floor() as i32;
    let step = 10_f64.powi((digits - 2).max(0));
    let whole = ((length / step).round() * step) as u64;
    let text = whole.to_string();
    let mut grouped = String::new();
    for (at, digit) in text.chars().enumerate() {
        if at > 0 && (text.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_between_two_is_told_in_three_figures() {
        assert_eq!([7.4, 999.6, 1_304.0, 123_456.0, 0.2].map(rounded), ["7", "1,000", "1,300", "123,000", "0"]);
    }
}
