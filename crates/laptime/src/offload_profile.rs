//! What a profile of layers that do not stay has beside other profiles: its configuration, what a token should take, what
//! it took, and the audio.

use std::io::Write;
use std::sync::Arc;

use laptime_analyze::{Expected, Offload, OffloadFacts, Thresholds};
use laptime_bench::{
    AxisValue, Case, CaseResult, Device, Fact, Outcome, Plan, Settings, Sink, Stop, Timing, Traffic, WarmUp,
};
use laptime_models::StreamMode;
use laptime_pipelines::{BudgetTooSmall, Generated, OffloadPlan, OffloadedLayers};
use laptime_report::offload_text::{
    Generation, OffloadConfiguration, benchmark_comparison, expected_timing, generation_summary, offload_configuration,
    time_breakdown,
};
use laptime_trace::{
    Trace,
    run::{Depth, Measured, Peaks, Run},
};

use crate::{
    app::App,
    aside::Aside,
    asked::{Asked, Order},
    failure::Hinted,
    offload_files::{WORKLOAD, generation, metric, name, warn_of_refusals, write_audio},
    output::{say, warn},
    session::Session,
};

/// Takes of the run without offloading.
const BASELINE_TAKES: usize = 3;

/// Refuses a folder for audio where there is none.
pub fn refuse_unused(asked: &Asked, workload: &str) -> anyhow::Result<()> {
    if workload == WORKLOAD || asked.kit_files.output_dir.is_none() {
        return Ok(());
    }
    let error = anyhow::anyhow!("`--output-dir` is for the audio of `{WORKLOAD}`, and this is `{workload}`");
    Err(Hinted::wrap(error, "`--out` says where the run is kept"))
}

/// Takes the case without offloading out of an order that asks for it beside another.
pub fn part_baseline(order: &mut Order<'_>) -> anyhow::Result<Option<Case>> {
    if order.workload.name() != WORKLOAD {
        return Ok(None);
    }
    let mut cases = order.plan.cases();
    let [all, some] = cases.as_slice() else { return Ok(None) };
    if *all != OffloadedLayers::without_offloading(some) {
        return Ok(None);
    }
    let baseline = cases.remove(0);
    order.plan = Plan::of_cases(order.workload.axes(), cases)?;
    Ok(Some(baseline))
}

/// What will be done with a case; none of another workload. An error if it cannot be done.
pub fn look(order: &Order<'_>, case: &Case, device: &dyn Device) -> anyhow::Result<Option<OffloadPlan>> {
    if order.workload.name() != WORKLOAD {
        return Ok(None);
    }
    plan_of(case, device).map(Some)
}

/// What will be done with a case, or why it cannot be done, with a way on.
pub fn plan_of(case: &Case, device: &dyn Device) -> anyhow::Result<OffloadPlan> {
    OffloadedLayers::look(case, device).map_err(|error| {
        let hint = match error.is::<BudgetTooSmall>() {
            true => "raise it, or leave `--memory-budget` out to use all free memory",
            false => "`--no-offload` keeps all layers on the device, `--auto` as many as fit",
        };
        Hinted::wrap(error, hint)
    })
}

/// Refuses an order with a case that cannot be done. Gives the device if it had to be opened for that.
pub fn look_at_all(app: &App, order: &Order<'_>) -> anyhow::Result<Option<Arc<dyn Device>>> {
    if order.workload.name() != WORKLOAD {
        return Ok(None);
    }
    let device = app.device(&order.device)?;
    order.plan.cases().iter().try_for_each(|case| look(order, case, &*device).map(drop))?;
    Ok(Some(device))
}

/// Tells people how layers are offloaded and what a token should take, and shows layers from here on.
pub fn begin(app: &App, plan: &OffloadPlan, run: &Run, asked: &Asked, out: &mut dyn Write) -> anyhow::Result<()> {
    let is_for_people = asked.place.format.is_for_people();
    app.live.show(is_for_people && !asked.run.quiet, plan.emulated_gbps);
    if !is_for_people {
        return Ok(());
    }
    writeln!(out, "{}", offload_configuration(&configuration(plan)))?;
    if let Some(expected) = expected(plan, run.peaks.as_ref()) {
        writeln!(out, "{}", expected_timing(&expected))?;
    }
    Ok(out.flush()?)
}

fn configuration(plan: &OffloadPlan) -> OffloadConfiguration {
    let enabled = plan.resident < plan.layers;
    OffloadConfiguration {
        enabled,
        is_gpu: plan.is_gpu,
        gpu_layers: plan.resident as u64,
        layers: plan.layers as u64,
        pin_memory: plan.is_gpu && plan.mode > StreamMode::Sync,
        prefetch: plan.mode.is_ahead(),
        async_transfer: plan.mode.is_ahead(),
        cache_clear_interval: plan.clear_every.map(|copies| copies as u64),
        mode: plan.mode.name().to_owned(),
        emulated_gbps: plan.emulated_gbps,
        predicted: Some(plan.needed_bytes),
        budget: plan.budget_bytes,
    }
}

