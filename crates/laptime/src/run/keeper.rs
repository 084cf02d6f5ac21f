//! Saves every result of a sweep at once, and shows progress.

use std::path::Path;

use laptime_bench::{Case, CaseResult, Interrupt, Outcome, Phase, Sink};
use laptime_trace::run::{ResultsWriter, RunFileError};

use crate::progress::Progress;

pub struct Keeper {
    writer: ResultsWriter,
    /// All results, including those from before a resume.
    pub results: Vec<CaseResult>,
    progress: Progress,
    interrupt: Interrupt,
    runs: u32,
}

impl Keeper {
    /// Appends to the results in a folder; `before` are the finished ones.
    pub fn new(
        folder: &Path,
        before: Vec<CaseResult>,
        progress: Progress,
        interrupt: &Interrupt,
        runs: u32,
    ) -> Result<Self, RunFileError> {
        let writer = ResultsWriter::open(folder)?;
        Ok(Self { writer, results: before, progress, interrupt: interrupt.clone(), runs })
    }
}

impl Sink for Keeper {
    fn begin(&mut self, case: &Case, run: u32) {
        self.progress.begin(case, run, self.runs);
    }

    fn phase(&mut self, phase: Phase) {
        self.progress.phase(phase);
    }

    fn iteration(&mut self, _: u64, _: bool) {
        self.progress.iteration();
    }

    fn result(&mut self, result: CaseResult) -> anyhow::Result<()> {
        // Interrupted before its first iteration.
        if result.measured().is_some_and(|measured| measured.wall_ns.is_empty()) {
            return Ok(());
        }
        self.writer.append(&result)?;
        if let Outcome::Failed { errors, .. } = &result.outcome {
            let why = errors.first().map_or("", String::as_str);
            self.progress.say(&format!("warning: case {} failed: {why}", result.case));
        }
        self.progress.done();
        self.results.push(result);
        Ok(())
    }

    fn is_interrupted(&self) -> bool {
        self.interrupt.is_requested()
    }
}
