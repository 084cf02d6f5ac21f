//! Which Python line a thread was at while a device was idle, and while the host waited: from sampled stacks.

use std::collections::HashMap;

use laptime_trace::{Activity, NameId, PYTHON_SAMPLE, SpanId, Trace, TrackId, TrackKind};

use crate::fields::text;
use crate::idle_pieces::{IdleKind, Piece};
use crate::{devices::DeviceWork, host_tree::is_loading, intervals::Stretches, timeline::Timeline, units::per_cent};

/// A line is named if it has at least this many samples.
pub const LEAST_SAMPLES: u64 = 30;

/// Lines that are named at most.
const MOST_LINES: usize = 3;

/// The lines at which a thread was during some time.
#[derive(Debug, Clone, PartialEq)]
pub struct LineShares {
    /// What the time is: `idle time of device 0`.
    pub what: String,
    /// Samples in that time.
    pub samples: u64,
    /// The lines with enough samples, the most frequent first.
    pub lines: Vec<LineShare>,
}

/// A line, and its share of the time.
#[derive(Debug, Clone, PartialEq)]
pub struct LineShare {
    /// The line: `train.py:88 in step`.
    pub line: String,
    /// The innermost call under it, if it is always the same: `torch/utils/data/dataloader.py:633 in __next__`.
    pub inside: Option<String>,
    /// Samples at it.
    pub samples: u64,
    /// Its share of the samples.
    pub share: f64,
    /// The 95 % interval of the share.
    pub interval: (f64, f64),
}

/// The lines at which the launching thread of each device was while the device was idle. One-off initialisation does not
/// count: it would hide the lines of the loop.
pub(crate) fn idle_lines(timeline: &Timeline<'_>) -> Vec<LineShares> {
    let sampled = sampled_threads(timeline.trace);
    let devices = std::iter::zip(&timeline.devices.devices, &timeline.pieces);
    devices.filter_map(|(device, pieces)| of_device(timeline.trace, device, &pieces.pieces, &sampled)).collect()
}

fn of_device(
    trace: &Trace,
    device: &DeviceWork,
    pieces: &[Piece],
    sampled: &HashMap<Thread, TrackId>,
) -> Option<LineShares> {
    let pieces = pieces.iter().filter(|piece| piece.kind != IdleKind::Starting);
    let idle = Stretches::union(pieces.map(|piece| (piece.from, piece.to)).collect());
    let thread = thread_of(trace, device.launching_thread(trace)?)?;
    line_shares(trace, *sampled.get(&thread)?, &idle, format!("idle time of {}", device.name))
}

/// The lines at which threads were while they waited for a device.
pub fn wait_lines(trace: &Trace) -> Vec<LineShares> {
    let mut found = Vec::new();
    for (thread, samples) in sampled_threads(trace) {
        let is_wait = |span: &laptime_trace::Span<'_>| span.activity() == Activity::Wait;
        let of_thread = trace.tracks().filter(|(id, _)| thread_of(trace, *id) == Some(thread));
        let waits = of_thread.flat_map(|(id, _)| trace.spans_on(id)).filter(is_wait);
        let waits = Stretches::union(waits.map(|span| (span.start.0, span.end().0)).collect());
        found.extend(line_shares(trace, samples, &waits, "time in syncs".to_owned()));
    }
    found.sort_by_key(|shares| std::cmp::Reverse(shares.samples));
    found
}

/// The line with the most samples of a thread within some time.
pub(crate) fn line_of_samples(trace: &Trace, track: TrackId, time: &Stretches) -> Option<String> {
    let samples = *sampled_threads(trace).get(&thread_of(trace, track)?)?;
    let shares = line_shares(trace, samples, time, String::new())?;
    shares.lines.into_iter().next().map(|line| line.line)
}

/// The samples of a thread in order: when, and whether the stack was inside a data loader; none without samples.
pub(crate) fn loading_samples(trace: &Trace, track: TrackId) -> Option<Vec<(u64, bool)>> {
    let samples = *sampled_threads(trace).get(&thread_of(trace, track)?)?;
    let loads = |mark: &laptime_trace::Mark<'_>| is_loading(text(&mark.fields, "stack").unwrap_or(mark.name));
    let marks = trace.marks_on(samples).filter(|mark| mark.category == PYTHON_SAMPLE);
    Some(marks.map(|mark| (mark.time.0, loads(&mark))).collect())
}

/// The line of the innermost Python function around a span that is not part of the framework: `train.py:88 in step`.
pub(crate) fn source_line(trace: &Trace, activities: &[Activity], span: SpanId) -> Option<String> {
    let around = std::iter::successors(Some(span), |id| trace.span_parent(*id)).take(MOST_OUTWARDS);
    let python = around.filter(|id| activities[id.index()] == Activity::Python);
    python.filter_map(|id| line_of_name(trace.name(trace.span_name(id)))).next()
}

