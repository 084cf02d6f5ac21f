//! `laptime doctor`: whether this machine is fit to measure on.

use std::io::Write;

use laptime_analyze::Patient;

use crate::{app::App, cli::Status, kept_peaks, output::OutputArgs};

/// Looks whether this machine is fit to measure on, and what to do about it
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
    let patient = Patient {
        environment: &environment,
        noise: &noise,
        driver: driver.as_deref(),
        has_cuda: laptime_pipelines::HAS_CUDA,
        has_peaks,
    };
    let answer = laptime_analyze::doctor(&patient);
    args.output.write(&laptime_report::tables::doctor(&answer), out)?;
    Ok(Status::Done)
}
