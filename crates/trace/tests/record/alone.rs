//! One recording at a time, and its content without times.

use std::{
    path::PathBuf,
    sync::{Mutex, MutexGuard, PoisonError},
};

use laptime_probe::Config;
use laptime_trace::{Recorded, Recording, Trace, TrackId, read, record_to, record_to_with};

/// A process has one recording at a time, so these tests are serialised.
static TURN: Mutex<()> = Mutex::new(());

/// A lock for a test, with a temporary folder.
pub struct Alone {
    folder: tempfile::TempDir,
    _turn: MutexGuard<'static, ()>,
}

pub fn alone() -> Alone {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    Alone { folder: tempfile::tempdir().unwrap(), _turn }
}

impl Alone {
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn start(&self) -> Recording {
        record_to(self.path("trace.pftrace")).unwrap()
    }

    /// Records `work`.
    pub fn record(&self, work: impl FnOnce()) -> (Trace, Recorded) {
        self.record_with(Config::default(), work)
    }

    pub fn record_with(&self, config: Config, work: impl FnOnce()) -> (Trace, Recorded) {
        let path = self.path("trace.pftrace");
        let recording = record_to_with(&path, config).unwrap();
        work();
        let recorded = recording.finish().unwrap();
        let trace = read(&path).unwrap();
        assert_eq!((trace.check(), &trace.warnings), (Ok(()), &Vec::new()));
        assert_eq!(std::fs::metadata(&path).unwrap().len(), recorded.bytes);
        (trace, recorded)
    }
}

/// Runs `work` on a thread with this name.
pub fn on_thread(name: &str, work: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        std::thread::Builder::new().name(name.to_owned()).spawn_scoped(scope, work).unwrap().join().unwrap();
    });
}

pub fn track(trace: &Trace, name: &str) -> TrackId {
    trace.tracks().find(|(_, track)| trace.name(track.name) == name).unwrap_or_else(|| panic!("no track `{name}`")).0
}

/// The spans and marks of a track by nesting, without their times.
pub fn shape(trace: &Trace, track_name: &str) -> String {
    let id = track(trace, track_name);
    let fields = |fields: laptime_trace::Fields<'_>| {
        fields.iter().map(|(name, value)| format!("  {name}={value}")).collect::<String>()
    };
    let kind = |category: &str| if category.is_empty() { String::new() } else { format!("{category}:") };
    let mut text = String::new();
    for span in trace.spans_on(id) {
        let depth = 2 * trace.ancestors(span).count();
        let lane = if span.lane > 0 { format!("  lane {}", span.lane) } else { String::new() };
        let open = if span.is_open { "  open" } else { "" };
        let name = format!("{}{}", kind(span.category), span.name);
        text += &format!("{:depth$}{name}{lane}{open}{}\n", "", fields(span.fields));
    }
    for mark in trace.marks_on(id) {
        text += &format!("! {}{}{}\n", kind(mark.category), mark.name, fields(mark.fields));
    }
    text
}
