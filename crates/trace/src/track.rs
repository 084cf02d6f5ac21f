//! Tracks: the rows of a timeline.

use crate::{column::Cell, names::NameId};

/// The id of a process in a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessId(pub(crate) u32);

impl ProcessId {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// A process, or its equivalent in another tool's trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process {
    /// The system's process id.
    pub number: i64,
    /// Its name.
    pub name: NameId,
}

/// The id of a track in a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TrackId(pub(crate) u32);

impl Cell for TrackId {
    fn number(self) -> u64 {
        u64::from(self.0)
    }

    fn of(number: u64) -> Self {
        Self(number as u32)
    }
}

impl TrackId {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

crate::words! {
    /// What a track shows.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub enum TrackKind, ALL: words {
        Thread = "host thread",
        /// A logical track of the host, independent of threads.
        Lane = "host lane",
        Stream = "device stream",
        Copy = "copy engine",
        Counter = "counter",
    }
}

impl TrackKind {
    /// Finds a kind by its text.
    pub fn from_words(words: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.words() == words)
    }

    /// Whether a track of this kind may belong to a device.
    pub const fn may_have_device(self) -> bool {
        matches!(self, Self::Stream | Self::Copy | Self::Counter)
    }

    /// Whether its spans are timed by a device.
    pub const fn is_device(self) -> bool {
        matches!(self, Self::Stream | Self::Copy)
    }
}

/// A row of a timeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Track {
    /// The process it belongs to.
    pub process: ProcessId,
    /// What it shows.
    pub kind: TrackKind,
    /// Its name.
    pub name: NameId,
    /// The id of the thread or stream, if it has one.
    pub number: Option<i64>,
    /// The id of the device that a stream, a copy engine or a curve belongs to, if known.
    pub device: Option<i64>,
    /// The unit of a curve; empty if none was given, and for any other track.
    pub unit: NameId,
}
