//! `laptime warmup --warmups`: compares numbers of warm-up iterations, in fresh processes.

use std::path::{Path, PathBuf};
use std::{fs, io::Write};

use anyhow::Context;
use laptime_analyze::{ColdProcess, WarmUpRows};
use laptime_bench::{Case, CaseResult, GivenSettings, Job, WarmUp};
use laptime_report::{Format, tables};
use laptime_stats::Rng;
use laptime_trace::run::{ResultsWriter, Run};

use crate::output::{say, warn, write_file, write_to_screen};
use crate::request::{OUTPUT, Order, Request};
use crate::{
    app::App, cli::Status, commands::bench, failure::refuse, fresh_process, progress::Progress, run_folder,
    session::describe,
};

/// The numbers of warm-up iterations that CS336 assignment 2 compares.
const NUMBERS: [usize; 5] = [0, 1, 2, 5, 10];

/// Default iterations in each process, as in CS336 assignment 2.
const ITERATIONS: usize = 10;

/// Default number of fresh processes per number.
const RUNS: u32 = 3;

const SEED: u64 = 0x3a_7a9;

/// Every iteration, for a chart.
const LAPS_FILE: &str = "warmup_laps.csv";

const COMPARISON_FILE: &str = "warmup_comparison.csv";

/// The cold start of the median process.
const COLD_FILE: &str = "cold_start.json";

/// Runs the command. Each number has its own subfolder.
pub fn run(app: &App, request: &Request, out: &mut dyn Write) -> anyhow::Result<Status> {
    let defaults = GivenSettings { iterations: Some(ITERATIONS), runs: Some(RUNS), ..GivenSettings::default() };
    let mut order = request.settle(app, defaults)?;
    request.check_flags(app, order.workload.name())?;
    order.settings.cold = true;
    order.settings.isolate = true;
    let numbers = numbers(request);
    if request.run.dry_run {
        return show(&order, &numbers, request, out);
    }
    // The device is closed again before worker processes open it.
    let run = describe(app, &order, &*app.device(&order.device)?)?;
    let folder = run_folder::make(request.place.out.as_deref(), "warmup")?;
    let mut study = Study::begin(app, &run, order.plan.cases(), &numbers, &folder)?;
    study.run_all(request.run.quiet)?;
    let by_number: Vec<(usize, Vec<CaseResult>)> =
        study.rows.into_iter().map(|row| (row.number, row.results)).collect();
    let answer = laptime_analyze::warmup_study(&by_number, &study.cold);
    let doubts = laptime_analyze::warmup_doubts(&by_number, &run.settings, &run.environment);
    let table = tables::warmup_study(&answer, &doubts);
    write_to_screen(&table, request.place.format.format(), out)?;
    show_cold_start(&answer, &folder, request, out)?;
    write_file(&tables::warmup_laps(&answer), Format::Csv, &folder.join(LAPS_FILE))?;
    write_file(&table, Format::Csv, &folder.join(COMPARISON_FILE))?;
    let mut outside = app.extras(&run.workload).finish_warmups(&request.flags, &folder, &table)?;
    if let Some(path) = request.flags.path(OUTPUT) {
        bench::write_copy(&table, path)?;
        outside.push(path.to_owned());
    }
    run_folder::say_saved(&folder, &outside);
    let has_failed = answer.iter().any(|case| case.rows.iter().any(|row| row.iterations.is_none()));
    Ok(if has_failed { Status::BadNews } else { Status::Done })
}

/// Shows the cases and numbers without opening a device.
fn show(order: &Order<'_>, numbers: &[usize], request: &Request, out: &mut dyn Write) -> anyhow::Result<Status> {
    bench::show_cases(order, &request.place.format, out)?;
    if request.place.format.format() == Format::Text {
        let words: Vec<String> = numbers.iter().map(ToString::to_string).collect();
        say(&format!("Each with {} warm-up iterations.", words.join(", ")));
    }
    Ok(Status::Done)
}

/// Shows and saves the cold start of the median process.
fn show_cold_start(answer: &[WarmUpRows], folder: &Path, request: &Request, out: &mut dyn Write) -> anyhow::Result<()> {
    let Some(table) = tables::cold_start(answer) else {
        warn("no process wrote a readable trace, so the cost of the first iteration cannot be broken down");
        return Ok(());
    };
    write_file(&table, Format::Json, &folder.join(COLD_FILE))?;
    if request.place.format.is_for_people() {
        writeln!(out)?;
        write_to_screen(&table, request.place.format.format(), out)?;
    }
    Ok(())
}

