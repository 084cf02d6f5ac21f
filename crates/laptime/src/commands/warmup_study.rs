//! `laptime warmup --warmups`: what some numbers of warm-up takes would have said, each in fresh processes.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
};

use anyhow::Context;
use clap::{Arg, ArgAction};
use laptime_analyze::{ColdProcess, WarmUpStudy};
use laptime_bench::{Case, CaseResult, GivenSettings, Job, WarmUp};
use laptime_report::{Format, Table, tables};
use laptime_stats::Rng;
use laptime_trace::run::{ResultsWriter, Run};

use crate::{
    alone,
    app::App,
    asked::{Asked, Order},
    cli::Status,
    commands::bench,
    failure::Hinted,
    kit_files,
    moment::Moment,
    output::{say, warn, write_file, write_to_screen},
    progress::Progress,
    run_folder,
    session::describe,
};

/// The numbers that the course compares.
const NUMBERS: [usize; 5] = [0, 1, 2, 5, 10];

/// Takes that count in each process, unless asked otherwise: as the course.
const TAKES: usize = 10;

/// Fresh processes of each number, unless asked otherwise.
const RUNS: u32 = 3;

/// What the order within a round starts from.
const SEED: u64 = 0x3a_7a9;

/// Every take of every number, for a chart.
const LAPS_FILE: &str = "warmup_laps.csv";

/// What the process in the middle paid for.
const COLD_FILE: &str = "cold_start.json";

/// The flag that asks for it.
pub fn flag() -> Arg {
    Arg::new("warmups")
        .long("warmups")
        .value_name("COUNTS")
        .value_delimiter(',')
        .num_args(1..)
        .action(ArgAction::Append)
        .value_parser(clap::value_parser!(usize))
        .global(true)
        .help(
            "Compare these numbers of warm-up takes, each in fresh processes [default with `--model-size`: 0,1,2,5,10]",
        )
        .help_heading("How to measure")
}

/// Runs the command. Each number has a folder of its own in that of the run.
pub fn run(app: &App, asked: &Asked, out: &mut dyn Write) -> anyhow::Result<Status> {
    let defaults = GivenSettings { takes: Some(TAKES), runs: Some(RUNS), ..GivenSettings::default() };
    let mut order = asked.settle(app, defaults)?;
    order.settings.cold = true;
    order.settings.isolate = true;
    let numbers = numbers(asked);
    if asked.run.dry_run {
        return show(&order, &numbers, asked, out);
    }
    // Closed again before fresh processes open it.
    let run = describe(app, &order, &*app.device(&order.device)?)?;
    let folder = run_folder::make(asked.place.out.as_deref(), "warmup", Moment::now())?;
    let mut study = Study::begin(app, &run, order.plan.cases(), &numbers, &folder)?;
    study.take_all(asked.run.quiet)?;
    let by_number: Vec<(usize, Vec<CaseResult>)> =
        study.rows.into_iter().map(|row| (row.number, row.results)).collect();
    let answer = laptime_analyze::warmup_study(&by_number, &study.cold);
    let doubts = laptime_analyze::warmup_doubts(&by_number, &run.settings, &run.environment);
    let table = tables::warmup_study(&answer, &doubts);
    write_to_screen(&table, asked.place.format.format(), out)?;
    tell_cold_start(&answer, &folder, asked, out)?;
    write_file(&tables::warmup_laps(&answer), Format::Csv, &folder.join(LAPS_FILE))?;
    tell_files(&table, &folder, asked)?;
    let has_failed = answer.cases.iter().any(|case| case.rows.iter().any(|row| row.takes.is_none()));
    Ok(if has_failed { Status::BadNews } else { Status::Done })
}

/// Shows the settled cases and the numbers; touches no device.
fn show(order: &Order<'_>, numbers: &[usize], asked: &Asked, out: &mut dyn Write) -> anyhow::Result<Status> {
    bench::show_cases(order, &asked.place.format, out)?;
    if asked.place.format.format() == Format::Text {
        let words: Vec<String> = numbers.iter().map(ToString::to_string).collect();
        say(&format!("Each with {} warm-up takes.", words.join(", ")));
    }
    Ok(Status::Done)
}

/// Tells people what a fresh process paid for, and keeps it for machines; those have it in their rows, too.
fn tell_cold_start(answer: &WarmUpStudy, folder: &Path, asked: &Asked, out: &mut dyn Write) -> anyhow::Result<()> {
    let Some(table) = tables::cold_start(answer) else {
        warn("no process left a trace that can be read, so what the first take paid for is not known");
        return Ok(());
    };
    write_file(&table, Format::Json, &folder.join(COLD_FILE))?;
    if asked.place.format.is_for_people() {
        writeln!(out)?;
        write_to_screen(&table, asked.place.format.format(), out)?;
    }
    Ok(())
}

fn tell_files(table: &Table, folder: &Path, asked: &Asked) -> anyhow::Result<()> {
    let written = kit_files::write_study(table, folder, asked.kit_files.is_asked)?;
    let written = written.into_iter().chain(kit_files::write_output(table, &asked.kit_files)?);
    written.for_each(|file| say(&format!("Written: {}", file.display())));
    let folder = folder.display();
    say(&format!("\nResults: {folder}/warmup-*/results.jsonl, traces: {folder}/warmup-*/traces/"));
    Ok(())
}

