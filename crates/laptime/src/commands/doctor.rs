//! `laptime doctor`: checks whether this machine is fit to measure on.

use std::io::Write;

use laptime_analyze::{DoctorInput, GpuHealth, PeaksState};
use laptime_pipelines::PeakSearch;
use laptime_trace::run::Machine;

use crate::{app::App, cli::Status, kept_peaks, output::OutputArgs};

/// Check whether this machine is fit to measure on
///
/// Exit status 1: it is not fit, because this build is not optimised, or because noise hides differences below 10 %.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  laptime doctor")]
pub struct Args {
    #[command(flatten)]
    output: OutputArgs,
}

pub fn run(app: &App, args: &Args, out: &mut dyn Write) -> anyhow::Result<Status> {
    let environment = app.environment();
    let noise = laptime_bench::noise::noise();
    let driver = laptime_bench::environment::nvidia_driver();
    let found = laptime_pipelines::gpus();
    let no_gpu = found.as_ref().err().map(|none| none.reason.clone());
    let gpus: Vec<GpuHealth> = found.unwrap_or_default().into_iter().map(|gpu| gpu.health).collect();
    let devices = std::iter::once("cpu").chain(gpus.iter().map(|gpu| gpu.device.as_str()));
    let peaks: Vec<(String, PeaksState)> =
        devices.filter_map(|device| Some((device.to_owned(), peaks(app, &environment.machine, device)?))).collect();
    let input = DoctorInput {
        environment: &environment,
        noise: &noise,
        driver: driver.as_deref(),
        has_cuda: laptime_pipelines::HAS_CUDA,
        gpus: &gpus,
        no_gpu: no_gpu.as_deref(),
        peaks: &peaks,
    };
    let answer = laptime_analyze::doctor(&input);
    args.output.write(&laptime_report::tables::doctor(&answer), out)?;
    Ok(if answer.is_fit() { Status::Done } else { Status::BadNews })
}

/// The state of the stored peaks of a device; none if the device cannot be opened.
fn peaks(app: &App, machine: &Machine, device: &str) -> Option<PeaksState> {
    let device = app.device(device).ok()?;
    let Some(kept) = kept_peaks::read(machine, &*device) else { return Some(PeaksState::NotMeasured) };
    let search = PeakSearch { budget_ns: BRIEF_NS, largest_size: BRIEF_SIZE, ..PeakSearch::of(&*device) };
    let exceeded = laptime_pipelines::peaks_below(&*device, &search, &kept).ok()?;
    Some(exceeded.map_or(PeaksState::Measured, |times| PeaksState::TooLow { times }))
}

/// Time to check stored peaks, in nanoseconds.
const BRIEF_NS: u64 = 1_400_000_000;

/// The largest matrix in that check.
const BRIEF_SIZE: usize = 4096;
