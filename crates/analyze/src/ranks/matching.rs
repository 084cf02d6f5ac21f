//! The same collective on several ranks: one communicator, one sequence number.

use std::collections::HashMap;

use super::clocks::RankClock;
use super::collective::{CollectiveKind, Communicator};
use super::rank::{Call, RankTrace};
use crate::note::{Note, plural};

/// A collective on all ranks that recorded it.
#[derive(Debug, Clone)]
pub(crate) struct Instance {
    /// The communicator, by index in [`Matched::communicators`].
    pub(crate) communicator: u32,
    pub(crate) kind: CollectiveKind,
    pub(crate) bytes: Option<u64>,
    /// The number of the step.
    pub(crate) step: Option<u64>,
    /// Its calls: from and to in [`Matched::calls`].
    from: u32,
    to: u32,
}

/// All collectives, matched.
#[derive(Debug, Default)]
pub(crate) struct Matched {
    pub(crate) communicators: Vec<Communicator>,
    pub(crate) instances: Vec<Instance>,
    /// Rank and call, by index.
    calls: Vec<(u32, u32)>,
}

impl Matched {
    /// The calls of a collective: rank and call, by index.
    pub(crate) fn calls(&self, instance: &Instance) -> &[(u32, u32)] {
        &self.calls[instance.from as usize..instance.to as usize]
    }
}

/// A call with the key that is the same on every rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Keyed {
    communicator: u32,
    /// Sender and receiver; the largest number for collectives of all ranks.
    pair: u64,
    sequence: u64,
    /// Calls of one rank that share a sequence number are counted: coalesced collectives.
    repeat: u32,
    rank: u32,
    call: u32,
}

impl Keyed {
    fn key(&self) -> (u32, u64, u64, u32) {
        (self.communicator, self.pair, self.sequence, self.repeat)
    }
}

/// How the calls of a communicator are numbered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Numbering {
    /// By the sequence number in the trace.
    Recorded,
    /// By the step and the order within it.
    InStep,
    /// By the order since the start of the recording.
    Order,
}

const COLLECTIVE: u64 = u64::MAX;

/// A communicator on which more than this share of the collectives differ in kind between ranks is not matched.
const MOST_DIFFERENT: f64 = 0.05;

/// Ranks that leave collectives further apart than this share of how far apart they arrive do not wait for each other …
const MOST_APART: f64 = 0.25;

/// … unless it is less than this many nanoseconds.
const NEGLIGIBLE: f64 = 10_000.0;

/// Matches the collectives of all ranks; notes say which communicators could not be matched.
pub(crate) fn matched(traces: &[RankTrace], notes: &mut Vec<Note>) -> Matched {
    let (communicators, ids) = interned(traces);
    let mut numbering = numbering(traces, &ids, communicators.len());
    let is_equal = traces.windows(2).all(|pair| pair[0].calls.len() == pair[1].calls.len());
    for (numbering, _) in numbering.iter_mut().zip(&communicators).filter(|(_, one)| one.is_assumed && is_equal) {
        *numbering = Numbering::Order;
    }
    let mut keyed = Vec::with_capacity(traces.iter().map(|trace| trace.calls.len()).sum());
    for (rank, trace) in traces.iter().enumerate() {
        add_keyed(&mut keyed, rank, trace, &ids[rank], &numbering);
    }
    keyed.sort_unstable();
    let mut found = Matched { communicators, ..Matched::default() };
    let (mut differ, mut all) = (vec![0_u64; found.communicators.len()], vec![0_u64; found.communicators.len()]);
    for group in keyed.chunk_by(|one, next| one.key() == next.key()) {
        let calls = || group.iter().map(|one| (one, &traces[one.rank as usize].calls[one.call as usize]));
        let kind = if group[0].pair == COLLECTIVE {
            group_kind(calls().map(|(_, call)| call.kind))
        } else {
            Some(CollectiveKind::SendRecv)
        };
        let communicator = group[0].communicator;
        all[communicator as usize] += 1;
        let Some(kind) = kind else {
            differ[communicator as usize] += 1;
            continue;
        };
        let step =
            calls().find_map(|(one, call)| Some(traces[one.rank as usize].steps.get(call.step? as usize)?.number));
        let from = found.calls.len() as u32;
        found.calls.extend(group.iter().map(|one| (one.rank, one.call)));
        let bytes = calls().filter_map(|(_, call)| call.bytes).max();
        found.instances.push(Instance { communicator, kind, bytes, step, from, to: found.calls.len() as u32 });
    }
    let is_bad = |at: usize| differ[at] as f64 > MOST_DIFFERENT * all[at] as f64;
    for (at, communicator) in found.communicators.iter().enumerate().filter(|(at, _)| is_bad(*at)) {
        notes.push(Note::new(
            "ranks-unmatched",
            format!(
                "{} of {} collectives of `{}` differ between ranks, so they are not matched",
                differ[at],
                all[at],
                communicator.label()
            ),
        ));
    }
    found.instances.retain(|instance| !is_bad(instance.communicator as usize));
    found
}

/// The communicators of all traces, and the index of each trace's own ones.
fn interned(traces: &[RankTrace]) -> (Vec<Communicator>, Vec<Vec<u32>>) {
    let (mut known, mut found) = (HashMap::new(), Vec::new());
    let mut ids = Vec::with_capacity(traces.len());
    for trace in traces {
        let of_trace = trace.communicators.iter().map(|communicator| {
            *known.entry(communicator.label()).or_insert_with(|| {
                found.push(communicator.clone());
                found.len() as u32 - 1
            })
        });
        ids.push(of_trace.collect());
    }
    (found, ids)
}