/// The requested numbers, sorted, without duplicates.
fn numbers(request: &Request) -> Vec<usize> {
    let mut numbers = if request.warmups.is_empty() { NUMBERS.to_vec() } else { request.warmups.clone() };
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

struct Study<'a> {
    app: &'a App,
    cases: Vec<Case>,
    runs: u32,
    rows: Vec<Row>,
    cold: Vec<ColdProcess>,
}

/// A number of warm-up iterations.
struct Row {
    number: usize,
    run: Run,
    traces: PathBuf,
    writer: ResultsWriter,
    results: Vec<CaseResult>,
}

impl<'a> Study<'a> {
    /// Creates the folder of each number.
    fn begin(app: &'a App, run: &Run, cases: Vec<Case>, numbers: &[usize], folder: &Path) -> anyhow::Result<Self> {
        let row = |&number: &usize| -> anyhow::Result<Row> {
            let mut run = run.clone();
            run.settings.warmup = WarmUp::Iterations(number);
            let folder = run_folder::make(Some(&folder.join(format!("warmup-{number}"))), "")?;
            run.write(&folder)?;
            let traces = folder.join("traces");
            fs::create_dir_all(&traces).with_context(|| format!("cannot create the folder `{}`", traces.display()))?;
            Ok(Row { number, run, traces, writer: ResultsWriter::open(&folder)?, results: Vec::new() })
        };
        let rows = numbers.iter().map(row).collect::<anyhow::Result<_>>()?;
        Ok(Self { app, cases, runs: run.settings.runs.max(1), rows, cold: Vec::new() })
    }

    /// Measures rounds of all numbers and cases in random order, so that drift affects all of them.
    fn run_all(&mut self, is_quiet: bool) -> anyhow::Result<()> {
        self.app.listen_for_interrupts();
        let places = orders(self.rows.len(), self.cases.len(), self.runs, SEED);
        let mut progress = Progress::new(places.len(), is_quiet);
        for Process { run, row, case } in places {
            progress.begin(&self.cases[case], run, self.runs);
            if !self.measure(run, row, case)? {
                let reason = "interrupted before all numbers of warm-up iterations were measured";
                return refuse(reason, "finished measurements are saved; `laptime warmup` starts over");
            }
            progress.done();
        }
        Ok(())
    }

    /// Measures one process; false if the user interrupted it.
    fn measure(&mut self, run: u32, row: usize, case: usize) -> anyhow::Result<bool> {
        let Row { run: about, traces, writer, results, .. } = &mut self.rows[row];
        let trace = traces.join(format!("case-{case}-run-{run}.pftrace"));
        let job = Job { run, trace: Some(trace.clone()), ..Job::of(about, vec![self.cases[case].clone()]) };
        let Some(result) = fresh_process::measure(self.app, &job)? else { return Ok(false) };
        writer.append(&result)?;
        if result.measured().is_some() {
            self.cold.extend(cold(&self.cases[case], &trace));
        }
        results.push(result);
        Ok(true)
    }
}

/// The cold start of a process; none without a readable trace.
fn cold(case: &Case, trace: &Path) -> Option<ColdProcess> {
    let start = laptime_analyze::cold_start(&laptime_trace::read(trace).ok()?)?;
    Some(ColdProcess { case: case.clone(), start })
}

/// A process to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Process {
    run: u32,
    row: usize,
    case: usize,
}

/// All processes, in rounds of random order.
fn orders(rows: usize, cases: usize, runs: u32, seed: u64) -> Vec<Process> {
    let mut rng = Rng::new(seed);
    let round = |run: u32| {
        let all = (0..rows).flat_map(move |row| (0..cases).map(move |case| Process { run, row, case }));
        let mut all: Vec<Process> = all.collect();
        rng.shuffle(&mut all);
        all
    };
    (0..runs).flat_map(round).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_round_has_every_number_and_case_in_its_own_order() {
        let places = orders(5, 2, 3, SEED);
        let rounds: Vec<&[Process]> = places.chunks(10).collect();
        assert_eq!(rounds.len(), 3);
        for (run, round) in rounds.iter().enumerate() {
            let mut sorted = round.to_vec();
            sorted.sort();
            assert!(sorted.iter().all(|place| place.run == run as u32) && sorted != *round, "{round:?}");
            sorted.dedup();
            assert_eq!(sorted.len(), 10);
        }
        let order = |round: &[Process]| round.iter().map(|place| (place.row, place.case)).collect::<Vec<_>>();
        assert!(order(rounds[0]) != order(rounds[1]) && order(rounds[1]) != order(rounds[2]));
        assert_eq!(places, orders(5, 2, 3, SEED), "the same seed gives the same order");
    }
}
