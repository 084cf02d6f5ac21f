//! Observers of a sweep.

use laptime_trace::run::{Case, CaseResult};

/// What a case is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// It allocates and initialises.
    Prepare,
    /// It checks its result.
    Check,
    /// It runs iterations that do not count.
    WarmUp,
    /// It runs iterations that count.
    Measure,
}

impl Phase {
    /// The phase in one word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Prepare => "prepare",
            Self::Check => "check",
            Self::WarmUp => "warm-up",
            Self::Measure => "measure",
        }
    }
}

/// Receives the events of a sweep in order to show and store them; nothing is shown during an iteration.
pub trait Sink {
    /// A case begins, in this process or in a fresh one.
    fn begin(&mut self, case: &Case, run: u32);

    /// The case in this process enters a phase.
    fn phase(&mut self, phase: Phase) {
        let _ = phase;
    }

    /// An iteration ended; `counts` is false for a warm-up iteration.
    fn iteration(&mut self, wall_ns: u64, counts: bool);

    /// A case is done. An error ends the sweep: results that cannot be stored are not worth measuring.
    fn result(&mut self, result: CaseResult) -> anyhow::Result<()>;

    /// Whether to stop after this iteration.
    fn is_interrupted(&self) -> bool {
        false
    }
}
