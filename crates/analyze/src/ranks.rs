//! The ranks of a job compared: which one is late, which collective waits for it, and whether the network is slow.

mod clocks;
mod collective;
mod findings;
mod inputs;
mod matching;
mod measure;
mod pipeline;
mod rank;
mod words;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};

use laptime_stats::spread::{median, median_of};

use self::clocks::{bases, clocks};
pub(crate) use self::collective::{Describer, communication};
use self::findings::{per_step, slow_links, step_length, stragglers};
use self::matching::{Matched, matched};
use self::measure::{Measured, measure};
pub use self::{
    clocks::RankClock,
    collective::{CollectiveKind, Communicator, RankCollective, ranges, rank_collectives},
    findings::{LEAST_COMMUNICATORS, LEAST_COST, LEAST_RANKS, SLOW_LINK, STRAGGLER_DISTANCE, SlowLink, Straggler},
    measure::MatchedCollective,
    pipeline::{Pipeline, PipelineStage, STAGE_IMBALANCE},
    rank::{RankPart, RankParts, RankStep, RankTrace},
};
use self::{inputs::chosen, pipeline::pipeline};
use crate::note::Note;

/// The ranks of a job compared. Times are nanoseconds.
#[derive(Debug, Clone, PartialEq)]
pub struct Ranks {
    /// One row per rank, in order.
    pub ranks: Vec<RankRow>,
    /// Collectives of the same communicators, kind and bytes together, those with the most time first.
    pub classes: Vec<CollectiveClass>,
    /// Every matched collective.
    pub collectives: Vec<MatchedCollective>,
    /// The communicators that collectives refer to.
    pub communicators: Vec<Communicator>,
    /// The numbers of the compared steps.
    pub steps: Vec<u64>,
    /// The length of a step; none if nothing was recorded.
    pub step: Option<f64>,
    /// Stragglers, the most expensive first.
    pub stragglers: Vec<Straggler>,
    /// Slow links, the most expensive first.
    pub slow_links: Vec<SlowLink>,
    /// The pipeline, if ranks send and receive.
    pub pipeline: Option<Pipeline>,
    /// The median rank's exposed time per step of waiting for late ranks.
    pub waiting: f64,
    /// The median rank's exposed transfer time per step.
    pub transfer: f64,
    /// Collectives by which clocks were aligned.
    pub aligning: u64,
    /// What is wrong with the input.
    pub notes: Vec<Note>,
}

/// One rank.
#[derive(Debug, Clone, PartialEq)]
pub struct RankRow {
    /// The file, and the device if the file has several.
    pub label: String,
    /// The rank.
    pub rank: Option<u32>,
    /// Its steps.
    pub steps: Vec<RankStep>,
    /// The median step; the whole recording if it has no steps.
    pub step: f64,
    /// Its time per step by part.
    pub parts: RankParts,
    /// Exposed waiting for late ranks per step.
    pub waiting: f64,
    /// How late it is per step because of its own delays.
    pub late: f64,
    /// At how many collectives it arrived last.
    pub last: u64,
    /// Its communication kernels.
    pub kernels: u64,
    /// The time in which communication ran.
    pub communication: u64,
    /// Its clock.
    pub clock: RankClock,
}

/// Collectives of the same communicators, kind and bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct CollectiveClass {
    /// What the communicators are for.
    pub title: String,
    /// How many communicators.
    pub communicators: u64,
    /// What it is.
    pub kind: CollectiveKind,
    /// The ranks of a communicator.
    pub size: u32,
    /// The message as NCCL counts it.
    pub bytes: Option<u64>,
    /// How many.
    pub count: u64,
    /// The median time from the first arrival to the last; none if clocks are not aligned.
    pub skew: Option<f64>,
    /// The median transfer.
    pub transfer: f64,
    /// The limit of the link in GB/s, where it is known.
    pub limit: Option<f64>,
    /// The rank that arrived last most often, by index, and its share.
    pub last: Option<(u32, f64)>,
    total: f64,
}

