//! Each matched collective in figures: who arrived last, how long the others waited, how long the transfer took.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::matching::{Instance, Matched};
use super::rank::{Call, RankPart, RankParts, RankTrace};
use super::{clocks::RankClock, collective::CollectiveKind};

/// One collective on all its ranks. Times are nanoseconds.
#[derive(Debug, Clone, PartialEq)]
pub struct MatchedCollective {
    /// The communicator, by index.
    pub communicator: u32,
    /// What it is.
    pub kind: CollectiveKind,
    /// The message as NCCL counts it.
    pub bytes: Option<u64>,
    /// The number of its step.
    pub step: Option<u64>,
    /// When the first rank arrived, on the clock of the reference.
    pub start: i64,
    /// The ranks that recorded it.
    pub ranks: u32,
    /// From the first arrival to the last; 0 if it is below the uncertainty, none if clocks are not aligned.
    pub skew: Option<u64>,
    /// The shortest duration on any rank: the transfer, without waiting.
    pub transfer: u64,
    /// The rank that arrived last, by index; none if no rank was later than all others by more than the uncertainty.
    pub last: Option<u32>,
    /// The uncertainty of the skew.
    pub uncertainty: u64,
}

/// What a rank lost or cost in one step, in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct StepCost {
    /// How late it arrived because of its own delays, over all collectives.
    pub(crate) late: f64,
    /// The part of that which is exposed on other ranks.
    pub(crate) cost: f64,
    /// Exposed waiting for other ranks.
    pub(crate) waited: f64,
    /// Exposed transfers.
    pub(crate) transfer: f64,
}

/// What a rank did before collectives at which it was late, and what others did before the same ones.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Lateness {
    /// The time beyond the median rank, by part.
    pub(crate) more: [f64; 7],
    pub(crate) compute: f64,
    pub(crate) usual_compute: f64,
    pub(crate) kernels: u64,
    pub(crate) usual_kernels: u64,
    /// Lateness by communicator and kind.
    pub(crate) at: HashMap<(u32, CollectiveKind), f64>,
}

/// The figures of all collectives.
#[derive(Debug, Default)]
pub(crate) struct Measured {
    pub(crate) collectives: Vec<MatchedCollective>,
    /// The numbers of the steps with collectives, in order; empty if ranks have no steps.
    pub(crate) steps: Vec<u64>,
    /// Per rank and step.
    pub(crate) costs: Vec<Vec<StepCost>>,
    pub(crate) lateness: Vec<Lateness>,
    /// How often each rank arrived last, and at how many collectives it took part in which a last one is known.
    pub(crate) last: Vec<(u64, u64)>,
}

struct Member<'a> {
    rank: u32,
    call: &'a Call,
    start: i64,
}

/// Computes the figures of all collectives.
pub(crate) fn measure(traces: &[RankTrace], bases: &[i64], clocks: &[RankClock], matched: &Matched) -> Measured {
    let numbers: BTreeSet<u64> = matched.instances.iter().filter_map(|instance| instance.step).collect();
    let steps: BTreeMap<u64, usize> = numbers.into_iter().zip(0..).collect();
    let mut found = Measured {
        collectives: Vec::with_capacity(matched.instances.len()),
        costs: vec![vec![StepCost::default(); steps.len().max(1)]; traces.len()],
        lateness: vec![Lateness::default(); traces.len()],
        last: vec![(0, 0); traces.len()],
        steps: steps.keys().copied().collect(),
    };
    let mut members: Vec<Member<'_>> = Vec::new();
    for instance in &matched.instances {
        members.clear();
        members.extend(matched.calls(instance).iter().map(|&(rank, call)| {
            let call = &traces[rank as usize].calls[call as usize];
            let start = clocks[rank as usize].aligned(bases[rank as usize] + call.start as i64);
            Member { rank, call, start }
        }));
        let step = match instance.step {
            Some(number) => steps.get(&number).copied(),
            // Without steps the recording counts as one; with steps, what is outside belongs to none.
            None => steps.is_empty().then_some(0),
        };
        found.add(instance, &members, clocks, step);
    }
    found
}

