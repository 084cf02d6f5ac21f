//! The extras of `offload`: the configuration, progress lines, a breakdown of the time per token, and the audio.

use std::path::{Path, PathBuf};
use std::{io::Write, sync::Arc};

use laptime_analyze::{Expected, Offload, OffloadFacts, Thresholds};
use laptime_bench::{AxisValue, Case, CaseResult, Device, Fact, Interrupt, Outcome, Traffic};
use laptime_models::Dtype;
use laptime_report::offload_text::{
    Generation, OffloadConfiguration, benchmark_comparison, expected_timing, generation_summary, offload_configuration,
    time_breakdown,
};
use laptime_report::{Table, tables};
use laptime_trace::run::{Measured, Peaks, Run};

use super::files::{CPU, generation, name, warn_about_pageable, write_audio};
use super::live::{Live, Style};
use super::{
    OffloadPlan, OffloadedLayers, experiment::OffloadExperiment, layers::BudgetTooSmall, plan::without_offloading,
    runner::Generated,
};
use crate::extras::{
    COMPAT, Command, Context, Experiment, Extras, FlagSpec, Hinted, ProfiledCase, Screen, Written,
    files::{measured_cases, metric},
};

const OUTPUT_DIR: FlagSpec = FlagSpec::path("output-dir", "DIR", "Write the audio into this folder");

pub struct OffloadExtras {
    live: Arc<Live>,
}

impl OffloadExtras {
    /// The workload, and its extras that observe it.
    pub fn with_workload(interrupt: Interrupt, screen: Arc<dyn Screen>) -> (OffloadedLayers, Self) {
        let live = Arc::new(Live::new(interrupt, screen));
        (OffloadedLayers::observed(Arc::clone(&live) as _), Self { live })
    }
}

impl Extras for OffloadExtras {
    fn workload(&self) -> &'static str {
        "offload"
    }

    fn flags(&self, command: Command) -> Vec<FlagSpec> {
        if command == Command::Warmup { Vec::new() } else { vec![OUTPUT_DIR, COMPAT] }
    }

    fn checks_cases(&self) -> bool {
        true
    }

    fn check_case(&self, case: &Case, device: &dyn Device) -> anyhow::Result<()> {
        check_plan(case, device).map(drop)
    }

    fn baseline(&self, cases: &[Case]) -> Option<Case> {
        let [all, some] = cases else { return None };
        (*all == without_offloading(some)).then(|| all.clone())
    }

    fn begin(&self, context: &Context<'_>, cases: &[Case], out: &mut dyn Write) -> anyhow::Result<()> {
        let [case] = cases else { return Ok(()) };
        if context.command != Command::Profile {
            return Ok(());
        }
        let (plan, facts) = check_plan(case, &*context.device()?)?;
        self.live.show(style(context), plan.emulated_gbps);
        if !context.is_for_people {
            return Ok(());
        }
        let expected = expected(facts, context.run.peaks.as_ref());
        if context.flags.is_compat() {
            writeln!(out, "{}", offload_configuration(&plan))?;
            expected.map_or(Ok(()), |expected| writeln!(out, "{}", expected_timing(&expected)))?;
        } else {
            context.screen.prose(&format!("{}\n", headline(&plan, expected.as_ref())), out)?;
        }
        Ok(out.flush()?)
    }

    fn begin_baseline(&self) {
        self.live.pause();
    }

    fn complete(&self, outcome: &mut Outcome, run: &Run, baseline: Option<&CaseResult>) {
        let Outcome::Measured(measured) = outcome else { return };
        add_peaks(measured, run.peaks.as_ref());
        let token = baseline.and_then(CaseResult::measured).and_then(|all| metric(all, "token_p50_ms"));
        measured.facts.extend(token.map(|ms| Fact::new("baseline_ms", AxisValue::Float(ms))));
    }

    fn finish_bench(&self, context: &Context<'_>, results: &[CaseResult], out: &mut dyn Write) -> Written {
        let rows: Vec<Generation> = results.iter().filter_map(generation).collect();
        if context.is_for_people && context.flags.is_compat() && !rows.is_empty() {
            write!(out, "\n{}", benchmark_comparison(&rows))?;
        }
        warn_about_pageable(&results.iter().collect::<Vec<_>>(), context.screen);
        self.write_all_audio(context, results)
    }

    fn finish_profile(&self, context: &Context<'_>, profiled: ProfiledCase<'_>, out: &mut dyn Write) -> Written {
        let ProfiledCase { results, trace } = profiled;
        let Some(result) = results.first() else { return Ok(Vec::new()) };
        let generated = self.live.generated(&result.case);
        let answer = trace.zip(result.measured()).and_then(|(trace, measured)| {
            laptime_analyze::offload(trace, OffloadFacts::of(measured), Thresholds::default())
        });
        if context.is_for_people && context.flags.is_compat() {
            writeln!(out)?;
            let blocks = self.compat_blocks(results, generated.as_ref(), answer.as_ref());
            blocks.iter().try_for_each(|block| writeln!(out, "{block}"))?;
        } else if context.is_for_people {
            let layers = self.live.layer_lines(context.folder);
            show(context, results, generated.as_ref(), answer.as_ref(), &layers, out)?;
        }
        for reason in results[1..].iter().filter_map(|result| not_measured(&result.outcome)) {
            context.screen.warn(&format!("the baseline without offloading was not measured: {reason}"));
        }
        warn_about_pageable(results, context.screen);
        if let Outcome::OutOfMemory { .. } = result.outcome {
            context.screen.say("hint: `--auto` keeps as many layers on the device as fit");
        }
        let Some(generated) = generated else { return Ok(Vec::new()) };
        let written = write_audio(&generated, audio_folder(context), &[])?;
        Ok(written.into_iter().filter(|_| context.flags.has(OUTPUT_DIR.name)).collect())
    }

    fn experiment(&self) -> Option<&dyn Experiment> {
        Some(&OffloadExperiment)
    }
}