/// The numbers that were asked for, each once, from small to large.
fn numbers(asked: &Asked) -> Vec<usize> {
    let mut numbers = if asked.warmups.is_empty() { NUMBERS.to_vec() } else { asked.warmups.clone() };
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

/// Numbers of warm-up takes, tried in turns.
struct Study<'a> {
    app: &'a App,
    cases: Vec<Case>,
    runs: u32,
    rows: Vec<Row>,
    cold: Vec<ColdProcess>,
}

/// One number of warm-up takes, with its folder.
struct Row {
    number: usize,
    run: Run,
    traces: PathBuf,
    writer: ResultsWriter,
    results: Vec<CaseResult>,
}

impl<'a> Study<'a> {
    /// Makes a folder for each number.
    fn begin(app: &'a App, run: &Run, cases: Vec<Case>, numbers: &[usize], folder: &Path) -> anyhow::Result<Self> {
        let row = |&number: &usize| -> anyhow::Result<Row> {
            let mut run = run.clone();
            run.settings.warmup = WarmUp::Takes(number);
            let folder = run_folder::make(Some(&folder.join(format!("warmup-{number}"))), "", Moment::now())?;
            run.write(&folder)?;
            let traces = folder.join("traces");
            fs::create_dir_all(&traces).with_context(|| format!("cannot make the folder `{}`", traces.display()))?;
            Ok(Row { number, run, traces, writer: ResultsWriter::open(&folder)?, results: Vec::new() })
        };
        let rows = numbers.iter().map(row).collect::<anyhow::Result<_>>()?;
        Ok(Self { app, cases, runs: run.settings.runs.max(1), rows, cold: Vec::new() })
    }

    /// Takes rounds, each with every number of every case in an order of its own: what drifts hits all of them.
    fn take_all(&mut self, is_quiet: bool) -> anyhow::Result<()> {
        self.app.listen_for_interrupts();
        let places = orders(self.rows.len(), self.cases.len(), self.runs, SEED);
        let mut progress = Progress::new(places.len(), is_quiet);
        for Place { run, row, case } in places {
            progress.begin(&self.cases[case], run, self.runs);
            if !self.take(run, row, case)? {
                let error = anyhow::anyhow!("interrupted before all numbers of warm-up takes were tried");
                return Err(Hinted::wrap(error, "what was taken is kept; `laptime warmup` begins anew"));
            }
            progress.done();
        }
        Ok(())
    }

    /// Takes one process; false if somebody asked to stop.
    fn take(&mut self, run: u32, row: usize, case: usize) -> anyhow::Result<bool> {
        let Row { run: about, traces, writer, results, .. } = &mut self.rows[row];
        let trace = traces.join(format!("case-{case}-run-{run}.pftrace"));
        let job = Job {
            workload: about.workload.clone(),
            device: about.device.clone(),
            cases: vec![self.cases[case].clone()],
            run,
            settings: about.settings,
            environment: about.environment_fingerprint.clone(),
            trace: Some(trace.clone()),
        };
        let Some(result) = alone::measure(self.app, &job)? else { return Ok(false) };
        writer.append(&result)?;
        if result.measured().is_some() {
            self.cold.extend(cold(&self.cases[case], &trace));
        }
        results.push(result);
        Ok(true)
    }
}

/// What a process paid for; none if it left no trace that can be read.
fn cold(case: &Case, trace: &Path) -> Option<ColdProcess> {
    let start = laptime_analyze::cold_start(&laptime_trace::read(trace).ok()?)?;
    Some(ColdProcess { case: case.clone(), start })
}

/// Which process comes when.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    run: u32,
    row: usize,
    case: usize,
}

/// Every process once: round by round, each round in random order.
fn orders(rows: usize, cases: usize, runs: u32, seed: u64) -> Vec<Place> {
    let mut rng = Rng::new(seed);
    let round = |run: u32| {
        let all = (0..rows).flat_map(move |row| (0..cases).map(move |case| Place { run, row, case }));
        let mut all: Vec<Place> = all.collect();
        rng.shuffle(&mut all);
        all
    };
    (0..runs).flat_map(round).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_round_has_every_number_of_every_case_in_an_order_of_its_own() {
        let places = orders(5, 2, 3, SEED);
        let rounds: Vec<&[Place]> = places.chunks(10).collect();
        assert_eq!(rounds.len(), 3);
        for (run, round) in rounds.iter().enumerate() {
            let mut sorted = round.to_vec();
            sorted.sort();
            assert!(sorted.iter().all(|place| place.run == run as u32) && sorted != *round, "{round:?}");
            sorted.dedup();
            assert_eq!(sorted.len(), 10);
        }
        let order = |round: &[Place]| round.iter().map(|place| (place.row, place.case)).collect::<Vec<_>>();
        assert!(order(rounds[0]) != order(rounds[1]) && order(rounds[1]) != order(rounds[2]));
        assert_eq!(places, orders(5, 2, 3, SEED), "the same seed gives the same order");
    }
}
