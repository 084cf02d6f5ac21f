//! Perfetto's protobuf format, as far as track events go.
//!
//! A file is a row of packets. Each lane of each track is a packet sequence of its own, with names interned, its
//! track as the default and an incremental clock, so that the packet of an event holds a time difference and little
//! else. Packets are gathered into blocks and each block is compressed: a file cut off anywhere is whole up to its
//! last block. Times are nanoseconds since the trace's origin, on Perfetto's boot-time clock; what Perfetto has no
//! place for (origin, uncertainty, loss) stands in metadata entries that begin with `laptime_`.

mod annotations;
mod clock;
mod contents;
mod encode;
mod events;
mod proto;
mod read;
mod tracks;
mod write;

pub(crate) use self::read::read_within;
pub use self::{
    read::read,
    write::{Begin, Sequence, TrackPlace, TrackText, Writer, write, write_uncompressed},
};

/// The byte that every packet begins with: field 1, with a length.
pub(crate) const PACKET_TAG: u8 = 0x0a;

/// Entries of the metadata table.
mod meta {
    pub const SCHEMA: &str = "laptime_schema";
    pub const ORIGIN: &str = "laptime_origin";
    pub const ORIGIN_UNIX_NS: &str = "laptime_origin_unix_ns";
    pub const UNCERTAINTY_NS: &str = "laptime_clock_uncertainty_ns";
    pub const LOST: &str = "laptime_lost";
    /// The beginning of a key that says something of the run as a whole.
    pub const ABOUT: &str = "laptime_about:";
}

/// The schema of our own entries; readers accept this one and the one before.
const SCHEMA: i64 = 1;

/// An annotation on an end: the span was still open and was closed there.
const OPEN: &str = "laptime:open";

/// An annotation on an end: the span goes on elsewhere, whole; this piece of it does not count.
const VOID: &str = "laptime:void";

/// The description of a lane beyond a track's first.
const LANE: &str = "lane of the track above";

/// Between a track and its device, in its description.
const ON_DEVICE: &str = " on device ";

/// Perfetto's boot-time clock, on which we count from the origin.
const BOOTTIME: u32 = 6;

/// Perfetto's wall clock.
const REALTIME: u32 = 1;

/// Our incremental clock; numbers from 64 to 127 belong to one sequence.
const INCREMENTAL: u32 = 64;
