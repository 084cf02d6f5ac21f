//! Perfetto's protobuf format, limited to track events.
//!
//! A file is a sequence of packets. Each lane of each track is a separate packet sequence with interned names, its
//! track as the default and an incremental clock, so that the packet of an event contains little more than a time
//! difference. Packets are collected in blocks and each block is compressed: a file that is cut off anywhere is valid
//! up to its last block. Times are nanoseconds since the trace's origin, on Perfetto's boot-time clock. Data without a
//! place in Perfetto's format (origin, uncertainty, dropped events) goes into metadata entries that begin with
//! `laptime_`.

mod ahead;
mod annotations;
mod clock;
mod contents;
mod encode;
mod events;
mod packet;
mod proto;
mod read;
mod tracks;
mod wire;
mod write;

pub(crate) use self::read::read_within;
pub use self::{
    read::read,
    write::{Begin, Sequence, TrackPlace, TrackText, Writer, write, write_uncompressed},
};

/// The first byte of every packet: field 1, with a length.
pub(crate) const PACKET_TAG: u8 = 0x0a;

/// Entries of the metadata table.
mod meta {
    pub const SCHEMA: &str = "laptime_schema";
    pub const ORIGIN: &str = "laptime_origin";
    pub const ORIGIN_UNIX_NS: &str = "laptime_origin_unix_ns";
    pub const UNCERTAINTY_NS: &str = "laptime_clock_uncertainty_ns";
    pub const LOST: &str = "laptime_lost";
    /// The prefix of a metadata key of the run.
    pub const ABOUT: &str = "laptime_about:";
}

/// The schema of our own entries; readers accept this one and the one before.
const SCHEMA: i64 = 1;

/// An annotation on an end: the span was still open and was closed there.
const OPEN: &str = "laptime:open";

/// An annotation on an end: the whole span is on another lane; this part does not count.
const VOID: &str = "laptime:void";

/// The description of a lane after a track's first.
const LANE: &str = "lane of the track above";

/// The separator between a track and its device in its description.
const ON_DEVICE: &str = " on device ";

/// Perfetto's boot-time clock, on which we count from the origin.
const BOOTTIME: u32 = 6;

/// Perfetto's wall clock.
const REALTIME: u32 = 1;

/// Our incremental clock; numbers from 64 to 127 belong to one sequence.
const INCREMENTAL: u32 = 64;
