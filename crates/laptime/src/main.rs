//! The command line: the only place that reads arguments, prints and exits.

mod commands;
mod failure;
mod output;
mod run_folder;
mod tour;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Where the time of a transformer pipeline goes
///
/// Records pipelines, reads their traces and says what they mean. Data goes to standard output, progress and warnings
/// to standard error. Exit status: 0 done; 1 done, and the answer is bad news; 2 could not do it.
#[derive(Debug, Parser)]
#[command(
    name = "laptime",
    version = VERSION,
    arg_required_else_help = true,
    after_help = "Example:\n  laptime tour\n  laptime stages runs/tour-*/trace.pftrace"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
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

#[derive(Debug, Subcommand)]
enum Command {
    Tour(commands::tour::Args),
    Stages(commands::stages::Args),
    Top(commands::top::Args),
    Convert(commands::convert::Args),
}

/// How a command ended when it did what it was asked to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Status {
    /// Done.
    Done,
}

fn main() -> ExitCode {
    std::panic::set_hook(Box::new(|panic| failure::tell_fault(panic, &mut anstream::stderr().lock())));
    // The hook has told it.
    std::panic::catch_unwind(run).unwrap_or(ExitCode::from(2))
}

fn run() -> ExitCode {
    let cli = Cli::parse_from(dashed(std::env::args_os()));
    let mut out = anstream::stdout().lock();
    let done = match &cli.command {
        Command::Tour(args) => commands::tour::run(args, &mut out),
        Command::Stages(args) => commands::stages::run(args, &mut out),
        Command::Top(args) => commands::top::run(args, &mut out),
        Command::Convert(args) => commands::convert::run(args),
    };
    match done {
        Ok(Status::Done) => ExitCode::SUCCESS,
        Err(error) if failure::is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            failure::tell(&error, &mut anstream::stderr().lock());
            ExitCode::from(2)
        }
    }
}

/// Accepts underscores for dashes in the names of flags, as older kits wrote them.
fn dashed(arguments: impl Iterator<Item = std::ffi::OsString>) -> Vec<std::ffi::OsString> {
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
        assert_eq!(dashed(given.into_iter()), Vec::<std::ffi::OsString>::from(expected));
    }

    #[test]
    fn the_flags_are_consistent() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }
}
