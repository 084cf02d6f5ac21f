//! The summary of a recording. It goes to standard error, since standard output belongs to the program.

use std::{os::unix::process::ExitStatusExt, path::Path, process::ExitStatus, thread};

use super::{folder::Recording, overhead::Overhead, parts::Process};
use crate::run_folder::{PAGE_FILE, TRACE_FILE};
use crate::{commands::page, output::say};
use laptime_analyze::{Diagnosis, LineShares, Waiting};
use laptime_page::About;

/// Launches without a kernel are normal where recording begins, pauses or ends. More than this mean missing kernels.
const FEW_LAUNCHES: u64 = 50;
const FEW_LAUNCHES_SHARE: f64 = 0.05;

/// Shows how the program ended, problems, and the summary. Writes the trace and the page.
pub fn show_with_status(recording: &Recording, run: &Path, status: ExitStatus, attached: u32) -> anyhow::Result<()> {
    say("");
    if let Some(signal) = status.signal() {
        say(&format!("The program was ended by signal {signal}."));
    }
    for problem in problems(recording, attached) {
        say(&format!("note: {problem}"));
    }
    if recording.trace.span_count() == 0 && recording.processes.is_empty() {
        return recording.write_trace(run);
    }
    show(recording, run)
}

/// Shows the summary. The user waits, so the answer comes first, and trace and page are written in parallel.
pub fn show(recording: &Recording, run: &Path) -> anyhow::Result<()> {
    say(&headline(recording));
    if let Some(problem) = missing_kernels(&recording.processes) {
        say(&format!("note: {problem}"));
    }
    thread::scope(|scope| {
        let written = scope.spawn(|| recording.write_trace(run));
        page::write_recorded(run, &recording.trace, About::default(), &|waiting| show_answer(recording, waiting));
        written.join().unwrap_or_else(|_| Err(anyhow::anyhow!("the trace was not written")))
    })?;
    let run = shortened(run);
    say(&format!("\nPage: {run}/{PAGE_FILE}"));
    say(&format!("Trace: {run}/{TRACE_FILE} (opens in ui.perfetto.dev)"));
    say(&format!("Look deeper: laptime diagnose {run}; also `gaps`, `syncs`, `top`, `laps` and `stages`"));
    Ok(())
}

fn show_answer(recording: &Recording, waiting: &Waiting) {
    let lines = if recording.kernels() > 0 { answer(&waiting.diagnosis) } else { Vec::new() };
    if !lines.is_empty() {
        say("");
        lines.iter().for_each(|line| say(line));
    }
    if let Some(laps) = &recording.laps {
        say(&format!("Window: {laps}"));
    }
}

fn headline(recording: &Recording) -> String {
    let bounds = recording.trace.bounds();
    let seconds = bounds.map_or(0.0, |(from, to)| (to.0 - from.0) as f64 / 1e9);
    let dropped = recording.dropped();
    let dropped = if dropped.is_empty() {
        "0 dropped".to_owned()
    } else {
        let each: Vec<String> =
            dropped.iter().map(|(kind, lost)| format!("{} {}", count(*lost), kind.words())).collect();
        format!("dropped: {}", each.join(", "))
    };
    let processes = recording.processes.len();
    let overhead = match &recording.overhead {
        Overhead::Measured { share, interval, .. } => {
            let percent = |share: f64| format!("{:.1}", 100.0 * share);
            format!("Overhead {} % ({} to {} %).", percent(*share), percent(interval.0), percent(interval.1))
        }
        Overhead::Unknown { reason } => format!("Overhead could not be measured: {reason}."),
        Overhead::NotMeasured { flag } => format!("Overhead was not measured ({flag})."),
    };
    let paused = recording.not_recorded_ns() as f64 / 1e9;
    // Shorter pauses are only in `record.json`.
    let recorded = if paused >= 0.1 {
        let share = 100.0 * (1.0 - paused / seconds.max(1e-9));
        format!("{:.1} s of {seconds:.1} s ({share:.1} %)", seconds - paused)
    } else {
        format!("{seconds:.1} s")
    };
    format!(
        "Recorded {recorded}: {processes} {}, {} kernels, {dropped}. {overhead}",
        if processes == 1 { "process" } else { "processes" },
        count(recording.kernels() as u64),
    )
}

