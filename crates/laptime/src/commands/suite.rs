//! `laptime suite`: benchmarks attention and models, and writes a report.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use laptime_bench::{GivenSettings, Seconds};
use laptime_trace::run::RESULTS_FILE;

use super::{bench, report};
use crate::cli::{Status, read_bench};
use crate::estimate::{Estimate, words};
use crate::failure::{self, Hinted, refuse};
use crate::output::{joined, say};
use crate::{app::App, kept_peaks, run_folder, run_input, screen};

/// Where Nano XYZ keeps its reports.
const KIT_REPORTS: &str = "profiling/reports";

/// Benchmark attention and models, and write a report
///
/// Quick: attention at 512 and 1024 tokens, decoder_tiny at 256 and 512. Full: attention from 512 to 8192, decoder_tiny and
/// decoder_small from 256 to 1024 with training. Each step is a `laptime bench` or
/// `laptime report` with its own folder. A step that fails does not stop the others. Exit status 1: a step failed.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  laptime suite\n  laptime suite --full --out runs/full")]
pub struct Args {
    /// Short sequences and a small model; the default
    #[arg(long)]
    quick: bool,
    /// Longer sequences, a larger model, and training
    #[arg(long, conflicts_with = "quick")]
    full: bool,
    /// Folder for the steps [default: runs/suite-TIME] [also: --output-dir]
    #[arg(long, value_name = "DIR", alias = "output-dir")]
    out: Option<PathBuf>,
    /// Folder that contains `runs/` and `profiling/`
    #[arg(long, value_name = "DIR", hide = true)]
    base_dir: Option<PathBuf>,
    /// Maximum measuring time per case [default: 5s, or 10s with `--full`]
    #[arg(long, value_name = "TIME", value_parser = str::parse::<Seconds>)]
    max_time: Option<Seconds>,
    /// Device to run on: `auto`, `cpu`, `cuda`, `cuda:N`
    #[arg(long, value_name = "DEVICE", default_value = "auto")]
    device: String,
    /// Also write the files of Nano XYZ where it wrote them: under `profiling/`
    #[arg(long, alias = "kit-files")]
    compat_files: bool,
    /// Show the commands of the steps and measure nothing
    #[arg(long)]
    dry_run: bool,
    /// Show no progress bar
    #[arg(long, short)]
    quiet: bool,
}

/// A benchmark, with the arguments of `laptime bench`.
struct Step {
    name: &'static str,
    words: Vec<String>,
}

pub fn run(app: &App, args: &Args, out: &mut dyn Write) -> anyhow::Result<Status> {
    if args.dry_run {
        return show(app, args, out);
    }
    let request = enter(args)?;
    let folder = run_folder::make(request.as_deref(), "suite")?;
    let steps = steps(app, args, &folder);
    let mut time = SuiteTime::of(app, &steps);
    say(&format!("{} steps{}", steps.len() + 1, time.left(0)));
    let mut successful = 0;
    for (at, step) in steps.iter().enumerate() {
        say(&format!("\nStep {}/{}: {}{}", at + 1, steps.len() + 1, step.name, time.left(at)));
        let began = Instant::now();
        let is_done = continue_after(app, measure(app, step, out))?;
        time.took(at, began.elapsed());
        successful += usize::from(is_done);
    }
    say(&format!("\nStep {}/{}: report", steps.len() + 1, steps.len() + 1));
    successful += usize::from(continue_after(app, make_report(app, &steps, &folder, args.compat_files))?);
    end(&folder, successful, steps.len() + 1, out)
}

struct SuiteTime {
    /// Estimated seconds of each step, if known.
    steps: Option<Vec<f64>>,
    /// Seconds of the finished steps, estimated and measured.
    expected: f64,
    taken: f64,
}

impl SuiteTime {
    fn of(app: &App, steps: &[Step]) -> Self {
        Self { steps: steps.iter().map(|step| seconds(app, step)).collect(), expected: 0.0, taken: 0.0 }
    }

