//! The commands and their flags, and which code runs them.

use std::{ffi::OsString, io::Write as _, process::ExitCode};

use clap::{
    Arg, ArgAction, Args as _, FromArgMatches, Parser, Subcommand,
    error::{ContextKind, ContextValue, ErrorKind},
};
use laptime_bench::{Alias, AxisSpec, StandsFor, Takes, Workload};

use crate::{
    app::App,
    asked::{Asked, PlaceArgs, RunArgs},
    commands::{self, warmup_study},
    failure, kit_files,
    near::nearest,
    output::DetailArgs,
    screen, tts_files,
};

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
    after_help = "Examples:\n  laptime tour\n  laptime bench matmul --size 256-2048*2\n  laptime stages runs/tour-*/trace.pftrace"
)]
struct Cli {
    #[command(flatten)]
    detail: DetailArgs,

    #[command(subcommand)]
    command: Plain,
}

/// The version with commit and build.
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

/// The commands whose flags do not depend on the workloads.
#[derive(Debug, Subcommand)]
enum Plain {
    #[command(display_order = 1)]
    Tour(commands::tour::Args),
    #[command(display_order = 5)]
    Suite(commands::suite::Args),
    #[command(display_order = 5)]
    Ab(commands::ab::Args),
    #[command(display_order = 6)]
    Peaks(commands::peaks::Args),
    #[command(display_order = 7)]
    Doctor(commands::doctor::Args),
    #[command(display_order = 8)]
    List(commands::list::Args),
    #[cfg(target_os = "linux")]
    #[command(display_order = 9)]
    Record(commands::record::Args),
    #[command(display_order = 10)]
    Stages(commands::stages::Args),
    #[command(display_order = 11)]
    Top(commands::top::Args),
    #[command(display_order = 12)]
    Laps(commands::laps::Args),
    #[command(display_order = 13)]
    Gaps(commands::gaps::Args),
    #[command(display_order = 14)]
    Syncs(commands::syncs::Args),
    #[command(display_order = 15)]
    Overlap(commands::overlap::Args),
    #[command(display_order = 15)]
    Diagnose(commands::diagnose::Args),
    #[command(display_order = 16)]
    Compare(commands::compare::Args),
    #[command(display_order = 17)]
    Report(commands::report::Args),
    #[command(display_order = 17)]
    Convert(commands::convert::Args),
    #[command(display_order = 9)]
    Explain(commands::explain::Args),
    #[command(display_order = 18)]
    Audit(commands::audit::Args),
    #[command(display_order = 20)]
    Completions(commands::completions::Args),
    #[command(display_order = 21)]
    Man(commands::man::Args),
}

/// How a command ended when it did what it was asked to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// Done.
    Done,
    /// Done, and the answer is the bad news asked for.
    BadNews,
    /// Done, and the status is that of the program that was run.
    Exit(u8),
}

/// A command that measures: its flags are those of the workload that follows.
struct Measuring {
    name: &'static str,
    about: &'static str,
    long_about: &'static str,
    example: &'static str,
    order: usize,
    run: fn(&App, &Asked, &mut dyn std::io::Write) -> anyhow::Result<Status>,
}

const MEASURING: [Measuring; 3] = [
    Measuring {
        name: "bench",
        about: "Measures a workload over its axes and says how sure it is",
        long_about: "Measures a workload over its axes and says how sure it is\n\nEvery combination of values is a case. Each case is prepared, checked, warmed up and taken until its median is \
                     known; its result is on the disk before the next one begins. `--resume DIR` goes on with a run that was stopped.",
        example: "Examples:\n  laptime bench matmul --size 256-2048*2 --dtype f32,bf16\n  laptime bench copy --runs 5\n  laptime bench --plan plan.toml --isolate --timeout 2m",
        order: 2,
        run: commands::bench::run,
    },
    Measuring {
        name: "profile",
        about: "Records one case of a workload and states what recording cost",
        long_about: "Records one case of a workload and states what recording cost\n\nTakes are in turns recorded and not, in random order, so that the overhead is measured and not believed. The trace \
                     and its tables are written to the run's folder.",
        example: "Example:\n  laptime profile matmul --size 1024",
        order: 3,
        run: commands::profile::run,
    },
    Measuring {
        name: "warmup",
        about: "Finds how many takes a workload needs until it is steady",
        long_about: "Finds how many takes a workload needs until it is steady\n\nTakes begin cold in fresh processes, so that the first one pays for everything. The answer is a number of takes to \
                     leave out, or that there is no steady state.",
        example: "Example:\n  laptime warmup matmul --size 512 --runs 3",
        order: 4,
        run: commands::warmup::run,
    },
];

