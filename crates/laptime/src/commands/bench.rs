//! `laptime bench`: a workload over its axes.

use std::io::Write;

use laptime_bench::{AxisValue, Case, CaseResult, GivenSettings, Outcome, Settings, Timing};
use laptime_report::{Cell, Column, Format, Table};

use crate::{
    app::App,
    asked::{Asked, Order},
    cli::Status,
    commands::fit,
    course,
    failure::Hinted,
    kit_files, offload_files, offload_profile,
    output::{FormatArgs, say, write_to_screen},
    screen,
    session::{Finished, Session},
    tts_files, tts_header,
};

/// Runs the command.
pub fn run(app: &App, asked: &Asked, out: &mut dyn Write) -> anyhow::Result<Status> {
    if tts_files::takes_standard_output(asked) {
        return run_to(app, asked, &mut screen::stderr());
    }
    run_to(app, asked, out)
}

/// Runs the command and writes what people read to this place.
fn run_to(app: &App, asked: &Asked, out: &mut dyn Write) -> anyhow::Result<Status> {
    let session = match &asked.resume {
        Some(folder) => {
            let session = Session::resume(app, asked, folder)?;
            if asked.run.dry_run {
                let (workload, runs) = (&session.run.workload, session.run.settings.runs);
                return show_settled(&session.left(), workload, runs, &asked.place.format, out);
            }
            session
        }
        None => {
            let order = asked.settle(app, GivenSettings::default())?;
            kit_files::refuse_unused(asked, order.workload.name())?;
            tts_files::refuse_unused(asked, &order)?;
            if asked.run.dry_run {
                return show_cases(&order, &asked.place.format, out);
            }
            // Held until the run has it, so that it is opened once.
            let _device = offload_profile::look_at_all(app, &order)?;
            if let Some(axis) = &asked.fit {
                return fit::run(app, asked, order, axis, out);
            }
            Session::begin(app, &order, order.workload.name(), asked.place.out.as_deref())?
        }
    };
    if asked.place.format.format() == Format::Text {
        tts_header::write(&session.run, out)?;
    }
    let finished = session.sweep(app, asked.run.quiet)?;
    show(&finished, asked.place.format.format(), out)?;
    if asked.place.format.format() == Format::Text && COURSE_FLAGS.iter().any(|flag| asked.has_flag(flag)) {
        course::write(&finished, out)?;
    }
    if asked.place.format.format() == Format::Text && asked.kit_files.is_asked {
        course::write_attention(&finished, out)?;
    }
    for file in kit_files::write(app, &finished, &asked.kit_files)? {
        say(&format!("Written: {}", file.display()));
    }
    for file in tts_files::write(app, &finished, &asked.tts)? {
        say(&format!("Written: {}", file.display()));
    }
    if let (Format::Text, Some(block)) = (asked.place.format.format(), offload_files::comparison(&finished.results)) {
        write!(out, "\n{block}")?;
    }
    for file in offload_files::write(app, &finished, asked.kit_files.output_dir.as_deref())? {
        say(&format!("Written: {}", file.display()));
    }
    tell_of_fit(app, &finished);
    end(&finished)
}

/// The flags by which the course names models.
pub const COURSE_FLAGS: [&str; 2] = ["model_size", "model_sizes"];

/// What did not fit may fit smaller, where the workload can tell.
fn tell_of_fit(app: &App, finished: &Finished) {
    let lacks_memory = |result: &&CaseResult| matches!(result.outcome, Outcome::OutOfMemory { .. });
    let has_lack = finished.results.iter().find(lacks_memory).is_some();
    let axes = app.registry.workload(&finished.run.workload).map(fit::axes).unwrap_or_default();
    if let (true, Some(axis)) = (has_lack, axes.first()) {
        say(&format!("\nhint: `--fit {axis}` finds the largest that fits"));
    }
}

/// Shows the settled cases; touches no device.
pub fn show_cases(order: &Order<'_>, format: &FormatArgs, out: &mut dyn Write) -> anyhow::Result<Status> {
    show_settled(&order.plan.cases(), order.workload.name(), order.settings.runs, format, out)
}

