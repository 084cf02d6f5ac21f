//! The clocks of the ranks, aligned by collectives that no rank can leave before the last one has arrived.
//!
//! The last rank to arrive spends only the transfer in such a collective, and every rank leaves it within that time. So the
//! ends of one collective differ by at most its shortest duration, whatever the clocks say. The shortest collectives give
//! the difference of two clocks, and their duration is the uncertainty.

use std::collections::HashMap;

use laptime_stats::spread::median_of;

use super::{matching::Matched, rank::RankTrace};

/// The clock of one rank: subtract the offset to get the time of the reference.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct RankClock {
    /// How far it is ahead of the reference at `moment`, in nanoseconds.
    pub offset: i64,
    /// How much further it gets ahead per nanosecond.
    pub drift: f64,
    pub(crate) moment: i64,
    /// The uncertainty of the offset, in nanoseconds.
    pub uncertainty: u64,
    /// Ranks of one group are aligned with each other.
    pub group: u32,
}

impl RankClock {
    fn ahead(&self, time: i64) -> i64 {
        self.offset + (self.drift * (time - self.moment) as f64) as i64
    }

    /// A time of this clock as a time of the reference.
    pub(crate) fn aligned(&self, time: i64) -> i64 {
        time - self.ahead(time)
    }

    /// The clock of a rank that is `self` ahead of `reference`.
    fn after(&self, reference: &Self) -> Self {
        Self {
            offset: self.offset + reference.ahead(self.moment - self.offset),
            drift: self.drift + reference.drift,
            moment: self.moment,
            uncertainty: self.uncertainty.saturating_add(reference.uncertainty),
            group: reference.group,
        }
    }

    fn before(&self) -> Self {
        Self { offset: -self.offset, drift: -self.drift, ..*self }
    }
}

/// How one clock differs from another.
struct Edge {
    from: usize,
    to: usize,
    clock: RankClock,
}

/// Times of a trace on a common scale: since the earliest zero of all clocks, before any alignment.
pub(crate) fn bases(traces: &[RankTrace]) -> Vec<i64> {
    let is_known = traces.iter().all(|trace| trace.origin.is_some());
    let first = traces.iter().filter_map(|trace| trace.origin).min().unwrap_or(0);
    traces.iter().map(|trace| if is_known { trace.origin.unwrap_or(first) - first } else { 0 }).collect()
}

/// Aligns the clocks of all ranks.
pub(crate) fn clocks(traces: &[RankTrace], bases: &[i64], matched: &Matched) -> Vec<RankClock> {
    let mut edges = same_clock(traces);
    edges.extend(measured(traces, bases, matched));
    edges.sort_by_key(|edge| edge.clock.uncertainty);
    // The tree of the most certain differences.
    let mut roots: Vec<usize> = (0..traces.len()).collect();
    let mut tree: Vec<Vec<(usize, RankClock)>> = vec![Vec::new(); traces.len()];
    for edge in edges {
        let (one, other) = (root(&mut roots, edge.from), root(&mut roots, edge.to));
        if one != other {
            roots[one.max(other)] = one.min(other);
            tree[edge.from].push((edge.to, edge.clock));
            tree[edge.to].push((edge.from, edge.clock.before()));
        }
    }
    let mut clocks: Vec<Option<RankClock>> = vec![None; traces.len()];
    for start in 0..traces.len() {
        if clocks[start].is_some() {
            continue;
        }
        clocks[start] = Some(RankClock { group: start as u32, ..RankClock::default() });
        let mut open = vec![start];
        while let Some(at) = open.pop() {
            let reference = clocks[at].unwrap_or_default();
            for (next, clock) in &tree[at] {
                if clocks[*next].is_none() {
                    clocks[*next] = Some(clock.after(&reference));
                    open.push(*next);
                }
            }
        }
    }
    clocks.into_iter().flatten().collect()
}

fn root(roots: &mut [usize], mut at: usize) -> usize {
    while roots[at] != at {
        roots[at] = roots[roots[at]];
        at = roots[at];
    }
    at
}

/// Ranks of one file or of one host share a clock.
fn same_clock(traces: &[RankTrace]) -> Vec<Edge> {
    let mut first: HashMap<(Option<&str>, usize), usize> = HashMap::new();
    let mut edges = Vec::new();
    for (to, trace) in traces.iter().enumerate() {
        let file = if trace.host.is_some() { 0 } else { trace.file };
        let from = *first.entry((trace.host.as_deref(), file)).or_insert(to);
        if from != to {
            edges.push(Edge { from, to, clock: RankClock::default() });
        }
    }
    edges
}

