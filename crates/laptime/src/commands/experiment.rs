//! `laptime diagnose --experiment`: measures variants of a case, interleaved.

use std::{io::Write, path::Path};

use laptime_analyze::Conclusion;
use laptime_bench::{Case, GivenSettings, Outcome, Settings, Stop, WarmUp};
use laptime_pipelines::extras::{Experiment, Variant};
use laptime_trace::run::Run;

use crate::output::{OutputArgs, write_to_screen};
use crate::{
    app::App,
    cli::read_bench,
    failure::{refusal, refuse},
    progress::Progress,
    request::Request,
    run_input,
    stdout_guard::StdoutGuard,
};

/// How often each variant is measured.
const ROUNDS: usize = 3;

struct Subject<'a> {
    experiment: &'a dyn Experiment,
    workload: String,
    case: Case,
    device: String,
    warmup: usize,
    iterations: usize,
    request: Option<Request>,
}

/// Runs the experiment for the given flags, or for the case of a run.
pub fn run(
    app: &App,
    words: &[String],
    folder: Option<&Path>,
    output: &OutputArgs,
    out: &mut dyn Write,
) -> anyhow::Result<Conclusion> {
    let subject = match folder {
        Some(folder) => of_run(app, folder)?,
        None => of_flags(app, words)?,
    };
    let variants = subject.experiment.variants(&subject.case, &*app.device(&subject.device)?)?;
    app.listen_for_interrupts();
    let tried = measure(app, &subject, variants)?;
    let (table, conclusion) = subject.experiment.conclude(&subject.device, &tried)?;
    match subject.request.as_ref().filter(|_| words.iter().any(|word| word.starts_with("--format"))) {
        Some(request) => write_to_screen(&table, request.place.format.format(), out)?,
        None => output.write(&table, out).map(drop)?,
    }
    Ok(conclusion)
}

fn of_flags<'a>(app: &'a App, words: &[String]) -> anyhow::Result<Subject<'a>> {
    let found = app.extras.iter().find_map(|extras| Some((extras.workload(), extras.experiment()?)));
    let (workload, experiment) = found.ok_or_else(|| anyhow::anyhow!("no workload has an experiment"))?;
    let request = read_bench(app, [workload.to_owned()].into_iter().chain(words.iter().cloned()).collect())?;
    // The check before the first iteration is the warm-up.
    let usual = GivenSettings { warmup: Some(WarmUp::Iterations(0)), iterations: Some(1), ..GivenSettings::default() };
    let order = request.settle(app, usual)?;
    let device = app.device(&order.device)?;
    let order = order.on(&*device);
    let cases = order.plan.cases();
    let case = experiment.case(&cases).ok_or_else(|| {
        let reason = format!("an experiment needs one case, and these flags give {}", cases.len());
        refusal(reason, "give one value for each flag")
    })?;
    let warmup = if let WarmUp::Iterations(iterations) = order.settings.warmup { iterations } else { 0 };
    let iterations = if let Stop::Iterations(iterations) = order.settings.stop { iterations } else { 1 };
    let (workload, device) = (workload.to_owned(), device.name().to_owned());
    Ok(Subject { experiment, workload, case, device, warmup, iterations, request: Some(request) })
}

fn of_run<'a>(app: &'a App, folder: &Path) -> anyhow::Result<Subject<'a>> {
    let run = Run::read(folder)?;
    let experiment = app.extras(&run.workload).experiment().ok_or_else(|| {
        let reason = format!("`{}` is a run of `{}`, which has no experiment", folder.display(), run.workload);
        refusal(reason, "name a run of `offload`, or give the flags of `laptime bench offload`")
    })?;
    let results = run_input::results_in(folder)?;
    let case = results.into_iter().map(|result| result.case).chain(run.cases).next_back();
    let case = case.ok_or_else(|| anyhow::anyhow!("`{}` has no case", folder.display()))?;
    let (workload, device) = (run.workload, run.device);
    Ok(Subject { experiment, workload, case, device, warmup: 0, iterations: 1, request: None })
}

/// Measures the variants, interleaved. A variant that fails is not tried again.
fn measure(app: &App, subject: &Subject<'_>, variants: Vec<Variant>) -> anyhow::Result<Vec<(Variant, Vec<Outcome>)>> {
    let settings = Settings {
        warmup: WarmUp::Iterations(subject.warmup),
        stop: Stop::Iterations(subject.iterations),
        ..GivenSettings::default().settle()?
    };
    let workload = app.workload(&subject.workload)?;
    let is_quiet = subject.request.as_ref().is_some_and(|request| request.run.quiet);
    let mut progress = Progress::new(ROUNDS * variants.len(), is_quiet);
    let mut tried: Vec<(Variant, Vec<Outcome>)> = variants.into_iter().map(|variant| (variant, Vec::new())).collect();
    let guard = StdoutGuard::begin();
    for round in 0..ROUNDS {
        for turn in 0..tried.len() {
            let at = (round + turn) % tried.len();
            let (variant, outcomes) = &mut tried[at];
            if !outcomes.iter().all(|outcome| matches!(outcome, Outcome::Measured(_))) {
                continue;
            }
            progress.begin(&variant.case, 0, 1);
            let device = app.device(&subject.device)?;
            let sink = &mut app.interrupt.clone();
            outcomes.push(laptime_bench::measure(workload, &variant.case, &*device, &settings, sink));
            progress.done();
            if app.interrupt.is_requested() {
                drop(guard);
                let reason = format!("interrupted in round {} of {ROUNDS}", round + 1);
                return refuse(reason, "an experiment needs all of its variants; start it again");
            }
        }
    }
    drop(guard);
    Ok(tried)
}
