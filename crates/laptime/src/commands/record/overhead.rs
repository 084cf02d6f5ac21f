//! The recording overhead, measured inside the program.
//!
//! Recording pauses now and then, except for copies and syncs, which are rare. A *beat* is an event that repeats in both
//! states with equal work in between: an NVTX range, a copy of one size, or a sync. The ratio of its periods with and
//! without recording, at about the same time, is the overhead.

use std::collections::HashMap;

use laptime_capture::part::{RangeAction, State};
use laptime_stats::Sorted;
use laptime_trace::kernels::WorkKind;
use serde_json::json;

use super::parts::Process;

/// The minimum number of pauses for a 95 % interval of the median.
pub const LEAST_PAUSES: usize = 6;
/// Maximum recorded periods on each side of a pause to compare with.
const MOST_PERIODS: usize = 8;
/// Minimum recorded periods next to a pause.
const LEAST_PERIODS: usize = 4;
/// Time left out at a switch, while CUPTI is reconfigured and buffers are flushed.
const SETTLING_NS: u64 = 20_000_000;
/// Work is equal if the interquartile range of kernels per period is at most this share of the median.
const MOST_SPREAD: f64 = 0.1;

/// The recording overhead.
#[derive(Debug, Clone, PartialEq)]
pub enum Overhead {
    /// As a share of the time without recording, with a 95 % interval.
    Measured {
        /// The median over pauses.
        share: f64,
        interval: (f64, f64),
        pauses: usize,
        beat: String,
    },
    /// It could not be measured.
    Unknown { reason: String },
    /// It was not measured because of this flag.
    NotMeasured { flag: &'static str },
}

impl Overhead {
    /// Uses the process and beat with the most pauses.
    pub fn of(processes: &[Process]) -> Self {
        let pauses: usize = processes.iter().map(|process| pauses(process).len()).sum();
        if pauses < LEAST_PAUSES {
            let reason = format!(
                "this needs {LEAST_PAUSES} short pauses and the recording has {pauses}; a minute is enough if a step takes less than 50 ms"
            );
            return Self::Unknown { reason };
        }
        let best = processes.iter().flat_map(of_process).max_by_key(|(_, ratios)| ratios.len());
        match best {
            Some((beat, ratios)) if ratios.len() >= LEAST_PAUSES => Self::measured(beat, ratios),
            Some((beat, ratios)) => {
                let seen = ratios.len();
                let reason = format!(
                    "{beat} repeats with equal work, but only {seen} of {pauses} pauses contain a whole step; this needs \
                     {LEAST_PAUSES}"
                );
                Self::Unknown { reason }
            }
            None => Self::Unknown {
                reason: "no NVTX range, copy or sync in the program repeats with equal work".to_owned(),
            },
        }
    }

    fn measured(beat: String, ratios: Vec<f64>) -> Self {
        const SEED: u64 = 1;
        let pauses = ratios.len();
        let found = sorted(ratios).and_then(|ratios| {
            let interval = laptime_stats::median_interval(&ratios, 0.95, SEED)?;
            Some((ratios.median()?, (interval.low, interval.high)))
        });
        match found {
            Some((share, interval)) => Self::Measured { share, interval, pauses, beat },
            None => Self::Unknown { reason: "the periods could not be compared".to_owned() },
        }
    }

    /// For `record.json`.
    pub fn json(&self) -> serde_json::Value {
        match self {
            Self::Measured { share, interval, pauses, beat } => {
                json!({ "share": share, "low": interval.0, "high": interval.1, "pauses": pauses, "beat": beat })
            }
            Self::Unknown { reason } => json!({ "unknown": reason }),
            Self::NotMeasured { flag } => json!({ "unknown": format!("{flag} was given") }),
        }
    }
}

fn sorted(values: Vec<f64>) -> Option<Sorted<f64>> {
    Sorted::<f64>::from_unsorted(values).ok()
}

/// A pause, and the recorded time around it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Pause {
    from: u64,
    to: u64,
    recorded_since: u64,
    recorded_until: u64,
}

fn pauses(process: &Process) -> Vec<Pause> {
    let states = &process.states;
    let of_three = states.windows(3).enumerate().filter_map(|(at, window)| {
        let [(since, State::Recording), (from, State::Light), (to, State::Recording)] = *window else { return None };
        let until = states.get(at + 3).map_or(u64::MAX, |(until, _)| *until);
        Some(Pause { from, to, recorded_since: since, recorded_until: until })
    });
    of_three.collect()
}

/// The beats of a process, with a ratio per pause.
fn of_process(process: &Process) -> Vec<(String, Vec<f64>)> {
    let pauses = pauses(process);
    let mut kernels: Vec<u64> = process
        .records
        .work
        .iter()
        .filter(|work| matches!(work.kind, WorkKind::Kernel { .. } | WorkKind::Graph { .. }))
        .map(|work| work.time.start_ns)
        .collect();
    kernels.sort_unstable();
    beats(process)
        .into_iter()
        .filter(|(_, times)| has_equal_work(times, &kernels, &pauses))
        .map(|(name, times)| (name, pauses.iter().filter_map(|pause| ratio(&times, pause)).collect()))
        .collect()
}