/// The end of a collective on one rank: when, how much later than on the reference, and its shortest duration.
type Sample = (i64, i64, u64);

fn measured(traces: &[RankTrace], bases: &[i64], matched: &Matched) -> Vec<Edge> {
    let mut samples: HashMap<(u32, u32), Vec<Sample>> = HashMap::new();
    for instance in matched.instances.iter().filter(|instance| instance.kind.is_symmetric()) {
        let calls = matched.calls(instance);
        let call = |(rank, call): (u32, u32)| &traces[rank as usize].calls[call as usize];
        let end = |of: (u32, u32)| bases[of.0 as usize] + call(of).end as i64;
        let shortest = calls.iter().map(|of| call(*of).end - call(*of).start).min().unwrap_or(0);
        let Some((first, others)) = calls.split_first() else { continue };
        for other in others.iter().filter(|other| other.0 != first.0) {
            let pair = samples.entry((first.0, other.0)).or_default();
            pair.push((end(*other), end(*other) - end(*first), shortest));
        }
    }
    samples.into_iter().map(|((from, to), samples)| edge(from as usize, to as usize, samples)).collect()
}

/// The fewest collectives that show a drift.
const LEAST_FOR_DRIFT: usize = 8;

/// The fewest collectives to use, if there are as many.
const LEAST_USED: usize = 3;

/// The difference of two clocks from the shortest collectives: those up to half as long again as the shortest one.
fn edge(from: usize, to: usize, mut samples: Vec<Sample>) -> Edge {
    samples.sort_unstable_by_key(|(_, _, shortest)| *shortest);
    let longest = samples.first().map_or(0, |(_, _, shortest)| shortest + shortest / 2);
    let used = samples.partition_point(|(_, _, shortest)| *shortest <= longest);
    samples.truncate(used.max(LEAST_USED));
    let uncertainty = samples[samples.len() / 2].2;
    samples.sort_unstable();
    let middle = |samples: &[Sample]| {
        let of = |value: fn(&Sample) -> i64| {
            let base = samples.first().map_or(0, value);
            base + median_of(samples.iter().map(|sample| (value(sample) - base) as f64)).unwrap_or(0.0) as i64
        };
        (of(|sample| sample.0), of(|sample| sample.1))
    };
    let (moment, offset) = middle(&samples);
    let mut clock = RankClock { offset, drift: 0.0, moment, uncertainty, group: 0 };
    if samples.len() >= LEAST_FOR_DRIFT {
        let (early, late) = samples.split_at(samples.len() / 2);
        let (early, late) = (middle(early), middle(late));
        if late.1.abs_diff(early.1) > uncertainty && late.0 > early.0 {
            clock.drift = (late.1 - early.1) as f64 / (late.0 - early.0) as f64;
            (clock.moment, clock.offset) = (i64::midpoint(early.0, late.0), i64::midpoint(early.1, late.1));
        }
    }
    // No claim below the uncertainty.
    if clock.drift == 0.0 && offset.unsigned_abs() <= uncertainty {
        clock.offset = 0;
    }
    Edge { from, to, clock }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_drift_is_corrected() {
        let samples: Vec<Sample> =
            (0..64).map(|at| (1_000_000_000 * at, 5_000_000_000 + 20_000 * at, 10_000)).collect();
        let Edge { clock, .. } = edge(0, 1, samples);
        for second in [0, 10, 63] {
            let time = 1_000_000_000 * second;
            assert!((clock.ahead(time) - (5_000_000_000 + 20_000 * second)).abs() <= 20_000, "{clock:?}");
        }
    }

    #[test]
    fn a_difference_below_the_uncertainty_is_ignored() {
        let of = |offset: i64| edge(0, 1, vec![(0, offset, 10_000); 4]).clock.offset;
        assert_eq!((of(9_000), of(-10_000), of(50_000)), (0, 0, 50_000));
    }

    #[test]
    fn differences_add_up_along_a_chain_of_ranks() {
        let one = RankClock { offset: 100, uncertainty: 5, ..RankClock::default() };
        let two = RankClock { offset: -30, uncertainty: 7, ..RankClock::default() };
        let both = two.after(&one);
        assert_eq!((both.offset, both.uncertainty, both.aligned(1_000)), (70, 12, 930));
    }
}