/// Files of PyTorch and of Python's own library, as torch.profiler names them. Nobody changes a line there, nor in the files
/// that `torch.compile` generates.
const NOT_OWN: [&str; 19] = [
    "torch/",
    "triton/",
    "<",
    "abc.py",
    "asyncio/",
    "collections/",
    "concurrent/",
    "contextlib.py",
    "copy.py",
    "dataclasses.py",
    "enum.py",
    "functools.py",
    "importlib/",
    "inspect.py",
    "multiprocessing/",
    "threading.py",
    "typing.py",
    "warnings.py",
    "weakref.py",
];

/// Parses the name that torch.profiler gives a Python function: `train.py(88): step`.
fn line_of_name(name: &str) -> Option<String> {
    let (file, rest) = name.split_once('(')?;
    let (line, function) = rest.split_once("): ")?;
    let is_line = !line.is_empty() && line.chars().all(|letter| letter.is_ascii_digit());
    let is_own = !NOT_OWN.iter().any(|start| file.starts_with(start)) && !file.contains("torchinductor_");
    (is_line && is_own && !file.contains("/torch/")).then(|| format!("{file}:{line} in {function}"))
}

/// How many enclosing spans are searched: files can nest without limit.
const MOST_OUTWARDS: usize = 256;

/// A thread: its process and its number.
type Thread = (u32, i64);

fn thread_of(trace: &Trace, track: TrackId) -> Option<Thread> {
    number_of(trace, track).filter(|_| trace.track(track).kind == TrackKind::Thread)
}

/// The thread that a track is about.
fn number_of(trace: &Trace, track: TrackId) -> Option<Thread> {
    let track = trace.track(track);
    let process = trace.processes().position(|(id, _)| id == track.process)?;
    Some((process as u32, track.number?))
}

/// The tracks with samples, by the thread that was sampled.
fn sampled_threads(trace: &Trace) -> HashMap<Thread, TrackId> {
    let Some(sample) = trace.known_name(PYTHON_SAMPLE) else { return HashMap::new() };
    let is_sampled = |id: TrackId| trace.marks_on(id).next().is_some_and(|mark| mark.category == trace.name(sample));
    let lanes = trace.tracks().filter(|(id, track)| track.kind == TrackKind::Lane && is_sampled(*id));
    lanes.filter_map(|(id, _)| Some((number_of(trace, id)?, id))).collect()
}

fn line_shares(trace: &Trace, track: TrackId, time: &Stretches, what: String) -> Option<LineShares> {
    let mut counts: HashMap<NameId, (u64, Option<&str>)> = HashMap::new();
    let mut samples = 0;
    for mark in trace.marks_on(track).filter(|mark| mark.category == PYTHON_SAMPLE && time.contains(mark.time.0)) {
        samples += 1;
        let inside = text(&mark.fields, "inside");
        let entry = counts.entry(trace.known_name(mark.name)?).or_insert((0, inside));
        *entry = (entry.0 + 1, entry.1.filter(|known| inside == Some(known)));
    }
    let mut lines: Vec<LineShare> = counts
        .into_iter()
        .filter(|(_, (count, _))| *count >= LEAST_SAMPLES)
        .map(|(name, (count, inside))| LineShare {
            line: trace.name(name).to_owned(),
            inside: inside.map(str::to_owned),
            samples: count,
            share: count as f64 / samples as f64,
            interval: wilson(count as f64, samples as f64),
        })
        .collect();
    lines.sort_by(|a, b| (b.samples, &a.line).cmp(&(a.samples, &b.line)));
    lines.truncate(MOST_LINES);
    (!lines.is_empty()).then_some(LineShares { what, samples, lines })
}

/// Wilson's 95 % interval of a share.
fn wilson(count: f64, all: f64) -> (f64, f64) {
    const Z: f64 = 1.96;
    let share = count / all;
    let middle = (share + Z * Z / (2.0 * all)) / (1.0 + Z * Z / all);
    let half = Z * ((share * (1.0 - share) + Z * Z / (4.0 * all)) / all).sqrt() / (1.0 + Z * Z / all);
    ((middle - half).max(0.0), (middle + half).min(1.0))
}

