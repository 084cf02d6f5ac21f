//! Traces and run results: the [`Trace`], its readers and writers, and [`record_to`], which records a running program.
//!
//! ```
//! # let folder = tempfile::tempdir().unwrap();
//! # let path = folder.path().join("trace.pftrace");
//! use laptime_probe::{lap, stage};
//!
//! let recording = laptime_trace::record_to(&path).unwrap();
//! {
//!     let _stage = stage!("generate");
//!     for token in 0..3 {
//!         let _lap = lap!("decode", token = token);
//!     }
//! }
//! let summary = recording.finish().unwrap();
//! assert_eq!(summary.lost, 0);
//!
//! let trace = laptime_trace::read(&path).unwrap();
//! assert_eq!(trace.spans().filter(|span| span.name == "decode").count(), 3);
//! ```
//!
//! A `.pftrace` opens in ui.perfetto.dev; [`write`](fn@write) converts any trace to Chrome JSON, speedscope JSON or
//! folded stacks.

pub mod activity;
mod builder;
mod column;
mod fields;
pub mod format;
mod invariants;
pub mod kernels;
mod lanes;
pub mod metadata;
mod names;
mod outline;
pub mod replays;
mod retain;
pub mod run;
pub mod small_file;
mod time;
mod trace;
mod track;
mod value;
mod words;

#[cfg(feature = "record")]
mod live;
#[cfg(feature = "record")]
mod record;

#[cfg(feature = "record")]
pub use self::record::{ANNOUNCED, RecordError, Recorded, Recording, record_to, record_to_with};
pub use self::{
    activity::{Activity, CopyPath, MemoryKind},
    builder::{SpanEntry, TraceBuilder},
    column::{Cell, Column},
    fields::Fields,
    format::{Format, ReadError, WriteError, read, read_from, write, write_to},
    invariants::InvalidTrace,
    kernels::KernelRecords,
    metadata::{DeviceProperties, Metadata, NotRecorded},
    names::{NameId, Names},
    replays::{GraphReplay, GraphReplays, InnerStage},
    time::{Nanos, Origin},
    trace::{Flow, Mark, MarkId, Span, SpanId, Trace, ValuePoint},
    track::{Process, ProcessId, Track, TrackId, TrackKind},
    value::{Number, Value},
};

/// The maximum nesting depth in results that store the path of every level, such as stage trees and folded stacks.
///
/// Python limits calls to 1000 levels, and its stacks in traces are about a tenth of that. Deeper nesting is a bug in
/// the traced program and would make the result grow quadratically. Deeper levels are merged into this one.
pub const DEEPEST: usize = 512;

/// The category of a lap: a repeating stage.
pub const LAP: &str = "lap";

/// The category of a stage inside a graph, stamped by the device: it has no host span.
pub const STAMPED: &str = "stamped";

/// The category of a mark that says where the Python code of a thread was: a sample of its stack.
pub const PYTHON_SAMPLE: &str = "python_sample";

/// The category of a wait of the host for a device, as a span or as a mark.
pub const SYNC: &str = "sync";