impl CollectiveClass {
    /// Algorithm bandwidth in GB/s: bytes / transfer.
    pub fn algorithm_gb_s(&self) -> Option<f64> {
        self.bytes.filter(|_| self.transfer > 0.0).map(|bytes| bytes as f64 / self.transfer)
    }

    /// Bus bandwidth in GB/s, as nccl-tests define it.
    pub fn bus_gb_s(&self) -> Option<f64> {
        Some(self.algorithm_gb_s()? * self.kind.bus_factor(u64::from(self.size))?)
    }
}

/// Compares ranks. `link` is the limit of the links in GB/s, if the user knows it.
pub fn ranks(traces: Vec<RankTrace>, link: Option<f64>) -> Ranks {
    let mut notes = Vec::new();
    let traces = chosen(traces, &mut notes);
    let mut matched = matched(&traces, &mut notes);
    let bases = bases(&traces);
    let clocks = clocks(&traces, &bases, &matched);
    matched.leave_out_implausible(&traces, &bases, &clocks, &mut notes);
    note_clocks(&traces, &clocks, &mut notes);
    let measured = measure(&traces, &bases, &clocks, &matched);
    let step = step_length(&traces);
    let uncertainty = clocks.iter().map(|clock| clock.uncertainty).max().unwrap_or(0);
    let whole = step.unwrap_or(0.0);
    let middle = |of: fn(&measure::StepCost) -> f64| {
        median_of(measured.costs.iter().map(|costs| per_step(costs, of))).unwrap_or(0.0)
    };
    Ranks {
        classes: classes(&traces, &matched, &measured, link),
        stragglers: stragglers(&measured, whole, uncertainty),
        slow_links: slow_links(&traces, &matched, &measured, whole),
        pipeline: pipeline(&traces),
        waiting: middle(|cost| cost.waited),
        transfer: middle(|cost| cost.transfer),
        aligning: matched.instances.iter().filter(|one| one.kind.is_symmetric() && matched.calls(one).len() > 1).count()
            as u64,
        steps: measured.steps.clone(),
        step,
        ranks: rows(traces, &clocks, &measured),
        collectives: measured.collectives,
        communicators: matched.communicators,
        notes,
    }
}

fn rows(traces: Vec<RankTrace>, clocks: &[RankClock], measured: &Measured) -> Vec<RankRow> {
    let row = |(at, trace): (usize, RankTrace)| {
        let count = trace.steps.len().max(1) as f32;
        RankRow {
            step: trace.median_step().unwrap_or(trace.window as f64),
            parts: if trace.steps.is_empty() { trace.parts } else { sum(&trace.steps).map(|time| time / count) },
            waiting: per_step(&measured.costs[at], |cost| cost.waited),
            late: per_step(&measured.costs[at], |cost| cost.late),
            last: measured.last[at].0,
            clock: clocks[at],
            label: trace.label,
            rank: trace.rank,
            steps: trace.steps,
            kernels: trace.kernels,
            communication: trace.communication,
        }
    };
    traces.into_iter().enumerate().map(row).collect()
}

fn sum(steps: &[RankStep]) -> RankParts {
    let add = |sum: RankParts, step: &RankStep| std::array::from_fn(|at| sum[at] + step.parts[at]);
    steps.iter().fold(RankParts::default(), add)
}

type Class = (String, CollectiveKind, u32, Option<u64>);