impl OffloadExtras {
    /// Writes the audio of all measured cases. Returns the files outside of the run's folder.
    fn write_all_audio(&self, context: &Context<'_>, results: &[CaseResult]) -> Written {
        let mut written: Vec<PathBuf> = Vec::new();
        for case in measured_cases(results) {
            let generated = match self.live.generated(case) {
                Some(generated) => Some(generated),
                // The case ran in another process; noise is seeded, so the audio is the same.
                None => OffloadedLayers::speak(case, &*context.device()?)?,
            };
            let file = generated.map(|generated| write_audio(&generated, audio_folder(context), &written));
            written.extend(file.transpose()?.flatten());
        }
        Ok(if context.flags.has(OUTPUT_DIR.name) { written } else { Vec::new() })
    }

    /// The blocks that VibeVoice offload prints after a generation.
    fn compat_blocks(
        &self,
        results: &[&CaseResult],
        generated: Option<&Generated>,
        answer: Option<&Offload>,
    ) -> Vec<String> {
        let Some(result) = results.first() else { return Vec::new() };
        let mut blocks: Vec<String> = self.live.compat_block().into_iter().collect();
        blocks.extend(summary(generated, result).map(|summary| generation_summary(&summary)));
        blocks.extend(answer.map(time_breakdown));
        let rows: Vec<Generation> = results.iter().rev().filter_map(|result| generation(result)).collect();
        if rows.len() > 1 {
            blocks.push(benchmark_comparison(&rows));
        }
        blocks
    }
}

fn style(context: &Context<'_>) -> Style {
    match (context.is_for_people && !context.is_quiet, context.flags.is_compat()) {
        (false, _) => Style::Silent,
        (true, false) => Style::Line,
        (true, true) => Style::Compat,
    }
}

fn audio_folder<'a>(context: &'a Context<'_>) -> &'a Path {
    context.flags.path(OUTPUT_DIR.name).unwrap_or(context.folder)
}

/// The plan of a case, or why it cannot run, with a hint.
pub fn check_plan(case: &Case, device: &dyn Device) -> anyhow::Result<OffloadPlan> {
    OffloadedLayers::plan_of(case, device).map_err(|error| {
        let hint = match error.is::<BudgetTooSmall>() {
            true => "raise it, or leave `--memory-budget` out to use all free memory",
            false => "`--no-offload` keeps all layers on the device, `--auto` as many as fit",
        };
        Hinted::wrap(error, hint)
    })
}

