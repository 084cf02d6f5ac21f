//! Pipeline stages: who sends to whom, how much each stage computes, and how long it waits for its neighbours.

use std::collections::HashMap;

use laptime_stats::spread::{median, median_of};

use super::collective::CollectiveKind;
use super::rank::{RankPart, RankTrace};

/// A stage that computes this much longer than the median stage is an imbalance.
pub const STAGE_IMBALANCE: f64 = 1.1;

/// The stages of a pipeline.
#[derive(Debug, Clone, PartialEq)]
pub struct Pipeline {
    /// The stages from the first to the last.
    pub stages: Vec<PipelineStage>,
    /// The share of a step that the median rank spends in exposed sends and receives.
    pub bubble: f64,
}

/// One stage.
#[derive(Debug, Clone, PartialEq)]
pub struct PipelineStage {
    /// Its ranks.
    pub ranks: Vec<u32>,
    /// The median compute per step, in nanoseconds.
    pub compute: f64,
    /// The median exposed time per step in sends and receives.
    pub waiting: f64,
}

impl Pipeline {
    /// The stage that computes longest, if it is an imbalance, and the median of all stages.
    pub fn slowest(&self) -> Option<(usize, f64)> {
        let compute: Vec<f64> = self.stages.iter().map(|stage| stage.compute).collect();
        let usual = median(&compute)?;
        let (at, most) = compute.into_iter().enumerate().max_by(|one, other| one.1.total_cmp(&other.1))?;
        (self.stages.len() > 1 && usual > 0.0 && most > STAGE_IMBALANCE * usual).then_some((at, usual))
    }
}

/// Finds the stages: a rank whose first transfer is a receive comes after the rank that it receives from.
pub(crate) fn pipeline(traces: &[RankTrace]) -> Option<Pipeline> {
    let is_known = |kind| matches!(kind, CollectiveKind::Send | CollectiveKind::Recv);
    let first = |trace: &RankTrace| {
        let call = trace.calls.iter().find(|call| is_known(call.kind) && call.peer.is_some())?;
        Some((trace.rank?, (call.kind == CollectiveKind::Recv).then_some(call.peer).flatten()))
    };
    let before: HashMap<u32, Option<u32>> = traces.iter().filter_map(first).collect();
    if before.len() < 2 || before.values().all(Option::is_none) {
        return None;
    }
    let depth = |rank: u32| {
        let chain = std::iter::successors(Some(rank), |rank| before.get(rank).copied().flatten());
        // Damaged files can contain circles.
        chain.take(before.len()).count() - 1
    };
    let mut stages: Vec<Vec<&RankTrace>> = Vec::new();
    for trace in traces.iter().filter(|trace| trace.rank.is_some_and(|rank| before.contains_key(&rank))) {
        let at = depth(trace.rank.unwrap_or(0));
        stages.resize_with(stages.len().max(at + 1), Vec::new);
        stages[at].push(trace);
    }
    let bubble = median_of(stages.iter().flatten().map(|trace| share_waiting(trace)))?;
    let stages: Vec<PipelineStage> =
        stages.iter().filter(|stage| !stage.is_empty()).map(|ranks| stage(ranks)).collect();
    Some(Pipeline { stages, bubble })
}

fn stage(ranks: &[&RankTrace]) -> PipelineStage {
    let compute = |trace: &&RankTrace| f64::from(trace.parts[RankPart::Compute as usize]) / steps(trace);
    let mut named: Vec<u32> = ranks.iter().filter_map(|trace| trace.rank).collect();
    named.sort_unstable();
    PipelineStage {
        ranks: named,
        compute: median_of(ranks.iter().map(compute)).unwrap_or(0.0),
        waiting: median_of(ranks.iter().map(|trace| waiting(trace) / steps(trace))).unwrap_or(0.0),
    }
}

fn steps(trace: &RankTrace) -> f64 {
    trace.steps.len().max(1) as f64
}

/// The exposed time in sends and receives.
fn waiting(trace: &RankTrace) -> f64 {
    let calls = trace.calls.iter().filter(|call| call.kind.is_between_two());
    calls.map(|call| ((call.end - call.start) as f64 - f64::from(call.hidden)).max(0.0)).sum()
}

fn share_waiting(trace: &RankTrace) -> f64 {
    if trace.window == 0 { 0.0 } else { waiting(trace) / trace.window as f64 }
}
