//! A budget for syncs, and whether a trace is within it.

use std::{fmt, str::FromStr};

use laptime_trace::Nanos;

use super::{Syncs, Wait, WaitGroup, stretches};
use crate::intervals::Stretches;

/// A budget for syncs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// The limit.
    pub limit: Limit,
    /// Whether it is per lap, not for the whole trace.
    pub is_per_lap: bool,
}

/// What a budget limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// The number of syncs.
    Count(u64),
    /// The time in syncs.
    Time(Nanos),
}

/// Why a budget cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoBudget {
    text: String,
    reason: &'static str,
}

impl fmt::Display for NoBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { text, reason } = self;
        write!(
            f,
            "`{text}` is not a budget: {reason}; use a number of syncs or a time, per lap or for the whole trace: "
        )?;
        write!(f, "`1/lap`, `64`, `2ms/lap`, `50ms`")
    }
}

impl std::error::Error for NoBudget {}

impl FromStr for Budget {
    type Err = NoBudget;

    fn from_str(text: &str) -> Result<Self, NoBudget> {
        let wrong = |reason| NoBudget { text: text.to_owned(), reason };
        let (amount, is_per_lap) = match text.split_once('/') {
            Some((amount, unit)) if unit.trim() == "lap" => (amount.trim(), true),
            Some(_) => return Err(wrong("what follows `/` can only be `lap`")),
            None => (text.trim(), false),
        };
        let limit = limit(amount).map_err(wrong)?;
        Ok(Self { limit, is_per_lap })
    }
}

/// Longer times are a mistake: a day in nanoseconds.
const MOST_TIME: f64 = 8.64e13;

fn limit(text: &str) -> Result<Limit, &'static str> {
    let number = text.trim_end_matches(char::is_alphabetic);
    let unit = match &text[number.len()..] {
        "" => return count(number).map(Limit::Count),
        "ns" => 1.0,
        "us" | "µs" | "μs" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        _ => return Err("a time ends in `ns`, `us`, `ms` or `s`"),
    };
    let number: f64 = number.trim().parse().map_err(|_| "its time is not a number")?;
    let nanos = number * unit;
    let is_time = (0.0..=MOST_TIME).contains(&nanos);
    if is_time {
        Ok(Limit::Time(Nanos(nanos.round() as u64)))
    } else {
        Err("its time is negative or longer than a day")
    }
}

fn count(number: &str) -> Result<u64, &'static str> {
    match number.parse() {
        Ok(count) => Ok(count),
        Err(_) if number.is_empty() => Err("it is empty"),
        Err(_) if number.parse::<f64>().is_ok() => Err("the number of syncs must be a whole number"),
        Err(_) => Err("its number of syncs is not a number"),
    }
}

impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.limit {
            Limit::Count(count) => write!(f, "{count}")?,
            Limit::Time(Nanos(nanos)) if nanos % 1_000_000 == 0 => write!(f, "{}ms", nanos / 1_000_000)?,
            Limit::Time(Nanos(nanos)) if nanos % 1_000 == 0 => write!(f, "{}us", nanos / 1_000)?,
            Limit::Time(Nanos(nanos)) => write!(f, "{nanos}ns")?,
        }
        f.write_str(if self.is_per_lap { "/lap" } else { "" })
    }
}

/// The result of a budget check.
#[derive(Debug, Clone, PartialEq)]
pub struct Judged {
    /// The budget.
    pub budget: Budget,
    /// Syncs that `--allow` excludes.
    pub allowed: u64,
    /// Patterns of `--allow` that match no sync.
    pub unused: Vec<String>,
    /// What is over budget; empty if nothing is. For a budget of the whole trace, at most one entry.
    pub over: Vec<Over>,
    /// The most that was used: in one lap, or in the whole trace.
    pub most: Spent,
    /// What each group of syncs used in what is over budget: first groups with more syncs than in a median lap, then by
    /// amount.
    pub causes: Vec<(usize, Spent)>,
}

/// A lap that is over budget, or the whole trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Over {
    /// The lap; none for the whole trace.
    pub lap: Option<String>,
    /// What it used.
    pub spent: Spent,
}

