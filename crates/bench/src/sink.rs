//! Observers of a sweep.

use laptime_trace::run::{Case, CaseResult};

/// Receives the events of a sweep in order to show and store them; nothing is shown during an iteration.
pub trait Sink {
    /// A case begins, in this process or in a fresh one.
    fn begin(&mut self, case: &Case, run: u32);

    /// An iteration ended; `counts` is false for a warm-up iteration.
    fn iteration(&mut self, wall_ns: u64, counts: bool);

    /// A case is done. An error ends the sweep: results that cannot be stored are not worth measuring.
    fn result(&mut self, result: CaseResult) -> anyhow::Result<()>;

    /// Whether to stop after this iteration.
    fn is_interrupted(&self) -> bool {
        false
    }
}