fn expected(plan: &OffloadPlan, peaks: Option<&Peaks>) -> Option<Expected> {
    let mut measured = Measured { facts: plan.facts.clone(), ..Measured::default() };
    add_peaks(&mut measured, peaks);
    let facts = OffloadFacts::of(&measured);
    laptime_analyze::expected_of_offload(&facts.sizes?, &facts.rates?)
}

/// Adds what the machine can do, where it was measured and the case does not say otherwise.
fn add_peaks(measured: &mut Measured, peaks: Option<&Peaks>) {
    let Some(peaks) = peaks else { return };
    let dtype = measured.fact("dtype").map(ToString::to_string).unwrap_or_default();
    let known = [
        ("memory_gbps", peaks.bytes_s(Traffic::Read)),
        ("peak_gflops", peaks.flops_s(&dtype)),
        ("link_gbps", peaks.bytes_s(Traffic::Upload)),
    ];
    for (name, rate) in known {
        if let (None, Some(rate)) = (measured.fact(name), rate) {
            measured.facts.push(Fact::new(name, AxisValue::Float(rate / 1e9)));
        }
    }
}

/// Measures a case without offloading, behind what is profiled.
pub fn measure_baseline(app: &App, order: &Order<'_>, run: &Run, case: Case) -> anyhow::Result<CaseResult> {
    let settings = Settings {
        warmup: WarmUp::Takes(1),
        stop: Stop::Takes(BASELINE_TAKES),
        depth: Depth::default(),
        timing: Timing::Host,
        ..run.settings
    };
    let device = app.device(&run.device)?;
    app.live.rest();
    let aside = Aside::begin();
    let outcome = laptime_bench::measure(order.workload, &case, &*device, &settings, &mut Stopped(app));
    drop(aside);
    Ok(CaseResult::new(&run.workload, &run.device, case, 0, &run.environment_fingerprint, outcome))
}

/// Keeps nothing, and stops when somebody wants to.
pub struct Stopped<'a>(pub &'a App);

impl Sink for Stopped<'_> {
    fn begin(&mut self, _: &Case, _: u32) {}

    fn take(&mut self, _: u64, _: bool) {}

    fn result(&mut self, _: CaseResult) -> anyhow::Result<()> {
        Ok(())
    }

    fn is_interrupted(&self) -> bool {
        self.0.interrupt.is_asked()
    }
}

/// Adds what the machine can do and what a token takes without offloading to what is known of a case.
pub fn complete(outcome: &mut Outcome, workload: &str, run: &Run, baseline: Option<&CaseResult>) {
    let Outcome::Measured(measured) = outcome else { return };
    if workload != WORKLOAD {
        return;
    }
    add_peaks(measured, run.peaks.as_ref());
    let token = baseline.and_then(CaseResult::measured).and_then(|all| metric(all, "token_p50_ms"));
    measured.facts.extend(token.map(|ms| Fact::new("baseline_ms", AxisValue::Float(ms))));
}

/// Tells people what was made and what a token took, and writes the audio.
pub fn write(
    app: &App,
    trace: Option<&Trace>,
    results: &[&CaseResult],
    session: &Session,
    asked: &Asked,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let Some(result) = results.first().filter(|result| result.workload == WORKLOAD) else { return Ok(()) };
    let made = app.live.made(&result.case);
    if asked.place.format.is_for_people() {
        writeln!(out)?;
        for block in blocks(app, trace, results, made.as_ref()) {
            writeln!(out, "{block}")?;
        }
    }
    warn_of_refusals(results);
    if let Outcome::OutOfMemory { .. } = result.outcome {
        say("hint: `--auto` keeps as many layers on the device as fit");
    }
    let folder = asked.kit_files.output_dir.as_deref().unwrap_or(&session.folder);
    if let Some(file) = made.map(|made| write_audio(&made, folder, &[])).transpose()?.flatten() {
        say(&format!("Audio: {}", file.display()));
    }
    Ok(out.flush()?)
}

