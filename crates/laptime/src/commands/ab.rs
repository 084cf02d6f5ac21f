//! `laptime ab`: two variants in fresh processes, interleaved, with a verdict.

use std::{io::Write, path::PathBuf, time::Duration};

use laptime_bench::{Case, CaseResult, GivenSettings, Interrupt, Job, Outcome, Seconds, Share, WarmUp};
use laptime_stats::{Rng, Verdict};
use laptime_trace::run::{AxisValue, AxisValues, Measured, ResultsWriter, Run, SCHEMA, StopReason};

use crate::cli::{self, Status};
use crate::output::{FormatArgs, warn, write_to_screen};
use crate::shell::{self, Ended};
use crate::{
    app::App,
    commands::page,
    failure::{Hinted, refusal, refuse},
    fresh_process,
    progress::Progress,
    run_folder,
    session::command_line,
};

/// Compare two commands or settings, interleaved, with a verdict
///
/// A variant is a workload with its flags, or any shell command. Both run in fresh processes, in random order, so that
/// drift affects both. Exit status 1: B is slower than A.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  laptime ab --a 'matmul --size 512 --threads 1' --b 'matmul --size 512 --threads 2'\n  laptime ab --a 'python old.py' --b 'python new.py' --runs 20"
)]
pub struct Args {
    /// Baseline: a workload with its flags, or a shell command
    #[arg(long, value_name = "VARIANT")]
    a: String,
    /// Variant to compare with the baseline
    #[arg(long, value_name = "VARIANT")]
    b: String,
    /// Fresh processes per variant [default: 10 for a workload, 20 for a command]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    runs: Option<u32>,
    /// Smallest difference that matters
    #[arg(long, value_name = "SHARE", value_parser = str::parse::<Share>)]
    threshold: Option<Share>,
    /// Treat both variants as shell commands, even if they begin with the name of a workload
    #[arg(long)]
    shell: bool,
    /// Stop with an error if a process takes longer than this; it is killed with its children
    #[arg(long, value_name = "TIME", value_parser = str::parse::<Seconds>)]
    timeout: Option<Seconds>,
    /// Seed of the random order
    #[arg(long, default_value_t = 0, value_name = "NUMBER")]
    seed: u64,
    /// Folder for the results [default: runs/ab-TIME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Show no progress bar
    #[arg(long, short)]
    quiet: bool,
    #[command(flatten)]
    format: FormatArgs,
}

/// Default processes per workload: ten detect a 5 % slowdown if processes differ by less than 2 %.
const WORKLOAD_RUNS: u32 = 10;

/// Default processes per command; each is one iteration.
const COMMAND_RUNS: u32 = 20;

/// Default measuring time per process.
const SECONDS: f64 = 2.0;

pub fn run(app: &App, args: &Args, out: &mut dyn Write) -> anyhow::Result<Status> {
    let variants = [Variant::read(app, "a", &args.a, args)?, Variant::read(app, "b", &args.b, args)?];
    let is_command = variants.iter().any(|variant| matches!(variant.kind, Kind::Command));
    let runs = args.runs.unwrap_or(if is_command { COMMAND_RUNS } else { WORKLOAD_RUNS });
    if app.environment().build.is_unoptimised() && !is_command {
        warn("this is a debug build, so its times are not meaningful; build with `--release`");
    }
    let folder = run_folder::make(args.out.as_deref(), "ab")?;
    app.listen_for_interrupts();
    let run = describe(app, &variants, runs);
    run.write(&folder)?;
    let environment = run.environment_fingerprint.clone();
    let (writer, progress) = (ResultsWriter::open(&folder)?, Progress::new(2 * runs as usize, args.quiet));
    let (timeout, iterations) = (args.timeout, [Vec::new(), Vec::new()]);
    let mut runner = Runner { app, environment, writer, progress, runs, timeout, iterations };
    // Fills the page cache. Processes of a workload do their own warm-up.
    for variant in variants.iter().filter(|variant| matches!(variant.kind, Kind::Command)) {
        run_command(variant, args.timeout, &app.interrupt)?;
    }
    if app.interrupt.is_requested() {
        return refuse("interrupted before the first pair", "run it again");
    }
    runner.run_pairs(&variants, runs, args.seed)?;
    let [a, b] = runner.iterations;
    let pairs = a.len().min(b.len());
    drop(runner.progress);
    if pairs == 0 {
        return refuse("interrupted before the first pair was complete", "run it again");
    }
    let answer = laptime_analyze::ab([(&args.a, &a), (&args.b, &b)], args.threshold.map(|share| share.0))?;
    let table = laptime_report::tables::ab(&answer);
    write_to_screen(&table, args.format.format(), out)?;
    page::write_comparison(&folder, table);
    run_folder::say_saved(&folder, &[]);
    if app.interrupt.is_requested() {
        let reason = format!("interrupted after {pairs} of {runs} pairs");
        return refuse(reason, "the verdict uses the finished pairs; run the command again to measure all of them");
    }
    Ok(if answer.comparison.judged.verdict == Verdict::Slower { Status::BadNews } else { Status::Done })
}

