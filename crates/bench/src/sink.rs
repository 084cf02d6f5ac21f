//! Observers of a sweep.

use laptime_trace::run::{Case, CaseResult};

use crate::interrupt::Interrupt;

laptime_trace::words! {
    /// What a case is doing.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Phase: word {
        /// It allocates and initialises.
        Prepare = "prepare",
        /// It checks its result.
        Check = "check",
        /// It runs iterations that do not count.
        WarmUp = "warm-up",
        /// It runs iterations that count.
        Measure = "measure",
    }
}

/// Receives the events of a sweep in order to show and store them; nothing is shown during an iteration.
#[allow(unused_variables, reason = "the defaults do nothing")]
pub trait Sink {
    /// A case begins, in this process or in a fresh one.
    fn begin(&mut self, case: &Case, run: u32) {}

    /// The case in this process enters a phase.
    fn phase(&mut self, phase: Phase) {}

    /// An iteration ended; `counts` is false for a warm-up iteration.
    fn iteration(&mut self, wall_ns: u64, counts: bool) {}

    /// A case is done. An error ends the sweep: results that cannot be stored are not worth measuring.
    fn result(&mut self, result: CaseResult) -> anyhow::Result<()> {
        Ok(())
    }

    /// Whether to stop after this iteration.
    fn is_interrupted(&self) -> bool {
        false
    }
}

/// Shows and stores nothing.
impl Sink for () {}

/// Shows and stores nothing, and stops when it is asked to.
impl Sink for Interrupt {
    fn is_interrupted(&self) -> bool {
        self.is_requested()
    }
}
