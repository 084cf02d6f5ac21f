//! Times: whole nanoseconds since a named origin.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A duration, or a time since the trace's [`Origin`], in whole nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Nanos(pub u64);

impl Nanos {
    /// The latest time in a trace: the formats use signed 64-bit numbers.
    pub const MAX: Self = Self(i64::MAX as u64);

    /// Converts microseconds to nanoseconds.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros.saturating_mul(1_000))
    }

    /// The distance to an earlier moment; zero if it is not earlier.
    pub const fn saturating_sub(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }

    /// A later time; at most [`Nanos::MAX`].
    pub const fn saturating_add(self, length: Self) -> Self {
        let sum = self.0.saturating_add(length.0);
        if sum > Self::MAX.0 { Self::MAX } else { Self(sum) }
    }
}

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ns", self.0)
    }
}

/// The origin of a trace's times.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Origin {
    /// A description of time zero.
    pub name: String,
    /// Time zero in nanoseconds since 1970, if known.
    pub unix_nanos: Option<i64>,
}

impl Origin {
    /// An origin with only a description.
    pub fn named(name: &str) -> Self {
        Self { name: name.to_owned(), unix_nanos: None }
    }
}
