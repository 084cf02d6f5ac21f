//! `laptime tour`: finds a bottleneck, fixes it and proves it, in five steps.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context;

use crate::run_folder::{self, PAGE_FILE};
use crate::{
    cli::Status,
    commands::page,
    failure::refuse,
    output::{joined, wrapped_for_screen},
};

/// Find a bottleneck, fix it and prove it, in five commands
///
/// Every step prints its command, runs it and shows the part of its output that matters. All of them work without a GPU.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  laptime tour\n  laptime tour --out my-tour\n  laptime tour --step 5")]
pub struct Args {
    /// Folder for the files [default: runs/tour-TIME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Run one of the five steps only
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u8).range(1..=5))]
    step: Option<u8>,
}

/// A generated trace in the format of torch.profiler (`scripts/make-tour-trace`): its times follow a formula.
const TORCH: &[u8] = include_bytes!("tour_torch.json.gz");

const TORCH_FILE: &str = "torch.json.gz";

/// The planted fault: every token copies offloaded layers over a slow link and waits for each.
const OFFLOAD: &str =
    "offload --preset tiny --num-gpu-layers 2 --link-gbps 0.05 --max-tokens 4 --iterations 6 --device cpu";

const WIDTH: u16 = 96;

const AB: &str = "ab";

/// Runs commands and shows part of the output of the last one.
struct Step {
    title: &'static str,
    commands: Vec<Vec<String>>,
    /// The output is shown from a line that starts with this …
    from: &'static str,
    /// … up to a line that starts with this.
    until: &'static str,
}

fn steps(folder: &Path) -> [Step; 5] {
    let with = |text: &str, name: &str| {
        let mut words = shlex::split(text).unwrap_or_default();
        words.push(folder.join(name).display().to_string());
        words
    };
    [
        Step {
            title: "Where does the time of a text generator go? Every token is a lap.",
            commands: vec![with(
                "profile model --preset tiny --test tg64 --depth layer --iterations 6 --out",
                "1-generate",
            )],
            from: "stage",
            until: "Setup:",
        },
        Step {
            title: "A planted fault: each token waits for offloaded layers on a slow link. `diagnose` finds it.",
            commands: vec![
                with(&format!("profile {OFFLOAD} --mode sync --out"), "2-fault"),
                with("diagnose", "2-fault"),
            ],
            from: "Main bottleneck",
            until: "`--verbose`",
        },
        Step {
            title: "The fix: copy ahead, and once for both streams. `ab` proves the gain.",
            commands: vec![with(
                &format!("{AB} --a '{OFFLOAD} --mode sync' --b '{OFFLOAD} --mode batched' --runs 5 --out"),
                "3-fix",
            )],
            from: "variant",
            until: "A: ",
        },
        Step {
            title: "From which length on is sparse attention faster than dense attention?",
            commands: vec![with(
                "bench attention --attention dense,sparse --seq-len 128-2048*4 --head-dim 32 --iterations 6 --warmup 1 --out",
                "4-attention",
            )],
            from: "attention  compared with",
            until: "attention  tokens",
        },
        Step {
            title: "A trace in the format of torch.profiler (a generated example): a text generator on a GPU.",
            commands: vec![with("diagnose", TORCH_FILE)],
            from: "Main bottleneck",
            until: "`--verbose`",
        },
    ]
}

pub fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<Status> {
    let folder = run_folder::make(args.out.as_deref(), "tour")?;
    let torch = folder.join(TORCH_FILE);
    std::fs::write(&torch, TORCH).with_context(|| format!("cannot write `{}`", torch.display()))?;
    for (number, step) in (1..).zip(steps(&folder)) {
        if args.step.is_none_or(|only| only == number) {
            show(number, &step, out)?;
        }
    }
    let page = page::write_trace(&torch, Some(&folder.join(PAGE_FILE)))?;
    print_next(&folder, &page, out)?;
    Ok(Status::Done)
}

