//! `laptime warmup`: how many iterations until a workload is steady.

use std::{
    io::Write,
    path::{Path, PathBuf},
};

use laptime_bench::{GivenSettings, WarmUp};

use crate::{
    app::App,
    asked::{Asked, OUTPUT},
    cli::Status,
    commands::{bench, warmup_study},
    failure::Hinted,
    output::{warn, write_to_screen},
    session::Session,
};

/// Iterations in each process, unless asked otherwise: enough to see a level after a warm-up of a third of them.
const ITERATIONS: usize = 60;

/// Fresh processes, unless asked otherwise.
const RUNS: u32 = 3;

/// Runs the command.
pub fn run(app: &App, asked: &Asked, out: &mut dyn Write) -> anyhow::Result<Status> {
    if asked.run.warmup.is_some() {
        let error = anyhow::anyhow!("`warmup` finds the warm-up: `--warmup` has no meaning here");
        return Err(Hinted::wrap(error, "leave it out; `laptime bench … --warmup N` uses what is found"));
    }
    let compares = |workload: &String| app.extras(workload).compares_warmups(&asked.written_axes());
    if !asked.warmups.is_empty() || asked.workload.as_ref().is_some_and(compares) {
        return warmup_study::run(app, asked, out);
    }
    let defaults = GivenSettings { iterations: Some(ITERATIONS), runs: Some(RUNS), ..GivenSettings::default() };
    let mut order = asked.settle(app, defaults)?;
    asked.check_flags(app, order.workload.name())?;
    order.settings.warmup = WarmUp::Iterations(0);
    order.settings.cold = true;
    // Cold is what a process of its own is: a second case in the same one would find the machine warm.
    order.settings.isolate = true;
    if asked.run.dry_run {
        return bench::show_cases(&order, &asked.place.format, out);
    }
    let session = Session::begin(app, &order, "warmup", asked.place.out.as_deref())?;
    let finished = session.sweep(app, asked.run.quiet)?;
    let answer = laptime_analyze::warmup(&finished.results);
    let table = laptime_report::tables::warmup(&answer);
    write_to_screen(&table, asked.place.format.format(), out)?;
    let copy: Option<PathBuf> = asked.flags.path(OUTPUT).map(Path::to_owned);
    copy.iter().try_for_each(|path| bench::write_copy(&table, path))?;
    for result in finished.results.iter().filter(|result| result.measured().is_none()) {
        warn(&format!("case {} was not measured ({}); it has no row", result.case, result.outcome.word()));
    }
    bench::end(&finished, &copy.into_iter().collect::<Vec<_>>())
}
