//! `laptime warmup`: finds how many iterations a workload needs until it is steady.

use std::io::Write;
use std::path::{Path, PathBuf};

use laptime_bench::{GivenSettings, WarmUp};

use crate::commands::{bench, warmup_study};
use crate::output::{warn, write_to_screen};
use crate::request::{OUTPUT, Request};
use crate::{app::App, cli::Status, failure::refuse, session::Session};

/// Default iterations per process: enough for a steady state after a third of them.
const ITERATIONS: usize = 60;

const RUNS: u32 = 3;

pub fn run(app: &App, request: &Request, out: &mut dyn Write) -> anyhow::Result<Status> {
    if request.run.warmup.is_some() {
        let reason = "`laptime warmup` finds the number of warm-up iterations, so `--warmup` cannot be given";
        return refuse(reason, "leave it out, and use the result with `laptime bench … --warmup N`");
    }
    let compares = |workload: &String| app.extras(workload).compares_warmups(&request.written_axes());
    if !request.warmups.is_empty() || request.workload.as_ref().is_some_and(compares) {
        return warmup_study::run(app, request, out);
    }
    let defaults = GivenSettings { iterations: Some(ITERATIONS), runs: Some(RUNS), ..GivenSettings::default() };
    let mut order = request.settle(app, defaults)?;
    request.check_flags(app, order.workload.name())?;
    order.settings.warmup = WarmUp::Iterations(0);
    order.settings.cold = true;
    // Each case needs a fresh process to start cold.
    order.settings.isolate = true;
    if request.run.dry_run {
        return bench::show_cases(&order, &request.place.format, out);
    }
    let session = Session::begin(app, &order, "warmup", request.place.out.as_deref())?;
    let finished = session.sweep(app, request.run.quiet)?;
    let answer = laptime_analyze::warmup(&finished.results);
    let table = laptime_report::tables::warmup(&answer);
    write_to_screen(&table, request.place.format.format(), out)?;
    let copy: Option<PathBuf> = request.flags.path(OUTPUT).map(Path::to_owned);
    copy.iter().try_for_each(|path| bench::write_copy(&table, path))?;
    for result in finished.results.iter().filter(|result| result.measured().is_none()) {
        warn(&format!("case {} was not measured ({}); it has no row", result.case, result.outcome.word()));
    }
    bench::end(&finished, &copy.into_iter().collect::<Vec<_>>())
}