fn show(number: u8, step: &Step, out: &mut dyn Write) -> anyhow::Result<()> {
    writeln!(out, "{}", wrapped_for_screen(&format!("{number}. {}", step.title)))?;
    let (mut printed, mut has_verdict) = (String::new(), false);
    for words in &step.commands {
        writeln!(out, "{}", wrapped_for_screen(&format!("   $ {} {}", program(), joined(words))))?;
        out.flush()?;
        printed = run_command(words)?;
        has_verdict = words[0] == AB;
    }
    writeln!(out)?;
    let verdict = if has_verdict { verdict(&printed) } else { Vec::new() };
    let lines = part(&printed, step.from, step.until).into_iter().chain(verdict);
    lines.into_iter().try_for_each(|line| writeln!(out, "{line}"))?;
    writeln!(out)?;
    out.flush()?;
    Ok(())
}

/// Runs this program with other arguments and returns its output.
fn run_command(words: &[String]) -> anyhow::Result<String> {
    let program = std::env::current_exe().context("cannot find this program")?;
    let width = terminal_size::terminal_size().map_or(WIDTH, |(width, _)| width.0.min(WIDTH));
    let mut command = Command::new(program);
    let output = command.args(words).env("COLUMNS", width.to_string()).stdin(Stdio::null()).output();
    let output = output.context("cannot start this program again")?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    let hint = stderr.lines().find(|line| !line.is_empty()).unwrap_or("run the command directly");
    refuse(format!("`laptime {}` failed", words.join(" ")), hint)
}

/// The lines from the one that starts with `from` up to the one that starts with `until`.
fn part<'a>(text: &'a str, from: &str, until: &str) -> Vec<&'a str> {
    let lines: Vec<&str> = text.trim_end().lines().collect();
    let first = lines.iter().position(|line| line.starts_with(from)).unwrap_or(0);
    let end = lines[first..].iter().position(|line| line.starts_with(until));
    let mut part = lines[first..end.map_or(lines.len(), |end| first + end)].to_vec();
    while part.last().is_some_and(|line| line.is_empty()) {
        part.pop();
    }
    part
}

/// The verdict at the end of a comparison, which may be wrapped.
fn verdict(text: &str) -> Vec<&str> {
    let lines: Vec<&str> = text.trim_end().lines().collect();
    let is_verdict = |line: &&str| ["B is", "No difference", "Unclear"].iter().any(|start| line.starts_with(start));
    lines.iter().rposition(is_verdict).map_or_else(Vec::new, |first| lines[first..].to_vec())
}

/// How the user started this program.
fn program() -> &'static str {
    if std::env::var_os("CARGO").is_some() { "cargo run --release --" } else { "laptime" }
}

fn print_next(folder: &Path, page: &Path, out: &mut dyn Write) -> anyhow::Result<()> {
    let program = program();
    let pages = format!("Open {} in a browser to see step 5 as a timeline, with its findings.", page.display());
    writeln!(out, "{}", wrapped_for_screen(&pages))?;
    writeln!(out, "The pages of the other steps are in {}.\n", folder.display())?;
    writeln!(out, "Now your own code:")?;
    for (command, about) in [
        ("record -- python train.py", "profiles any CUDA program"),
        ("diagnose trace.json.gz", "finds the bottleneck in a torch.profiler trace"),
        ("ab --a 'python old.py' --b 'python new.py'", "shows whether a change made it faster"),
    ] {
        writeln!(out, "  {program} {command}\n      {about}")?;
    }
    out.flush()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_shows_the_relevant_part_of_the_output() {
        let text = "stage  calls\nx  1\n\nOne iteration: 3 ms\nSetup: 1 s\n\nnote: a\n";
        assert_eq!(part(text, "stage", "Setup:"), ["stage  calls", "x  1", "", "One iteration: 3 ms"]);
        assert_eq!(part("other\n\n", "stage", "Setup:"), ["other"]);
        assert_eq!(
            verdict("A: `x`\nB: `y`\nUnclear: -69 %; many more\nprocesses\n"),
            ["Unclear: -69 %; many more", "processes"]
        );
    }
}
