//! A crossover in sentences.

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
        Some(self.sentence(self.memory.as_ref()?, &self.smaller, "smaller in memory", "larger"))
    }

    /// At which lengths only this kind fits into memory.
    pub fn alone_sentence(&self) -> Option<String> {
        let (kind, base, lengths) = (&self.kind, &self.base, list(&self.alone));
        (!lengths.is_empty()).then(|| format!("`{base}` does not fit at {lengths} tokens, `{kind}` does"))
    }

    fn sentence(&self, answer: &Answer, points: &[Ratio], less: &str, more: &str) -> String {
        let [kind, base] = [&self.kind, &self.base].map(|name| format!("`{name}`"));
        let lengths: Vec<u64> = points.iter().map(|point| point.length).collect();
        Words { kind: &kind, base: &base, less, more, lengths: &lengths, rounded }.sentence(answer)
    }
}

/// What is compared over which lengths, in words.
pub(crate) struct Words<'a> {
    pub(crate) kind: &'a str,
    pub(crate) base: &'a str,
    /// `faster` or `smaller in memory`, and the opposite.
    pub(crate) less: &'a str,
    pub(crate) more: &'a str,
    /// The measured lengths, shortest first.
    pub(crate) lengths: &'a [u64],
    /// Writes an interpolated length.
    pub(crate) rounded: fn(f64) -> String,
}

impl Words<'_> {
    /// The answer in a sentence, without a full stop.
    pub(crate) fn sentence(&self, answer: &Answer) -> String {
        let Self { kind, base, less, more, lengths, rounded } = self;
        let is = format!("{kind} is {less} than {base}");
        let measured = match lengths {
            [first, .., last] => format!("{first} to {last} tokens"),
            few => format!("{} tokens", list(few)),
        };
        let (what, which) =
            if *less == "faster" { ("time", "faster one") } else { ("memory", "smaller one in memory") };
        match answer {
            Answer::Always => format!("{is} at every measured length ({measured})"),
            Answer::AtSome { less: at, more: against } => {
                let at = match (at.as_slice(), against.as_slice()) {
                    ([], against) => format!("{kind} is {more} than {base} at {}", list(against)),
                    (at, []) => format!("{is} at {}", list(at)),
                    (at, against) => format!("{is} at {}, and {more} at {}", list(at), list(against)),
                };
                format!("{at} tokens; at the other measured lengths the difference is unclear")
            }
            Answer::Never { extrapolated } => {
                let suggest = |length| format!("; extrapolation suggests about {} tokens", rounded(length));
                let suggested = extrapolated.map_or_else(String::new, suggest);
                format!("{kind} is not {less} than {base} at any measured length ({measured}){suggested}")
            }
            Answer::From(crossing) => format!("{is} from {} tokens on", self.crossing(crossing)),
            Answer::Until(crossing) => format!("{is} up to {} tokens and {more} beyond", self.crossing(crossing)),
            Answer::Several(lengths) => {
                let lengths: Vec<String> = lengths.iter().map(|&length| rounded(length)).collect();
                let lengths = lengths.join(", ");
                format!("{kind} and {base} swap as the {which} more than once, at about {lengths} tokens")
            }
            Answer::Unclear => {
                let between = format!("the difference in {what} between {kind} and {base}");
                format!("{between} is unclear at every measured length ({measured})")
            }
        }
    }

    /// A crossing with its interval: `890 [790, 1,010]`.
    fn crossing(&self, crossing: &Crossing) -> String {
        let length = (self.rounded)(crossing.length);
        let Some(Ends { low, high }) = crossing.ends else { return length };
        let [first, last] = [self.lengths.first(), self.lengths.last()].map(|length| length.copied().unwrap_or(0));
        let low = low.map_or_else(|| format!("below {first}"), self.rounded);
        let high = high.map_or_else(|| format!("beyond {last}"), self.rounded);
        format!("{length} [{low}, {high}]")
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

/// An interpolated length, in three figures: `1,300`.
fn rounded(length: f64) -> String {
    fn thousands(number: u64) -> String {
        if number < 1000 { number.to_string() } else { format!("{},{:03}", thousands(number / 1000), number % 1000) }
    }
    let digits = length.max(1.0).log10().floor() as i32;
    let step = 10_f64.powi((digits - 2).max(0));
    thousands(((length / step).round() * step) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interpolated_length_has_three_figures() {
        assert_eq!([7.4, 999.6, 1_304.0, 123_456.0, 0.2].map(rounded), ["7", "1,000", "1,300", "123,000", "0"]);
    }
}
