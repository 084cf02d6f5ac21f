//! The sequence of kernels that repeats, found without any mark.

use std::collections::HashMap;

use laptime_trace::{NameId, Trace, TrackId};

use crate::{
    devices::{DeviceWork, Devices, Work, WorkKind},
    lap_unit::LapTime,
};

/// A sequence repeats from this many turns on.
const LEAST_TURNS: usize = 3;

/// The share of kernels that must be the same one turn later.
const LEAST_SAME: f64 = 0.8;

/// A shorter period is preferred if it explains this much less.
const SLACK: f64 = 0.01;

/// Lengths of a turn that are tried.
const MOST_TRIED: usize = 64;

/// Kernels that a length is tried on.
const MOST_COMPARED: usize = 200_000;

/// The turns of the sequence of kernels that repeats on the stream with most kernels, and the kernels of a turn.
///
/// A length of a turn (in kernels) is good if most kernels have the same name one turn later. The shortest length that
/// is nearly as good as the best is taken: twice a turn repeats too. Turns begin at the kernel that occurs once a turn
/// and has the longest pause before it.
pub fn repeats(trace: &Trace, devices: &Devices) -> Option<(usize, Vec<LapTime>)> {
    let (device, stream) = busiest_stream(devices)?;
    let is_kernel = |work: &&Work| work.stream == stream && work.kind != WorkKind::Copy;
    let kernels: Vec<&Work> = device.work.iter().filter(is_kernel).collect();
    let names: Vec<NameId> = kernels.iter().map(|work| trace.span_name(work.id)).collect();
    let places = places(&names);
    let period = period(&names, &places)?;
    let begin = beginning(&kernels, &places, period)?;
    let laps = laps(&kernels, &places[&begin], period);
    (laps.len() >= LEAST_TURNS).then_some((period, laps))
}

fn busiest_stream(devices: &Devices) -> Option<(&DeviceWork, TrackId)> {
    let mut counts: HashMap<TrackId, (usize, &DeviceWork)> = HashMap::new();
    for device in &devices.devices {
        for work in device.work.iter().filter(|work| work.kind != WorkKind::Copy) {
            counts.entry(work.stream).or_insert((0, device)).0 += 1;
        }
    }
    let most = counts.into_iter().max_by_key(|(stream, (count, _))| (*count, std::cmp::Reverse(*stream)))?;
    Some((most.1.1, most.0))
}

/// Where each name occurs.
fn places(names: &[NameId]) -> HashMap<NameId, Vec<usize>> {
    let mut places: HashMap<NameId, Vec<usize>> = HashMap::new();
    for (at, name) in names.iter().enumerate() {
        places.entry(*name).or_default().push(at);
    }
    places
}

fn period(names: &[NameId], places: &HashMap<NameId, Vec<usize>>) -> Option<usize> {
    let mut tried: HashMap<usize, usize> = HashMap::new();
    for places in places.values().filter(|places| places.len() >= LEAST_TURNS) {
        let distance = most_common_distance(places);
        if distance * LEAST_TURNS <= names.len() {
            *tried.entry(distance).or_default() += places.len();
        }
    }
    let mut tried: Vec<(usize, usize)> = tried.into_iter().collect();
    tried.sort_by_key(|&(distance, votes)| (std::cmp::Reverse(votes), distance));
    tried.truncate(MOST_TRIED);
    let score = |distance| same(names, places, distance);
    let scores: Vec<(usize, f64)> = tried.iter().map(|&(distance, _)| (distance, score(distance))).collect();
    let best = scores.iter().map(|(_, score)| *score).fold(0.0, f64::max);
    let good = scores.iter().filter(|(_, score)| *score >= LEAST_SAME && *score >= best - SLACK);
    good.map(|(distance, _)| *distance).min()
}

fn most_common_distance(places: &[usize]) -> usize {
    let mut distances: Vec<usize> = places.windows(2).map(|pair| pair[1] - pair[0]).collect();
    distances.sort_unstable();
    let runs = distances.chunk_by(|one, other| one == other);
    // Of distances that are as common, the longer one: the shorter is inside a turn.
    runs.max_by_key(|run| run.len()).map_or(usize::MAX / 4, |run| run[0])
}

