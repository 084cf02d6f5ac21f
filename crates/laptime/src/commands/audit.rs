//! `laptime audit syncs`: every call in source that makes the host wait for a device.

use std::{
    io::Write,
    path::{Path, PathBuf},
};

use anyhow::Context;
use laptime_analyze::WaitPlace;
use laptime_audit::{Answer, Limits, Recorded, Rule, Rules, RulesFile, Seen};
use laptime_report::tables::{self, Listed};
use laptime_trace::small_file;

use crate::{
    absent,
    cli::Status,
    failure::Hinted,
    output::{OutputArgs, warn},
    source_files,
};

/// The file of rules that is read where it lies in a path.
const RULES_FILE: &str = "laptime-audit.toml";

/// Looks through source for what costs time on a device
#[derive(Debug, clap::Args)]
#[command(
    subcommand_value_name = "QUESTION",
    after_help = "Examples:\n  laptime audit syncs src\n  laptime audit syncs . --budget 12 --max-loop-depth 0"
)]
pub struct Args {
    #[command(subcommand)]
    question: Question,
}

#[derive(Debug, clap::Subcommand)]
enum Question {
    Syncs(SyncsArgs),
}

/// Lists every call in Rust and Python source that makes the host wait for a device
///
/// A site is a call such as `to_vec1`, `synchronize`, `.item()` or `.cpu()`. It is allowed by a comment on its line or above
/// it, `sync: allowed` and a reason, or in the file of rules. With `--budget` or `--max-loop-depth` exit status 1 says that a
/// limit is broken. With `--run` sites are joined with the waits that a run recorded.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  laptime audit syncs src\n  laptime audit syncs . --budget 12 --max-loop-depth 0\n  laptime audit syncs src --run runs/profile-1"
)]
struct SyncsArgs {
    /// Folders or files of Rust (`.rs`) and Python (`.py`)
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,

    /// Another call that waits: `read_back`, `torch.foo.wait`, `fetch!`
    #[arg(long, value_name = "NAME")]
    call: Vec<String>,

    /// A file of rules [default: `laptime-audit.toml` in the paths]
    #[arg(long, value_name = "FILE")]
    rules: Option<PathBuf>,

    /// Leave out calls whose name has other uses too
    #[arg(long)]
    certain: bool,

    /// List sites in tests and benchmarks too
    #[arg(long)]
    tests: bool,

    /// List allowed sites too, with the reasons
    #[arg(long)]
    allowed: bool,

    /// Most sites outside of tests that are not allowed
    #[arg(long, value_name = "N")]
    budget: Option<u64>,

    /// Most loops around a site
    #[arg(long, value_name = "DEPTH")]
    max_loop_depth: Option<u32>,

    /// Join with the waits of this run: its folder, or a trace
    #[arg(long, value_name = "DIR")]
    run: Option<PathBuf>,

    /// What a lap of the run is; found by itself if it is not named
    #[arg(long, value_name = "NAME", requires = "run")]
    lap: Option<String>,

    #[command(flatten)]
    output: OutputArgs,
}

/// Runs the command.
pub fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<Status> {
    let Question::Syncs(args) = &args.question;
    let rules_files = rules_files(args)?;
    let files = source_files::find(&args.paths, &rules_files)?;
    let recorded = args.run.as_deref().map(|run| recorded(args, run)).transpose()?;
    let audited = source_files::audit(&files, &rules(args, &rules_files)?);
    let limits = Limits { budget: args.budget, loop_depth: args.max_loop_depth };
    let mut answer = Answer::of(audited, &rules_files, limits, args.certain);
    if let Some(recorded) = recorded {
        laptime_audit::join(&mut answer, recorded);
    }
    warn_of_rest(args, &answer);
    args.output.write(&tables::audit(&answer, Listed { tests: args.tests, allowed: args.allowed }), out)?;
    Ok(if answer.is_kept() { Status::Done } else { Status::BadNews })
}

/// Tells what the rows alone do not say, and entries that allow nothing.
fn warn_of_rest(args: &SyncsArgs, answer: &Answer) {
    for allow in &answer.unused {
        warn(&format!("an `allow` of the rules fits no site: its reason is `{}`", allow.reason));
    }
    if args.output.has_rows_alone() {
        for (path, problem) in &answer.unread {
            let line = problem.line.map_or_else(String::new, |line| format!(":{line}"));
            warn(&format!("`{path}{line}` was not read as a whole: {}", problem.reason));
        }
    }
}

fn rules_files(args: &SyncsArgs) -> anyhow::Result<Vec<RulesFile>> {
    let found = || args.paths.iter().map(|path| path.join(RULES_FILE)).filter(|path| path.is_file()).collect();
    let paths: Vec<PathBuf> = args.rules.as_ref().map_or_else(found, |path| vec![path.clone()]);
    paths.iter().map(|path| read_rules(path)).collect()
}

fn read_rules(path: &Path) -> anyhow::Result<RulesFile> {
    let text = small_file::read_text(path, small_file::LARGEST_SMALL_FILE)
        .with_context(|| format!("cannot read the rules `{}`", path.display()))
        .map_err(|error| Hinted::wrap(error, "check the name; docs/audit.md shows such a file"))?;
    let wrong = |error: laptime_audit::RulesFileError| {
        let error = anyhow::anyhow!("the rules `{}`, line {}: {}", path.display(), error.line, error.reason);
        Hinted::wrap(error, "it has `skip`, `[[call]]` with `name`, and `[[allow]]` with `path`, `call` and `reason`")
    };
    RulesFile::parse(&text).map_err(wrong)
}

fn rules(args: &SyncsArgs, files: &[RulesFile]) -> anyhow::Result<Rules> {
    let mut rules = Rules::built_in();
    for rule in files.iter().flat_map(|file| &file.calls) {
        rules.add(rule.clone());
    }
    for name in &args.call {
        let rule = Rule::named(name);
        if rule.last_name().is_empty() {
            let error = anyhow::anyhow!("`--call {name}` names no call");
            return Err(Hinted::wrap(
                error,
                "write a function, a method or a macro: `read_back`, `gpu::wait`, `fetch!`",
            ));
        }
        rules.add(rule);
    }
    Ok(rules)
}

/// The waits of a run by their place in source.
fn recorded(args: &SyncsArgs, run: &Path) -> anyhow::Result<Vec<Recorded>> {
    let trace = args.output.read_trace(run)?;
    let places =
        laptime_analyze::wait_places(&trace, args.lap.as_deref()).map_err(|reason| absent::no_laps(&reason))?;
    if places.places.iter().all(|place| place.file.is_empty()) {
        warn(
            "no wait of the run names a line of source: mark waits with `sync_point!`, or record with_stack=True in \
             torch.profiler",
        );
    }
    Ok(places.places.into_iter().map(of_place).collect())
}

fn of_place(place: WaitPlace) -> Recorded {
    let WaitPlace { file, line, function, method, call, count, total, a_lap } = place;
    let seen = Seen { count, total: total.map(|total| total.0), a_lap, told_at: None };
    Recorded { file, line: u32::try_from(line).unwrap_or(u32::MAX), function, method, call, seen }
}