    /// The time left from a step on, scaled by how the finished steps compared with their estimate.
    fn left(&self, from: usize) -> String {
        let Some(steps) = &self.steps else { return String::new() };
        let scale = if self.expected > 0.0 { (self.taken / self.expected).clamp(0.1, 10.0) } else { 1.0 };
        let left: f64 = steps.iter().skip(from).sum();
        format!(", about {} left", words(scale * left))
    }

    fn took(&mut self, step: usize, time: Duration) {
        self.expected += self.steps.as_ref().and_then(|steps| steps.get(step)).copied().unwrap_or(0.0);
        self.taken += time.as_secs_f64();
    }
}

/// Estimated seconds of a step; none if its work or the rate of the device is unknown.
fn seconds(app: &App, step: &Step) -> Option<f64> {
    let order = read_bench(app, step.words.clone()).ok()?.settle(app, GivenSettings::default()).ok()?;
    let device = app.device(&order.device).ok()?;
    let order = order.on(&*device);
    let peaks = kept_peaks::read(&app.environment().machine, &*device);
    let run = (order.workload.name(), device.name());
    // 0: the total needs the time of every step, however short.
    Estimate::of(app, run, &order.plan.cases(), &order.settings, peaks.as_ref(), 0).total()
}

fn end(folder: &Path, successful: usize, of: usize, out: &mut dyn Write) -> anyhow::Result<Status> {
    writeln!(out, "\n{successful} of {of} steps successful")?;
    out.flush()?;
    say(&format!("Saved to {}", folder.display()));
    Ok(if successful == of { Status::Done } else { Status::BadNews })
}

fn max_time(args: &Args) -> Seconds {
    args.max_time.unwrap_or(Seconds(if args.full { 10.0 } else { 5.0 }))
}

/// Changes to `--base-dir`. Returns `--out`, which stays relative to the old folder.
fn enter(args: &Args) -> anyhow::Result<Option<PathBuf>> {
    let Some(base) = &args.base_dir else { return Ok(args.out.clone()) };
    let out = args.out.as_ref().map(std::path::absolute).transpose()?;
    std::env::set_current_dir(base).map_err(|source| {
        let error = anyhow::Error::new(source).context(format!("cannot work in `{}`", base.display()));
        Hinted::wrap(error, "`--base-dir` must be an existing folder")
    })?;
    Ok(out)
}

/// Whether the suite runs on a GPU. A missing GPU is reported later.
fn is_gpu(app: &App, device: &str) -> bool {
    let opened = app.device(device);
    opened.map_or_else(|_| device.starts_with("cuda"), |device| device.name().starts_with("cuda"))
}

/// The arguments of the steps. On a GPU, short sequences only measure launch overhead, so its lengths are larger.
fn commands(is_gpu: bool, is_full: bool) -> [&'static str; 2] {
    match (is_gpu, is_full) {
        (false, false) => [
            "attention --seq-lens 512,1024 --attention-types dense,sparse",
            "model --presets decoder_tiny --seq-lens 256,512 --no-training",
        ],
        (false, true) => [
            "attention --seq-lens 512-8192*2 --attention-types dense,sparse",
            "model --presets decoder_tiny,decoder_small --seq-lens 256-1024*2 --pass-type forward,step",
        ],
        (true, false) => [
            "attention --seq-lens 2048-32768*4 --attention-types dense,sparse",
            "model --presets decoder_medium --seq-lens 1024-4096*2 --no-training",
        ],
        (true, true) => [
            "attention --seq-lens 1024-65536*2 --attention-types dense,sparse",
            "model --presets decoder_small,decoder_medium --seq-lens 512-2048*2 --pass-type forward,step",
        ],
    }
}

/// The steps, each with its own folder.
fn steps(app: &App, args: &Args, folder: &Path) -> Vec<Step> {
    let [attention, model] = commands(is_gpu(app, &args.device), args.full);
    let step = |name: &'static str, line: &str| {
        let mut words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        words.extend(["--device".to_owned(), args.device.clone()]);
        words.extend(["--max-time".to_owned(), format!("{}s", max_time(args).0)]);
        words.extend(["--out".to_owned(), folder.join(name).to_string_lossy().into_owned()]);
        words.extend(args.compat_files.then(|| "--compat-files".to_owned()));
        words.extend(args.quiet.then(|| "--quiet".to_owned()));
        Step { name, words }
    };
    vec![step("attention", attention), step("model", model)]
}