struct Variant {
    label: &'static str,
    text: String,
    kind: Kind,
}

enum Kind {
    Workload(Box<Job>),
    Command,
}

impl Variant {
    fn read(app: &App, label: &'static str, text: &str, args: &Args) -> anyhow::Result<Self> {
        let words = shlex::split(text).unwrap_or_default();
        let is_workload = words.first().is_some_and(|word| app.registry.workload(word).is_some());
        if text.trim().is_empty() {
            return refuse(format!("variant `{label}` is empty"), "give a workload with its flags, or a shell command");
        }
        let is_workload = is_workload && !args.shell;
        let kind =
            if is_workload { Kind::Workload(Box::new(job(app, label, words, args.timeout)?)) } else { Kind::Command };
        Ok(Self { label, text: text.to_owned(), kind })
    }
}

/// Parses a workload and its flags as `bench` does.
fn job(app: &App, label: &str, words: Vec<String>, timeout: Option<Seconds>) -> anyhow::Result<Job> {
    let wrong = |error: anyhow::Error| error.context(format!("variant `{label}` cannot be used"));
    let request = cli::read_bench(app, words).map_err(wrong)?;
    let defaults = GivenSettings { max_time: Some(Seconds(SECONDS)), timeout, ..GivenSettings::default() };
    let order = request.settle(app, defaults).map_err(wrong)?;
    let cases = order.plan.cases();
    if cases.len() != 1 {
        let reason = format!("variant `{label}` has {} cases; it must be one case", cases.len());
        return refuse(reason, "give one value for each axis");
    }
    let device = app.device(&order.device).map_err(wrong)?;
    let settings = order.settings_on(&*device).map_err(wrong)?;
    let cases = cases.iter().map(|case| order.workload.on_device(case, &*device)).collect();
    let device = device.name().to_owned();
    let settings = laptime_bench::Settings { runs: 1, isolate: true, ..settings };
    let workload = order.workload.name().to_owned();
    let environment = app.environment().fingerprint();
    Ok(Job { workload, device, cases, run: 0, settings, environment, trace: None })
}

/// The `run.json` of a comparison: the variants are the values of its only axis.
fn describe(app: &App, variants: &[Variant; 2], runs: u32) -> Run {
    let environment = app.environment();
    let of_job = variants.iter().find_map(|variant| match &variant.kind {
        Kind::Workload(job) => Some((job.device.clone(), job.settings)),
        Kind::Command => None,
    });
    let alone = GivenSettings { iterations: Some(1), warmup: Some(WarmUp::Iterations(0)), ..GivenSettings::default() };
    let (device, settings) =
        of_job.unwrap_or_else(|| ("host".to_owned(), alone.settle().expect("one iteration is enough")));
    let values = variants.iter().map(|variant| AxisValue::Text(variant.text.clone())).collect();
    Run {
        schema: SCHEMA,
        command: command_line(),
        started: run_folder::timestamp(),
        workload: "ab".to_owned(),
        device,
        axes: vec![AxisValues { axis: "variant".to_owned(), values }],
        cases: Vec::new(),
        settings: laptime_bench::Settings { runs, ..settings },
        environment_fingerprint: environment.fingerprint(),
        environment,
        peaks: None,
    }
}

/// Measures both variants, interleaved, and saves the results.
struct Runner<'a> {
    app: &'a App,
    environment: String,
    writer: ResultsWriter,
    progress: Progress,
    runs: u32,
    timeout: Option<Seconds>,
    /// The iterations of each process, per variant.
    iterations: [Vec<Vec<f64>>; 2],
}