/// The lines on the main bottleneck.
fn answer(Diagnosis { findings, remarks, idle_lines, .. }: &Diagnosis) -> Vec<String> {
    let mut remarks = remarks.clone();
    let python: Vec<String> = idle_lines.iter().flat_map(LineShares::sentences).collect();
    // These are printed with the bottleneck.
    remarks.retain(|remark| !python.contains(remark));
    let mut shown = Vec::new();
    if let Some(first) = findings.first() {
        let found = &first.finding;
        shown.push(format!("Main bottleneck: {} [{}]", found.meaning, found.rule));
        shown.push(format!("  {}", found.evidence));
        shown.extend(python.iter().take(2).map(|line| format!("  {line}")));
        shown.push(format!("  Try: {}", found.next));
        let others: Vec<&str> = findings.iter().skip(1).map(|other| other.finding.rule).take(4).collect();
        if !others.is_empty() {
            shown.push(format!("Also: {}", others.join(", ")));
        }
    }
    shown.extend(remarks.into_iter().take(2));
    shown
}

/// Problems with other profilers, by the names that the library uses, and their notes.
const OTHER_PROFILERS: [(&str, &str); 3] = [
    (
        "stepped-aside",
        "torch.profiler (or another profiler) started inside the program; kernels after that are in its own profile, not here",
    ),
    ("taken-over", "another profiler in the program took over CUPTI, so kernels are missing here"),
    (
        "no-calls",
        "CUPTI is older than 12.6 and another profiler listens to calls: kernels were recorded, calls were not",
    ),
];

/// Problems, with what to do.
fn problems(recording: &Recording, attached: u32) -> Vec<String> {
    let mut found = Vec::new();
    if attached == 0 && recording.trace.span_count() == 0 {
        found.push("the program did not use CUDA, so nothing was recorded".to_owned());
    } else if attached == 0 {
        found.push("the program did not use CUDA; the trace contains the stages that it recorded itself".to_owned());
    }
    let has = |name: &str| recording.processes.iter().flat_map(|process| &process.problems).any(|known| known == name);
    if has("no-cupti") {
        found.push(
            "libcupti was not found, so no kernels were recorded; install it with `pip install nvidia-cuda-cupti` \
             (CUDA 12: `nvidia-cuda-cupti-cu12`) or with the package cuda-cupti of the CUDA toolkit"
                .to_owned(),
        );
    } else if attached > 0 && recording.kernels() == 0 {
        found.push("the program started CUDA but ran no kernels while recording was on".to_owned());
    }
    found.extend(OTHER_PROFILERS.into_iter().filter(|(name, _)| has(name)).map(|(_, note)| note.to_owned()));
    if let Some(problem) = &recording.samples.1 {
        found.push(format!("Python stacks were not sampled: {problem}"));
    }
    let refused = recording.processes.iter().flat_map(|process| &process.problems);
    let refused: Vec<&str> = refused.filter_map(|problem| problem.strip_prefix("cupti-refused ")).collect();
    if let Some(reason) = refused.first() {
        found.push(format!("CUPTI refused to record: {reason}"));
    }
    found
}

/// A note if CUPTI stopped reporting kernels, which shows as launches without kernels.
fn missing_kernels(processes: &[Process]) -> Option<String> {
    let sum = |of: fn(&Process) -> usize| processes.iter().map(of).sum::<usize>() as u64;
    let (launches, without) = (sum(|one| one.launches), sum(|one| one.launches_without_kernel));
    let is_missing = without >= FEW_LAUNCHES && without as f64 > FEW_LAUNCHES_SHARE * launches as f64;
    is_missing.then(|| {
        format!(
            "kernels are missing: CUPTI reported none for {} of {} launches; record again with `--no-overhead` and without a window",
            count(without),
            count(launches)
        )
    })
}

/// The folder relative to the current one, if it is inside.
fn shortened(run: &Path) -> String {
    let here = std::env::current_dir().ok();
    let relative = here.as_deref().and_then(|here| run.strip_prefix(here).ok());
    relative.unwrap_or(run).display().to_string()
}

fn count(number: u64) -> String {
    laptime_report::thousands(&number.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_launches_without_a_kernel_give_a_note() {
        let of = |launches, launches_without_kernel| {
            missing_kernels(&[Process { launches, launches_without_kernel, ..Process::default() }])
        };
        assert_eq!((of(40, 40), of(10_000, 500)), (None, None));
        assert!(of(19_124, 9_904).is_some_and(|problem| problem.contains("none for 9,904 of 19,124 launches")));
    }
}
