//! Chrome's JSON format: opens in chrome://tracing, ui.perfetto.dev and speedscope.
//!
//! What the format has no place for stands where viewers pass over it: metadata events whose names begin with
//! `laptime_`, and a key `laptime_open` on spans that were still open. With these, our own files come back whole.

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

pub(crate) use self::read::{read_stream, read_text, read_within};
pub use self::{read::read, write::write};

/// Metadata events of our own.
mod meta {
    pub const TRACE: &str = "laptime_trace";
    pub const TRACK: &str = "laptime_track";
    pub const LANE: &str = "laptime_lane";
}

/// The schema of our own entries; readers accept this one and the one before.
const SCHEMA: u64 = 1;

/// The key of an object that stands for a float that JSON has no number for.
const FLOAT: &str = "laptime_float";
