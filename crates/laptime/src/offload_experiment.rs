//! The experiment of `laptime diagnose`: the same generation with some layers on the device, with all of them and with a
//! few more than some, in turns.

use std::{io::Write, path::Path};

use laptime_analyze::{Conclusion, ExperimentLimits, Trial};
use laptime_bench::{Case, GivenSettings, Outcome, Settings, Stop, WarmUp};
use laptime_pipelines::OffloadedLayers;
use laptime_report::tables::{self, TrialRow};
use laptime_trace::run::{Measured, RESULTS_FILE, Run, read_results};

use crate::{
    app::App,
    aside::Aside,
    asked::Asked,
    cli::read_bench,
    failure::Hinted,
    offload_files::{WORKLOAD, metric},
    offload_profile::{Stopped, not_measured, plan_of},
    output::{OutputArgs, write_to_screen},
    progress::Progress,
};

/// Times that each of the three is prepared and taken, in turns.
const ROUNDS: usize = 3;

/// Layers more than were asked for.
const MORE: usize = 4;

/// What is run three times.
struct Asking {
    case: Case,
    device: String,
    warmup: usize,
    iterations: usize,
    /// How the answer is written, if the flags behind `--experiment` say so.
    asked: Option<Asked>,
}

/// Runs the experiment on what flags say, or on the case of a run.
pub fn run(
    app: &App,
    words: &[String],
    folder: Option<&Path>,
    output: &OutputArgs,
    out: &mut dyn Write,
) -> anyhow::Result<Conclusion> {
    let asking = match folder {
        Some(folder) => of_run(folder)?,
        None => of_flags(app, words)?,
    };
    let variants = variants(app, &asking)?;
    app.listen_for_interrupts();
    let trials = measure(app, &asking, &variants)?;
    let limits = ExperimentLimits::default();
    let [some, all, more] = &trials;
    let Ok(Some(measured)) = some else { return Err(nothing(some)) };
    let known = |trial: &Result<Option<Trial>, String>| trial.clone().ok().flatten();
    let answer = laptime_analyze::experiment(measured, known(all).as_ref(), known(more).as_ref(), limits);
    let rows: Vec<TrialRow> = variants.iter().zip(&trials).filter_map(|(variant, trial)| row(variant, trial)).collect();
    let emulated = emulated(&asking.case, &asking.device);
    let table = tables::experiment(&rows, &answer, emulated);
    match asking.asked.as_ref().filter(|_| words.iter().any(|word| word.starts_with("--format"))) {
        Some(asked) => write_to_screen(&table, asked.place.format.format(), out)?,
        None => output.write(&table, out)?,
    }
    Ok(answer.conclusion)
}

/// The rate of a link that is emulated.
fn emulated(case: &Case, device: &str) -> Option<f64> {
    let rate = case.get("link_gbps")?.to_string().parse::<f64>().ok()?;
    (rate > 0.0 && device == crate::offload_files::CPU).then_some(rate)
}

fn of_flags(app: &App, words: &[String]) -> anyhow::Result<Asking> {
    let asked = read_bench(app, [WORKLOAD.to_owned()].into_iter().chain(words.iter().cloned()).collect())?;
    // The generation that is checked before is the one that warms up.
    let usual = GivenSettings { warmup: Some(WarmUp::Iterations(0)), iterations: Some(1), ..GivenSettings::default() };
    let order = asked.settle(app, usual)?;
    let device = app.device(&order.device)?;
    let order = order.on(&*device);
    let cases = order.plan.cases();
    // A run without offloading is part of the experiment whether it was asked for or not.
    let [.., case] = cases.as_slice() else { anyhow::bail!("the plan has no case") };
    let is_one = |other: &Case| other == case || *other == OffloadedLayers::without_offloading(case);
    if !cases.iter().all(is_one) {
        let error = anyhow::anyhow!("an experiment is of one case, and this is {} of them", cases.len());
        return Err(Hinted::wrap(error, "give one value behind each flag"));
    }
    let (warmup, iterations) = (order.settings.warmup, order.settings.stop);
    let warmup = if let WarmUp::Iterations(iterations) = warmup { iterations } else { 0 };
    let iterations = if let Stop::Iterations(iterations) = iterations { iterations } else { 1 };
    Ok(Asking { case: case.clone(), device: device.name().to_owned(), warmup, iterations, asked: Some(asked) })
}

fn of_run(folder: &Path) -> anyhow::Result<Asking> {
    let run = Run::read(folder)?;
    if run.workload != WORKLOAD {
        let error = anyhow::anyhow!("`{}` is a run of `{}`, not of `{WORKLOAD}`", folder.display(), run.workload);
        return Err(Hinted::wrap(error, "name the run of a model whose layers do not all stay, or give its flags"));
    }
    let path = folder.join(RESULTS_FILE);
    let results = if path.is_file() { read_results(&path)?.results } else { Vec::new() };
    let case = results.into_iter().map(|result| result.case).chain(run.cases).next_back();
    let case = case.ok_or_else(|| anyhow::anyhow!("`{}` holds no case", folder.display()))?;
    Ok(Asking { case, device: run.device, warmup: 0, iterations: 1, asked: None })
}