fn headline(plan: &OffloadConfiguration, expected: Option<&Expected>) -> String {
    let place = if plan.is_gpu { "on the GPU" } else { "in memory" };
    let (resident, layers, mode) = (plan.gpu_layers, plan.layers, &plan.mode);
    let budget = plan.budget.map_or_else(String::new, |budget| format!(" of {}", mib(budget)));
    let memory = format!("needs {}{budget}", mib(plan.predicted.unwrap_or(0)));
    let mut line = match plan.enabled {
        false => format!("All {layers} layers {place}, {memory}"),
        true => {
            let source = match (plan.is_gpu, plan.emulated_gbps) {
                (true, _) => "host memory".to_owned(),
                (false, None) => "a file".to_owned(),
                (false, Some(rate)) => format!("a file (emulated link, {rate} GB/s)"),
            };
            let offloaded = layers - resident;
            format!("{resident} of {layers} layers {place}, {offloaded} offloaded to {source}, mode {mode}, {memory}")
        }
    };
    if let Some(expected) = expected {
        let (total, wait) = (expected.total / 1e6, expected.offloaded_wait / 1e6);
        line.push_str(&format!("\nExpected per token: {total:.2} ms, {wait:.2} ms of it waiting for layers"));
    }
    line
}

fn mib(bytes: u64) -> String {
    let mib = bytes as f64 / f64::from(1 << 20);
    if mib < 1024.0 { format!("{mib:.1} MiB") } else { format!("{:.2} GiB", mib / 1024.0) }
}

/// Prints the generation, the offloaded layers of the last token, and the breakdown of the time per token.
fn show(
    context: &Context<'_>,
    results: &[&CaseResult],
    generated: Option<&Generated>,
    answer: Option<&Offload>,
    layers: &[String],
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let Some(result) = results.first() else { return Ok(()) };
    if let Some(known) = summary(generated, result) {
        context.screen.prose(&format!("\n{}", generation_line(&known)), out)?;
    }
    for result in &results[1..] {
        generation(result).map_or(Ok(()), |known| context.screen.prose(&generation_line(&known), out))?;
    }
    layers.iter().try_for_each(|line| context.screen.prose(line, out))?;
    if let Some(answer) = answer {
        // The other facts are those of `laptime diagnose`.
        let table = Table { facts: Vec::new(), notes: Vec::new(), ..tables::offload_tokens(answer) };
        writeln!(out)?;
        context.screen.table(&table, out)?;
        let wraps = answer.facts.wraps();
        let [least, saves] = [answer.minimum.least(wraps), answer.minimum.saves(wraps)].map(|nanos| nanos as f64 / 1e6);
        writeln!(out, "Lower bound with perfect overlap: {least:.2} ms per token (saves {saves:.2} ms)")?;
    }
    Ok(out.flush()?)
}

fn generation_line(known: &Generation) -> String {
    let Generation { name, seconds, prefilled, generated, .. } = known;
    let per_token = if *generated > 0 { 1e3 * seconds / *generated as f64 } else { 0.0 };
    let audio = known.audio_seconds.filter(|audio| *audio > 0.0);
    let audio = audio.map_or_else(String::new, |audio| format!(", {audio:.2} s of audio (RTF {:.2})", seconds / audio));
    let memory = known.memory.map_or_else(String::new, |bytes| format!(", peak {}", mib(bytes)));
    format!("{name}: {seconds:.2} s for {prefilled} + {generated} tokens, {per_token:.2} ms per token{audio}{memory}")
}

fn expected(facts: Vec<Fact>, peaks: Option<&Peaks>) -> Option<Expected> {
    let mut measured = Measured { facts, ..Measured::default() };
    add_peaks(&mut measured, peaks);
    let facts = OffloadFacts::of(&measured);
    laptime_analyze::expected_of_offload(&facts.sizes?, &facts.rates?)
}

