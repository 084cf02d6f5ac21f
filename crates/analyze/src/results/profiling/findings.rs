//! The key findings of a report, each with an optional recommendation.

use super::{ColdRun, Part, Profiling, RUN_AXIS};
use crate::by_case::{CaseId, Trouble, TroubleKind, grouped};
use crate::cases::{CaseFigures, MeasuredFigures};
use crate::crossover::{Answer, Crossover, words::list};
use crate::doubts::{SharedDoubt, Varying};
use crate::scaling::{Exponent, ScalingSeries};
use crate::units::{per_cent, three_figures, time};
use crate::{explain::explain, finding::Finding, note::capital, warmup::WarmUp};

/// From this many times its hardware limit on, a case should be profiled.
pub const FAR_FROM_LIMIT: f64 = 3.0;

/// A key finding of a report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyFinding {
    /// The id that `laptime explain` takes, in kebab case.
    pub rule: &'static str,
    /// What was seen: whole sentences.
    pub text: String,
    /// What to do, if something is to be done: a whole sentence.
    pub next: Option<String>,
}

impl KeyFinding {
    fn new(rule: &'static str, text: impl Into<String>, next: Option<String>) -> Self {
        Self { rule, text: text.into(), next }
    }

    fn of(finding: &Finding) -> Self {
        let text = format!("{}; {}.", finding.evidence, finding.meaning);
        Self::new(finding.rule, text, Some(format!("{}.", capital(&finding.next))))
    }
}

impl Profiling {
    /// The findings of all runs, the most important first.
    pub fn findings(&self) -> Vec<KeyFinding> {
        let mut found = Vec::new();
        for part in [&self.attention, &self.models] {
            found.extend(part.crossovers.iter().flat_map(|pair| crossover(pair, part)));
            found.extend(growth(part));
            found.extend(part.scaling.findings().iter().map(KeyFinding::of));
        }
        found.extend(quality(&self.attention));
        found.extend(training(&self.models));
        found.extend(losses(&self.models));
        for part in [&self.attention, &self.models, &self.others] {
            found.extend(limits(part));
            found.extend(memory(part));
            found.extend(troubles(part));
        }
        found.extend(longest(&self.warmups).into_iter().filter_map(warm_up));
        found.extend(self.doubts());
        found
    }

    /// Doubts about the figures, one finding per doubt and run.
    fn doubts(&self) -> impl Iterator<Item = KeyFinding> + '_ {
        let of_run = |run: &super::NamedRun| {
            let workload = run.read.workload().unwrap_or_default();
            let name = run.name.as_ref().map_or_else(|| workload.to_owned(), |name| format!("{workload}, {name}"));
            run.doubts.iter().map(|shared| doubt(&name, shared)).collect::<Vec<_>>()
        };
        self.runs.iter().flat_map(of_run)
    }
}

fn doubt(name: &str, shared: &SharedDoubt) -> KeyFinding {
    let id = shared.doubt.id();
    let remedy = explain(id).map(|topic| topic.remedy.to_owned());
    KeyFinding::new(id, format!("Run of `{name}`: {shared}."), remedy)
}

fn crossover(pair: &Crossover, part: &Part) -> Vec<KeyFinding> {
    // The axes in which the pair differs from the others of its part.
    let name = Varying::of(part.crossovers.iter().map(|pair| &pair.id)).name(&pair.id);
    let name = name.map_or_else(String::new, |name| format!("`{name}`: "));
    let text = |sentence: String| format!("{name}{}.", capital(&sentence));
    let time = pair.time_sentence().map(|sentence| KeyFinding::new("crossover", text(sentence), faster(pair)));
    let memory = pair.memory_sentence().map(|sentence| KeyFinding::new("crossover-memory", text(sentence), None));
    let alone = pair.alone_sentence().map(|sentence| {
        let next = format!("Use `{}` where `{}` does not fit.", pair.kind, pair.base);
        KeyFinding::new("only-one-fits", text(sentence), Some(next))
    });
    [time, memory, alone].into_iter().flatten().collect()
}