impl LineShares {
    /// The lines in sentences, one each.
    pub fn sentences(&self) -> impl Iterator<Item = String> {
        self.lines.iter().map(|line| {
            let inside = line.inside.as_ref().map_or_else(String::new, |inside| format!(" -> `{inside}`"));
            let LineShare { line, share, interval: (low, high), .. } = line;
            format!(
                "{} ({} to {}) of the {}: `{line}`{inside}",
                per_cent(*share),
                per_cent(*low),
                per_cent(*high),
                self.what
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use laptime_trace::{Nanos, TraceBuilder, Track, activity::category};

    use super::*;
    use crate::timeline::Prepared;

    const MS: u64 = 1_000_000;

    fn idle_lines(trace: &Trace) -> Vec<LineShares> {
        let prepared = Prepared::of(trace);
        super::idle_lines(&Timeline::of(&prepared, None).unwrap())
    }

    #[test]
    fn lines_of_libraries_and_of_generated_code_are_not_named() {
        let names = [
            "train.py(88): step",
            "inspect.py(176): get_annotations",
            "/tmp/torchinductor_me/ab/cabc.py(25): call",
            "torch/nn/modules/module.py(1): forward",
        ];
        assert_eq!(names.map(line_of_name), [Some("train.py:88 in step".to_owned()), None, None, None]);
    }

    /// A device that works every second 10 ms, and a thread that is sampled in between at the lines of `at`.
    fn sampled(idle: usize, at: impl Fn(usize) -> &'static str) -> Trace {
        sampled_after(0, idle, at)
    }

    /// The same after a kernel and a library load of this many samples.
    fn sampled_after(loading: u64, idle: usize, at: impl Fn(usize) -> &'static str) -> Trace {
        let mut builder = TraceBuilder::default();
        let main = builder.thread(5, 11, "main");
        let stream = builder.stream(5, 7, "stream 7");
        builder.track_mut(stream).device = Some(0);
        let process = builder.process(5);
        let (kind, name, unit) = (TrackKind::Lane, builder.name("Python"), NameId::EMPTY);
        let lane = builder.track(Track { process, kind, name, number: Some(11), device: None, unit });
        if loading > 0 {
            let call = builder.span(main, Nanos(0), Nanos(MS), "cudaLaunchKernel", category::RUNTIME);
            let kernel = builder.span(stream, Nanos(MS), Nanos(MS), "fill", category::KERNEL);
            builder.flow(call, kernel);
            builder.span(main, Nanos(2 * MS), Nanos(loading * 10 * MS), "cuLibraryLoadData", category::DRIVER);
            for sample in 0..loading {
                builder.mark(lane, Nanos((3 + 10 * sample) * MS), "train.py:8 in <module>", PYTHON_SAMPLE);
            }
        }
        for turn in 0..=idle {
            let start = (loading * 10 + 3 + turn as u64 * 20) * MS;
            let call = builder.span(main, Nanos(start), Nanos(MS), "cudaLaunchKernel", category::RUNTIME);
            let kernel = builder.span(stream, Nanos(start + MS), Nanos(10 * MS), "gemm", category::KERNEL);
            builder.flow(call, kernel);
            // While the device works, the thread is elsewhere, which does not count.
            builder.mark(lane, Nanos(start + 5 * MS), "other.py:1 in f", PYTHON_SAMPLE);
            if turn < idle {
                let mark = builder.mark(lane, Nanos(start + 15 * MS), at(turn), PYTHON_SAMPLE);
                builder.mark_field(mark, "inside", "torch/data.py:7 in __next__");
            }
        }
        builder.build().unwrap()
    }

    #[test]
    fn the_line_with_most_idle_samples_is_named_with_an_interval() {
        let trace = sampled(100, |turn| if turn % 4 == 0 { "train.py:9 in log" } else { "train.py:88 in step" });
        let found = idle_lines(&trace);
        let lines_text: Vec<String> = found.iter().flat_map(LineShares::sentences).collect();
        assert_eq!(
            lines_text,
            [
                "75.0 % (65.7 % to 82.5 %) of the idle time of device 0: `train.py:88 in step` -> `torch/data.py:7 in __next__`"
            ]
        );
        assert_eq!(found[0].samples, 100);
    }

    #[test]
    fn lines_of_one_time_initialisation_are_not_named() {
        let trace = sampled_after(200, 100, |_| "train.py:88 in step");
        let found = idle_lines(&trace);
        let named: Vec<(&str, u64)> = found[0].lines.iter().map(|line| (line.line.as_str(), line.samples)).collect();
        assert_eq!((named, found[0].samples), (vec![("train.py:88 in step", 100)], 100));
    }

    #[test]
    fn a_line_with_fewer_than_30_idle_samples_is_not_named() {
        assert_eq!(idle_lines(&sampled(29, |_| "train.py:88 in step")), []);
        assert_eq!(idle_lines(&sampled(30, |_| "train.py:88 in step")).len(), 1);
    }

    #[test]
    fn a_trace_without_samples_names_nothing() {
        let mut builder = TraceBuilder::default();
        let main = builder.thread(5, 11, "main");
        builder.mark(main, Nanos(5), "mark", "");
        assert_eq!(idle_lines(&builder.build().unwrap()), []);
    }
}