/// Adds the measured peaks of the machine, unless the case has its own values.
fn add_peaks(measured: &mut Measured, peaks: Option<&Peaks>) {
    let Some(peaks) = peaks else { return };
    let dtype = measured.fact("dtype").and_then(|dtype| dtype.to_string().parse().ok());
    let dtype = dtype.map_or("", |dtype: Dtype| dtype.activations().word());
    let known = [
        ("memory_gbps", peaks.bytes_s(Traffic::Read)),
        ("peak_gflops", peaks.flops_s(dtype)),
        ("link_gbps", peaks.bytes_s(Traffic::Upload)),
    ];
    for (name, rate) in known {
        if let (None, Some(rate)) = (measured.fact(name), rate) {
            measured.facts.push(Fact::new(name, AxisValue::Float(rate / 1e9)));
        }
    }
}

/// Why a case was not measured.
pub fn not_measured(outcome: &Outcome) -> Option<String> {
    let gib = |bytes: &Option<u64>| {
        bytes.map_or_else(|| "?".to_owned(), |bytes| format!("{:.1}", bytes as f64 / (1_u64 << 30) as f64))
    };
    match outcome {
        Outcome::Measured(_) => None,
        Outcome::Failed { errors, .. } => Some(errors.join(": ")),
        Outcome::Skipped { reason } => Some(reason.clone()),
        Outcome::OutOfMemory { needed_bytes, available_bytes } => Some(format!(
            "out of memory: it needs {} GiB, and {} GiB are available",
            gib(needed_bytes),
            gib(available_bytes)
        )),
    }
}

/// The generation of a case that was not finished.
fn unfinished(generated: &Generated, result: &CaseResult) -> Generation {
    let is_gpu = result.device != CPU;
    let [layers, resident] = generated.layers.map(|count| count as u64);
    let tokens: u64 = generated.tokens_ns.iter().sum();
    let visits = &generated.visits;
    Generation {
        name: name(layers, resident, result.case.text("mode").unwrap_or_default(), is_gpu),
        seconds: generated.prefill_ns.saturating_add(tokens) as f64 / 1e9,
        audio_seconds: (generated.rate > 0).then(|| generated.samples.len() as f64 / f64::from(generated.rate)),
        prefilled: generated.prefilled as u64,
        generated: generated.tokens_ns.len() as u64,
        is_gpu,
        memory: generated.memory[0],
        layers: Some((resident, layers.saturating_sub(resident))),
        exposed_ns: (visits.count > 0).then_some(visits.wait_ns),
        copy_ns: (visits.count > 0).then(|| visits.copy_ns / visits.count as f64),
        iterations: 1,
        ..Generation::default()
    }
}

/// The summary of a case: its row in a comparison, and the memory of its device.
fn summary(generated: Option<&Generated>, result: &CaseResult) -> Option<Generation> {
    let is_gpu = result.device != CPU;
    let device = generated.and_then(|generated| generated.memory[0].zip(generated.memory[1])).filter(|_| is_gpu);
    let memory_of = device.map(|(used, left)| used.saturating_add(left));
    let whole = || generated.map(|generated| unfinished(generated, result));
    let known = generation(result).or_else(whole)?;
    // The audio on disk is the longest generation; an interrupted iteration is shorter.
    let is_longer = generated.is_some_and(|generated| generated.tokens_ns.len() as u64 > known.generated);
    let known = whole().filter(|_| is_longer).unwrap_or(known);
    Some(Generation { memory_of, ..known })
}

#[cfg(test)]
mod tests {
    use laptime_trace::run::{Better, Metric};

    use super::*;

    #[test]
    fn the_summary_of_a_case_agrees_with_its_row_in_a_comparison() {
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
        let result = CaseResult::new("offload", "cpu", Case::default(), 0, "", Outcome::Measured(measured));
        // The generation whose audio is saved is one of them, and a slow one.
        let generated = Generated { prefill_ns: 4_000_000_000, layers: [4, 2], ..Generated::default() };
        let known = summary(Some(&generated), &result).unwrap();
        assert_eq!(known, generation(&result).unwrap());
        assert_eq!((known.seconds, known.exposed_ns, known.copy_ns), (2.0, Some(20e6), Some(5e6)));
        assert_eq!(known.iterations, 3);
    }
}
