//! The commands, their flags, and the functions that run them.

use std::ffi::{OsStr, OsString};
use std::io::Write as _;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, Args as _, FromArgMatches, Parser, Subcommand};
use laptime_bench::{Alias, AliasTarget, AxisSpec, ValueKind, Workload};
use laptime_pipelines::extras::{Command, FlagSpec};

#[cfg(target_os = "linux")]
use crate::commands::record;
use crate::commands::{
    ab, audit, bench, compare, completions, convert, critical_path, diagnose, doctor, explain, export, gaps, laps,
    list, man, overlap, peaks, profile, ranks, report, slurm, stages, suite, syncs, top, tour, view, warmup,
};
use crate::request::{BenchArgs, OUTPUT, PlaceArgs, Request, RunArgs, WarmupArgs};
use crate::{app::App, failure, near::did_you_mean, output::DetailArgs, screen};

/// Profile and benchmark transformer pipelines
///
/// Results go to standard output, progress and warnings to standard error. Exit status: 0 success; 1 success, and the
/// answer is a failure such as a regression; 2 error.
#[derive(Debug, Parser)]
#[command(
    name = "laptime",
    version = VERSION,
    arg_required_else_help = true,
    disable_help_subcommand = true,
    after_help = "Examples:\n  laptime tour\n  laptime bench matmul --size 256-2048*2\n  laptime diagnose trace.json.gz"
)]
struct Cli {
    #[command(flatten)]
    detail: DetailArgs,
    #[command(subcommand)]
    command: Plain,
}

const VERSION: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    " (",
    env!("LAPTIME_COMMIT"),
    ", ",
    env!("LAPTIME_PROFILE"),
    " build, ",
    env!("LAPTIME_TARGET"),
    ")"
);