fn classes(traces: &[RankTrace], matched: &Matched, measured: &Measured, link: Option<f64>) -> Vec<CollectiveClass> {
    let mut classes: BTreeMap<Class, Vec<usize>> = BTreeMap::new();
    for (at, collective) in measured.collectives.iter().enumerate() {
        let communicator = &matched.communicators[collective.communicator as usize];
        let size = if collective.kind.is_between_two() { 2 } else { communicator.size.unwrap_or(collective.ranks) };
        let class = (communicator.title().to_owned(), collective.kind, size, collective.bytes);
        classes.entry(class).or_default().push(at);
    }
    let mut found: Vec<CollectiveClass> = Vec::with_capacity(classes.len());
    for ((title, kind, size, bytes), members) in classes {
        let of = || members.iter().map(|at| &measured.collectives[*at]);
        let skews: Vec<f64> = of().filter_map(|one| one.skew).map(|skew| skew as f64).collect();
        let transfers: Vec<f64> = of().map(|one| one.transfer as f64).collect();
        let mut communicators: Vec<u32> = of().map(|one| one.communicator).collect();
        communicators.sort_unstable();
        communicators.dedup();
        let limits = || communicators.iter().map(|at| link_limit(traces, &matched.communicators[*at as usize]));
        found.push(CollectiveClass {
            total: skews.iter().chain(&transfers).sum(),
            communicators: communicators.len() as u64,
            count: members.len() as u64,
            skew: median(&skews),
            transfer: median(&transfers).unwrap_or(0.0),
            limit: link.or_else(|| limits().reduce(|one, other| if one == other { one } else { None }).flatten()),
            last: most_often(of().filter_map(|one| one.last), members.len()),
            title,
            kind,
            size,
            bytes,
        });
    }
    found.sort_by(|one, other| other.total.total_cmp(&one.total));
    found
}

fn most_often(last: impl Iterator<Item = u32>, of: usize) -> Option<(u32, f64)> {
    let mut counts: HashMap<u32, usize> = HashMap::new();
    last.for_each(|rank| *counts.entry(rank).or_default() += 1);
    let (rank, count) = counts.into_iter().max_by_key(|(rank, count)| (*count, std::cmp::Reverse(*rank)))?;
    Some((rank, count as f64 / of as f64))
}

/// GB/s in one direction over all links of a GPU to the others of its host.
const HOST_LINKS: [(&str, f64); 8] = [
    ("GB200", 900.0),
    ("B200", 900.0),
    ("H200", 450.0),
    ("H100 80GB HBM3", 450.0),
    ("H100 SXM", 450.0),
    ("A100-SXM", 300.0),
    ("V100-SXM", 150.0),
    ("MI300X", 448.0),
];

/// The limit of the links within a host, if all ranks of a communicator are known to be on one.
fn link_limit(traces: &[RankTrace], communicator: &Communicator) -> Option<f64> {
    let members = communicator.members.as_ref()?;
    let at = |rank: &u32| traces.iter().find(|trace| trace.rank == Some(*rank));
    let first = at(members.first()?)?;
    let (host, gpu) = (first.host.as_ref()?, first.gpu.as_ref()?);
    let is_on_host = |rank: &u32| at(rank).is_some_and(|trace| trace.host.as_ref() == Some(host));
    members
        .iter()
        .all(is_on_host)
        .then(|| HOST_LINKS.iter().find(|(name, _)| gpu.contains(name)).map(|(_, rate)| *rate))?
}

/// Ranks whose clocks could not be aligned.
fn note_clocks(traces: &[RankTrace], clocks: &[RankClock], notes: &mut Vec<Note>) {
    let mut groups: HashMap<u32, usize> = HashMap::new();
    clocks.iter().for_each(|clock| *groups.entry(clock.group).or_default() += 1);
    let Some((&largest, &count)) = groups.iter().max_by_key(|(group, count)| (**count, std::cmp::Reverse(**group)))
    else {
        return;
    };
    let has_calls = traces.iter().any(|trace| !trace.calls.is_empty());
    if groups.len() > 1 && has_calls {
        let apart: Vec<u32> = std::iter::zip(traces, clocks)
            .filter(|(_, clock)| clock.group != largest || count == 1)
            .filter_map(|(trace, _)| trace.rank)
            .collect();
        let text = format!(
            "the clocks of ranks {} could not be aligned: they share no all-reduce, all-gather, reduce-scatter or barrier \
             with the others, so their skew is not given",
            ranges(&apart)
        );
        notes.push(Note::new("ranks-clocks", text));
    }
}