impl Matched {
    /// Leaves out collectives of assumed communicators that were not one collective: all its ranks leave it together,
    /// however late each of them arrived.
    pub(crate) fn leave_out_implausible(
        &mut self,
        traces: &[RankTrace],
        bases: &[i64],
        clocks: &[RankClock],
        notes: &mut Vec<Note>,
    ) {
        let is_assumed =
            |matched: &Self, instance: &Instance| matched.communicators[instance.communicator as usize].is_assumed;
        let assumed = || self.instances.iter().filter(|instance| is_assumed(self, instance));
        let (count, mut all) = (assumed().count(), 0_u64);
        let (mut wrong, mut starts, mut ends) = (0_u64, 0.0, 0.0);
        for instance in assumed().filter(|instance| self.calls(instance).len() > 1) {
            let calls = self.calls(instance).iter().map(|&(rank, call)| {
                let (at, call) = (rank as usize, &traces[rank as usize].calls[call as usize]);
                let aligned = |time: u64| clocks[at].aligned(bases[at] + time as i64);
                (aligned(call.start), aligned(call.end), clocks[at].uncertainty)
            });
            let calls: Vec<(i64, i64, u64)> = calls.collect();
            let spread = |of: fn(&(i64, i64, u64)) -> i64| {
                let times = || calls.iter().map(of);
                times().max().unwrap_or(0).abs_diff(times().min().unwrap_or(0))
            };
            let shortest = calls.iter().map(|(start, end, _)| end.abs_diff(*start)).min().unwrap_or(0);
            let uncertainty = calls.iter().map(|call| call.2).max().unwrap_or(0);
            let (start, end) = (spread(|call| call.0), spread(|call| call.1));
            all += 1;
            wrong += u64::from(end > shortest.saturating_add(uncertainty));
            (starts, ends) = (starts + start as f64, ends + end as f64);
        }
        if count == 0 {
            return;
        }
        let is_together = ends <= MOST_APART * starts || ends <= NEGLIGIBLE * all as f64;
        if all > 0 && is_together && wrong as f64 <= MOST_DIFFERENT * all as f64 {
            let text = "the traces name no communicators, so collectives are matched by their order; the ranks leave each \
                        of them together, as ranks of one communicator do";
            notes.push(Note::new("ranks-order", text.to_owned()));
            return;
        }
        let communicators = std::mem::take(&mut self.communicators);
        self.instances.retain(|instance| !communicators[instance.communicator as usize].is_assumed);
        self.communicators = communicators;
        let text = format!(
            "{} have no communicator information, and the ranks do not leave them together, so they are not matched",
            plural(count, "collective", "collectives")
        );
        notes.push(Note::new("ranks-unmatched", text));
    }
}

/// Sequence numbers count only if every rank has them; steps only if every rank has some in common with the first one.
fn numbering(traces: &[RankTrace], ids: &[Vec<u32>], count: usize) -> Vec<Numbering> {
    let mut numbering = vec![Numbering::Recorded; count];
    let has_steps = traces.iter().all(|trace| !trace.steps.is_empty());
    let without = if has_steps { Numbering::InStep } else { Numbering::Order };
    for (trace, ids) in std::iter::zip(traces, ids) {
        for call in trace.calls.iter().filter(|call| call.sequence.is_none()) {
            numbering[ids[call.communicator as usize] as usize] = without;
        }
    }
    numbering
}

fn add_keyed(keyed: &mut Vec<Keyed>, rank: usize, trace: &RankTrace, ids: &[u32], numbering: &[Numbering]) {
    let mut counts: HashMap<(u32, u64, u64), u32> = HashMap::new();
    for (at, call) in trace.calls.iter().enumerate() {
        let communicator = ids[call.communicator as usize];
        let pair = pair(trace.rank, call);
        // A rank counts its sends and receives on its own, so only their order between two ranks is the same.
        let numbering = if pair == COLLECTIVE || numbering[communicator as usize] == Numbering::Order {
            numbering[communicator as usize]
        } else if trace.steps.is_empty() {
            Numbering::Order
        } else {
            Numbering::InStep
        };
        let step = || call.step.and_then(|step| trace.steps.get(step as usize)).map(|step| step.number);
        let sequence = match numbering {
            Numbering::Recorded => call.sequence.unwrap_or(0),
            Numbering::InStep => match step() {
                Some(number) => number,
                // Work before the first step has no counterpart that is certain.
                None => continue,
            },
            Numbering::Order => 0,
        };
        let repeat = counts.entry((communicator, pair, sequence)).or_default();
        keyed.push(Keyed { communicator, pair, sequence, repeat: *repeat, rank: rank as u32, call: at as u32 });
        *repeat += 1;
    }
}

fn pair(rank: Option<u32>, call: &Call) -> u64 {
    let (Some(rank), Some(peer)) = (rank, call.peer) else { return COLLECTIVE };
    let [rank, peer] = [rank, peer].map(u64::from);
    match call.kind {
        CollectiveKind::Send => rank << 32 | peer,
        CollectiveKind::Recv => peer << 32 | rank,
        _ => COLLECTIVE,
    }
}

/// The kind of one collective on several ranks; none if they differ. A send meets a receive.
fn group_kind(mut kinds: impl Iterator<Item = CollectiveKind>) -> Option<CollectiveKind> {
    let first = kinds.next()?;
    let mut kind = first;
    for next in kinds {
        if next == kind {
            continue;
        }
        if !(kind.is_between_two() && next.is_between_two()) {
            return None;
        }
        kind = CollectiveKind::SendRecv;
    }
    Some(kind)
}