/// Declares commands: display order, flags, and the function that runs them.
macro_rules! plain_commands {
    ($app:ident, $args:ident, $out:ident; $($(#[$cfg:meta])* $order:literal $name:ident($flags:path) => $run:expr;)*) => {
        /// The commands whose flags do not depend on the workloads.
        #[derive(Debug, Subcommand)]
        enum Plain {
            $($(#[$cfg])* #[command(display_order = $order)] $name($flags),)*
        }

        fn run_plain($app: &App, command: &Plain, $out: &mut dyn std::io::Write) -> anyhow::Result<Status> {
            match command {
                $($(#[$cfg])* Plain::$name($args) => $run,)*
            }
        }
    };
}

plain_commands! { app, args, out;
    1 Tour(tour::Args) => tour::run(args, out);
    5 Ab(ab::Args) => ab::run(app, args, out);
    6 Suite(suite::Args) => suite::run(app, args, out);
    #[cfg(target_os = "linux")]
    10 Record(record::Args) => record::run(args);
    11 Diagnose(diagnose::Args) => diagnose::run(app, args, out);
    12 Report(report::Args) => report::run(app, args, out);
    13 View(view::Args) => view::run(args, out);
    14 Compare(compare::Args) => compare::run(args, out);
    20 Stages(stages::Args) => stages::run(args, out);
    21 Top(top::Args) => top::run(args, out);
    22 Laps(laps::Args) => laps::run(args, out);
    23 Gaps(gaps::Args) => gaps::run(args, out);
    24 Syncs(syncs::Args) => syncs::run(args, out);
    25 Overlap(overlap::Args) => overlap::run(args, out);
    26 CriticalPath(critical_path::Args) => critical_path::run(args, out);
    27 Ranks(ranks::Args) => ranks::run(args, out);
    30 Convert(convert::Args) => convert::run(args);
    31 Export(export::Args) => export::run(args, out);
    32 Audit(audit::Args) => audit::run(args, out);
    40 Doctor(doctor::Args) => doctor::run(app, args, out);
    41 Peaks(peaks::Args) => peaks::run(app, args, out);
    42 List(list::Args) => list::run(app, args, out);
    43 Explain(explain::Args) => explain::run(args, out);
    44 Status(slurm::StatusArgs) => slurm::status(args, out);
    45 Completions(completions::Args) => completions::run(app, args, out);
    46 Man(man::Args) => man::run(app, args, out);
    90 SlurmTask(slurm::TaskArgs) => slurm::task::run(app, args);
}

/// How a command ended, if not with an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    Done,
    /// Exit status 1: the answer is a failure, such as a regression.
    BadNews,
    /// The exit status of the recorded program.
    #[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "only `record` runs a program"))]
    Exit(u8),
}

/// A command that measures a workload. Its subcommands are the workloads, whose axes are flags.
struct Measuring {
    command: Command,
    about: &'static str,
    long_about: &'static str,
    example: &'static str,
    order: usize,
    run: fn(&App, &Request, &mut dyn std::io::Write) -> anyhow::Result<Status>,
}

static MEASURING: [Measuring; 3] = [
    Measuring {
        command: Command::Bench,
        about: "Benchmark a workload, with confidence intervals",
        long_about: "Benchmark a workload, with confidence intervals\n\nEvery combination of values is a case. Each case is prepared, checked, warmed up and measured until its median is \
                     known. Results are written after every case; `--resume DIR` continues an interrupted run.",
        example: "Examples:\n  laptime bench matmul --size 256-2048*2 --dtype f32,bf16\n  laptime bench copy --runs 5\n  laptime bench --plan plan.toml --isolate --timeout 2m",
        order: 2,
        run: bench::run,
    },
    Measuring {
        command: Command::Profile,
        about: "Record one case of a workload and show where its time goes",
        long_about: "Record one case of a workload and show where its time goes\n\nIterations run in pairs, one recorded and one not, in random order, so that the recording overhead is measured. \
                     The trace and its tables are written to the run's folder.",
        example: "Example:\n  laptime profile matmul --size 1024",
        order: 3,
        run: profile::run,
    },
    Measuring {
        command: Command::Warmup,
        about: "Find how many warm-up iterations a workload needs",
        long_about: "Find how many warm-up iterations a workload needs\n\nIterations start cold in fresh processes. The answer is the number of iterations to leave out, or that there is no \
                     steady state.",
        example: "Example:\n  laptime warmup matmul --size 512 --runs 3",
        order: 4,
        run: warmup::run,
    },
];

impl Measuring {
    fn named(name: &str) -> Option<&'static Self> {
        MEASURING.iter().find(|measuring| measuring.command.word() == name)
    }
}

/// The whole command line, for completions, manual pages and help.
pub fn command(app: &App) -> clap::Command {
    build(app, &|_| true)
}

/// The command line for some arguments. Building the flags of every workload is most of the work of a short command, so
/// commands and workloads that the arguments do not name get none: clap neither parses nor suggests those flags.
fn command_for(app: &App, arguments: &[OsString]) -> clap::Command {
    build(app, &|name| arguments.iter().any(|argument| argument == OsStr::new(name)))
}

fn build(app: &App, has_flags: &dyn Fn(&str) -> bool) -> clap::Command {
    use clap::CommandFactory;
    let listed = list::Names::of(app);
    let plain = Cli::command()
        .mut_subcommand("list", |list| list.mut_arg("workload", |workload| workload.value_parser(listed)));
    MEASURING.iter().fold(plain, |command, measuring| command.subcommand(measuring.command(app, has_flags)))
}

impl Measuring {
    fn command(&self, app: &App, has_flags: &dyn Fn(&str) -> bool) -> clap::Command {
        let name = self.command.word();
        // Before `about`: groups of flags set descriptions of their own.
        let command = if has_flags(name) { self.flags(app) } else { clap::Command::new(name) };
        let command = command
            .about(self.about)
            .long_about(self.long_about)
            .after_help(self.example)
            .display_order(self.order)
            .subcommand_value_name("WORKLOAD")
            .subcommand_help_heading("Workloads")
            .disable_help_subcommand(true)
            .arg_required_else_help(true);
        if !has_flags(name) {
            return command;
        }
        app.registry.workloads.iter().enumerate().fold(command, |command, (at, workload)| {
            let inner = clap::Command::new(workload.name()).about(workload.about()).display_order(at);
            let has_flags = has_flags(workload.name());
            command.subcommand(if has_flags { self.add_axes(app, &**workload, inner) } else { inner })
        })
    }

    /// The command with the flags of all workloads.
    fn flags(&self, app: &App) -> clap::Command {
        let command = PlaceArgs::augment_args(RunArgs::augment_args(clap::Command::new(self.command.word())));
        let command = match self.command {
            Command::Bench => BenchArgs::augment_args(command),
            Command::Warmup => WarmupArgs::augment_args(command),
            Command::Profile => command,
        };
        let command = if self.command == Command::Profile { command } else { command.arg(output()) };
        // With a plan that names the workload, its own flags come here. Only the workload's help shows them.
        let mut extra: Vec<FlagSpec> = app.extras.iter().flat_map(|extras| extras.flags(self.command)).collect();
        extra.retain(|flag| flag.name != OUTPUT);
        extra.sort_by_key(|flag| flag.name);
        extra.dedup_by_key(|flag| flag.name);
        command.args(extra.iter().map(|flag| extra_flag(flag).hide(true)))
    }

    fn add_axes(&self, app: &App, workload: &dyn Workload, command: clap::Command) -> clap::Command {
        let (axes, aliases) = (workload.axes(), workload.aliases());
        let command = command.after_help(example(self.command.word(), workload.name(), &axes));
        let flags = axes.iter().enumerate().map(|(at, axis)| flag(axis, &aliases).display_order(at));
        let others = aliases.iter().filter(|alias| alias.is_flag()).map(other_flag);
        let own = app.extras(workload.name()).flags(self.command);
        flags.chain(others).chain(own.iter().map(extra_flag)).fold(command, clap::Command::arg)
    }
}

fn extra_flag(flag: &FlagSpec) -> Arg {
    let arg = Arg::new(flag.name).long(flag.name).global(true).help_heading("Output");
    let arg = flag.alias.map_or(arg.clone(), |alias| arg.alias(alias));
    let arg = flag.help.map_or_else(|| arg.clone().hide(true), |help| arg.clone().help(help));
    match flag.value {
        None => arg.action(ArgAction::SetTrue),
        Some(value) => arg.value_name(value).value_parser(clap::value_parser!(std::path::PathBuf)),
    }
}

fn output() -> Arg {
    extra_flag(&FlagSpec::path(OUTPUT, "FILE", "Also write the table to this CSV file"))
}

fn flag(axis: &AxisSpec, aliases: &[Alias]) -> Arg {
    let default: Vec<String> = axis.default.iter().map(ToString::to_string).collect();
    let others = aliases.iter().filter(|alias| alias.target == AliasTarget::Axis(axis.name));
    let others: Vec<String> = others.map(|alias| format!("--{}", alias.name.replace('_', "-"))).collect();
    let also = if others.is_empty() { String::new() } else { format!(" [also: {}]", others.join(", ")) };
    let default = if default.is_empty() { String::new() } else { format!(" [default: {}]", default.join(",")) };
    let values = match axis.kind {
        // Not worth a word in the help: any name, or any number.
        ValueKind::Name | ValueKind::Text(_) => String::new(),
        ValueKind::Int { most, .. } if most >= i64::from(u32::MAX) => String::new(),
        kind => format!(": {}", kind.words()),
    };
    valued(axis.name, axis.kind).help_heading("Axes").help(format!("{}{values}{default}{also}", axis.about))
}

/// An alias of an axis; the help lists it with the axis.
fn other_flag(alias: &Alias) -> Arg {
    let kind = if matches!(alias.target, AliasTarget::Switch { .. }) { ValueKind::Switch } else { ValueKind::Name };
    valued(alias.name, kind).hide(true)
}

fn valued(name: &'static str, kind: ValueKind) -> Arg {
    let flag = Arg::new(name).long(name.replace('_', "-")).value_name("VALUES").action(ArgAction::Append);
    match kind {
        ValueKind::Switch => flag.num_args(0..=1).default_missing_value("true"),
        _ => flag.num_args(1..).allow_negative_numbers(true),
    }
}

fn example(command: &str, workload: &str, axes: &[AxisSpec]) -> String {
    let values = axes.first().map_or_else(String::new, |axis| {
        let value = axis.default.first().map_or_else(String::new, ToString::to_string);
        format!(" --{} {value}", axis.name.replace('_', "-"))
    });
    let forms = if command == "bench" {
        "\n\nValues: one (`512`), a list (`256,512`), several words (`256 512`), a range by factor (`128-4096*2`) or by step (`1-8+1`)."
    } else {
        ""
    };
    format!("Example:\n  laptime {command} {workload}{values}{forms}")
}

/// Printed by `laptime` without arguments.
const OVERVIEW: &str = "\
Profile and benchmark transformer pipelines.

Measure
  bench      Benchmark a workload: matmul, attention, model, c2c, tts, offload, or your own
  ab         Compare two commands or settings, interleaved, with a verdict
  profile    Record one case of a workload and show where its time goes
Record and ask
  record     Profile any CUDA program: laptime record -- python train.py
  diagnose   Find the bottleneck in a run or trace, and what fixing it would bring
  report     Write a page you can open, zoom and share
Set up
  doctor     Check whether this machine is fit to measure on

New here? Run `laptime tour`. All commands: `laptime help all`. One command: `laptime help COMMAND`.
";

/// The overview without `record`, which other systems lack.
fn overview() -> String {
    let exists = |line: &&str| cfg!(target_os = "linux") || !line.trim_start().starts_with("record ");
    OVERVIEW.split_inclusive('\n').filter(exists).collect()
}

/// Prints the overview, or the help of all commands or of one.
fn help(app: &App, words: &[OsString]) -> Option<u8> {
    let words: Vec<&str> = words.iter().map(|word| word.to_str().unwrap_or_default()).collect();
    let text = match words.as_slice() {
        [_] | [_, "help" | "--help" | "-h"] => overview(),
        [_, "help", "all"] => command(app).render_help().to_string(),
        [_, "help", names @ ..] => {
            let words = std::iter::once("laptime").chain(names.iter().copied()).chain(["--help"]).map(OsString::from);
            return Some(run(app, words));
        }
        _ => return None,
    };
    // If the stream is closed, nobody can read the message.
    let _ = write!(screen::stdout(), "{text}");
    Some(0)
}

/// Reads the arguments, runs the command and prints errors. Returns the exit status.
pub fn run(app: &App, arguments: impl Iterator<Item = OsString>) -> u8 {
    if let Some(clash) = app.is_extended.then(|| clash(app)).flatten() {
        failure::print(&clash, &mut screen::stderr());
        return 2;
    }
    let arguments = dashed(arguments);
    if let Some(helped) = help(app, &arguments) {
        return helped;
    }
    let matches = match command_for(app, &arguments).try_get_matches_from(&arguments) {
        Ok(matches) => matches,
        Err(error) => return refuse(app, &shown(app, &arguments, error)),
    };
    if let Ok(detail) = DetailArgs::from_arg_matches(&matches) {
        detail.apply();
    }
    match run_matched(app, &matches, &mut screen::stdout()) {
        Ok(Status::Done) => 0,
        Ok(Status::BadNews) => 1,
        Ok(Status::Exit(code)) => code,
        Err(error) if failure::is_closed_pipe(&error) => 0,
        Err(error) => match error.downcast_ref::<clap::Error>() {
            // `--experiment --help` and the like: arguments inside of arguments, whose help is not an error.
            Some(error) => refuse(app, error),
            None => {
                failure::print(&error, &mut screen::stderr());
                2
            }
        },
    }
}

/// Reads the arguments and runs the command, without printing errors.
pub fn try_run(
    app: &App,
    arguments: impl Iterator<Item = OsString>,
    out: &mut dyn std::io::Write,
) -> anyhow::Result<Status> {
    let arguments = dashed(arguments);
    run_matched(app, &command_for(app, &arguments).try_get_matches_from(&arguments)?, out)
}

fn run_matched(app: &App, matches: &clap::ArgMatches, out: &mut dyn std::io::Write) -> anyhow::Result<Status> {
    match matches.subcommand().and_then(|(name, matches)| Some((Measuring::named(name)?, matches))) {
        Some((measuring, matches)) => {
            (measuring.run)(app, &Request::from_matches(matches, app, measuring.command)?, out)
        }
        None => run_plain(app, &Cli::from_arg_matches(matches)?.command, out),
    }
}

/// Reads words as the arguments of `bench`.
pub fn read_bench(app: &App, words: Vec<String>) -> anyhow::Result<Request> {
    let words = dashed(["laptime", "bench"].into_iter().map(str::to_owned).chain(words).map(OsString::from));
    let known = |error: clap::Error| about_workload(app, &error).unwrap_or_else(|| error.into());
    let matches = command_for(app, &words).try_get_matches_from(&words).map_err(known)?;
    let (_, matches) = matches.subcommand().ok_or_else(|| anyhow::anyhow!("no workload given"))?;
    Ok(Request::from_matches(matches, app, Command::Bench)?)
}

/// Parses arguments with control characters again in their visible form, since clap prints them as they are.
fn shown(app: &App, arguments: &[OsString], error: clap::Error) -> clap::Error {
    let visible = |argument: &OsString| laptime_report::visible(&argument.to_string_lossy()).into_owned().into();
    let visible: Vec<OsString> = arguments.iter().map(visible).collect();
    if visible == arguments {
        return error;
    }
    let unreadable = || clap::Error::raw(error.kind(), "an argument contains control characters\n");
    command_for(app, &visible).try_get_matches_from(visible).err().unwrap_or_else(unreadable)
}

/// Prints what is wrong with the arguments; unknown workloads and axes get our own error.
fn refuse(app: &App, error: &clap::Error) -> u8 {
    if let Some(known) = about_workload(app, error) {
        failure::print(&known, &mut screen::stderr());
        return 2;
    }
    // If the stream is closed, nobody can read the message.
    let _ = error.print();
    if error.use_stderr() { 2 } else { 0 }
}

fn about_workload(app: &App, error: &clap::Error) -> Option<anyhow::Error> {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let usage = error.get(ContextKind::Usage).map(ToString::to_string).unwrap_or_default();
    // The words before the command are the name of the program.
    let mut words = usage.split_whitespace().skip_while(|word| Measuring::named(word).is_none());
    let command = words.next()?;
    match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let name = text(ContextKind::InvalidSubcommand)?;
            app.workload(name).err()
        }
        ErrorKind::UnknownArgument => {
            let workload = app.registry.workload(words.next()?)?;
            let flag = text(ContextKind::InvalidArg)?;
            let axis = flag.strip_prefix("--")?.replace('-', "_");
            let known: Vec<&str> = workload.axes().iter().map(|axis| axis.name).collect();
            let near = did_you_mean(&axis, known.iter().copied());
            let error = laptime_bench::PlanError::NoSuchAxis { workload: workload.name().to_owned(), axis, known };
            let hint = failure::axis_hint(&error, &near, command)?;
            Some(failure::Hinted::wrap(error, hint))
        }
        _ => None,
    }
}

/// Finds two workloads of the same name, or an axis with the name of a flag.
fn clash(app: &App) -> Option<anyhow::Error> {
    let workloads = &app.registry.workloads;
    let commands: Vec<clap::Command> = MEASURING.iter().map(|measuring| measuring.flags(app)).collect();
    let arguments = || commands.iter().flat_map(clap::Command::get_arguments);
    for (at, workload) in workloads.iter().enumerate() {
        if workloads[..at].iter().any(|earlier| earlier.name() == workload.name()) {
            return Some(anyhow::anyhow!("two workloads are named `{}`", workload.name()));
        }
        let taken = |axis: &&str| {
            let name = axis.replace('_', "-");
            name == "help" || arguments().flat_map(names_of).any(|taken| taken == name)
        };
        if let Some(axis) = crate::request::flags(&**workload).into_iter().find(taken) {
            let workload = workload.name();
            return Some(anyhow::anyhow!("axis `{axis}` of workload `{workload}` has the name of a flag"));
        }
    }
    None
}

fn names_of(flag: &Arg) -> impl Iterator<Item = &str> {
    flag.get_long().into_iter().chain(flag.get_all_aliases().unwrap_or_default())
}

/// Accepts underscores for dashes in the names of flags.
fn dashed(arguments: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut ended = false;
    arguments
        .map(|argument| {
            ended |= argument == "--";
            match argument.to_str() {
                Some(text) if text.starts_with("--") && !ended => {
                    let (name, value) = text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value)));
                    let name = name.replace('_', "-");
                    value.map_or(name.clone(), |value| format!("{name}={value}")).into()
                }
                _ => argument,
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn underscores_in_flag_names_become_dashes_and_values_stay() {
        let given = ["laptime", "a_b", "--most_rows", "x_y", "--out_dir=a_b", "--", "--c_d"].map(Into::into);
        let expected = ["laptime", "a_b", "--most-rows", "x_y", "--out-dir=a_b", "--", "--c_d"].map(Into::into);
        assert_eq!(dashed(given.into_iter()), Vec::<OsString>::from(expected));
    }

    #[test]
    fn the_flags_are_consistent() {
        let app = App::new(Vec::new(), Vec::new());
        command(&app).debug_assert();
        assert!(clash(&app).is_none(), "{:?}", clash(&app));
    }

    #[test]
    fn a_command_line_with_the_flags_of_what_is_named_has_the_help_and_errors_of_the_whole_one() {
        let app = App::new(Vec::new(), Vec::new());
        let shown = |command: clap::Command, words: &[OsString]| match command.try_get_matches_from(words) {
            Err(error) => error.render().to_string(),
            Ok(_) => panic!("{words:?} were accepted"),
        };
        let mut lines: Vec<String> =
            ["--help", "-h", "--version", "benhc", "bench", "bench matmull --size 3", "--size 3"]
                .into_iter()
                .chain([
                    "bench --siez 3 matmul",
                    "bench --size 3 matmul",
                    "bench --wamrup 3",
                    "stages --bench",
                    "gaps -x",
                ])
                .map(str::to_owned)
                .collect();
        for name in MEASURING.iter().map(|measuring| measuring.command.word()) {
            lines.push(format!("{name} --help"));
            for workload in &app.registry.workloads {
                let workload = workload.name();
                lines.extend(["--help", "-h", "--szie 3"].map(|flag| format!("{name} {workload} {flag}")));
            }
        }
        for line in lines {
            let words: Vec<OsString> = std::iter::once("laptime").chain(line.split(' ')).map(Into::into).collect();
            assert_eq!(shown(command_for(&app, &words), &words), shown(command(&app), &words), "{line}");
        }
    }

    #[test]
    fn every_command_has_a_worked_example() {
        for command in command(&App::new(Vec::new(), Vec::new())).get_subcommands() {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains(&format!("laptime {}", command.get_name())), "{}", command.get_name());
        }
    }
}