fn show_settled(
    cases: &[Case],
    workload: &str,
    runs: u32,
    format: &FormatArgs,
    out: &mut dyn Write,
) -> anyhow::Result<Status> {
    let axes = cases.first().map(|case| case.values().map(|(axis, _)| axis.to_owned()).collect::<Vec<_>>());
    let columns = axes.unwrap_or_default().into_iter().map(|axis| Column::new(axis.clone(), axis));
    let mut table = Table::new("cases", columns.collect::<Vec<_>>());
    for case in cases {
        table.push(case.values().map(|(_, value)| cell(value)).collect::<Vec<_>>());
    }
    let processes = if runs > 1 { format!(", each in {runs} fresh processes") } else { String::new() };
    let plural = if cases.len() == 1 { "case" } else { "cases" };
    table.note(format!("{} {plural} of `{workload}`{processes}; nothing was measured.", cases.len()));
    write_to_screen(&table, format.format(), out)?;
    Ok(Status::Done)
}

fn cell(value: &AxisValue) -> Cell {
    match value {
        AxisValue::Int(number) => Cell::Whole(*number),
        other => Cell::text(other.to_string()),
    }
}

/// Says how a device beside the host was timed.
fn add_settings(table: &mut Table, settings: &Settings) {
    let Settings { timing, l2, .. } = settings;
    table.machine_fact("timing", Cell::text(timing.word()));
    if *timing != Timing::Host {
        table.human_fact("timing", Cell::text(timing.word()));
    }
    if let Some(l2) = l2 {
        table.fact("l2", "L2", Cell::text(l2.word()));
    }
}

/// Shows what was measured.
pub fn show(finished: &Finished, format: Format, out: &mut dyn Write) -> anyhow::Result<()> {
    let Finished { run, results, .. } = finished;
    let answer = laptime_analyze::cases(results, run.peaks.as_ref());
    let doubts = laptime_analyze::doubts(&answer, &run.settings, &run.environment);
    if matches!(format, Format::Text | Format::Md) {
        let tables = laptime_report::tables::speech(&answer, &doubts);
        if !tables.is_empty() {
            return tables.iter().try_for_each(|table| write_to_screen(table, format, out));
        }
    }
    let of_models = Some(format).filter(|format| *format == Format::Md);
    let of_models = of_models.and_then(|_| laptime_report::tables::models(&answer, &doubts));
    let mut table = of_models.unwrap_or_else(|| laptime_report::tables::cases(&answer, &doubts));
    add_settings(&mut table, &run.settings);
    write_to_screen(&table, format, out)?;
    if matches!(format, Format::Text | Format::Md) { show_lengths(results, format, out) } else { Ok(()) }
}

/// Shows how cases grow with their length, where kinds of attention change places, and how caches do against a text;
/// machines get rows alone.
fn show_lengths(results: &[CaseResult], format: Format, out: &mut dyn Write) -> anyhow::Result<()> {
    let crossovers = laptime_report::tables::crossovers(&laptime_analyze::crossovers(results));
    let scaling = laptime_report::tables::scaling(&laptime_analyze::scaling(results));
    let against = laptime_report::tables::against_text(&laptime_analyze::against_text(results));
    for table in [crossovers, against, scaling].into_iter().flatten() {
        writeln!(out)?;
        write_to_screen(&table, format, out)?;
    }
    Ok(())
}

/// Says where the results are, and how to go on if they are not whole.
pub fn end(finished: &Finished) -> anyhow::Result<Status> {
    let folder = finished.folder.display();
    if finished.was_interrupted {
        let error = anyhow::anyhow!("interrupted after {} of {} cases", whole(finished), finished.expected);
        let hint = if finished.run.settings.cold {
            "what was taken is kept; `laptime warmup` begins anew".to_owned()
        } else {
            format!("`laptime bench --resume {folder}` goes on")
        };
        return Err(Hinted::wrap(error, hint));
    }
    say(&format!("\nResults: {folder}/results.jsonl, run: {folder}/run.json"));
    let has_failed = finished.results.iter().any(|result| matches!(result.outcome, Outcome::Failed { .. }));
    Ok(if has_failed { Status::BadNews } else { Status::Done })
}

fn whole(finished: &Finished) -> usize {
    finished.results.iter().filter(|result| result.is_finished()).count()
}
