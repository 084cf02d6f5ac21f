//! `laptime warmup --warmups`: what some numbers of warm-up takes would have said, each in fresh processes.

use std::io::Write;

use clap::{Arg, ArgAction};
use laptime_bench::{CaseResult, GivenSettings, WarmUp};
use laptime_report::Format;

use crate::{
    app::App,
    asked::{Asked, Order},
    cli::Status,
    commands::bench,
    failure::Hinted,
    kit_files,
    moment::Moment,
    output::{say, write_to_screen},
    run_folder,
    session::Session,
};

/// The numbers that the course compares.
const NUMBERS: [usize; 5] = [0, 1, 2, 5, 10];

/// Takes that count in each process, unless asked otherwise: as the course.
const TAKES: usize = 10;

/// Fresh processes of each number, unless asked otherwise.
const RUNS: u32 = 3;

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
        bench::show_cases(&order, &asked.place.format, out)?;
        if asked.place.format.format() == Format::Text {
            let words: Vec<String> = numbers.iter().map(ToString::to_string).collect();
            say(&format!("Each with {} warm-up takes.", words.join(", ")));
        }
        return Ok(Status::Done);
    }
    let folder = run_folder::make(asked.place.out.as_deref(), "warmup", Moment::now())?;
    let mut by_number: Vec<(usize, Vec<CaseResult>)> = Vec::new();
    for number in numbers {
        order.settings.warmup = WarmUp::Takes(number);
        let results = measure(app, asked, &order, &folder.join(format!("warmup-{number}")))?;
        by_number.push((number, results));
    }
    let answer = laptime_analyze::warmup_study(&by_number);
    let table = laptime_report::tables::warmup_study(&answer);
    write_to_screen(&table, asked.place.format.format(), out)?;
    if let Some(file) = kit_files::write_study(&table, &folder, asked.kit_files.is_asked)? {
        say(&format!("Written: {}", file.display()));
    }
    say(&format!("\nResults: {}/warmup-*/results.jsonl", folder.display()));
    let has_failed = answer.cases.iter().any(|case| case.rows.iter().any(|row| row.takes.is_none()));
    Ok(if has_failed { Status::BadNews } else { Status::Done })
}

/// The numbers that were asked for, each once, from small to large.
fn numbers(asked: &Asked) -> Vec<usize> {
    let mut numbers = if asked.warmups.is_empty() { NUMBERS.to_vec() } else { asked.warmups.clone() };
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

fn measure(app: &App, asked: &Asked, order: &Order<'_>, folder: &std::path::Path) -> anyhow::Result<Vec<CaseResult>> {
    let session = Session::begin(app, order, "warmup", Some(folder))?;
    let finished = session.sweep(app, asked.run.quiet)?;
    if finished.was_interrupted {
        let error = anyhow::anyhow!("interrupted before all numbers of warm-up takes were tried");
        return Err(Hinted::wrap(error, "what was taken is kept; `laptime warmup` begins anew"));
    }
    Ok(finished.results)
}
