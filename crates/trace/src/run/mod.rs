//! What a benchmark leaves behind: [`CaseResult`]s in `results.jsonl`, the [`Run`] they belong to in `run.json`.
//!
//! These are plain records with public fields. They are written by the measuring loop and read by everything else, so
//! nothing here measures, summarises or prints. Every record carries [`SCHEMA`]; readers accept this number and the one
//! before. New fields that may be missing do not raise it.

mod case;
mod depth;
mod device_state;
mod environment;
mod l2;
mod manifest;
mod noise;
mod peaks;
mod result;
mod results;
mod settings;
mod timing;

pub use self::{
    case::{AxisValue, Case, NoSuchValue},
    depth::{Depth, NoDepth},
    device_state::DeviceState,
    environment::{Build, Environment, Gpu, Machine},
    l2::{L2, NoL2},
    manifest::{AxisValues, RUN_FILE, Run},
    noise::{HostClock, Noise, Steal, Watch},
    peaks::{Bandwidth, PeakFlops, PeakGpu, Peaks},
    result::{Better, CaseResult, Fact, Measured, Metric, Outcome, Steady, StopReason, Traffic, Work},
    results::{RESULTS_FILE, Results, ResultsFile, ResultsWriter, RunFileError, read_results},
    settings::{Settings, Stop, WarmUp},
    timing::{NoTiming, Timing},
};

/// The version of `run.json`, of each line of `results.jsonl` and of kept peaks.
pub const SCHEMA: u32 = 1;

/// The oldest version that is read.
pub const OLDEST_SCHEMA: u32 = 1;

/// A short name for some content: the same bytes give the same name everywhere (64-bit FNV-1a, in hexadecimal).
pub fn fingerprint(content: &[u8]) -> String {
    let hash = content
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    format!("{hash:016x}")
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_fingerprint_is_the_published_one() {
        assert_eq!(super::fingerprint(b""), "cbf29ce484222325");
        assert_eq!(super::fingerprint(b"foobar"), "85944171f73967e8");
    }
}
