//! A crossover in a sentence.

use std::fmt;

use super::{Answer, Crossing, Crossover, Ends, Ratio};

impl Crossover {
    /// At which lengths the kind is faster; none if no length was measured for both.
    pub fn time_sentence(&self) -> Option<String> {
        let mut claim = self.sentence(self.time.as_ref()?, &self.faster, "faster", "slower");
        let longest = self.faster.last();
        if let Some((longest, share)) = longest.and_then(|longest| Some((longest, share(longest)?))) {
            claim.push_str(&format!("; at {} tokens it takes {share}", longest.length));
        }
        Some(claim)
    }

    /// At which lengths the kind needs less memory; none if that is unknown.
    pub fn memory_sentence(&self) -> Option<String> {
        let claim = self.sentence(self.memory.as_ref()?, &self.smaller, "smaller in memory", "larger");
        Some(claim)
    }

    /// At which lengths only this kind fits into memory.
    pub fn alone_sentence(&self) -> Option<String> {
        let lengths: Vec<String> = self.alone.iter().map(ToString::to_string).collect();
        let (kind, base) = (&self.kind, &self.base);
        (!lengths.is_empty()).then(|| format!("`{base}` does not fit at {} tokens, `{kind}` does", lengths.join(", ")))
    }

    fn sentence(&self, answer: &Answer, points: &[Ratio], less: &str, more: &str) -> String {
        let (kind, base) = (&self.kind, &self.base);
        let is = format!("`{kind}` is {less} than `{base}`");
        let is_not = format!("`{kind}` is not {less} than `{base}`");
        let measured = measured(points);
        match answer {
            Answer::Always => format!("{is} at every measured length ({measured})"),
            Answer::AtSome { less: at, more: against } => {
                let at = match (at.as_slice(), against.as_slice()) {
                    ([], against) => format!("`{kind}` is {more} than `{base}` at {}", list(against)),
                    (at, []) => format!("{is} at {}", list(at)),
                    (at, against) => format!("{is} at {}, and {more} at {}", list(at), list(against)),
                };
                format!("{at} tokens; at the other measured lengths the difference is unclear")
            }
            Answer::Never { extrapolated: None } => format!("{is_not} at any measured length ({measured})"),
            Answer::Never { extrapolated: Some(length) } => format!(
                "{is_not} at any measured length ({measured}); extrapolation suggests about {} tokens",
                rounded(*length)
            ),
            Answer::From(crossing) => format!("{is} from {} tokens on", Length { crossing, points }),
            Answer::Until(crossing) => format!("{is} up to {} tokens and {more} beyond", Length { crossing, points }),
            Answer::Several(lengths) => {
                let lengths: Vec<String> = lengths.iter().map(|&length| rounded(length)).collect();
                let which = if less == "faster" { "as the faster one" } else { "as the smaller one in memory" };
                format!("`{kind}` and `{base}` swap {which} more than once, at about {} tokens", lengths.join(", "))
            }
            Answer::Unclear => {
                let what = if less == "faster" { "time" } else { "memory" };
                format!(
                    "the difference in {what} between `{kind}` and `{base}` is unclear at every measured length ({measured})"
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

/// A list of lengths: `512, 1024`.
pub(crate) fn list(lengths: &[u64]) -> String {
    lengths.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// A crossing with its interval.
struct Length<'a> {
    crossing: &'a Crossing,
    points: &'a [Ratio],
}

impl fmt::Display for Length<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&rounded(self.crossing.length))?;
        let Some(Ends { low, high }) = self.crossing.ends else { return Ok(()) };
        let ends = [self.points.first(), self.points.last()].map(|point| point.map_or(0, |point| point.length));
        let low = low.map_or_else(|| format!("below {}", ends[0]), rounded);
        let high = high.map_or_else(|| format!("beyond {}", ends[1]), rounded);
        write!(f, " [{low}, {high}]")
    }
}

/// An interpolated length, in three figures: `1,300`.
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
    fn an_interpolated_length_has_three_figures() {
        assert_eq!([7.4, 999.6, 1_304.0, 123_456.0, 0.2].map(rounded), ["7", "1,000", "1,300", "123,000", "0"]);
    }
}
