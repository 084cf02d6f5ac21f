//! Times: whole nanoseconds since a named origin.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A length of time, or a moment counted from the trace's [`Origin`], in whole nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Nanos(pub u64);

impl Nanos {
    /// The latest moment a trace can hold: the formats count in signed 64-bit numbers.
    pub const MAX: Self = Self(i64::MAX as u64);

    /// Microseconds, as nanoseconds.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros.saturating_mul(1_000))
    }

    /// The distance to an earlier moment; zero if it is not earlier.
    pub const fn saturating_sub(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }

    /// A later moment; [`Nanos::MAX`] at most.
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

/// What a trace's times are counted from.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Origin {
    /// What happened at time zero, in words.
    pub name: String,
    /// Time zero in nanoseconds since 1970, if it is known.
    pub unix_nanos: Option<i64>,
}

impl Origin {
    /// An origin of which only the name is known.
    pub fn named(name: &str) -> Self {
        Self { name: name.to_owned(), unix_nanos: None }
    }
}
