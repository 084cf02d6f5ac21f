//! Runs tests: one table on the standard output, and an exit status of 0 if all tests passed, 1 if a test failed, and 2 if
//! there is no GPU.

use std::io::{self, Write};
use std::{process::ExitCode, time::Instant};

use laptime_cuda::CudaError;

use crate::Bench;

/// The result of a test: its measurements, or why it failed.
pub type Answer = Result<String, Failed>;

/// A test by its name.
pub type Test = (&'static str, fn(&Bench) -> Answer);

/// Why a test failed.
#[derive(Debug)]
pub enum Failed {
    /// A result is wrong.
    Wrong(String),
    /// Something that the test needs is missing.
    Skipped(String),
}

impl From<CudaError> for Failed {
    fn from(error: CudaError) -> Self {
        match error {
            CudaError::Missing { .. } => Self::Skipped(error.to_string()),
            other => Self::Wrong(other.to_string()),
        }
    }
}

/// Fails the test with this message unless the condition holds.
pub fn expect(holds: bool, words: impl FnOnce() -> String) -> Result<(), Failed> {
    if holds { Ok(()) } else { Err(Failed::Wrong(words())) }
}

/// Runs the tests whose names contain one of the words, or all without words.
pub fn run(bench: Result<Bench, CudaError>, tests: &[Test], words: &[&str]) -> io::Result<ExitCode> {
    let bench = match bench {
        Ok(bench) => bench,
        Err(error) => return refuse(&error),
    };
    let is_chosen = |name: &str| words.is_empty() || words.iter().any(|word| name.contains(word));
    let mut out = io::stdout();
    writeln!(out, "{:<8} {:>8}  test and figures", "result", "seconds")?;
    let mut failed = 0;
    for (name, test) in tests.iter().filter(|(name, _)| is_chosen(name)) {
        let began = Instant::now();
        let (result, figures) = match test(&bench) {
            Ok(figures) => ("ok", figures),
            Err(Failed::Skipped(why)) => ("skipped", why),
            Err(Failed::Wrong(why)) => ("FAILED", why),
        };
        failed += u32::from(result == "FAILED");
        writeln!(out, "{result:<8} {:>8.2}  {name}", began.elapsed().as_secs_f64())?;
        for line in figures.lines() {
            writeln!(out, "{:21}{line}", "")?;
        }
        out.flush()?;
    }
    writeln!(out, "{failed} failed")?;
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Reports why there is no GPU to test.
pub fn refuse(error: &CudaError) -> io::Result<ExitCode> {
    let mut out = io::stderr();
    writeln!(out, "error: {error}")?;
    if let Some(hint) = error.hint() {
        writeln!(out, "\nhint: {hint}")?;
    }
    Ok(ExitCode::from(2))
}

/// The median; NaN without values, so that no bound holds.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