/// Syncs and the time in which any of them was under way. Syncs of unknown length add no time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Spent {
    /// How many.
    pub waits: u64,
    /// The total time.
    pub time: Nanos,
}

impl Spent {
    fn is_over(&self, limit: Limit) -> bool {
        match limit {
            Limit::Count(most) => self.waits > most,
            Limit::Time(most) => self.time > most,
        }
    }

    /// The amount in the unit of the limit.
    fn amount(&self, limit: Limit) -> u64 {
        match limit {
            Limit::Count(_) => self.waits,
            Limit::Time(_) => self.time.0,
        }
    }
}

impl Judged {
    /// Whether everything is within budget.
    pub fn is_kept(&self) -> bool {
        self.over.is_empty()
    }
}

impl Syncs {
    /// Checks a budget; none if it is per lap and there are no laps.
    ///
    /// Syncs whose call or site matches a pattern of `allow` are excluded, and for a budget per lap also syncs outside laps.
    /// A sync counts for the lap in which it starts; its time counts for every lap that it overlaps.
    pub fn judge(&self, budget: Budget, allow: &[String]) -> Option<Judged> {
        let laps = self.places(budget)?;
        let is_allowed: Vec<bool> = self.groups.iter().map(|group| group.is_allowed(allow)).collect();
        let counted: Vec<&Wait> = self.waits.iter().filter(|wait| !is_allowed[wait.group]).collect();
        let spent = spent(&laps, &counted, budget);
        let over: Vec<usize> = (0..laps.len()).filter(|&at| spent[at].is_over(budget.limit)).collect();
        let causes = self.causes(&counted, &over, &laps, budget);
        Some(Judged {
            budget,
            allowed: (self.waits.len() - counted.len()) as u64,
            unused: allow.iter().filter(|pattern| !self.has(pattern)).cloned().collect(),
            over: over.iter().map(|&at| self.over(budget, at, spent[at])).collect(),
            most: spent.iter().copied().max_by_key(|spent| spent.amount(budget.limit)).unwrap_or_default(),
            causes: self.in_order(causes, budget, over.len()),
        })
    }

    /// The intervals that the budget applies to: each lap, or the whole trace.
    fn places(&self, budget: Budget) -> Option<Vec<(u64, u64)>> {
        if !budget.is_per_lap {
            return Some(vec![(0, u64::MAX)]);
        }
        Some(self.laps.as_ref()?.laps.iter().map(|lap| (lap.start.0, lap.end.0)).collect())
    }

    /// What each group of syncs used in what is over budget.
    fn causes(&self, counted: &[&Wait], over: &[usize], laps: &[(u64, u64)], budget: Budget) -> Vec<Spent> {
        let within = Stretches::union(over.iter().map(|&at| laps[at]).collect());
        let mut of_group: Vec<Vec<&Wait>> = vec![Vec::new(); self.groups.len()];
        for &wait in counted {
            of_group[wait.group].push(wait);
        }
        let is_cause = |wait: &&&Wait| match budget.limit {
            Limit::Count(_) => place(wait, budget).is_some_and(|at| over.binary_search(&at).is_ok()),
            Limit::Time(_) => {
                wait.length.is_some_and(|length| within.length_within(wait.start.0, wait.start.0 + length.0) > 0)
            }
        };
        let spent = |waits: Vec<&Wait>| {
            let waits: Vec<&Wait> = waits.iter().filter(is_cause).copied().collect();
            let time = stretches(waits.iter().copied());
            let time = time.parts().iter().map(|&(from, to)| within.length_within(from, to)).sum();
            Spent { waits: waits.len() as u64, time: Nanos(time) }
        };
        of_group.into_iter().map(spent).collect()
    }

    fn has(&self, pattern: &str) -> bool {
        self.groups.iter().any(|group| matches(pattern, &group.call) || matches(pattern, &group.site))
    }

