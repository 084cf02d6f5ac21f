//! `laptime doctor`: whether this machine is fit to measure on.

use std::io::Write;

use laptime_analyze::{GpuHealth, Patient};
use laptime_pipelines::GpuFound;

use crate::{app::App, cli::Status, kept_peaks, output::OutputArgs};

/// Checks whether this machine is fit to measure on, and what to do about it
///
/// Exit status 1 says that it is unfit: this build is not optimised, or threads here lose so much time, or run at such
/// different speeds, that differences below 10 % cannot be told from noise.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  laptime doctor")]
pub struct Args {
    #[command(flatten)]
    output: OutputArgs,
}

/// Runs the command.
pub fn run(app: &App, args: &Args, out: &mut dyn Write) -> anyhow::Result<Status> {
    let environment = app.environment();
    let noise = laptime_bench::noise::noise();
    let has_peaks = kept_peaks::read(&environment.machine, "cpu").is_some();
    let driver = laptime_bench::environment::nvidia_driver();
    let found = laptime_pipelines::gpus();
    let no_gpu = found.as_ref().err().map(|none| none.reason.clone());
    let gpus: Vec<GpuHealth> = found.unwrap_or_default().into_iter().map(health).collect();
    let patient = Patient {
        environment: &environment,
        noise: &noise,
        driver: driver.as_deref(),
        has_cuda: laptime_pipelines::HAS_CUDA,
        gpus: &gpus,
        no_gpu: no_gpu.as_deref(),
        has_peaks,
    };
    let answer = laptime_analyze::doctor(&patient);
    args.output.write(&laptime_report::tables::doctor(&answer), out)?;
    Ok(if answer.is_fit() { Status::Done } else { Status::BadNews })
}

fn health(gpu: GpuFound) -> GpuHealth {
    let GpuFound { device, name, cuda, clock_limit_mhz, power_limit_watts, state, no_kernels, .. } = gpu;
    GpuHealth { device, name, cuda, clock_limit_mhz, power_limit_watts, state, no_kernels }
}