/// Candidates for beats, with their times in order.
fn beats(process: &Process) -> Vec<(String, Vec<u64>)> {
    let mut found: HashMap<String, Vec<u64>> = HashMap::new();
    for range in process.ranges.iter().filter(|range| range.action == RangeAction::Push) {
        found.entry(format!("NVTX range `{}`", range.name)).or_default().push(range.host_ns);
    }
    for work in &process.records.work {
        let name = match &work.kind {
            WorkKind::Copy { from, to, bytes, .. } => {
                format!("copy of {bytes} bytes {}", from.direction_to(*to))
            }
            WorkKind::Sync { name } => name.clone(),
            _ => continue,
        };
        found.entry(name).or_default().push(work.time.start_ns);
    }
    found.retain(|_, times| times.len() > 2 * LEAST_PAUSES);
    found.values_mut().for_each(|times| times.sort_unstable());
    found.into_iter().collect()
}

/// Whether about the same number of kernels runs between beats, as far as kernels were recorded.
fn has_equal_work(times: &[u64], kernels: &[u64], pauses: &[Pause]) -> bool {
    let is_recorded = |from: u64, to: u64| !pauses.iter().any(|pause| from < pause.to && to > pause.from);
    let count = |at: u64| kernels.partition_point(|&kernel| kernel < at);
    let periods = times.windows(2).filter(|pair| is_recorded(pair[0], pair[1]));
    let counts: Vec<f64> = periods.map(|pair| (count(pair[1]) - count(pair[0])) as f64).collect();
    if counts.len() < LEAST_PAUSES {
        return false;
    }
    let spread = || {
        let counts = sorted(counts)?;
        Some((counts.quantile(0.75)? - counts.quantile(0.25)?, counts.median()?))
    };
    spread().is_some_and(|(spread, median)| median >= 1.0 && spread <= MOST_SPREAD * median)
}

/// The relative increase of the period by recording, around one pause.
fn ratio(times: &[u64], pause: &Pause) -> Option<f64> {
    let before = periods(times, (pause.recorded_since + SETTLING_NS, pause.from));
    let after = periods(times, (pause.to + SETTLING_NS, pause.recorded_until));
    // The nearest periods, since the speed of a program changes over time.
    let before = before.iter().rev().take(MOST_PERIODS);
    let on: Vec<f64> = before.chain(after.iter().take(MOST_PERIODS)).copied().collect();
    let off = periods(times, (pause.from + SETTLING_NS, pause.to.saturating_sub(SETTLING_NS)));
    if on.len() < LEAST_PERIODS || off.is_empty() {
        return None;
    }
    Some(sorted(on)?.median()? / sorted(off)?.median()? - 1.0)
}

/// The periods inside a time range.
fn periods(times: &[u64], (from, to): (u64, u64)) -> Vec<f64> {
    let first = times.partition_point(|&at| at < from);
    let last = times.partition_point(|&at| at <= to);
    let inside = times.get(first..last.max(first)).unwrap_or_default();
    inside.windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect()
}

#[cfg(test)]
mod tests {
    use laptime_trace::{
        KernelRecords,
        kernels::{DeviceWork, Stretch},
    };

    use super::*;

    const MS: u64 = 1_000_000;

    /// Steps of ten kernels and a sync. Recording makes them `slower` times as long.
    fn process(pauses: usize, slower: f64) -> Process {
        let mut process = Process { records: KernelRecords::default(), ..Process::default() };
        let mut now = 1_000 * MS;
        let work = |at: u64, kind: WorkKind| DeviceWork {
            time: Stretch { start_ns: at, end_ns: at + 1_000 },
            device: 0,
            stream: Some(7),
            correlation: 0,
            kind,
        };
        for _ in 0..pauses {
            for (state, steps) in [(State::Recording, 200), (State::Light, 40)] {
                process.states.push((now, state));
                for step in 0..steps {
                    let is_on = state == State::Recording;
                    process.records.work.push(work(now, WorkKind::Sync { name: "Stream Sync".to_owned() }));
                    let length = if is_on { (10.0 * MS as f64 * slower) as u64 } else { 10 * MS };
                    if is_on {
                        let kernels = (0..10).map(|at| work(now + at * 1_000, WorkKind::Graph { graph: 1 }));
                        process.records.work.extend(kernels);
                    }
                    // Some steps take slightly longer in both states.
                    now += length + (step % 3) * 10_000;
                }
            }
        }
        process.states.push((now, State::Recording));
        process.states.push((now + 5_000 * MS, State::Ended));
        process
    }

    #[test]
    fn a_slowdown_is_measured_with_an_interval() {
        let Overhead::Measured { share, interval, pauses, beat } = Overhead::of(&[process(10, 1.05)]) else {
            panic!("not measured");
        };
        assert!((share - 0.05).abs() < 0.005, "{share}");
        assert!(interval.0 <= share && share <= interval.1 && interval.1 < 0.06, "{interval:?}");
        assert_eq!((pauses, beat.as_str()), (10, "Stream Sync"));
    }

    #[test]
    fn too_few_pauses_or_unequal_work_give_no_result() {
        assert!(matches!(Overhead::of(&[process(2, 1.0)]), Overhead::Unknown { .. }));
        let mut uneven = process(10, 1.0);
        let mut at = 0_u64;
        uneven.records.work.retain(|work| {
            at += 1;
            matches!(work.kind, WorkKind::Sync { .. }) || at.is_multiple_of(1 + at / 700 % 5)
        });
        assert!(matches!(Overhead::of(&[uneven]), Overhead::Unknown { .. }));
    }
}