/// The share of kernels that are the same one turn later. Names that occur too seldom to repeat have no say.
fn same(names: &[NameId], places: &HashMap<NameId, Vec<usize>>, distance: usize) -> f64 {
    let pairs = names.len() - distance;
    let compared = pairs.min(MOST_COMPARED);
    // The middle: what comes first and last is often not part of it.
    let from = (pairs - compared) / 2;
    let may_repeat = |at: usize| places[&names[at]].len() >= LEAST_TURNS;
    let compared = (from..from + compared).filter(|&at| may_repeat(at) && may_repeat(at + distance));
    let (mut all, mut same) = (0_u64, 0_u64);
    for at in compared {
        all += 1;
        same += u64::from(names[at] == names[at + distance]);
    }
    same as f64 / all.max(1) as f64
}

/// The name that a turn begins with: it occurs once a turn, after the longest pause.
fn beginning(kernels: &[&Work], places: &HashMap<NameId, Vec<usize>>, period: usize) -> Option<NameId> {
    let is_once = |places: &Vec<usize>| {
        let regular = places.windows(2).filter(|pair| pair[1] - pair[0] == period).count();
        regular + 1 >= LEAST_TURNS && regular as f64 >= LEAST_SAME * (places.len() - 1) as f64
    };
    let pause = |places: &Vec<usize>| {
        let before = |at: usize| kernels[at].start.saturating_sub(kernels[at - 1].end);
        let pauses: u64 = places.iter().filter(|at| **at > 0).map(|&at| before(at)).sum();
        pauses / places.len() as u64
    };
    let once = places.iter().filter(|(_, places)| is_once(places));
    once.max_by_key(|(_, places)| (pause(places), std::cmp::Reverse(places[0]))).map(|(name, _)| *name)
}

/// The turns that begin at these places. What follows the last one is a turn if it is as long as the others.
fn laps(kernels: &[&Work], places: &[usize], period: usize) -> Vec<LapTime> {
    let whole = places.windows(2).filter(|pair| pair[1] - pair[0] == period);
    let mut turns: Vec<(u64, u64)> = whole.map(|pair| (kernels[pair[0]].start, kernels[pair[1]].start)).collect();
    if let Some(&last) = places.last()
        && let Some(end) = kernels.get(last + period - 1)
    {
        turns.push((kernels[last].start, end.end));
    }
    let lap = |(at, (start, end)): (usize, (u64, u64))| LapTime { label: format!("{at}"), start, end, span: None };
    turns.into_iter().filter(|(start, end)| start < end).enumerate().map(lap).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::devices::devices;
    use laptime_trace::{Nanos, TraceBuilder, activity::category};

    /// A trace of kernels named by letters, 8 long, 10 apart; a space is a pause of 50.
    fn kernels(letters: &str) -> Trace {
        let mut builder = TraceBuilder::default();
        let stream = builder.stream(1, 7, "stream 7");
        let mut at = 0;
        for letter in letters.chars() {
            if letter == ' ' {
                at += 50;
                continue;
            }
            builder.span(stream, Nanos(at), Nanos(8), &letter.to_string(), category::KERNEL);
            at += 10;
        }
        builder.build().unwrap()
    }

    fn found(letters: &str) -> Option<(usize, Vec<(u64, u64)>)> {
        let trace = kernels(letters);
        let (period, laps) = repeats(&trace, &devices(&trace))?;
        Some((period, laps.iter().map(|lap| (lap.start, lap.end)).collect()))
    }

    #[test]
    fn a_sequence_begins_at_its_longest_pause() {
        let expected = vec![(50, 140), (140, 230), (230, 320), (320, 358)];
        assert_eq!(found(" abcd abcd abcd abcd"), Some((4, expected)));
    }

    #[test]
    fn layers_inside_a_step_are_not_taken_for_the_step() {
        let step = format!(" e{}h", "qkvm".repeat(6));
        let (period, laps) = found(&step.repeat(5)).unwrap();
        assert_eq!((period, laps.len()), (26, 5));
        assert_eq!(laps[1].0, 50 + 26 * 10 + 50);
    }

    #[test]
    fn what_comes_before_the_first_turn_is_left_out() {
        let (period, laps) = found("xyzw abc abc abc abc").unwrap();
        assert_eq!((period, laps.len(), laps[0].0), (3, 4, 90));
    }

    #[test]
    fn what_does_not_repeat_has_no_turns() {
        assert_eq!(found("abcdefghij"), None);
        assert_eq!(found("abab"), None);
        assert_eq!(found(""), None);
        assert_eq!(found("abcacbcabbacbcaacb"), None);
    }
}
