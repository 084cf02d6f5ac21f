//! Who is told what happens.

use laptime_trace::run::{Case, CaseResult};

/// Is told what happens, so that somebody can show and keep it; nothing is shown inside a take.
pub trait Sink {
    /// A case begins, in this process or in a fresh one.
    fn begin(&mut self, case: &Case, run: u32);

    /// A take ended; `counts` is false for a warm-up.
    fn take(&mut self, wall_ns: u64, counts: bool);

    /// A case is done. An error ends the sweep: what cannot be kept need not be measured.
    fn result(&mut self, result: CaseResult) -> anyhow::Result<()>;

    /// Whether to stop after this take.
    fn is_interrupted(&self) -> bool {
        false
    }
}
