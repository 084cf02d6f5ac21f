//! Settings given by flags or in a file, and how they are resolved.

use std::{fmt, str::FromStr, time::Duration};

use laptime_trace::run::{Depth, L2, Settings, Stop, Timing, WarmUp};

/// The requested settings; a missing one uses its default.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct GivenSettings {
    /// The number of warm-up iterations, or [`WarmUp::Auto`].
    pub warmup: Option<WarmUp>,
    /// A fixed number of iterations, without another stop rule.
    pub iterations: Option<usize>,
    /// The largest distance of the interval from the median, as a share of the median.
    pub within: Option<Share>,
    /// The minimum measuring time.
    pub min_time: Option<Seconds>,
    /// The maximum measuring time.
    pub max_time: Option<Seconds>,
    /// The number of fresh processes that repeat each case.
    pub runs: Option<u32>,
    /// Whether each case runs in a separate process.
    pub isolate: Option<bool>,
    /// The timeout per case.
    pub timeout: Option<Seconds>,
    /// How iterations and stages are timed; if missing, the device's default.
    pub timing: Option<Timing>,
    /// The state of the device's L2 cache when an iteration begins; cold by default.
    pub l2: Option<L2>,
    /// How deep stages are marked.
    pub depth: Option<Depth>,
}

/// Why settings contradict each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what the errors are")]
pub enum SettingsError {
    #[error("`iterations` and `{other}` are conflicting stop rules")]
    TwoRules { other: &'static str },
    #[error("`min-time` ({least:?}) is longer than `max-time` ({most:?})")]
    TimesCross { least: Duration, most: Duration },
    #[error("`{what}` must be at least 1")]
    None { what: &'static str },
}

/// The default rule: the median known within 2 %, at least 20 iterations and 0.1 s, at most 10 s.
const DEFAULT: Stop = Stop::Interval { within: 0.02, at_least: 20, least_ns: 100_000_000, at_most_ns: 10_000_000_000 };

impl GivenSettings {
    /// Fills missing settings from another source: flags come before a file.
    pub fn or(self, other: Self) -> Self {
        // A stop rule is taken as a whole, so that a flag does not contradict a rule in the file.
        let has_rule =
            self.iterations.is_some() || self.within.is_some() || self.min_time.is_some() || self.max_time.is_some();
        let rule = if has_rule { self } else { other };
        Self {
            warmup: self.warmup.or(other.warmup),
            iterations: rule.iterations,
            within: rule.within,
            min_time: rule.min_time,
            max_time: rule.max_time,
            runs: self.runs.or(other.runs),
            isolate: self.isolate.or(other.isolate),
            timeout: self.timeout.or(other.timeout),
            timing: self.timing.or(other.timing),
            l2: self.l2.or(other.l2),
            depth: self.depth.or(other.depth),
        }
    }

    /// Resolves every setting that does not depend on the device. [`settle_timing`](crate::settle_timing) and
    /// [`settle_l2`](crate::settle_l2) resolve the others.
    pub fn settle(self) -> Result<Settings, SettingsError> {
        for (what, given) in [("iterations", self.iterations == Some(0)), ("runs", self.runs == Some(0))] {
            if given {
                return Err(SettingsError::None { what });
            }
        }
        Ok(Settings {
            warmup: self.warmup.unwrap_or(WarmUp::Auto),
            stop: self.stop()?,
            runs: self.runs.unwrap_or(1),
            isolate: self.isolate.unwrap_or(false),
            timeout_ns: self.timeout.map(Seconds::nanos),
            cold: false,
            timing: self.timing.unwrap_or_default(),
            l2: self.l2,
            depth: self.depth.unwrap_or_default(),
        })
    }

    fn stop(self) -> Result<Stop, SettingsError> {
        let others = [("within", self.within.is_some()), ("min-time", self.min_time.is_some())];
        let mut others = others.into_iter().chain([("max-time", self.max_time.is_some())]);
        match (self.iterations, others.find(|(_, is_given)| *is_given)) {
            (Some(_), Some((other, _))) => Err(SettingsError::TwoRules { other }),
            (Some(iterations), None) => Ok(Stop::Iterations(iterations)),
            (None, _) => self.interval(),
        }
    }

    fn interval(self) -> Result<Stop, SettingsError> {
        let Stop::Interval { within, at_least, least_ns, at_most_ns } = DEFAULT else { return Ok(DEFAULT) };
        let at_most_ns = self.max_time.map_or(at_most_ns, Seconds::nanos);
        let within = self.within.map_or(within, |share| share.0);
        // A default minimum yields to a shorter maximum; a requested minimum does not.
        let least_ns = self.min_time.map_or(least_ns.min(at_most_ns), Seconds::nanos);
        if least_ns > at_most_ns {
            let [least, most] = [least_ns, at_most_ns].map(Duration::from_nanos);
            return Err(SettingsError::TimesCross { least, most });
        }
        Ok(Stop::Interval { within, at_least, least_ns, at_most_ns })
    }
}

/// A duration: `10s`, `500ms`, `2m`, `1h`; a bare number is in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Seconds(pub f64);

impl Seconds {
    /// The duration in whole nanoseconds.
    pub fn nanos(self) -> u64 {
        (self.0 * 1e9).round() as u64
    }
}

/// A share: `2%` or `0.02`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Share(pub f64);

/// Why a quantity cannot be parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what the errors are")]
pub enum NoQuantity {
    #[error("`{text}` is not a {what}; examples: {example}")]
    NoSuch { text: String, what: &'static str, example: &'static str },
    #[error("`{text}` is more than 1; write `{text}%` for a percentage")]
    WithoutPerCent { text: String },
}

impl FromStr for Seconds {
    type Err = NoQuantity;

    fn from_str(text: &str) -> Result<Self, NoQuantity> {
        let wrong =
            || NoQuantity::NoSuch { text: text.to_owned(), what: "duration", example: "`10s`, `500ms` or `2m`" };
        let end = text.trim_end_matches(|char: char| char.is_alphabetic());
        let unit = match text[end.len()..].trim() {
            "" | "s" => 1.0,
            "ms" => 1e-3,
            "us" | "µs" => 1e-6,
            "m" | "min" => 60.0,
            "h" => 3600.0,
            _ => return Err(wrong()),
        };
        let number: f64 = end.trim().parse().map_err(|_| wrong())?;
        let seconds = number * unit;
        // Longer than a year is a typing error, and nanoseconds would overflow.
        if (1e-9..=3.2e7).contains(&seconds) { Ok(Self(seconds)) } else { Err(wrong()) }
    }
}

impl FromStr for Share {
    type Err = NoQuantity;

    fn from_str(text: &str) -> Result<Self, NoQuantity> {
        let wrong = || NoQuantity::NoSuch { text: text.to_owned(), what: "share", example: "`2%` or `0.02`" };
        let (number, unit) = text.trim().strip_suffix('%').map_or((text, 1.0), |number| (number, 0.01));
        let number = number.trim().parse::<f64>().map_err(|_| wrong())?;
        // A bare `5` most likely means 5 %, but would be 500 %.
        if unit == 1.0 && number > 1.0 {
            return Err(NoQuantity::WithoutPerCent { text: text.trim().to_owned() });
        }
        let share = number * unit;
        if share > 0.0 && share <= 10.0 { Ok(Self(share)) } else { Err(wrong()) }
    }
}

/// Parses a warm-up: `auto`, or a number of iterations.
pub fn parse_warm_up(text: &str) -> Result<WarmUp, NoQuantity> {
    let wrong = || NoQuantity::NoSuch { text: text.to_owned(), what: "warm-up", example: "`auto` or `3`" };
    if text == "auto" { Ok(WarmUp::Auto) } else { text.parse().map(WarmUp::Iterations).map_err(|_| wrong()) }
}

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} s", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_and_shares_are_parsed_with_their_units() {
        let times =
            ["10", "10s", "1.5 s", "500ms", "20us", "2m", "1h"].map(|text| text.parse::<Seconds>().unwrap().nanos());
        let expected = [10e9, 10e9, 1.5e9, 5e8, 2e4, 120e9, 3600e9].map(|nanos: f64| nanos as u64);
        assert_eq!(times, expected);
        assert_eq!(["2%", "0.5 %", "0.02"].map(|text| text.parse::<Share>().unwrap().0), [0.02, 0.005, 0.02]);
        assert_eq!((parse_warm_up("auto"), parse_warm_up("3")), (Ok(WarmUp::Auto), Ok(WarmUp::Iterations(3))));
    }

    #[test]
    fn invalid_quantities_are_reported_with_an_example() {
        for text in ["", "s", "10 parsecs", "-1s", "0", "nan", "1e300h"] {
            let message = text.parse::<Seconds>().unwrap_err().to_string();
            assert_eq!(message, format!("`{text}` is not a duration; examples: `10s`, `500ms` or `2m`"));
        }
        assert!("0%".parse::<Share>().is_err() && "nan".parse::<Share>().is_err() && parse_warm_up("-1").is_err());
    }

    #[test]
    fn a_share_above_one_needs_a_percent_sign() {
        let message = "5".parse::<Share>().unwrap_err().to_string();
        assert_eq!(message, "`5` is more than 1; write `5%` for a percentage");
        let read = ["5%", "1", "150%", "0.05"].map(|text| text.parse::<Share>().map(|share| share.0));
        assert_eq!(read, [Ok(0.05), Ok(1.0), Ok(1.5), Ok(0.05)]);
    }

    #[test]
    fn flags_override_the_file_and_replace_its_whole_stop_rule() {
        let flags = GivenSettings { iterations: Some(5), ..GivenSettings::default() };
        let file = GivenSettings { within: Some(Share(0.01)), runs: Some(3), ..GivenSettings::default() };
        let settings = flags.or(file).settle().unwrap();
        assert_eq!((settings.stop, settings.runs), (Stop::Iterations(5), 3));
    }

    #[test]
    fn conflicting_stop_rules_and_zero_iterations_are_refused() {
        let two = GivenSettings { iterations: Some(5), max_time: Some(Seconds(1.0)), ..GivenSettings::default() };
        assert_eq!(two.settle(), Err(SettingsError::TwoRules { other: "max-time" }));
        let [least, most] = [10, 1].map(Duration::from_secs);
        let crossing =
            GivenSettings { min_time: Some(Seconds(10.0)), max_time: Some(Seconds(1.0)), ..GivenSettings::default() };
        assert_eq!(crossing.settle(), Err(SettingsError::TimesCross { least, most }));
        let beyond_default = GivenSettings { min_time: Some(Seconds(11.0)), ..GivenSettings::default() };
        assert!(matches!(beyond_default.settle(), Err(SettingsError::TimesCross { .. })));
        let short = GivenSettings { max_time: Some(Seconds(0.05)), ..GivenSettings::default() };
        assert!(short.settle().is_ok(), "the default minimum time yields");
        let none = GivenSettings { iterations: Some(0), ..GivenSettings::default() };
        assert_eq!(none.settle(), Err(SettingsError::None { what: "iterations" }));
    }
}
