//! `laptime compare TRACE TRACE`: the steps that add up to the difference in time.

use std::{io::Write, path::Path};

use laptime_analyze::{AccountOptions, Accounts, By, NoAccount, Owner};
use laptime_trace::Trace;

use crate::choice::{Choice, first_given, one_of};
use crate::failure::{refusal, refuse};
use crate::output::OutputArgs;
use crate::{absent, cli::Status, commands::page};

/// For traces
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "For traces")]
pub struct TraceArgs {
    /// How to group the work of a device [default: kernel]
    #[arg(long, value_name = "WHAT", value_parser = one_of(&GROUPINGS))]
    by: Option<By>,
    /// The repeating unit; detected automatically by default: `token`, `ProfilerStep#*`
    #[arg(long, value_name = "NAME")]
    lap: Option<String>,
    /// The device to compare, if there are several [default: all of them, on average]
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true)]
    device: Option<i64>,
    /// Steps to show; all others become one [default: 20]
    #[arg(long, value_name = "COUNT")]
    most: Option<usize>,
}

const GROUPINGS: [Choice<By>; 4] = [
    ("kernel", "The kernel's name", By::Kernel),
    ("group", "The kind of work: matmul, attention, norm, activation, copy, communication, other", By::Group),
    ("operation", "The outermost operation of the framework that launched it", By::Operation),
    ("stage", "The innermost stage that launched it", By::Stage),
];

const STEPS: usize = 20;

impl TraceArgs {
    pub fn check_unused(&self) -> anyhow::Result<()> {
        let given = [
            ("--by", self.by.is_some()),
            ("--lap", self.lap.is_some()),
            ("--device", self.device.is_some()),
            ("--most", self.most.is_some()),
        ];
        match first_given(given) {
            Some(flag) => {
                let reason = format!("`{flag}` applies to traces, and these are runs");
                refuse(reason, "leave it out, or name two traces")
            }
            None => Ok(()),
        }
    }

    fn dividing(&self) -> AccountOptions {
        AccountOptions { by: self.by.unwrap_or(By::Kernel), lap: self.lap.clone(), device: self.device }
    }
}

/// Compares two traces, with one in memory at a time.
pub fn run(
    paths: [&Path; 2],
    threshold: Option<f64>,
    args: &TraceArgs,
    output: &OutputArgs,
    out: &mut dyn Write,
) -> anyhow::Result<Status> {
    let how = args.dividing();
    let a = divided(paths[0], &how, output)?;
    let b = divided(paths[1], &how, output)?;
    check_owners(paths, [&a, &b])?;
    let answer = laptime_analyze::waterfall(&a, &b).shortened(args.most.unwrap_or(STEPS));
    match output.page() {
        Some(target) => {
            let title = format!("{} -> {}", paths[0].display(), paths[1].display());
            page::write(&laptime_page::of_waterfall(&answer, &title), target)?;
        }
        None => output.write(&laptime_report::tables::waterfall(&answer), out).map(drop)?,
    }
    let is_slower = threshold.is_some_and(|threshold| answer.share().is_some_and(|share| share > threshold));
    Ok(if is_slower { Status::BadNews } else { Status::Done })
}

/// Refuses to compare the time of a device with that of a thread.
fn check_owners(paths: [&Path; 2], accounts: [&Accounts; 2]) -> anyhow::Result<()> {
    let has_device = accounts.map(|accounts| !matches!(accounts.whole.of, Owner::Thread(_)));
    if has_device[0] == has_device[1] {
        return Ok(());
    }
    let [with, without] = if has_device[0] { paths } else { [paths[1], paths[0]] };
    let reason = format!("`{}` contains GPU work and `{}` does not", with.display(), without.display());
    refuse(reason, "record both in the same way; torch.profiler needs `ProfilerActivity.CUDA` to record the GPU")
}

fn divided(path: &Path, how: &AccountOptions, output: &OutputArgs) -> anyhow::Result<Accounts> {
    let trace = output.read_trace(path)?;
    laptime_analyze::accounts(&trace, how).map_err(|why| not_comparable(&trace, path, why))
}

fn not_comparable(trace: &Trace, path: &Path, why: NoAccount) -> anyhow::Error {
    let path = path.display();
    match why {
        NoAccount::Empty => refusal(
            format!("`{path}` has no spans to compare"),
            "record the pipeline with marked stages, or with a profiler",
        ),
        NoAccount::NoSuchDevice(known) => {
            let known: Vec<String> = known.iter().map(ToString::to_string).collect();
            refusal(format!("`{path}` has no such device"), format!("it has {}", known.join(", ")))
        }
        NoAccount::NoLaps(reason) => {
            absent::no_laps(trace, &reason).context(format!("cannot compare laps of `{path}`"))
        }
    }
}
