//! Which rank is a straggler, and which link is slow.

use std::collections::{BTreeMap, HashMap};

use laptime_stats::spread::{mad, median, median_of};

use super::measure::{Measured, StepCost};
use super::rank::{RankPart, RankTrace};
use super::{collective::CollectiveKind, matching::Matched};

/// A straggler or a slow link costs at least this share of a step.
pub const LEAST_COST: f64 = 0.01;

/// A straggler is later than the median rank by this many robust standard deviations, among at least
/// [`LEAST_RANKS`] ranks.
pub const STRAGGLER_DISTANCE: f64 = 5.0;

/// With fewer ranks their spread is not known.
pub const LEAST_RANKS: usize = 8;

/// A slow link makes the same transfer take this many times as long as on the median communicator.
pub const SLOW_LINK: f64 = 1.25;

/// The fewest communicators with the same kind, size and bytes to compare.
pub const LEAST_COMMUNICATORS: usize = 3;

/// A rank that others wait for because of its own delays.
#[derive(Debug, Clone, PartialEq)]
pub struct Straggler {
    /// The rank, by index.
    pub rank: u32,
    /// In how many steps it was late.
    pub steps: u64,
    /// Of how many.
    pub of_steps: u64,
    /// Whether it is late in most steps.
    pub recurs: bool,
    /// How late per step, in nanoseconds.
    pub late: f64,
    /// What the other ranks lose per step because of it, in nanoseconds.
    pub cost: f64,
    /// Where it is most late: communicator by index, and kind.
    pub at: Option<(u32, CollectiveKind)>,
    /// At how many collectives it arrived last, and at how many of its collectives any rank was late.
    pub last: (u64, u64),
    /// What takes longer than on other ranks, and its share of the additional time.
    pub part: Option<(RankPart, f64)>,
    /// Its compute before these collectives / that of the median rank.
    pub compute: Option<f64>,
    /// The same of the number of kernels.
    pub kernels: Option<f64>,
}

/// A communicator whose transfers are slower than the same ones of others.
#[derive(Debug, Clone, PartialEq)]
pub struct SlowLink {
    /// The communicator, by index.
    pub communicator: u32,
    /// Sender and receiver, for sends between two ranks.
    pub kind: CollectiveKind,
    /// The bytes.
    pub bytes: Option<u64>,
    /// The ranks that share the slow transfers.
    pub ranks: Vec<u32>,
    /// The rank that all its slow communicators have in common, if there are several.
    pub rank: Option<u32>,
    /// The median transfer, in nanoseconds.
    pub transfer: f64,
    /// The median transfer of all such communicators.
    pub usual: f64,
    /// What it costs per step, in nanoseconds.
    pub cost: f64,
}

/// The length of a step: the median over ranks and steps, in nanoseconds. Without steps, the whole recording.
pub(crate) fn step_length(traces: &[RankTrace]) -> Option<f64> {
    let of_rank = |trace: &RankTrace| trace.median_step().or((trace.window > 0).then_some(trace.window as f64));
    median_of(traces.iter().filter_map(of_rank))
}

/// The scaled median absolute deviation. It is 0 if most values are equal: other limits decide then.
fn robust_std(values: &[f64]) -> f64 {
    1.4826 * mad(values).unwrap_or(0.0)
}

/// The mean over the steps.
pub(crate) fn per_step(costs: &[StepCost], of: fn(&StepCost) -> f64) -> f64 {
    costs.iter().map(of).sum::<f64>() / costs.len().max(1) as f64
}

/// Finds the stragglers, the most expensive first.
pub(crate) fn stragglers(measured: &Measured, step: f64, uncertainty: u64) -> Vec<Straggler> {
    let late: Vec<f64> = measured.costs.iter().map(|costs| per_step(costs, |cost| cost.late)).collect();
    let usual = median(&late).unwrap_or(0.0);
    let spread = if late.len() < LEAST_RANKS { 0.0 } else { robust_std(&late) };
    let usual = if late.len() < LEAST_RANKS { 0.0 } else { usual };
    let limit = (LEAST_COST * step).max(STRAGGLER_DISTANCE * spread).max(uncertainty as f64);
    let is_straggler = |rank: &usize| late[*rank] - usual > limit;
    let mut found: Vec<Straggler> = (0..late.len())
        .filter(is_straggler)
        .map(|rank| straggler(measured, rank, limit))
        .filter(|straggler| straggler.cost >= LEAST_COST * step)
        .collect();
    found.sort_by(|one, other| other.cost.total_cmp(&one.cost));
    found
}

fn straggler(measured: &Measured, rank: usize, limit: f64) -> Straggler {
    let (costs, lateness) = (&measured.costs[rank], &measured.lateness[rank]);
    let steps = costs.iter().filter(|cost| cost.late > limit).count();
    let more: f64 = lateness.more.iter().sum();
    let most = RankPart::ALL.into_iter().max_by(|one, other| {
        lateness.more[*one as usize].total_cmp(&lateness.more[*other as usize]).then(other.cmp(one))
    });
    let ratio = |own: f64, usual: f64| (usual > 0.0).then(|| own / usual);
    Straggler {
        rank: rank as u32,
        steps: steps as u64,
        of_steps: costs.len() as u64,
        recurs: 2 * steps > costs.len(),
        late: per_step(costs, |cost| cost.late),
        cost: per_step(costs, |cost| cost.cost),
        at: lateness.at.iter().max_by(|one, other| one.1.total_cmp(other.1)).map(|(at, _)| *at),
        last: measured.last[rank],
        part: most.filter(|_| more > 0.0).map(|part| (part, lateness.more[part as usize] / more)),
        compute: ratio(lateness.compute, lateness.usual_compute),
        kernels: ratio(lateness.kernels as f64, lateness.usual_kernels as f64),
    }
}