impl Measured {
    fn add(&mut self, instance: &Instance, members: &[Member<'_>], clocks: &[RankClock], step: Option<usize>) {
        let clock = |member: &Member<'_>| &clocks[member.rank as usize];
        let is_aligned = members.windows(2).all(|pair| clock(&pair[0]).group == clock(&pair[1]).group);
        let uncertainty = members.iter().map(|member| clock(member).uncertainty).max().unwrap_or(0);
        let starts = || members.iter().map(|member| member.start);
        let (first, latest) = (starts().min().unwrap_or(0), starts().max().unwrap_or(0));
        let transfer = members.iter().map(|member| member.call.end - member.call.start).min().unwrap_or(0);
        let skew = is_aligned.then(|| latest.abs_diff(first)).filter(|_| members.len() > 1);
        let skew = skew.map(|skew| if skew > uncertainty { skew } else { 0 });
        let is_skewed = skew.is_some_and(|skew| skew > 0);
        // Ranks that arrive together, such as those that waited for the same rank, are all candidates.
        let is_latest = |member: &&Member<'_>| latest.abs_diff(member.start) <= uncertainty;
        let mut candidates = members.iter().filter(is_latest).filter(|_| is_skewed);
        let last = candidates.next().filter(|_| candidates.next().is_none());
        self.collectives.push(MatchedCollective {
            communicator: instance.communicator,
            kind: instance.kind,
            bytes: instance.bytes,
            step: instance.step,
            start: first,
            ranks: members.len() as u32,
            skew,
            transfer,
            last: last.map(|member| member.rank),
            uncertainty,
        });
        if let Some(last) = last {
            members.iter().for_each(|member| self.last[member.rank as usize].1 += 1);
            self.last[last.rank as usize].0 += 1;
        }
        let Some(step) = step else { return };
        self.add_waits(members, if is_skewed { latest } else { i64::MIN }, step);
        if is_skewed && !instance.kind.is_between_two() {
            self.add_lateness(instance, members, step);
        }
    }

    /// Waiting comes before the transfer. As much of it as possible is taken to be hidden, so the rest is a lower bound.
    fn add_waits(&mut self, members: &[Member<'_>], latest: i64, step: usize) {
        for member in members {
            let length = (member.call.end - member.call.start) as f64;
            let exposed = (length - f64::from(member.call.hidden)).max(0.0);
            let waited = (latest.saturating_sub(member.start)).max(0) as f64;
            let waited = (waited.min(length) - f64::from(member.call.hidden)).max(0.0);
            let cost = &mut self.costs[member.rank as usize][step];
            cost.waited += waited;
            cost.transfer += exposed - waited;
        }
    }

    /// The own delay of a rank is how much its time since its previous collective exceeds that of the median rank.
    /// Waiting in that previous collective does not count.
    fn add_lateness(&mut self, instance: &Instance, members: &[Member<'_>], step: usize) {
        let Some(usual) = lower_median(members.iter().filter_map(|member| member.call.own)) else { return };
        let Some(middle) = lower_median(members.iter().map(|member| member.start)) else { return };
        let hidden = lower_median(members.iter().map(|member| member.call.hidden as u64)).unwrap_or(0) as f64;
        let mut reference: Option<(RankParts, u32)> = None;
        for member in members {
            let Some(own) = member.call.own else { continue };
            let late = (own.saturating_sub(usual) as i64).min(member.start - middle);
            if late <= 0 {
                continue;
            }
            let late = late as f64;
            let cost = &mut self.costs[member.rank as usize][step];
            cost.late += late;
            cost.cost += (late - hidden).max(0.0);
            let (parts, kernels) = *reference.get_or_insert_with(|| usual_before(members));
            self.lateness[member.rank as usize].add(instance, member.call, late, &parts, kernels);
        }
    }
}

impl Lateness {
    fn add(&mut self, instance: &Instance, call: &Call, late: f64, usual: &RankParts, kernels: u32) {
        for (more, (own, usual)) in self.more.iter_mut().zip(call.before.iter().zip(usual)) {
            *more += f64::from(own - usual).max(0.0);
        }
        let compute = RankPart::Compute as usize;
        self.compute += f64::from(call.before[compute]);
        self.usual_compute += f64::from(usual[compute]);
        self.kernels += u64::from(call.kernels);
        self.usual_kernels += u64::from(kernels);
        *self.at.entry((instance.communicator, instance.kind)).or_default() += late;
    }
}

/// The median of what the ranks did before a collective, part by part, and of the kernels that they ran.
fn usual_before(members: &[Member<'_>]) -> (RankParts, u32) {
    let calls = || members.iter().map(|member| member.call).filter(|call| call.own.is_some());
    let part = |at: usize| lower_median(calls().map(|call| call.before[at] as u64)).unwrap_or(0) as f32;
    (std::array::from_fn(part), lower_median(calls().map(|call| call.kernels)).unwrap_or(0))
}

/// The median, or the smaller of the two middle ones: of two ranks, the faster one is the reference.
pub(crate) fn lower_median<T: Ord + Copy>(values: impl Iterator<Item = T>) -> Option<T> {
    let mut values: Vec<T> = values.collect();
    let middle = values.len().checked_sub(1)? / 2;
    Some(*values.select_nth_unstable(middle).1)
}

#[cfg(test)]
mod tests {
    use super::lower_median;

    #[test]
    fn the_median_of_two_is_the_smaller_one() {
        assert_eq!(lower_median([7, 3].into_iter()), Some(3));
        assert_eq!(lower_median([9, 1, 4].into_iter()), Some(4));
        assert_eq!(lower_median(std::iter::empty::<u64>()), None);
    }
}