fn blocks(app: &App, trace: Option<&Trace>, results: &[&CaseResult], made: Option<&Generated>) -> Vec<String> {
    let Some(result) = results.first() else { return Vec::new() };
    let mut blocks: Vec<String> = app.live.summary().into_iter().collect();
    blocks.extend(summary(made, result).map(|told| generation_summary(&told)));
    let answer = trace.zip(result.measured()).and_then(|(trace, measured)| answer(trace, measured));
    blocks.extend(answer.as_ref().map(time_breakdown));
    let rows: Vec<Generation> = results.iter().rev().filter_map(|result| generation(result)).collect();
    if let [_, _, ..] = rows.as_slice() {
        blocks.push(benchmark_comparison(&rows));
    }
    for result in &results[1..] {
        if let Some(reason) = not_measured(&result.outcome) {
            warn(&format!("without offloading nothing was measured: {reason}"));
        }
    }
    blocks
}

/// What offloaded layers did in a trace.
fn answer(trace: &Trace, measured: &Measured) -> Option<Offload> {
    laptime_analyze::offload(trace, OffloadFacts::of(measured), Thresholds::default())
}

/// Why a case was not measured, in a line.
pub fn not_measured(outcome: &Outcome) -> Option<String> {
    let gib = |bytes: &Option<u64>| {
        bytes.map_or_else(|| "?".to_owned(), |bytes| format!("{:.1}", bytes as f64 / (1_u64 << 30) as f64))
    };
    match outcome {
        Outcome::Measured(_) => None,
        Outcome::Failed { errors, .. } => Some(errors.join(": ")),
        Outcome::Skipped { reason } => Some(reason.clone()),
        Outcome::OutOfMemory { needed_bytes, available_bytes } => {
            Some(format!("it does not fit, it needs {} GiB and there are {}", gib(needed_bytes), gib(available_bytes)))
        }
    }
}

/// The generation of a case that was not measured to its end: what was made of it so far.
fn unfinished(made: &Generated, result: &CaseResult) -> Generation {
    let is_gpu = result.device != crate::offload_files::CPU;
    let [layers, stay] = made.layers.map(|count| count as u64);
    let tokens: u64 = made.tokens_ns.iter().sum();
    let visits = &made.visits;
    Generation {
        name: name(layers, stay, result.case.text("mode").unwrap_or_default(), is_gpu),
        seconds: made.prefill_ns.saturating_add(tokens) as f64 / 1e9,
        audio_seconds: (made.rate > 0).then(|| made.samples.len() as f64 / f64::from(made.rate)),
        prefilled: made.prefilled as u64,
        generated: made.tokens_ns.len() as u64,
        is_gpu,
        memory: made.memory[0],
        layers: Some((stay, layers.saturating_sub(stay))),
        exposed_ns: (visits.count > 0).then_some(visits.wait_ns),
        copy_ns: (visits.count > 0).then(|| visits.copy_ns / visits.count as f64),
        iterations: 1,
        ..Generation::default()
    }
}

/// The summary of a case: the statistic of its row of a comparison, and the memory that its device has.
fn summary(made: Option<&Generated>, result: &CaseResult) -> Option<Generation> {
    let is_gpu = result.device != crate::offload_files::CPU;
    let device = made.and_then(|made| made.memory[0].zip(made.memory[1])).filter(|_| is_gpu);
    let memory_of = device.map(|(used, left)| used.saturating_add(left));
    let told = generation(result).or_else(|| made.map(|made| unfinished(made, result)))?;
    Some(Generation { memory_of, ..told })
}

#[cfg(test)]
mod tests {
    use laptime_trace::run::{Better, Metric};

    use super::*;

    #[test]
    fn the_summary_of_a_case_and_its_row_of_a_comparison_have_the_same_figures() {
        let fact = |name: &str, value: i64| Fact::new(name, AxisValue::Int(value));
        let metric = |name: &str, values: [f64; 3]| Metric {
            name: name.to_owned(),
            better: Better::Lower,
            values: values.map(Some).to_vec(),
        };
        let measured = Measured {
            wall_ns: vec![4_000_000_000, 1_000_000_000, 2_000_000_000],
            facts: vec![
                fact("layers", 4),
                fact("gpu_layers", 2),
                fact("tokens_made", 10),
                fact("prompt_positions", 7),
                fact("layer_bytes", 10_000_000),
            ],
            metrics: vec![metric("exposed_ms", [4.0, 1.0, 2.0]), metric("link_gb_s", [1.0, 4.0, 2.0])],
            ..Measured::default()
        };
        let result = CaseResult::new(WORKLOAD, "cpu", Case::default(), 0, "", Outcome::Measured(measured));
        // The generation that is kept for its audio is one of them, and a slow one.
        let made = Generated { prefill_ns: 4_000_000_000, layers: [4, 2], ..Generated::default() };
        let told = summary(Some(&made), &result).unwrap();
        assert_eq!(told, generation(&result).unwrap());
        assert_eq!((told.seconds, told.exposed_ns, told.copy_ns), (2.0, Some(20e6), Some(5e6)));
        assert_eq!(told.iterations, 3);
    }
}