/// The whole command, with the flags of every workload.
pub fn command(app: &App) -> clap::Command {
    use clap::CommandFactory;
    let listed = commands::list::Names::of(app);
    let plain = Cli::command()
        .mut_subcommand("list", |list| list.mut_arg("workload", |workload| workload.value_parser(listed)));
    MEASURING.iter().fold(plain, |command, measuring| command.subcommand(measuring.command(app)))
}

impl Measuring {
    fn command(&self, app: &App) -> clap::Command {
        // The flags come first: their groups have descriptions of their own.
        let command = PlaceArgs::augment_args(RunArgs::augment_args(clap::Command::new(self.name)));
        let command = command
            .about(self.about)
            .long_about(self.long_about)
            .after_help(self.example)
            .display_order(self.order)
            .subcommand_value_name("WORKLOAD")
            .subcommand_help_heading("Workloads")
            .disable_help_subcommand(true)
            .arg_required_else_help(true);
        let command = match self.name {
            "bench" => command.arg(resume()).arg(fit()),
            "warmup" => command.arg(warmup_study::flag()),
            _ => command,
        };
        // A plan may name the workload, so the flags of single workloads are read here too; their help is the workload's.
        let hidden = |flag: Arg| if self.workloads_of(&flag).is_some() { flag.hide(true) } else { flag };
        let command = command.args(self.file_flags().into_iter().map(hidden));
        let workloads = app.registry.workloads.iter().enumerate();
        workloads.fold(command, |command, (at, workload)| {
            command.subcommand(self.of_workload(&**workload).display_order(at))
        })
    }

    fn of_workload(&self, workload: &dyn Workload) -> clap::Command {
        let (axes, aliases) = (workload.axes(), workload.aliases());
        let example = example(self.name, workload.name(), &axes);
        let command = clap::Command::new(workload.name()).about(workload.about()).after_help(example);
        let flags = axes.iter().enumerate().map(|(at, axis)| flag(axis, &aliases).display_order(at));
        let others = aliases.iter().filter(|alias| alias.is_flag()).map(other_flag);
        let is_own = |flag: &Arg| self.workloads_of(flag).is_some_and(|names| names.contains(&workload.name()));
        let files = self.file_flags().into_iter().filter(is_own);
        flags.chain(others).chain(files).fold(command, clap::Command::arg)
    }

    /// The flags for files beside the run's folder.
    fn file_flags(&self) -> Vec<Arg> {
        let is_of_profiles = |flag: &Arg| ["kit-files", "output-dir"].contains(&flag.get_id().as_str());
        match self.name {
            "bench" => kit_files::flags().into_iter().chain(tts_files::flags()).collect(),
            "profile" => {
                kit_files::flags().into_iter().filter(is_of_profiles).chain([tts_files::audio_flag()]).collect()
            }
            _ => kit_files::flags().into(),
        }
    }

    /// The workloads whose help shows a flag for files; none if all do.
    fn workloads_of(&self, flag: &Arg) -> Option<&'static [&'static str]> {
        match (flag.get_id().as_str(), self.name) {
            ("kit-files", "profile") => Some(&["c2c", "tts"]),
            ("kit-files", "warmup") => Some(&["model"]),
            ("kit-files", _) => Some(&["model", "attention"]),
            ("output-dir", "profile") => Some(&["offload"]),
            ("output-dir", "warmup") => Some(&[]),
            ("output-dir", _) => Some(&["model", "attention", "offload"]),
            ("json-output" | "wav" | "stream-to", _) => Some(&["tts"]),
            _ => None,
        }
    }
}

fn resume() -> Arg {
    Arg::new("resume")
        .long("resume")
        .value_name("DIR")
        .value_parser(clap::value_parser!(std::path::PathBuf))
        .global(true)
        .help("Go on with the run in this folder: same program, same plan")
        .help_heading("Where it goes")
}

fn fit() -> Arg {
    Arg::new("fit")
        .long("fit")
        .value_name("AXIS")
        .global(true)
        .help("Find the largest value on this axis that fits into memory, and measure it: `batch` or `context` of a model")
        .help_heading("How to measure")
}

fn flag(axis: &AxisSpec, aliases: &[Alias]) -> Arg {
    let default: Vec<String> = axis.default.iter().map(ToString::to_string).collect();
    let others = aliases.iter().filter(|alias| alias.stands_for == StandsFor::Axis(axis.name));
    let others: Vec<String> = others.map(|alias| format!("--{}", alias.name.replace('_', "-"))).collect();
    let also = if others.is_empty() { String::new() } else { format!(" [also: {}]", others.join(", ")) };
    let default = if default.is_empty() { String::new() } else { format!(" [default: {}]", default.join(",")) };
    valued(axis.name, axis.takes).help_heading("Axes").help(format!(
        "{}: {}{default}{also}",
        axis.about,
        axis.takes.words()
    ))
}

