//! Merges traces that the program's processes recorded with `laptime-probe`.

use std::path::{Path, PathBuf};
use std::{collections::HashMap, fs};

use laptime_trace::{ANNOUNCED, Nanos, SpanEntry, SpanId, Trace, TraceBuilder, Track, TrackId, TrackKind};

/// A trace that a process recorded itself.
#[derive(Debug)]
pub struct OwnTrace {
    pub pid: u32,
    /// Time zero of the trace on the monotonic clock.
    pub start_ns: u64,
    pub trace: Trace,
}

/// Reads the traces that processes announced in a folder.
pub fn announced(folder: &Path) -> Vec<OwnTrace> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<OwnTrace> = entries.filter_map(|entry| read(&entry.path())).collect();
    found.sort_by_key(|own| (own.pid, own.start_ns));
    found
}

pub fn forget(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_name().to_str().is_some_and(|name| name.starts_with(ANNOUNCED)) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Reads the trace of an announcement: a file named `probe-PID-START` that contains the path of the trace.
fn read(path: &Path) -> Option<OwnTrace> {
    let (pid, start_ns) = path.file_name()?.to_str()?.strip_prefix(ANNOUNCED)?.split_once('-')?;
    let trace = PathBuf::from(fs::read_to_string(path).ok()?);
    Some(OwnTrace { pid: pid.parse().ok()?, start_ns: start_ns.parse().ok()?, trace: laptime_trace::read(trace).ok()? })
}

/// Adds a trace to `builder`, with times relative to `start_ns`. Spans of known `threads` go to their tracks.
pub fn append(own: &OwnTrace, start_ns: u64, threads: &mut HashMap<u32, TrackId>, builder: &mut TraceBuilder) {
    let trace = &own.trace;
    let process = builder.process(i64::from(own.pid));
    let shifted = |time: Nanos| Nanos((own.start_ns + time.0).saturating_sub(start_ns));
    let tracks: Vec<TrackId> = trace
        .tracks()
        .map(|(_, track)| {
            let thread = track.number.and_then(|number| u32::try_from(number).ok());
            let known = thread.filter(|_| track.kind == TrackKind::Thread).and_then(|thread| threads.get(&thread));
            known.copied().unwrap_or_else(|| {
                let (name, unit) = (builder.name(trace.name(track.name)), builder.name(trace.name(track.unit)));
                let added = builder.track(Track { process, name, unit, ..*track });
                if let Some(thread) = thread.filter(|_| track.kind == TrackKind::Thread) {
                    threads.insert(thread, added);
                }
                added
            })
        })
        .collect();
    let track = |id: TrackId| tracks[trace.tracks().position(|(known, _)| known == id).unwrap_or(0)];
    let mut spans: HashMap<SpanId, SpanEntry> = HashMap::new();
    for (id, _) in trace.tracks() {
        for span in trace.spans_on(id) {
            let entry = builder.span(track(id), shifted(span.start), span.duration, span.name, span.category);
            span.fields.iter().for_each(|(name, value)| builder.span_field(entry, name, value));
            if span.is_open {
                builder.leave_open(entry);
            }
            spans.insert(span.id, entry);
        }
        for mark in trace.marks_on(id) {
            let entry = builder.mark(track(id), shifted(mark.time), mark.name, mark.category);
            mark.fields.iter().for_each(|(name, value)| builder.mark_field(entry, name, value));
        }
    }
    for point in trace.values() {
        builder.value(track(point.track), shifted(point.time), point.number);
    }
    for flow in trace.flows() {
        if let (Some(&from), Some(&to)) = (spans.get(&flow.from), spans.get(&flow.to)) {
            builder.flow(from, to);
        }
    }
    builder.lost = builder.lost.saturating_add(trace.lost);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_is_added_with_shifted_times_and_shared_threads() {
        let mut own = TraceBuilder::default();
        let main = own.thread(17, 17, "main");
        let step = own.span(main, Nanos(5), Nanos(20), "step", "");
        own.span_field(step, "token", 3_i64);
        own.mark(main, Nanos(7), "seen", "");
        let own = OwnTrace { pid: 17, start_ns: 1_100, trace: own.build().unwrap() };
        let mut builder = TraceBuilder::default();
        let main = builder.thread(17, 17, "main thread");
        builder.span(main, Nanos(90), Nanos(100), "range", "nvtx");
        let mut threads = HashMap::from([(17, main)]);
        append(&own, 1_000, &mut threads, &mut builder);
        let outline = builder.build().unwrap().outline();
        assert_eq!(
            outline, "main thread\n  nvtx:range  90..190\n    step  105..125  token=3\n  ! seen  107\n",
            "{outline}"
        );
    }
}
