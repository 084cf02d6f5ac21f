//! `laptime audit syncs`: finds calls in source code that force a GPU sync.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use laptime_analyze::WaitPlace;
use laptime_audit::{Answer, Limits, Recorded, Rule, Rules, RulesFile, Seen};
use laptime_report::tables::{self, ExtraSites};
use laptime_trace::small_file;

use crate::output::{OutputArgs, warn};
use crate::{
    absent,
    cli::Status,
    failure::{Hinted, refusal, refuse},
    source_files,
};

/// Read if one of the paths contains it.
const RULES_FILE: &str = "laptime-audit.toml";

/// Find calls that force a GPU sync, in Rust and Python source
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

/// Find calls that force a GPU sync, in Rust and Python source
///
/// A site is a call such as `to_vec1`, `synchronize`, `.item()` or `.cpu()`. It is allowed by a comment on its line or above
/// it, `sync: allowed` and a reason, or in the rules file. With `--budget` or `--max-loop-depth`, exit status 1 means that
/// the limit is exceeded. With `--run`, sites are joined with the syncs of a recorded run.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  laptime audit syncs src\n  laptime audit syncs . --budget 12 --max-loop-depth 0\n  laptime audit syncs src --run runs/profile-1"
)]
struct SyncsArgs {
    /// Folders or files of Rust (`.rs`) and Python (`.py`)
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Another call that syncs: `read_back`, `torch.foo.wait`, `fetch!`
    #[arg(long, value_name = "NAME")]
    call: Vec<String>,
    /// Rules file [default: `laptime-audit.toml` in the paths]
    #[arg(long, value_name = "FILE")]
    rules: Option<PathBuf>,
    /// Leave out calls whose name also has other uses
    #[arg(long)]
    certain: bool,
    /// Also list sites in tests and benchmarks
    #[arg(long)]
    tests: bool,
    /// Also list allowed sites, with their reasons
    #[arg(long)]
    allowed: bool,
    /// Maximum number of sites that are not allowed, outside of tests
    #[arg(long, value_name = "N")]
    budget: Option<u64>,
    /// Maximum number of loops around a site
    #[arg(long, value_name = "DEPTH")]
    max_loop_depth: Option<u32>,
    /// Join with the syncs of this run: its folder, or a trace
    #[arg(long, value_name = "DIR")]
    run: Option<PathBuf>,
    /// The lap of the run; detected automatically by default
    #[arg(long, value_name = "NAME", requires = "run")]
    lap: Option<String>,
    #[command(flatten)]
    output: OutputArgs,
}

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
    warn_about(args, &answer);
    args.output.write(&tables::audit(&answer, ExtraSites { tests: args.tests, allowed: args.allowed }), out)?;
    Ok(if answer.is_kept() { Status::Done } else { Status::BadNews })
}

/// Warns about rules that match nothing and files that were not completely parsed.
fn warn_about(args: &SyncsArgs, answer: &Answer) {
    for allow in &answer.unused {
        warn(&format!("an `allow` rule matches no site: its reason is `{}`", allow.reason));
    }
    if args.output.has_rows_only() {
        for (path, problem) in &answer.unread {
            let line = problem.line.map_or_else(String::new, |line| format!(":{line}"));
            warn(&format!("`{path}{line}` was only partly read: {}", problem.reason));
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
        .map_err(|error| Hinted::wrap(error, "check the name; docs/audit.md shows an example"))?;
    let wrong = |error: laptime_audit::RulesFileError| {
        let reason = format!("the rules `{}`, line {}: {}", path.display(), error.line, error.reason);
        refusal(reason, "it has `skip`, `[[call]]` with `name`, and `[[allow]]` with `path`, `call` and `reason`")
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
            let reason = format!("`--call {name}` is not a name of a call");
            return refuse(reason, "write a function, a method or a macro: `read_back`, `gpu::wait`, `fetch!`");
        }
        rules.add(rule);
    }
    Ok(rules)
}

/// The syncs of a run, by source line.
fn recorded(args: &SyncsArgs, run: &Path) -> anyhow::Result<Vec<Recorded>> {
    let trace = args.output.read_quietly(run)?;
    let places =
        laptime_analyze::wait_places(&trace, args.lap.as_deref()).map_err(|reason| absent::no_laps(&trace, &reason))?;
    if places.places.iter().all(|place| place.file.is_empty()) {
        warn(
            "no sync in the run has a source line: mark syncs with `sync_point!`, or use `with_stack=True` in \
             torch.profiler",
        );
    }
    Ok(places.places.into_iter().map(of_place).collect())
}

fn of_place(place: WaitPlace) -> Recorded {
    let WaitPlace { file, line, function, method, call, count, total, a_lap } = place;
    let seen = Seen { count, total: total.map(|total| total.0), a_lap, reported_at: None };
    Recorded { file, line: u32::try_from(line).unwrap_or(u32::MAX), function, method, call, seen }
}