/// Another name of an axis, which the help tells with the axis.
fn other_flag(alias: &Alias) -> Arg {
    let takes = if matches!(alias.stands_for, StandsFor::Switch { .. }) { Takes::Switch } else { Takes::Name };
    valued(alias.name, takes).hide(true)
}

fn valued(name: &'static str, takes: Takes) -> Arg {
    let flag = Arg::new(name).long(name.replace('_', "-")).value_name("VALUES").action(ArgAction::Append);
    match takes {
        Takes::Switch => flag.num_args(0..=1).default_missing_value("true"),
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

/// What `laptime` prints by itself: the seven commands to start with.
const OVERVIEW: &str = "\
Profile and benchmark transformer pipelines.

Measure
  bench      Benchmark a workload: matmul, attention, model, c2c, tts, offload, or your own
  ab         Compare two commands, interleaved, with a verdict
  profile    Record one case of a workload and show where its time goes
Record and ask
  diagnose   Find the bottleneck in a run or trace, and what fixing it would bring
  compare    Show what differs between two runs or two traces
  report     Write charts, tables and findings of a run
Set up
  doctor     Check whether this machine is fit to measure on

New here? Run `laptime tour`. All commands: `laptime help all`. One command: `laptime help COMMAND`.
";

/// Prints the overview, or the help of all commands or of one.
fn help(app: &App, words: &[OsString]) -> Option<ExitCode> {
    let words: Vec<&str> = words.iter().map(|word| word.to_str().unwrap_or_default()).collect();
    let text = match words.as_slice() {
        [_] | [_, "help" | "--help" | "-h"] => OVERVIEW.to_owned(),
        [_, "help", "all"] => command(app).render_help().to_string(),
        [_, "help", names @ ..] => {
            let words = std::iter::once("laptime").chain(names.iter().copied()).chain(["--help"]).map(OsString::from);
            return Some(run(app, words));
        }
        _ => return None,
    };
    // If the stream is closed, there is nobody left to tell.
    let _ = write!(screen::stdout(), "{text}");
    Some(ExitCode::SUCCESS)
}

/// Reads the arguments, runs the command and tells what went wrong.
pub fn run(app: &App, arguments: impl Iterator<Item = OsString>) -> ExitCode {
    if let Some(clash) = clash(app) {
        failure::tell(&clash, &mut screen::stderr());
        return ExitCode::from(2);
    }
    let arguments = dashed(arguments);
    if let Some(helped) = help(app, &arguments) {
        return helped;
    }
    let matches = match command(app).try_get_matches_from(&arguments) {
        Ok(matches) => matches,
        Err(error) => return refuse(app, &shown(app, &arguments, error)),
    };
    if let Ok(detail) = DetailArgs::from_arg_matches(&matches) {
        detail.apply();
    }
    let mut out = screen::stdout();
    let done = match matches.subcommand() {
        Some((name, matches)) if MEASURING.iter().any(|measuring| measuring.name == name) => {
            measure(app, name, matches, &mut out)
        }
        _ => match Cli::from_arg_matches(&matches) {
            Ok(cli) => run_plain(app, &cli.command, &mut out),
            Err(error) => return refuse(app, &shown(app, &arguments, error)),
        },
    };
    match done {
        Ok(Status::Done) => ExitCode::SUCCESS,
        Ok(Status::BadNews) => ExitCode::from(1),
        Ok(Status::Exit(code)) => ExitCode::from(code),
        Err(error) if failure::is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            failure::tell(&error, &mut screen::stderr());
            ExitCode::from(2)
        }
    }
}

fn measure(app: &App, name: &str, matches: &clap::ArgMatches, out: &mut dyn std::io::Write) -> anyhow::Result<Status> {
    let asked = Asked::from_matches(matches, &app.registry)?;
    let measuring = MEASURING.iter().find(|measuring| measuring.name == name);
    measuring.map_or(Ok(Status::Done), |measuring| (measuring.run)(app, &asked, out))
}

fn run_plain(app: &App, command: &Plain, out: &mut dyn std::io::Write) -> anyhow::Result<Status> {
    match command {
        Plain::Tour(args) => commands::tour::run(app, args, out),
        Plain::Suite(args) => commands::suite::run(app, args, out),
        Plain::Ab(args) => commands::ab::run(app, args, out),
        Plain::Peaks(args) => commands::peaks::run(app, args, out),
        Plain::Doctor(args) => commands::doctor::run(app, args, out),
        Plain::List(args) => commands::list::run(app, args, out),
        #[cfg(target_os = "linux")]
        Plain::Record(args) => commands::record::run(args),
        Plain::Compare(args) => commands::compare::run(args, out),
        Plain::Stages(args) => commands::stages::run(args, out),
        Plain::Top(args) => commands::top::run(args, out),
        Plain::Gaps(args) => commands::gaps::run(args, out),
        Plain::Syncs(args) => commands::syncs::run(args, out),
        Plain::Diagnose(args) => commands::diagnose::run(app, args, out),
        Plain::Overlap(args) => commands::overlap::run(args, out),
        Plain::Laps(args) => commands::laps::run(args, out),
        Plain::Report(args) => commands::report::run(args, out),
        Plain::Convert(args) => commands::convert::run(args),
        Plain::Audit(args) => commands::audit::run(args, out),
        Plain::Explain(args) => commands::explain::run(args, out),
        Plain::Completions(args) => commands::completions::run(app, args, out),
        Plain::Man(args) => commands::man::run(app, args, out),
    }
}

/// Reads words as `bench` reads them behind its name.
pub fn read_bench(app: &App, words: Vec<String>) -> anyhow::Result<Asked> {
    let words = ["laptime", "bench"].into_iter().map(str::to_owned).chain(words).map(OsString::from);
    let told = |error: clap::Error| about_workload(app, &error).unwrap_or_else(|| error.into());
    let matches = command(app).try_get_matches_from(dashed(words)).map_err(told)?;
    let (_, matches) = matches.subcommand().ok_or_else(|| anyhow::anyhow!("there is no workload"))?;
    Ok(Asked::from_matches(matches, &app.registry)?)
}

/// The error of arguments that hold control characters, made anew of the arguments as they are shown: clap prints them
/// as they are.
fn shown(app: &App, arguments: &[OsString], error: clap::Error) -> clap::Error {
    let visible = |argument: &OsString| laptime_report::visible(&argument.to_string_lossy()).into_owned().into();
    let visible: Vec<OsString> = arguments.iter().map(visible).collect();
    if visible == arguments {
        return error;
    }
    let unreadable = || clap::Error::raw(error.kind(), "an argument holds characters that cannot be shown\n");
    command(app).try_get_matches_from(visible).err().unwrap_or_else(unreadable)
}

/// Tells what is wrong with the arguments; what is unknown of a workload is told in the words of workloads.
fn refuse(app: &App, error: &clap::Error) -> ExitCode {
    if let Some(told) = about_workload(app, error) {
        failure::tell(&told, &mut screen::stderr());
        return ExitCode::from(2);
    }
    // If the stream is closed, there is nobody left to tell.
    let _ = error.print();
    ExitCode::from(if error.use_stderr() { 2 } else { 0 })
}

fn about_workload(app: &App, error: &clap::Error) -> Option<anyhow::Error> {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let usage = error.get(ContextKind::Usage).map(ToString::to_string).unwrap_or_default();
    // Behind the name of the program, whatever it is.
    let is_measuring = |word: &&str| MEASURING.iter().any(|measuring| measuring.name == *word);
    let mut words = usage.split_whitespace().skip_while(|word| !is_measuring(word));
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
            let near = nearest(&axis, known.iter().copied()).map(|near| format!("did you mean `{near}`? "));
            let error = laptime_bench::PlanError::NoSuchAxis { workload: workload.name().to_owned(), axis, known };
            let hint = failure::axis_hint(&error, near.as_deref(), command)?;
            Some(failure::Hinted::wrap(error, hint))
        }
        _ => None,
    }
}