/// One of the three.
struct Variant {
    name: &'static str,
    layers: usize,
    case: Option<Case>,
}

fn variants(app: &App, asking: &Asking) -> anyhow::Result<[Variant; 3]> {
    let device = app.device(&asking.device)?;
    let plan = plan_of(&asking.case, &*device)?;
    let (layers, stay) = (plan.layers, plan.resident);
    if stay == layers {
        let error = anyhow::anyhow!("all {layers} layers stay on the device: there is nothing to hold against it");
        return Err(Hinted::wrap(error, "offload some with `--num-gpu-layers`, or set a `--memory-budget`"));
    }
    let more = (stay + MORE).min(layers - 1);
    let with = |count| OffloadedLayers::with_layers(&asking.case, count);
    Ok([
        Variant { name: "as asked", layers: stay, case: Some(with(stay)) },
        Variant { name: "no offload", layers, case: Some(OffloadedLayers::without_offloading(&asking.case)) },
        Variant { name: "more layers", layers: more, case: (more > stay).then(|| with(more)) },
    ])
}

/// Takes all of them in turns. What could not be measured is told; none of what is not there.
fn measure(app: &App, asking: &Asking, variants: &[Variant; 3]) -> anyhow::Result<[Result<Option<Trial>, String>; 3]> {
    let settings = Settings {
        warmup: WarmUp::Iterations(asking.warmup),
        stop: Stop::Iterations(asking.iterations),
        ..GivenSettings::default().settle()?
    };
    let workload = app.workload(WORKLOAD)?;
    let mut progress =
        Progress::new(ROUNDS * variants.len(), asking.asked.as_ref().is_some_and(|asked| asked.run.quiet));
    let mut taken: [Taken; 3] = Default::default();
    let aside = Aside::begin();
    for round in 0..ROUNDS {
        for turn in 0..variants.len() {
            let at = (round + turn) % variants.len();
            let Some(case) = variants[at].case.as_ref().filter(|_| taken[at].reason.is_none()) else { continue };
            progress.begin(case, 0, 1);
            let device = app.device(&asking.device)?;
            let outcome = laptime_bench::measure(workload, case, &*device, &settings, &mut Stopped(app));
            taken[at].keep(&outcome);
            progress.done();
            if app.interrupt.is_requested() {
                drop(aside);
                let error = anyhow::anyhow!("interrupted in round {} of {ROUNDS}", round + 1);
                return Err(Hinted::wrap(error, "an experiment needs all three of its runs; begin it again"));
            }
        }
    }
    drop(aside);
    Ok(std::array::from_fn(|at| taken[at].trial(variants[at].layers)))
}

/// What was taken of one of the three.
#[derive(Default)]
struct Taken {
    token: Vec<f64>,
    exposed: Vec<f64>,
    copied: Vec<f64>,
    reason: Option<String>,
}

impl Taken {
    fn keep(&mut self, outcome: &Outcome) {
        self.reason = not_measured(outcome);
        let Outcome::Measured(measured) = outcome else { return };
        let of = |measured: &Measured, name: &str| metric(measured, name).map(|ms| 1e6 * ms);
        self.token.extend(of(measured, "token_p50_ms"));
        self.exposed.extend(of(measured, "exposed_ms"));
        self.copied.extend(of(measured, "copy_ms"));
    }

    fn trial(&self, layers: usize) -> Result<Option<Trial>, String> {
        let median = laptime_stats::spread::median;
        match (&self.reason, median(&self.token)) {
            (Some(reason), _) => Err(reason.clone()),
            (None, None) => Ok(None),
            (None, Some(token_ns)) => {
                let (exposed_ns, copied_ns) = (median(&self.exposed), median(&self.copied));
                Ok(Some(Trial { layers: layers as u64, token_ns, exposed_ns, copied_ns }))
            }
        }
    }
}

fn row(variant: &Variant, trial: &Result<Option<Trial>, String>) -> Option<TrialRow> {
    let (name, layers) = (variant.name, variant.layers as u64);
    match trial {
        Ok(None) => None,
        Ok(Some(trial)) => Some(TrialRow { name, layers, trial: Some(*trial), reason: None }),
        Err(reason) => Some(TrialRow { name, layers, trial: None, reason: Some(reason.clone()) }),
    }
}

fn nothing(some: &Result<Option<Trial>, String>) -> anyhow::Error {
    let reason = some.as_ref().err().cloned().unwrap_or_else(|| "no token was made".to_owned());
    let error = anyhow::anyhow!("the case of the experiment was not measured: {reason}");
    Hinted::wrap(error, "`laptime profile offload` with the same flags shows more")
}