fn show(app: &App, args: &Args, out: &mut dyn Write) -> anyhow::Result<Status> {
    let folder = args.out.clone().unwrap_or_else(|| PathBuf::from("DIR"));
    let steps = steps(app, args, &folder);
    for step in &steps {
        writeln!(out, "laptime bench {}", joined(&step.words))?;
    }
    let folders: Vec<String> = steps.iter().map(|step| folder.join(step.name).display().to_string()).collect();
    writeln!(out, "laptime report {} --out {}", folders.join(" "), folder.join("report").display())?;
    out.flush()?;
    Ok(Status::Done)
}

fn measure(app: &App, step: &Step, out: &mut dyn Write) -> anyhow::Result<bool> {
    let request = read_bench(app, step.words.clone())?;
    Ok(bench::run(app, &request, out)? == Status::Done)
}

fn make_report(app: &App, steps: &[Step], folder: &Path, is_kit: bool) -> anyhow::Result<bool> {
    let folders = steps.iter().map(|step| folder.join(step.name));
    let folders: Vec<PathBuf> = folders.filter(|folder| folder.join(RESULTS_FILE).is_file()).collect();
    if folders.is_empty() {
        return refuse("no step has results", "the errors are shown above");
    }
    let answer = laptime_analyze::profiling(run_input::read(app, &folders)?);
    report::make(&answer, &folders, &folder.join("report"))?;
    say(&format!("Report: {}", folder.join("report").join(report::DOCUMENT).display()));
    if is_kit {
        report::make(&answer, &folders, Path::new(KIT_REPORTS))?;
        say(&format!("Written: {KIT_REPORTS}/{}", report::DOCUMENT));
    }
    Ok(true)
}

/// Prints why a step failed, and continues unless the user pressed Ctrl-C.
fn continue_after(app: &App, done: anyhow::Result<bool>) -> anyhow::Result<bool> {
    match done {
        Err(error) if app.interrupt.is_requested() || failure::is_closed_pipe(&error) => Err(error),
        Err(error) => {
            failure::print(&error, &mut screen::stderr());
            Ok(false)
        }
        Ok(is_done) => Ok(is_done),
    }
}

#[cfg(test)]
mod tests {
    use laptime_bench::Workload;
    use laptime_pipelines::{Attention, Model};

    use super::*;

    /// The sequence lengths of a command, as its workload resolves them.
    fn lengths(command: &str) -> Vec<i64> {
        let words: Vec<&str> = command.split(' ').collect();
        let flags = words[1..].iter().position(|word| *word == "--seq-lens").unwrap();
        let given = [("seq_len".to_owned(), vec![words[flags + 2].to_owned()])];
        let plan = match words[0] {
            "attention" => Attention.plan(&given),
            _ => Model::new().plan(&[&given[..], &[("preset".to_owned(), vec!["decoder_medium".to_owned()])]].concat()),
        };
        plan.unwrap().cases().iter().map(|case| case.int("seq_len").unwrap()).collect()
    }

    #[test]
    fn the_time_left_is_scaled_by_the_finished_steps() {
        let mut time = SuiteTime { steps: Some(vec![10.0, 100.0]), expected: 0.0, taken: 0.0 };
        assert_eq!(time.left(0), ", about 2 min left");
        time.took(0, Duration::from_secs(20));
        assert_eq!(time.left(1), ", about 3 min left");
    }

    #[test]
    fn lengths_on_a_gpu_begin_where_those_on_a_cpu_end() {
        for at in 0..2 {
            let [cpu, gpu] = [false, true].map(|is_gpu| lengths(commands(is_gpu, false)[at]));
            assert!(cpu.iter().max() <= gpu.iter().min(), "{cpu:?} {gpu:?}");
        }
        assert!(lengths(commands(true, false)[0]).len() >= 3, "a curve needs three lengths to show its growth");
    }
}
