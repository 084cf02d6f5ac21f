//! Detects a repeated sequence of kernels without marks.

use hashbrown::HashMap;

use laptime_trace::{NameId, Trace, TrackId};

use crate::devices::{DeviceWork, Devices, Work, WorkKind};
use crate::lap_unit::LapTime;

/// The fewest repetitions of a sequence.
const LEAST_TURNS: usize = 3;

/// The share of kernels that must match the typical repetition, and the share of distances between equal kernels that
/// must be about one repetition.
const LEAST_SAME: f64 = 0.8;

/// The share of all kernels that a sequence must span, from the first repetition to the last.
const LEAST_COVER: f64 = 0.5;

/// The tolerance for "about one repetition".
const TOLERANCE: f64 = 0.1;

/// A shorter sequence is preferred if at most this share more of the kernels differs. Kernels between layers are less
/// than one in two hundred in the deepest models, and more than this.
const SLACK: f64 = 0.002;

/// A repetition may have at most this many times the kernels of the typical one.
const LONGEST_TURN: usize = 2;

/// How many lengths are tried.
const MOST_TRIED: usize = 64;

/// The maximum number of kernels to compare for one length.
const MOST_COMPARED: usize = 200_000;

/// The repetitions of a sequence of kernels on the stream with the most kernels, and the kernels per repetition.
///
/// A length (in kernels) is good if its repetitions have the same kernels as the typical one. The shortest length that is
/// nearly as good as the best is used, because multiples repeat too. Repetitions start at the kernel that occurs once per
/// repetition and has the longest pause before it.
pub fn repeats(trace: &Trace, devices: &Devices) -> Option<(usize, Vec<LapTime>)> {
    let (device, stream) = busiest_stream(devices)?;
    let is_kernel = |work: &&Work| work.stream == stream && work.kind != WorkKind::Copy;
    let kernels: Vec<&Work> = device.work.iter().filter(is_kernel).collect();
    let sequence = Sequence::of(kernels.iter().map(|work| trace.span_name(work.id)));
    let period = sequence.period()?;
    let begin = sequence.beginning(&kernels, period)?;
    let places = &sequence.places[begin];
    let laps = laps(&kernels, places, period);
    // The last repetition is not a lap, but it counts as an occurrence.
    let is_last_whole = places.last().is_some_and(|last| last + period <= kernels.len());
    (laps.len() + usize::from(is_last_whole) >= LEAST_TURNS).then_some((period, laps))
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

/// Kernels of one stream in order, by name.
struct Sequence {
    /// The name of each kernel, as a number from zero on.
    names: Vec<usize>,
    /// Where each name occurs.
    places: Vec<Vec<usize>>,
}

impl Sequence {
    fn of(kernels: impl Iterator<Item = NameId>) -> Self {
        let mut numbers: HashMap<NameId, usize> = HashMap::new();
        let mut sequence = Self { names: Vec::new(), places: Vec::new() };
        for (at, name) in kernels.enumerate() {
            let number = *numbers.entry(name).or_insert(sequence.places.len());
            if number == sequence.places.len() {
                sequence.places.push(Vec::new());
            }
            sequence.names.push(number);
            sequence.places[number].push(at);
        }
        sequence
    }

    /// How many kernels a repetition has.
    fn period(&self) -> Option<usize> {
        // Among names with the same distance, the most regular one.
        let mut tried: HashMap<usize, (usize, usize)> = HashMap::new();
        for (name, places) in self.places.iter().enumerate().filter(|(_, places)| places.len() >= LEAST_TURNS) {
            let distance = most_common_distance(places);
            if self.is_covered(places, distance) && is_once(places, distance) {
                let best = tried.entry(distance).or_insert((0, name));
                *best = (*best).max((regular(places, distance), name));
            }
        }
        let mut tried: Vec<(usize, (usize, usize))> = tried.into_iter().collect();
        tried.sort_by_key(|&(distance, (regular, _))| (std::cmp::Reverse(regular * distance), distance));
        tried.truncate(MOST_TRIED);
        let score = |(distance, (_, name))| Some((distance, self.same(name, distance)?));
        let scores: Vec<(usize, f64)> = tried.into_iter().filter_map(score).collect();
        let best = scores.iter().map(|(_, score)| *score).fold(0.0, f64::max);
        let good = scores.iter().filter(|(_, score)| *score >= LEAST_SAME && *score >= best - SLACK);
        good.map(|(distance, _)| *distance).min()
    }

    /// Whether repetitions from these positions cover most kernels.
    fn is_covered(&self, places: &[usize], distance: usize) -> bool {
        let extent = places.last().zip(places.first()).map_or(0, |(last, first)| last - first);
        distance * LEAST_TURNS <= self.names.len()
            && (extent + distance) as f64 >= LEAST_COVER * self.names.len() as f64
    }

    /// The share of kernels, between the first and the last of a name, that match the typical repetition.
    fn same(&self, name: usize, distance: usize) -> Option<f64> {
        let places = self.middle(&self.places[name]);
        let mut exact = places.windows(2).filter(|pair| pair[1] - pair[0] == distance);
        let count = exact.clone().count();
        let typical = exact.nth(count / 2)?;
        let mut usual = vec![0_u32; self.places.len()];
        for &name in &self.names[typical[0]..typical[1]] {
            usual[name] += 1;
        }
        let (mut all, mut same) = (0, 0);
        let mut left = usual.clone();
        for turn in places.windows(2) {
            let kernels = &self.names[turn[0]..turn[1]];
            all += kernels.len().max(distance);
            for &name in kernels {
                if left[name] > 0 {
                    left[name] -= 1;
                    same += 1;
                }
            }
            for &name in kernels {
                left[name] = usual[name];
            }
        }
        Some(same as f64 / all.max(1) as f64)
    }

    /// The positions that a length is tried on: the middle ones if there are many, because the start and end often
    /// differ.
    fn middle<'a>(&self, places: &'a [usize]) -> &'a [usize] {
        let spare = self.names.len().saturating_sub(MOST_COMPARED) / 2;
        let from = places.partition_point(|&at| at < spare);
        let to = places.partition_point(|&at| at < self.names.len() - spare);
        if to - from >= LEAST_TURNS { &places[from..to] } else { places }
    }

    /// The first kernel of a repetition: it occurs once per repetition, after the longest pause.
    fn beginning(&self, kernels: &[&Work], period: usize) -> Option<usize> {
        let pause = |places: &Vec<usize>| {
            let before = |at: usize| kernels[at].start.saturating_sub(kernels[at - 1].end);
            let later: Vec<u64> = places.iter().filter(|at| **at > 0).map(|&at| before(at)).collect();
            later.iter().sum::<u64>() / later.len().max(1) as u64
        };
        let once = self.places.iter().enumerate().filter(|(_, places)| is_once(places, period));
        once.max_by_key(|(_, places)| (pause(places), std::cmp::Reverse(places[0]))).map(|(name, _)| name)
    }
}