/// Transfers that can be compared: kind, ranks, bytes.
type Class = (CollectiveKind, u32, Option<u64>);

/// Transfers by communicator, and by pair of ranks where each pair uses its own link.
type Transfers = BTreeMap<(u32, Vec<u32>), Vec<f64>>;

/// Finds communicators with slow transfers, the most expensive first.
///
/// A transfer is the shortest duration of a collective on any rank, so stragglers and clocks do not matter.
pub(crate) fn slow_links(traces: &[RankTrace], matched: &Matched, measured: &Measured, step: f64) -> Vec<SlowLink> {
    let mut classes: BTreeMap<Class, Transfers> = BTreeMap::new();
    for (instance, collective) in std::iter::zip(&matched.instances, &measured.collectives) {
        let communicator = &matched.communicators[collective.communicator as usize];
        let is_whole = communicator.size.is_none_or(|size| size == collective.ranks) || instance.kind.is_between_two();
        if is_whole && collective.ranks > 1 {
            let rank = |at: u32| traces[at as usize].rank.unwrap_or(at);
            // Pairs of ranks within one communicator use different links.
            let ranks = if instance.kind.is_between_two() {
                matched.calls(instance).iter().map(|(at, _)| rank(*at)).collect()
            } else {
                Vec::new()
            };
            let class = (collective.kind, collective.ranks, collective.bytes);
            let transfers = classes.entry(class).or_default().entry((collective.communicator, ranks)).or_default();
            transfers.push(collective.transfer as f64);
        }
    }
    let steps = measured.costs.first().map_or(1, Vec::len).max(1) as f64;
    let mut found = Vec::new();
    for ((kind, _, bytes), communicators) in classes.iter().filter(|(_, all)| all.len() >= LEAST_COMMUNICATORS) {
        let medians: Vec<f64> = communicators.values().filter_map(|transfers| median(transfers)).collect();
        let Some(usual) = median(&medians) else { continue };
        let spread = robust_std(&medians);
        for (((communicator, pair), transfers), transfer) in std::iter::zip(communicators, medians) {
            let cost = (transfer - usual) * transfers.len() as f64 / steps;
            let is_slow = transfer > SLOW_LINK * usual && transfer - usual > STRAGGLER_DISTANCE * spread;
            if is_slow {
                let members = matched.communicators[*communicator as usize].members.clone().unwrap_or_default();
                let ranks = if pair.is_empty() { members } else { pair.clone() };
                let (communicator, kind, bytes) = (*communicator, *kind, *bytes);
                found.push(SlowLink { communicator, kind, bytes, ranks, rank: None, transfer, usual, cost });
            }
        }
    }
    named_by_rank(merged(found), step)
}

/// One entry per communicator and pair, with the cost of all its slow transfers. The most expensive one represents them.
fn merged(mut found: Vec<SlowLink>) -> Vec<SlowLink> {
    found.sort_by(|one, other| other.cost.total_cmp(&one.cost));
    let mut links: Vec<SlowLink> = Vec::new();
    let mut places: HashMap<(u32, Vec<u32>), usize> = HashMap::new();
    for link in found {
        let place = *places.entry((link.communicator, link.ranks.clone())).or_insert(links.len());
        match links.get_mut(place) {
            None => links.push(link),
            Some(known) => known.cost += link.cost,
        }
    }
    links
}

/// Several slow communicators that meet in one rank are one fault: the links of that rank.
fn named_by_rank(mut links: Vec<SlowLink>, step: f64) -> Vec<SlowLink> {
    links.retain(|link| link.cost >= LEAST_COST * step);
    links.sort_by(|one, other| other.cost.total_cmp(&one.cost));
    let mut counts: HashMap<u32, u64> = HashMap::new();
    links.iter().flat_map(|link| &link.ranks).for_each(|rank| *counts.entry(*rank).or_default() += 1);
    let most = |link: &SlowLink| {
        let shared = link.ranks.iter().map(|rank| (counts[rank], *rank)).filter(|(count, _)| *count > 1);
        let best = shared.clone().map(|(count, _)| count).max()?;
        // If several ranks are in the same slow communicators, none of them is singled out.
        let mut best = shared.filter(|(count, _)| *count == best);
        let first = best.next()?;
        best.next().is_none().then_some(first.1)
    };
    let named: Vec<Option<u32>> = links.iter().map(most).collect();
    let mut kept: Vec<SlowLink> = Vec::new();
    for (mut link, rank) in std::iter::zip(links, named) {
        link.rank = rank;
        match kept.iter_mut().find(|known| rank.is_some() && known.rank == rank) {
            Some(known) => known.cost += link.cost,
            None => kept.push(link),
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_expensive_transfer_of_a_pair_represents_it() {
        let link = |bytes: u64, cost: f64| SlowLink {
            communicator: 0,
            kind: CollectiveKind::AllReduce,
            bytes: Some(bytes),
            ranks: vec![0, 1],
            rank: None,
            transfer: 2.0,
            usual: 1.0,
            cost,
        };
        let links = merged(vec![link(1, 2.0), link(2, 2.0), link(3, 3.0)]);
        assert_eq!(links, [link(3, 7.0)]);
    }
}