    /// Sorts by what differs from other laps.
    fn in_order(&self, causes: Vec<Spent>, budget: Budget, laps_over: usize) -> Vec<(usize, Spent)> {
        let beyond = |at: usize, spent: &Spent| match (budget.limit, self.groups[at].a_lap) {
            (Limit::Count(_), Some(usual)) if budget.is_per_lap => spent.waits as f64 - usual * laps_over as f64,
            _ => 0.0,
        };
        let mut causes: Vec<(usize, Spent)> =
            causes.into_iter().enumerate().filter(|(_, spent)| spent.waits > 0).collect();
        causes.sort_by(|(a, of_a), (b, of_b)| {
            let amounts = of_b.amount(budget.limit).cmp(&of_a.amount(budget.limit));
            beyond(*b, of_b).total_cmp(&beyond(*a, of_a)).then(amounts).then(a.cmp(b))
        });
        causes
    }

    fn over(&self, budget: Budget, at: usize, spent: Spent) -> Over {
        let label = || Some(self.laps.as_ref()?.laps.get(at)?.label.clone());
        Over { lap: if budget.is_per_lap { label() } else { None }, spent }
    }
}

/// The index of the lap of a sync; 0 for a budget of the whole trace.
fn place(wait: &Wait, budget: Budget) -> Option<usize> {
    if budget.is_per_lap { wait.lap } else { Some(0) }
}

/// What these syncs used in each lap.
fn spent(laps: &[(u64, u64)], waits: &[&Wait], budget: Budget) -> Vec<Spent> {
    let waiting = stretches(waits.iter().copied());
    let time = |&(from, to): &(u64, u64)| Nanos(waiting.length_within(from, to));
    let mut spent: Vec<Spent> = laps.iter().map(|lap| Spent { waits: 0, time: time(lap) }).collect();
    for at in waits.iter().filter_map(|wait| place(wait, budget)) {
        spent[at].waits += 1;
    }
    spent
}

impl WaitGroup {
    fn is_allowed(&self, allow: &[String]) -> bool {
        allow.iter().any(|pattern| matches(pattern, &self.call) || matches(pattern, &self.site))
    }
}

/// Whether a text matches a pattern; `*` matches anything.
fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| text.strip_prefix(first)) else { return false };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_are_parsed_as_people_write_them() {
        let read = |text: &str| text.parse::<Budget>().map(|budget| (budget.limit, budget.is_per_lap)).unwrap();
        assert_eq!(read("1/lap"), (Limit::Count(1), true));
        assert_eq!(read("64"), (Limit::Count(64), false));
        assert_eq!(read("2ms/lap"), (Limit::Time(Nanos(2_000_000)), true));
        assert_eq!(read(" 0.5 us / lap"), (Limit::Time(Nanos(500)), true));
        assert_eq!(read("50ms"), (Limit::Time(Nanos(50_000_000)), false));
        for text in ["1/lap", "64", "2ms/lap", "1500us", "7ns"] {
            assert_eq!(text.parse::<Budget>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn an_invalid_budget_explains_why() {
        let reason_of = |text: &str| text.parse::<Budget>().unwrap_err().reason;
        assert_eq!(reason_of("1/token"), "what follows `/` can only be `lap`");
        assert_eq!(reason_of("1.5/lap"), "the number of syncs must be a whole number");
        assert_eq!(reason_of("-1"), "the number of syncs must be a whole number");
        assert_eq!(reason_of("2 min"), "a time ends in `ns`, `us`, `ms` or `s`");
        assert_eq!(reason_of("-2ms"), "its time is negative or longer than a day");
        assert_eq!(reason_of("xms"), "a time ends in `ns`, `us`, `ms` or `s`");
        assert_eq!(reason_of("1,5ms"), "its time is not a number");
        assert_eq!(reason_of("/lap"), "it is empty");
        assert_eq!(reason_of("1_000"), "its number of syncs is not a number");
    }

    #[test]
    fn a_star_matches_anything() {
        for pattern in ["cudaStreamSynchronize", "cuda*", "*Sync*", "*", "c*S*e", "cuda*Stream*Synchronize"] {
            assert!(matches(pattern, "cudaStreamSynchronize"), "{pattern}");
        }
        for pattern in ["cuda", "Stream", "", "cuda*x", "*x*", "cuda*cuda*"] {
            assert!(!matches(pattern, "cudaStreamSynchronize"), "{pattern}");
        }
        assert!(!matches("ab*ba", "aba"));
        assert!(matches("", "") && matches("*", ""));
    }
}