/// Which kind to use at which length.
fn faster(pair: &Crossover) -> Option<String> {
    let (kind, base) = (&pair.kind, &pair.base);
    let longest = pair.faster.last()?.length;
    let some = |kind: &str, at: &[u64]| {
        format!("For time, use `{kind}` at {} tokens; at other lengths the difference is unclear.", list(at))
    };
    let below = |below: &str, length: f64, above: &str| {
        format!("For time, use `{below}` below about {length:.0} tokens and `{above}` above.")
    };
    Some(match pair.time.as_ref()? {
        Answer::Always => format!("For time, use `{kind}` at the lengths measured."),
        Answer::AtSome { less, more } if less.is_empty() => some(base, more),
        Answer::AtSome { less, more } if more.is_empty() => some(kind, less),
        Answer::AtSome { less, more } => {
            format!("For time, use `{kind}` at {} tokens and `{base}` at {}.", list(less), list(more))
        }
        Answer::Never { .. } => format!("For time, use `{base}`, not `{kind}`, up to {longest} tokens."),
        Answer::From(crossing) => below(base, crossing.length, kind),
        Answer::Until(crossing) => below(kind, crossing.length, base),
        Answer::Several(_) | Answer::Unclear => {
            format!("Measure `{kind}` and `{base}` in more processes (`--runs 10`) before choosing.")
        }
    })
}

/// How time and memory grow: one sentence for all series of a part.
fn growth(part: &Part) -> Option<KeyFinding> {
    let varying = Varying::of(part.scaling.series.iter().map(|series| &series.id));
    let grown: Vec<String> = part.scaling.series.iter().filter_map(|series| grown(series, &varying)).collect();
    let workload = part.scaling.series.first().map_or("", |series| &series.id.workload);
    let text = format!("Time and peak memory of `{workload}` grow with the length N: {}.", grown.join("; "));
    (!grown.is_empty()).then(|| KeyFinding::new("growth", text, None))
}

fn grown(series: &ScalingSeries, varying: &Varying) -> Option<String> {
    let power = |exponent: Exponent| {
        let ends = exponent.interval.map_or_else(String::new, |ends| format!(" [{:.2}, {:.2}]", ends.low, ends.high));
        format!("N^{:.2}{ends}", exponent.value)
    };
    let memory = series.memory.overall.or(series.memory.last);
    let name = varying.name(&series.id).map_or_else(String::new, |name| format!("`{name}` "));
    let time = match series.time_exponent() {
        Some(time) if time.interval.is_some_and(|ends| !ends.contains(0.0)) => format!("{} in time", power(time)),
        _ => "unclear in time".to_owned(),
    };
    let memory = memory.map_or_else(String::new, |memory| format!(" and {} in memory", power(memory)));
    let (from, to) = (series.lengths.first()?, series.lengths.last()?);
    Some(format!("{name}{time}{memory} ({from} to {to} tokens)"))
}

