//! How much waiting is allowed, and whether a trace keeps to it.

use std::{fmt, str::FromStr};

use laptime_trace::Nanos;

use super::{Syncs, Wait, WaitGroup, stretches};
use crate::intervals::Stretches;

/// How much the host may wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// The most that is allowed.
    pub limit: Limit,
    /// It is for each lap, not for the whole trace.
    pub is_per_lap: bool,
}

/// What a budget limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// The number of waits.
    Count(u64),
    /// The time spent waiting.
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
            "`{text}` is no budget: {reason}; write a number of waits or a time, of a lap or of the whole trace: "
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

/// A time is a slip from this many nanoseconds on: a day.
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
    let number: f64 = number.trim().parse().map_err(|_| "its time is no number")?;
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
        Err(_) if number.parse::<f64>().is_ok() => Err("waits are counted in whole numbers from 0 on"),
        Err(_) => Err("its number of waits is no number"),
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

/// Whether a trace keeps to a budget.
#[derive(Debug, Clone, PartialEq)]
pub struct Judged {
    /// The budget.
    pub budget: Budget,
    /// Waits that `--allow` left out.
    pub allowed: u64,
    /// Patterns of `--allow` that match no wait.
    pub unused: Vec<String>,
    /// What breaks it; none if it is kept. Of a budget for the whole trace there is at most one.
    pub over: Vec<Over>,
    /// The most that was spent: in one lap, or in the whole trace.
    pub most: Spent,
    /// What was spent in what breaks it, by group of waits: first those with most waits beyond what a usual lap has, then
    /// those that spent most.
    pub causes: Vec<(usize, Spent)>,
}

/// A lap that is over its budget, or the whole trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Over {
    /// The lap; none for the whole trace.
    pub lap: Option<String>,
    /// What was spent in it.
    pub spent: Spent,
}

/// Waits and the time in which any of them was under way. Waits of unknown length add no time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Spent {
    /// How many.
    pub waits: u64,
    /// How long together.
    pub time: Nanos,
}

impl Spent {
    fn is_over(&self, limit: Limit) -> bool {
        match limit {
            Limit::Count(most) => self.waits > most,
            Limit::Time(most) => self.time > most,
        }
    }

    /// What counts against a limit.
    fn amount(&self, limit: Limit) -> u64 {
        match limit {
            Limit::Count(_) => self.waits,
            Limit::Time(_) => self.time.0,
        }
    }
}

impl Judged {
    /// Whether the budget is kept.
    pub fn is_kept(&self) -> bool {
        self.over.is_empty()
    }
}

impl Syncs {
    /// Holds the waits against a budget; none if it is for laps and there are none.
    ///
    /// Waits whose call or site matches a pattern of `allow` are left out, and of a budget for laps what is outside laps.
    /// A wait counts for the lap that it begins in; its time goes to every lap that it reaches into.
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

    /// From when to when what the budget is for lasts: each lap, or the whole trace.
    fn places(&self, budget: Budget) -> Option<Vec<(u64, u64)>> {
        if !budget.is_per_lap {
            return Some(vec![(0, u64::MAX)]);
        }
        Some(self.laps.as_ref()?.laps.iter().map(|lap| (lap.start.0, lap.end.0)).collect())
    }

    /// What each group of waits spent in what is over the budget.
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

    /// Puts what stands out first: in laps over a number of waits that is what other laps do not have.
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

/// The lap that a wait counts for, by its place; the whole trace is the only place of its budget.
fn place(wait: &Wait, budget: Budget) -> Option<usize> {
    if budget.is_per_lap { wait.lap } else { Some(0) }
}

/// What these waits spent in each lap.
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

/// Whether a text is what a pattern says; `*` stands for anything.
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
    fn budgets_are_read_as_people_write_them() {
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
    fn what_is_no_budget_says_why() {
        let told = |text: &str| text.parse::<Budget>().unwrap_err().reason;
        assert_eq!(told("1/token"), "what follows `/` can only be `lap`");
        assert_eq!(told("1.5/lap"), "waits are counted in whole numbers from 0 on");
        assert_eq!(told("-1"), "waits are counted in whole numbers from 0 on");
        assert_eq!(told("2 min"), "a time ends in `ns`, `us`, `ms` or `s`");
        assert_eq!(told("-2ms"), "its time is negative or longer than a day");
        assert_eq!(told("xms"), "a time ends in `ns`, `us`, `ms` or `s`");
        assert_eq!(told("1,5ms"), "its time is no number");
        assert_eq!(told("/lap"), "it is empty");
        assert_eq!(told("1_000"), "its number of waits is no number");
    }

    #[test]
    fn a_star_stands_for_anything() {
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