/// Flags of single commands.
const OWN_FLAGS: &str = "help resume fit kit-files warmups output output-dir no-sync json-output wav stream-to";

/// A workload or axis that has the name of something else.
fn clash(app: &App) -> Option<anyhow::Error> {
    let workloads = &app.registry.workloads;
    for (at, workload) in workloads.iter().enumerate() {
        if workloads[..at].iter().any(|earlier| earlier.name() == workload.name()) {
            return Some(anyhow::anyhow!("two workloads are named `{}`", workload.name()));
        }
        let flags = PlaceArgs::augment_args(RunArgs::augment_args(clap::Command::new("")));
        let taken = |axis: &&str| {
            let name = axis.replace('_', "-");
            OWN_FLAGS.split(' ').any(|flag| flag == name)
                || flags.get_arguments().any(|flag| flag.get_long() == Some(&name))
        };
        if let Some(axis) = crate::asked::flags(&**workload).into_iter().find(taken) {
            let workload = workload.name();
            return Some(anyhow::anyhow!("axis `{axis}` of workload `{workload}` has the name of a flag"));
        }
    }
    None
}

/// Accepts underscores for dashes in the names of flags, as older kits wrote them.
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
        command(&App::new(Vec::new())).debug_assert();
    }

    #[test]
    fn every_command_has_a_worked_example() {
        for command in command(&App::new(Vec::new())).get_subcommands() {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains(&format!("laptime {}", command.get_name())), "{}", command.get_name());
        }
    }
}
