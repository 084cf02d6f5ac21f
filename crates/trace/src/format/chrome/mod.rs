//! Chrome's JSON format: opens in chrome://tracing, ui.perfetto.dev and speedscope.
//!
//! Data without a place in the format goes where viewers ignore it: metadata events whose names begin with `laptime_`,
//! and a key `laptime_open` on spans that were still open. With these, our own files are lossless.

mod batch;
mod cache;
mod document;
mod finish;
mod flows;
mod kineto;
mod lexer;
mod pipeline;
mod read;
mod row;
mod scan;
mod stream;
mod ties;
mod time;
mod tracks;
mod walk;
mod write;
mod xprof;

pub(crate) use self::read::{read_parallel, read_within};
pub use self::{read::read, write::write};

/// Our own metadata events.
mod meta {
    pub const TRACE: &str = "laptime_trace";
    pub const TRACK: &str = "laptime_track";
    pub const LANE: &str = "laptime_lane";
}

/// The schema of our own entries; readers accept this one and the one before.
const SCHEMA: u64 = 1;

/// The key of an object that encodes a float for which JSON has no number.
const FLOAT: &str = "laptime_float";
