//! `laptime bench`: measures a workload over its axes.

use std::path::{Path, PathBuf};
use std::{io::Write, sync::Arc};

use laptime_analyze::plural;
use laptime_bench::{AxisValue, Case, CaseResult, Device, GivenSettings, Outcome, Settings, Timing};
use laptime_report::{Cell, Column, Format, Table};

use crate::commands::{fit, page, slurm};
use crate::output::{FormatArgs, say, write_file, write_to_screen};
use crate::request::{OUTPUT, Order, Request};
use crate::session::{Finished, Session};
use crate::{app::App, cli::Status, failure::refuse, run_folder, screen};

pub fn run(app: &App, request: &Request, out: &mut dyn Write) -> anyhow::Result<Status> {
    let is_data = app.extras.iter().any(|extras| extras.uses_standard_output(&request.flags));
    if is_data { run_to(app, request, &mut screen::stderr()) } else { run_to(app, request, out) }
}

fn run_to(app: &App, request: &Request, out: &mut dyn Write) -> anyhow::Result<Status> {
    match &request.resume {
        Some(folder) if slurm::is_submitted(folder) => return slurm::resume(request, folder, out),
        None if request.slurm.slurm => return slurm::submit(app, request, out),
        _ => refuse_stray_flags(request)?,
    }
    let session = match &request.resume {
        Some(folder) => {
            let session = Session::resume(app, request, folder)?;
            request.check_flags(app, &session.run.workload)?;
            if request.run.dry_run {
                let (workload, runs) = (&session.run.workload, session.run.settings.runs);
                return show_settled(&session.left(), workload, runs, &request.place.format, out);
            }
            session
        }
        None => {
            let order = request.settle(app, GivenSettings::default())?;
            let extras = app.extras(order.workload.name());
            request.check_flags(app, order.workload.name())?;
            extras.check(&request.flags, &order.plan.cases())?;
            if request.run.dry_run {
                return show_cases(&order, &request.place.format, out);
            }
            // Kept open until the run has it, so that it is opened only once.
            let _device = check_cases(app, &order)?;
            if let Some(axis) = &request.fit {
                return fit::run(app, request, order, axis, out);
            }
            Session::begin(app, &order, order.workload.name(), request.place.out.as_deref())?
        }
    };
    let (extras, screen) = (app.extras(&session.run.workload), request.screen());
    extras.begin(&request.context(app, (&session.run, &session.folder), &screen)?, &session.left(), out)?;
    let finished = session.sweep(app, request.run.quiet)?;
    show(&finished, request.place.format.format(), out)?;
    let context = request.context(app, (&finished.run, &finished.folder), &screen)?;
    let mut outside = extras.finish_bench(&context, &finished.results, out)?;
    let is_own = extras.flags(request.command).iter().any(|flag| flag.name == OUTPUT);
    if let Some(path) = request.flags.path(OUTPUT).filter(|_| !is_own) {
        let answer = laptime_analyze::cases(&finished.results, finished.run.peaks.as_ref());
        write_copy(&laptime_report::tables::cases(&answer, &[]), path)?;
        outside.push(path.to_owned());
    }
    suggest_fit(app, &finished);
    end(&finished, &outside)
}

/// Refuses flags of Slurm without `--slurm`.
fn refuse_stray_flags(request: &Request) -> anyhow::Result<()> {
    if request.slurm.slurm {
        return refuse("the run to resume was not submitted to Slurm", "leave out `--slurm`");
    }
    let Some(flag) = request.slurm.stray() else { return Ok(()) };
    refuse(format!("`--{flag}` needs `--slurm`"), "add `--slurm` to submit the sweep as a job array")
}

/// Refuses cases that cannot run. Returns the device if it was opened for that.
fn check_cases(app: &App, order: &Order<'_>) -> anyhow::Result<Option<Arc<dyn Device>>> {
    let extras = app.extras(order.workload.name());
    if !extras.checks_cases() {
        return Ok(None);
    }
    let device = app.device(&order.device)?;
    order.plan.cases().iter().try_for_each(|case| extras.check_case(case, &*device))?;
    Ok(Some(device))
}

/// Writes a copy of a table as CSV.
pub fn write_copy(table: &Table, path: &Path) -> anyhow::Result<()> {
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        run_folder::create(folder)?;
    }
    write_file(table, Format::Csv, path)
}

/// Suggests `--fit` if a case ran out of memory and the workload can predict memory.
fn suggest_fit(app: &App, finished: &Finished) {
    let ran_out = finished.results.iter().any(|result| matches!(result.outcome, Outcome::OutOfMemory { .. }));
    let axes = app.registry.workload(&finished.run.workload).map(fit::axes).unwrap_or_default();
    if let (true, Some(axis)) = (ran_out, axes.first()) {
        say(&format!("\nhint: `--fit {axis}` finds the largest value that fits"));
    }
}

/// Shows the cases without opening a device.
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
    let count = plural(cases.len(), "case", "cases");
    table.note(format!("{count} of `{workload}`{processes}; nothing was measured."));
    write_to_screen(&table, format.format(), out)?;
    Ok(Status::Done)
}

fn cell(value: &AxisValue) -> Cell {
    match value {
        AxisValue::Int(number) => Cell::Whole(*number),
        other => Cell::text(other.to_string()),
    }
}

/// Adds how the device was timed.
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

/// Shows the results.
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

/// Shows scaling, crossovers and comparisons with text.
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

/// Prints where the results are, and how to continue an interrupted run.
pub fn end(finished: &Finished, outside: &[PathBuf]) -> anyhow::Result<Status> {
    let folder = finished.folder.display();
    if finished.was_interrupted {
        let done = finished.results.iter().filter(|result| result.is_finished()).count();
        let reason = format!("interrupted after {done} of {} cases", finished.expected);
        let hint = if finished.run.settings.cold {
            "finished measurements are saved; `laptime warmup` starts over".to_owned()
        } else {
            format!("`laptime bench --resume {folder}` continues it")
        };
        return refuse(reason, hint);
    }
    page::write_finished(&finished.folder, &finished.run, &finished.results);
    run_folder::say_saved(&finished.folder, outside);
    let has_failed = finished.results.iter().any(|result| matches!(result.outcome, Outcome::Failed { .. }));
    Ok(if has_failed { Status::BadNews } else { Status::Done })
}