fn most_common_distance(places: &[usize]) -> usize {
    let mut distances: Vec<usize> = places.windows(2).map(|pair| pair[1] - pair[0]).collect();
    distances.sort_unstable();
    let runs = distances.chunk_by(|one, other| one == other);
    // Among equally common distances, the longer one: the shorter is inside a repetition.
    runs.max_by_key(|run| run.len()).map_or(usize::MAX / 4, |run| run[0])
}

/// How many of these positions have the next one about a repetition later.
fn regular(places: &[usize], period: usize) -> usize {
    let tolerance = (TOLERANCE * period as f64) as usize;
    places.windows(2).filter(|pair| (pair[1] - pair[0]).abs_diff(period) <= tolerance).count()
}

/// Whether a kernel occurs once per repetition.
fn is_once(places: &[usize], period: usize) -> bool {
    let regular = regular(places, period);
    regular + 1 >= LEAST_TURNS && regular as f64 >= LEAST_SAME * (places.len() - 1) as f64
}

/// The repetitions from these positions, each up to the next. The last one has no end and is left
/// out.
fn laps(kernels: &[&Work], places: &[usize], period: usize) -> Vec<LapTime> {
    let is_turn = |pair: &&[usize]| (period.div_ceil(2)..=LONGEST_TURN * period).contains(&(pair[1] - pair[0]));
    // Kernels before the first complete repetition are not a repetition.
    let least = ((1.0 - TOLERANCE) * period as f64) as usize;
    let prologue = places.windows(2).take(1).filter(|pair| pair[1] - pair[0] < least).count();
    let turns = places.windows(2).skip(prologue).filter(is_turn);
    let turns = turns.map(|pair| (kernels[pair[0]].start, kernels[pair[1]].start));
    let lap = |(at, (start, end)): (usize, (u64, u64))| LapTime { label: format!("{at}"), start, end, span: None };
    turns.filter(|(start, end)| start < end).enumerate().map(lap).collect()
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
    fn a_sequence_starts_after_its_longest_pause() {
        let expected = vec![(50, 140), (140, 230), (230, 320)];
        assert_eq!(found(" abcd abcd abcd abcd"), Some((4, expected)));
    }

    #[test]
    fn the_last_repetition_is_not_a_lap_because_nothing_ends_it() {
        let (period, laps) = found(&"a".repeat(50)).unwrap();
        assert_eq!((period, laps.len()), (1, 49));
        assert!(laps.iter().all(|(start, end)| end - start == 10), "{laps:?}");
        // It still is one more time that the sequence occurs.
        assert_eq!(found(" abc abc abc").unwrap().1.len(), 2);
        assert_eq!(found(" abc abc ab"), None);
    }

    #[test]
    fn layers_inside_a_step_are_not_mistaken_for_steps() {
        let step = format!(" e{}h", "qkvm".repeat(6));
        let (period, laps) = found(&step.repeat(5)).unwrap();
        assert_eq!((period, laps.len()), (26, 4));
        assert_eq!(laps[1].0, 50 + 26 * 10 + 50);
    }

    #[test]
    fn work_before_the_first_repetition_is_left_out() {
        let (period, laps) = found("xyzw abc abc abc abc").unwrap();
        assert_eq!((period, laps.len(), laps[0].0), (3, 3, 90));
    }

    #[test]
    fn a_repetition_that_started_before_the_recording_is_left_out() {
        let layers = "qkvm".repeat(6);
        let usual = format!(" e{layers}h");
        let letters = format!(" e{}h{}", &layers[8..], usual.repeat(5));
        let (period, laps) = found(&letters).unwrap();
        assert_eq!((period, laps.len()), (26, 4));
    }

    #[test]
    fn a_repetition_may_have_one_kernel_more_or_less() {
        let layers = "qkvm".repeat(6);
        let (usual, more, less) = (format!(" e{layers}h"), format!(" e{layers}xh"), format!(" e{}h", &layers[1..]));
        let letters = [&usual, &more, &usual, &usual, &less, &usual, &usual, &more].map(String::as_str).concat();
        let (period, laps) = found(&letters).unwrap();
        assert_eq!((period, laps.len()), (26, 7));
    }

    #[test]
    fn a_prefill_with_other_kernels_is_not_a_decode_repetition() {
        let letters = format!("{}{}", "PQRS".repeat(12), " eabcabcabch".repeat(9));
        let (period, laps) = found(&letters).unwrap();
        assert_eq!((period, laps.len(), laps[0].0), (11, 8, 48 * 10 + 50));
    }

    #[test]
    fn work_every_few_repetitions_does_not_merge_them() {
        let step = format!(" e{}h", "qkvm".repeat(20));
        let letters = format!("{}l", step.repeat(5)).repeat(4);
        assert_eq!(found(&letters).unwrap().0, 82);
    }

    #[test]
    fn layers_are_the_repetitions_if_their_number_changes() {
        let steps = [5, 9, 6, 12, 7, 10, 8].map(|layers| format!(" e{}h", "qkvm".repeat(layers)));
        assert_eq!(found(&steps.concat()).unwrap().0, 4);
    }

    #[test]
    fn interleaved_work_on_a_second_stream_does_not_matter() {
        let mut builder = TraceBuilder::default();
        let streams = [builder.stream(1, 7, "stream 7"), builder.stream(1, 8, "stream 8")];
        for at in 0..40_u64 {
            let name = ["a", "b", "c", "d"][at as usize % 4];
            builder.span(streams[0], Nanos(at * 10), Nanos(8), name, category::KERNEL);
            if at % 3 == 0 {
                builder.span(streams[1], Nanos(at * 10 + 5), Nanos(9), "reduce", category::KERNEL);
            }
        }
        let trace = builder.build().unwrap();
        let (period, laps) = repeats(&trace, &devices(&trace)).unwrap();
        assert_eq!((period, laps.len()), (4, 9));
    }

    #[test]
    fn work_that_does_not_repeat_has_no_repetitions() {
        assert_eq!(found("abcdefghij"), None);
        assert_eq!(found("abab"), None);
        assert_eq!(found(""), None);
        assert_eq!(found("abcacbcabbacbcaacb"), None);
    }
}