/// What sparse patterns leave out on random inputs.
fn quality(part: &Part) -> Option<KeyFinding> {
    let is_sparse = |measured: &MeasuredFigures| measured.number("sparsity").is_some_and(|share| share > 0.0);
    let range = |name: &str| {
        let sparse = part.measured().filter(|(_, measured)| is_sparse(measured));
        let known = sparse.filter_map(|(_, measured)| measured.number(name));
        let (least, most) = (known.clone().reduce(f64::min)?, known.reduce(f64::max)?);
        Some(from_to(per_cent(least), per_cent(most)))
    };
    let parts = [
        range("sparsity").map(|range| format!("skip {range} of the causal entries")),
        range("mass_kept").map(|range| format!("keep {range} of the softmax mass")),
        range("output_error").map(|range| format!("change the output by {range}")),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    let text = format!("Sparse patterns {}, on random inputs.", parts.join(", "));
    let next = "Evaluate a pattern on a trained model: random inputs spread attention over all positions.";
    (!parts.is_empty()).then(|| KeyFinding::new("quality", text, Some(next.to_owned())))
}

/// A range in words; one figure if both ends read the same.
fn from_to(least: String, most: String) -> String {
    if least == most { least } else { format!("{least} to {most}") }
}

fn training(part: &Part) -> Option<KeyFinding> {
    let costs = part.training_costs();
    let least = costs.iter().min_by(|one, other| one.ratio.total_cmp(&other.ratio))?;
    let most = costs.iter().max_by(|one, other| one.ratio.total_cmp(&other.ratio))?;
    let range = from_to(three_figures(least.ratio), three_figures(most.ratio));
    let text =
        format!("A training step takes {range} times as long as inference of the same case, with 3 times the FLOPs.");
    Some(KeyFinding::new("training-cost", text, None))
}

fn losses(part: &Part) -> Vec<KeyFinding> {
    let finding = |curve: super::LossCurve| {
        let [first, .., last] = curve.losses.as_slice() else { return None };
        let model = curve.case.get("model").map(ToString::to_string).unwrap_or_default();
        let verb = if last < first { "fell" } else { "did not fall: it changed" };
        let steps = curve.losses.len();
        let text =
            format!("The loss of `{model}` {verb} from {first:.3} to {last:.3} over {steps} steps on one batch.");
        let next = "Check the learning rate and the gradients: training on one batch should reduce its loss.";
        Some(KeyFinding::new("loss", text, (last >= first).then(|| next.to_owned())))
    };
    part.loss_curves().into_iter().filter_map(finding).collect()
}

/// The cases nearest to the hardware limit and furthest from it.
fn limits(part: &Part) -> Option<KeyFinding> {
    let mut known: Vec<(f64, &CaseFigures)> =
        part.measured().filter_map(|(case, measured)| Some((measured.limits?.x_limit?, case))).collect();
    known.sort_by(|one, other| one.0.total_cmp(&other.0));
    let ((least, nearest), (most, furthest)) = (*known.first()?, *known.last()?);
    let names = Names::of(part);
    let text = if known.len() == 1 {
        format!("{} takes {} times the hardware limit.", names.of_case(nearest), three_figures(least))
    } else {
        format!(
            "{} is nearest to the hardware limit ({} times) and {} furthest from it ({} times).",
            names.of_case(nearest),
            three_figures(least),
            names.of_case(furthest),
            three_figures(most)
        )
    };
    let next = (most > FAR_FROM_LIMIT).then(|| {
        let case = names.of_case(furthest);
        let workload = &furthest.id.workload;
        format!("See where the time of {case} goes: `laptime profile {workload} …`.")
    });
    Some(KeyFinding::new("hardware-limit", capital(&text), next))
}

fn memory(part: &Part) -> Option<KeyFinding> {
    let peak = |(case, measured): (_, &MeasuredFigures)| Some((measured.peak_bytes?, case));
    let (bytes, case): (u64, &CaseFigures) = part.measured().filter_map(peak).max_by_key(|(bytes, _)| *bytes)?;
    let (name, workload) = (Names::of(part).of_case(case), &case.id.workload);
    let text = format!("The largest peak memory of `{workload}` is {} ({name}).", mib(bytes));
    Some(KeyFinding::new("peak-memory", text, None))
}

fn mib(bytes: u64) -> String {
    format!("{} MiB", three_figures(bytes as f64 / f64::from(1 << 20)))
}

/// Cases that ran out of memory, failed, were skipped or interrupted.
fn troubles(part: &Part) -> Vec<KeyFinding> {
    let names = Names::of(part);
    let next = |id: &str, is_model: bool| match id {
        "out-of-memory" if is_model => Some("Find the largest batch that fits: `laptime bench model … --fit batch`."),
        "out-of-memory" => Some("Use shorter sequences, smaller batches, or an attention that does not store scores."),
        "failed" => Some("Look at `errors` of the failed cases in `results.jsonl`."),
        _ => None,
    };
    let finding = |(id, word): (&'static str, &str)| {
        let is_of_word = |trouble: &&Trouble| trouble.kind.word() == word;
        let mut troubled =
            part.cases.iter().filter_map(|case| Some((case, case.troubles.iter().find(is_of_word)?))).peekable();
        let (case, first) = *troubled.peek()?;
        let text = trouble_sentence(&names, case, first, troubled.count());
        let next = next(id, case.id.case.get("model").is_some());
        Some(KeyFinding::new(id, text, next.map(str::to_owned)))
    };
    let words = [("out-of-memory", "out_of_memory"), ("failed", "failed"), ("skipped", "skipped")];
    words.into_iter().chain([("interrupted", "interrupted")]).filter_map(finding).collect()
}

fn trouble_sentence(names: &Names, case: &CaseFigures, trouble: &Trouble, count: usize) -> String {
    let why = match &trouble.kind {
        TroubleKind::OutOfMemory { needed_bytes: Some(needed), available_bytes: Some(available) } => {
            format!("ran out of memory: it needs {}, and {} are free", mib(*needed), mib(*available))
        }
        TroubleKind::OutOfMemory { .. } => "ran out of memory".to_owned(),
        TroubleKind::Failed { errors, .. } if errors.is_empty() => "failed without a message".to_owned(),
        TroubleKind::Failed { errors, .. } => format!("failed: {}", errors.join(": ").trim_end_matches('.')),
        TroubleKind::Skipped { reason } => format!("was skipped: {}", reason.trim_end_matches('.')),
        TroubleKind::NoIterations => "was interrupted before its first iteration".to_owned(),
    };
    let others = match count {
        1 => String::new(),
        2 => "; 1 more case too".to_owned(),
        _ => format!("; {} more cases too", count - 1),
    };
    format!("{} {why}{others}.", capital(&names.of_case(case)))
}

/// Among several runs of the same cases, the one with the most warm-up iterations.
fn longest(runs: &[ColdRun]) -> Vec<&ColdRun> {
    let cases =
        |run: &ColdRun| -> Vec<String> { run.warmups.iter().map(|case| case.id.without(&[RUN_AXIS]).key()).collect() };
    let groups = grouped(runs.iter().map(|run| (cases(run), run))).into_iter();
    // The first of several.
    groups.filter_map(|(_, runs)| runs.into_iter().rev().max_by_key(|run| run.not_counted)).collect()
}

fn warm_up(cold: &ColdRun) -> Option<KeyFinding> {
    let name = cold.name.as_ref().map_or_else(String::new, |name| format!("Run `{name}`: "));
    let varying = Varying::of(cold.warmups.iter().map(|case| &case.id));
    let text: Vec<String> = cold.warmups.iter().filter_map(|case| first_iterations(case, &varying)).collect();
    (!text.is_empty()).then(|| KeyFinding::new("warm-up", format!("{name}{}", text.join(" ")), None))
}

/// How slow the first iterations of a case are, and how many to leave out.
fn first_iterations(case: &WarmUp, varying: &Varying) -> Option<String> {
    let advice = case.advice()?.to_string();
    let advice = advice.split(" Try: ").next().unwrap_or_default();
    let (of, text) = match varying.name(&case.id) {
        Some(name) => (format!(" of `{name}`"), format!("`{name}`: {advice}")),
        None => (String::new(), capital(advice)),
    };
    let first = case.processes.first().and_then(|process| process.iterations_ns.first());
    let steady = case.processes.iter().find_map(|process| process.steady_ns);
    let Some((first, steady)) = first.zip(steady) else { return Some(text) };
    let (first, steady) = (time(*first as f64), time(steady));
    Some(format!("The first iteration{of} in a fresh process took {first}, the steady state is {steady}. {text}"))
}

/// Names of the cases of a part, by the axes in which they differ.
struct Names(Varying);

impl Names {
    fn of(part: &Part) -> Self {
        Self(Varying::of(part.cases.iter().map(|case| &case.id)))
    }

    fn of_case(&self, case: &CaseFigures) -> String {
        let id: &CaseId = &case.id;
        self.0.name(id).map_or_else(|| format!("the case of `{}`", id.workload), |name| format!("`{name}`"))
    }
}
