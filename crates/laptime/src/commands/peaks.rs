//! `laptime peaks`: measures the peak rates of this machine.

use std::io::Write;

use laptime_pipelines::{PeakProgress, PeakSearch};
use laptime_trace::run::Peaks;

use crate::output::{OutputArgs, say, warn};
use crate::{app::App, cli::Status, failure::refusal, kept_peaks, progress::Progress, run_folder};

/// Measure peak FLOP/s and memory bandwidth, for MFU, MBU and limits
///
/// The better of the new and the saved peak is saved: other programs can only lower a measured peak.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  laptime peaks\n  laptime peaks --show\n  laptime peaks --reset")]
pub struct Args {
    /// Show the saved peaks and measure nothing
    #[arg(long)]
    show: bool,
    /// Replace the saved peaks
    #[arg(long, conflicts_with = "show")]
    reset: bool,
    /// Device to measure: `auto`, `cpu`, `cuda`, `cuda:N`
    #[arg(long, default_value = "auto", value_name = "DEVICE")]
    device: String,
    /// Show no progress
    #[arg(long, short)]
    quiet: bool,
    #[command(flatten)]
    output: OutputArgs,
}

pub fn run(app: &App, args: &Args, out: &mut dyn Write) -> anyhow::Result<Status> {
    let device = app.device(&args.device)?;
    let environment = app.environment();
    let peaks = if args.show {
        kept_peaks::read(&environment.machine, &*device).ok_or_else(|| {
            let reason = format!("the peaks of `{}` were not measured on this machine", device.name());
            refusal(reason, "`laptime peaks` measures them in about 20 seconds")
        })?
    } else {
        if environment.build.is_unoptimised() {
            warn("this is a debug build, so its peaks are not meaningful; build with `--release`");
        }
        if let Some(load) = environment.load.filter(|&load| load > 0.5 * f64::from(environment.machine.cpus)) {
            warn(&format!(
                "load average was {load:.1} on {} CPUs: these peaks may be too low; measure again when nothing else runs",
                environment.machine.cpus
            ));
        }
        measure(app, &*device, &environment.machine, args.quiet)?
    };
    if args.show {
        return args.output.write(&laptime_report::tables::peaks(&peaks), out);
    }
    let (kept, path) = kept_peaks::keep(peaks.clone(), &environment.machine, args.reset)?;
    args.output.write(&laptime_report::tables::peaks(&kept), out)?;
    say(&format!("\nKept in {}", path.display()));
    if (&kept.flops, &kept.bandwidth) != (&peaks.flops, &peaks.bandwidth) {
        say("Some earlier peaks were higher and were kept; `laptime peaks --reset` removes them");
    }
    Ok(Status::Done)
}

fn measure(
    app: &App,
    device: &dyn laptime_bench::Device,
    machine: &laptime_trace::run::Machine,
    is_quiet: bool,
) -> anyhow::Result<Peaks> {
    app.listen_for_interrupts();
    let mut progress = Progress::new(0, is_quiet);
    let mut go_on = |step: PeakProgress<'_>| {
        progress.step(step.at, step.of, &format!("{} {}", step.workload, step.case));
        !app.interrupt.is_requested()
    };
    let (machine, now) = (machine.fingerprint(), run_folder::timestamp());
    let measured = laptime_pipelines::measure_peaks(device, &PeakSearch::of(device), &machine, &now, &mut go_on)?;
    measured.ok_or_else(|| refusal("interrupted", "nothing was saved; `laptime peaks` starts over"))
}