impl Runner<'_> {
    /// Measures pairs of processes, each pair in random order.
    fn run_pairs(&mut self, variants: &[Variant; 2], runs: u32, seed: u64) -> anyhow::Result<()> {
        for (pair, first) in (0..runs).zip(orders(runs, seed)) {
            for side in [first, 1 - first] {
                if self.app.interrupt.is_requested() {
                    return Ok(());
                }
                self.measure(&variants[side], side, pair)?;
            }
        }
        Ok(())
    }

    fn measure(&mut self, variant: &Variant, side: usize, pair: u32) -> anyhow::Result<()> {
        let label = Case::new(vec![("variant".to_owned(), variant.label.into())]);
        self.progress.begin(&label, pair, self.runs);
        let result = match &variant.kind {
            Kind::Workload(job) => self.measure_workload(job, variant.label, pair)?,
            Kind::Command => self.measure_command(variant, pair)?,
        };
        let Some(result) = result else { return Ok(()) };
        self.writer.append(&result)?;
        self.progress.done();
        let measured = result.measured().ok_or_else(|| not_measured(variant, &result.outcome))?;
        self.iterations[side].push(measured.wall_ns.iter().map(|&wall| wall as f64).collect());
        Ok(())
    }

    fn measure_workload(&self, job: &Job, label: &str, pair: u32) -> anyhow::Result<Option<CaseResult>> {
        let result = fresh_process::measure(self.app, &Job { run: pair, ..job.clone() })?;
        Ok(result.map(|result| CaseResult { case: with_variant(&result.case, label), ..result }))
    }

    fn measure_command(&self, variant: &Variant, pair: u32) -> anyhow::Result<Option<CaseResult>> {
        let Some(nanos) = run_command(variant, self.timeout, &self.app.interrupt)? else { return Ok(None) };
        let measured = Measured { wall_ns: vec![nanos], stopped: StopReason::Iterations(1), ..Measured::default() };
        let case = Case::new(vec![("command".to_owned(), variant.text.as_str().into())]);
        let case = with_variant(&case, variant.label);
        Ok(Some(CaseResult::new("command", "host", case, pair, &self.environment, Outcome::Measured(measured))))
    }
}

/// Which side is first in each pair. Each side is first in half of the pairs.
fn orders(runs: u32, seed: u64) -> Vec<usize> {
    let mut rng = Rng::new(seed);
    let odd = rng.below(2);
    let mut orders: Vec<usize> = (0..runs as usize).map(|pair| (pair + odd) % 2).collect();
    rng.shuffle(&mut orders);
    orders
}

fn with_variant(case: &Case, label: &str) -> Case {
    let variant = ("variant".to_owned(), label.into());
    let values = case.values().map(|(axis, value)| (axis.to_owned(), value.clone()));
    Case::new(std::iter::once(variant).chain(values).collect())
}

fn not_measured(variant: &Variant, outcome: &Outcome) -> anyhow::Error {
    let why = match outcome {
        Outcome::Failed { errors, .. } => errors.join(": "),
        Outcome::Skipped { reason } => reason.clone(),
        Outcome::OutOfMemory { .. } => "it needs more memory than is available".to_owned(),
        Outcome::Measured(_) => String::new(),
    };
    let reason = format!("variant `{}` was not measured: {why}", variant.label);
    refusal(reason, format!("try it alone: `laptime bench {}`", variant.text))
}

/// Runs a command in a shell. Returns its time in nanoseconds; none if the user interrupted it.
fn run_command(variant: &Variant, limit: Option<Seconds>, interrupt: &Interrupt) -> anyhow::Result<Option<u64>> {
    let ended = shell::run(&variant.text, limit.map(|limit| Duration::from_nanos(limit.nanos())), interrupt)?;
    let error = match (ended, limit) {
        (Ended::Success(nanos), _) => return Ok(Some(nanos)),
        (Ended::Interrupted, _) => return Ok(None),
        (Ended::Failure(status, last), _) => {
            let last = last.unwrap_or_else(|| "it wrote nothing to standard error".to_owned());
            anyhow::anyhow!("{last}").context(format!("variant `{}` failed ({status})", variant.label))
        }
        (Ended::TimedOut, limit) => {
            let limit = limit.map_or_else(String::new, |limit| format!(" within {limit}"));
            let reason = format!("variant `{}` did not end{limit} and was stopped", variant.label);
            return refuse(reason, "give it more time with `--timeout`");
        }
    };
    Err(Hinted::wrap(error, format!("try it alone: `{}`", variant.text)))
}

#[cfg(test)]
mod tests {
    use super::orders;

    #[test]
    fn each_side_goes_first_in_half_of_the_pairs_whatever_the_seed() {
        for seed in 0..20 {
            let orders = orders(20, seed);
            assert_eq!(orders.iter().filter(|&&first| first == 0).count(), 10, "{seed}");
            assert!(orders.windows(2).any(|pair| pair[0] == pair[1]), "they do not simply alternate");
        }
    }
}
