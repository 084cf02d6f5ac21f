//! The bottlenecks of a run, as tables.

use laptime_analyze::{
    Bottleneck, Diagnosis, Evidence, Experiment, Offload, OffloadedLayer, Severity, TokenPart, Trial, explain,
};
use laptime_stats::Interval;

use super::overview;
use crate::{
    Cell, Table,
    layout::single,
    table::{fields, table},
};

/// Lays out the bottlenecks of a run with offloaded layers, the most important first.
pub fn offload_findings(answer: &Offload) -> Table {
    let mut table = of_findings(&answer.findings, "gain per token", Some(answer.length.median));
    add_run(&mut table, answer);
    overview::add(&mut table, &answer.overview);
    match answer.findings.first() {
        None => table.note("No bottleneck found: copies are hidden behind compute, and tokens are fast enough."),
        Some(first) if first.severity == Severity::Normal => table.note("No bottleneck found."),
        Some(first) => table.note(headline(answer, first)),
    }
    add_notes(&mut table, &answer.findings);
    table
}

/// The most important bottleneck, with its estimated gain.
fn headline(answer: &Offload, first: &Bottleneck) -> String {
    let bottleneck = format!("Main bottleneck: {} [{}].", title(first), first.finding.rule);
    let Some(gain) = first.gain_ns else { return bottleneck };
    let rtf = answer.rtf().map_or_else(String::new, |rtf| {
        let audio = answer.length.median / rtf;
        format!(", RTF {rtf:.2} -> {:.2}", rtf - gain / audio)
    });
    let after = (answer.length.median - gain).max(0.0);
    let [before, after] = [answer.length.median, after].map(|time| single(&Cell::nanos(time)));
    format!("{bottleneck} A token takes {before}; without this limit it would take {after} at best{rtf}.")
}

/// The title of the topic of a finding.
fn title(found: &Bottleneck) -> &'static str {
    explain(found.finding.rule).map_or(found.finding.rule, |topic| topic.title)
}

/// Lays out the bottlenecks of any other run.
pub fn diagnosis(answer: &Diagnosis) -> Table {
    let mut table = of_findings(&answer.findings, "gain", answer.whole_ns);
    if let Some(whole) = &answer.overview {
        overview::add(&mut table, whole);
    }
    let is_empty = answer.overview.as_ref().is_some_and(|overview| overview.spans == 0);
    if answer.findings.is_empty() && answer.remarks.is_empty() && !is_empty {
        table.note("No bottleneck found.");
    }
    if let Some(first) = answer.findings.first() {
        table.note(format!("Main bottleneck: {} [{}].", title(first), first.finding.rule));
    }
    if let Some(whole) = answer.whole_ns {
        table.machine_fact("whole_ms", Cell::nanos(whole));
        table.machine_fact("gain_together_ms", Cell::nanos(answer.together_ns));
    }
    add_notes(&mut table, &answer.findings);
    answer.remarks.iter().for_each(|remark| table.note(remark.clone()));
    table
}

fn of_findings(findings: &[Bottleneck], gain: &'static str, whole: Option<f64>) -> Table {
    let json = |value: serde_json::Result<serde_json::Value>| Cell::Json(value.unwrap_or_default());
    table!("findings", findings, found: &Bottleneck => {
        let reported = found.reported(whole);
        let place = place(&found.evidence);
    } [
        ("id", "finding") => Cell::text(reported.id),
        ("severity", "severity") => Cell::text(found.severity.word()),
        ("gain_ms", gain) => Cell::nanos(found.gain_ns),
        ("gain_share", "share") => Cell::share(reported.gain.as_ref().and_then(|gain| gain.share)),
        ("where", "where").human_only().drop(1) => Cell::from(place.map(Cell::Name)),
        ("title", "title").machine_only() => Cell::text(reported.title),
        ("summary", "summary").machine_only() => Cell::text(reported.summary),
        ("threshold", "threshold").machine_only() => Cell::text(reported.threshold),
        ("meaning", "meaning").machine_only() => Cell::text(reported.meaning),
        ("evidence", "evidence").machine_only() => json(serde_json::to_value(&reported.evidence)),
        ("gain", "gain").machine_only() => json(serde_json::to_value(&reported.gain)),
        ("fixes", "fixes").machine_only() => json(serde_json::to_value(&reported.fixes)),
    ])
}

/// The evidence of the first finding and what to try; the others with `--verbose`.
fn add_notes(table: &mut Table, findings: &[Bottleneck]) {
    for (at, Bottleneck { finding, .. }) in findings.iter().enumerate() {
        let text = format!("{}. Try: {}.", finding.evidence, finding.next);
        match at {
            0 => table.note(text),
            _ => table.legend(format!("[{}] {text}", finding.rule)),
        }
    }
    if findings.len() > 1 {
        table.note(
            "`--verbose` shows the evidence of the other findings, and `laptime explain ID` the rules and fixes.",
        );
    }
}

/// Facts about the whole run.
fn add_run(table: &mut Table, answer: &Offload) {
    table.fact("token_ms", "token", Cell::nanos(answer.length.median));
    if let Some(rtf) = answer.rtf() {
        table.fact("rtf", "RTF", Cell::Number(rtf));
    }
    table.fact("tokens", "tokens", Cell::Count(answer.tokens.len() as u64));
    table.machine_fact("cold_tokens", Cell::Count(answer.cold as u64));
    table.fact("async_share", "issued ahead", Cell::share(answer.async_share()));
    table.fact("hidden", "hidden", Cell::share(answer.hidden()));
    table.fact("gb_s", "GB/s", Cell::number(answer.gb_s()));
    if let Some(mode) = &answer.facts.mode {
        table.fact("mode", "mode", Cell::text(mode.clone()));
    }
    if let Some(kind) = &answer.facts.link_kind {
        table.fact("link_kind", "link", Cell::text(kind.clone()));
    }
    let least = &answer.minimum;
    table.fact("least_ms", "lower bound", Cell::Nanos(least.with_wrap));
    table.machine_fact("least_without_wrap_ms", Cell::Nanos(least.without_wrap));
    table.machine_fact("saves_ms", Cell::Nanos(least.saves(true)));
    let limits = &answer.thresholds;
    for (key, share) in [
        ("async_good", limits.async_good),
        ("async_bad", limits.async_bad),
        ("link_share", limits.link_share),
        ("lost_share", limits.lost_share),
    ] {
        table.machine_fact(key, Cell::Share(share));
    }
    for (key, time) in [
        ("pre_good_ms", limits.pre_good_ns),
        ("pre_bad_ms", limits.pre_bad_ns),
        ("post_good_ms", limits.post_good_ns),
        ("post_bad_ms", limits.post_bad_ns),
        ("token_good_ms", limits.token_good_ns),
    ] {
        table.machine_fact(key, Cell::nanos(time));
    }
}

/// Lays out the offloaded layers.
pub fn offload_layers(answer: &Offload) -> Table {
    let has_kinds = answer.passes.iter().any(|layer| layer.pass.is_some_and(|pass| pass.place > 0));
    let mut table = table!("layers", &answer.passes, layer: &OffloadedLayer => {
        let text = |text: Option<&'static str>| Cell::from(text.map(Cell::text));
        let shift = |time: Option<f64>| Cell::from(time.map(|time| Cell::Shift(time.round() as i64)));
    } [
        ("layer", "layer") => Cell::Whole(i64::try_from(layer.layer).unwrap_or(i64::MAX)),
        ("pass", "pass") => Cell::from(layer.pass.filter(|_| has_kinds).map(|pass| Cell::text(pass.label()))),
        ("tag", "tag") => text(layer.tag()),
        ("prefetch", "prefetch") => text(layer.prefetch().map(laptime_analyze::Prefetch::word)),
        ("copy_ms", "copy") => Cell::nanos(layer.copy_ns),
        ("copy_bytes", "bytes").drop(4) => Cell::from(layer.bytes.map(Cell::Bytes)),
        ("gb_s", "GB/s").drop(2) => Cell::number(layer.gb_s()),
        ("pinned", "pinned").drop(3) => Cell::from(layer.pinned.map(Cell::Bool)),
        ("issued_ahead_ms", "issued").in_unit_of("copy_ms").drop(5) => shift(layer.issued_ahead_ns),
        ("finished_ahead_ms", "finished").in_unit_of("copy_ms").drop(5) => shift(layer.finished_ahead_ns),
        ("exposed_ms", "wait").in_unit_of("copy_ms") => Cell::nanos(layer.exposed_ns),
        ("compute_ms", "compute").in_unit_of("copy_ms") => Cell::nanos(layer.compute_ns),
        ("release_ms", "release").in_unit_of("copy_ms") => Cell::nanos(layer.release_ns),
        ("hidden", "hidden") => Cell::share(layer.hidden()),
        ("hits", "hits").machine_only() => Cell::Count(layer.hits),
        ("late", "late").machine_only() => Cell::Count(layer.late),
        ("misses", "misses").machine_only() => Cell::Count(layer.misses),
    ]);
    add_run(&mut table, answer);
    overview::add(&mut table, &answer.overview);
    table.legend(
        "Times are medians over tokens, separately for each forward pass of a token. Issued and finished are relative to \
         the moment that the layer was needed; positive is ahead of it.",
    );
    table
}

/// Lays out the parts of a token, next to the expected times.
pub fn offload_tokens(answer: &Offload) -> Table {
    let whole = answer.length.median;
    let expected = answer.expected.as_ref();
    let (columns, cells) = fields!((depth, label, time, interval, expected):
        (usize, &str, f64, Option<Interval>, Option<f64>) => [
        ("part", "part") => Cell::tree(depth, label, label),
        ("median_ms", "median") => Cell::nanos(time),
        ("median_lo_ms", "").in_unit_of("median_ms").machine_only() => Cell::nanos(interval.map(|ends| ends.low)),
        ("median_hi_ms", "").in_unit_of("median_ms").machine_only() => Cell::nanos(interval.map(|ends| ends.high)),
        ("median_ci", "95 % CI").in_unit_of("median_ms").human_only().drop(1) =>
            Cell::from(interval.map(|ends| Cell::range(Cell::nanos(ends.low), Cell::nanos(ends.high)))),
        ("share", "share").drop(2) => if whole > 0.0 { Cell::Share(time / whole) } else { Cell::Empty },
        ("expected_ms", "expected").in_unit_of("median_ms") => Cell::nanos(expected),
    ]);
    let mut table = Table::new("parts", columns);
    let mut push = |depth, label, time, interval, expected| table.push(cells((depth, label, time, interval, expected)));
    push(0, "token", whole, answer.length.interval, expected.map(|expected| expected.total));
    let usual = &answer.usual;
    let passes = answer.parts.iter().filter(|(part, _)| part.is_transformer());
    for (part, figures) in passes.clone() {
        let of_all = expected.filter(|_| *part == TokenPart::Transformer).map(|expected| expected.transformer);
        push(1, part.word(), figures.median, figures.interval, of_all);
    }
    let compute = expected.map(|expected| expected.resident_compute + expected.offloaded_compute);
    push(1, "layers: compute", usual.compute, None, compute);
    push(1, "layers: wait", usual.exposed, None, expected.map(|expected| expected.offloaded_wait));
    push(1, "layers: release", usual.released, None, expected.map(|expected| expected.release));
    for (part, figures) in answer.parts.iter().filter(|(part, _)| !part.is_transformer()) {
        let expected = match part {
            TokenPart::Diffusion => expected.map(|expected| expected.diffusion),
            TokenPart::Other => expected.map(|expected| expected.other),
            _ => None,
        };
        push(1, part.word(), figures.median, figures.interval, expected);
    }
    add_run(&mut table, answer);
    overview::add(&mut table, &answer.overview);
    table.legend(
        "The rows `layers` split the forward passes again. Expected `other` is everything except layers and diffusion.",
    );
    table
}

/// One run of an experiment.
#[derive(Debug, Clone, PartialEq)]
pub struct TrialRow {
    /// Its name.
    pub name: &'static str,
    /// Layers on the GPU.
    pub layers: u64,
    /// The measurement, if there is one.
    pub trial: Option<Trial>,
    /// Why there is none.
    pub reason: Option<String>,
}

/// Lays out the runs of an experiment and the conclusion, with the rate of an emulated link.
pub fn experiment(rows: &[TrialRow], answer: &Experiment, emulated_gbps: Option<f64>) -> Table {
    let mut table = table!("experiment", rows, row: &TrialRow => {
        let of = |time: fn(&Trial) -> Option<f64>| Cell::nanos(row.trial.as_ref().and_then(time));
    } [
        ("run", "run") => Cell::text(row.name),
        ("gpu_layers", "layers on GPU") => Cell::Count(row.layers),
        ("token_ms", "token") => of(|trial| Some(trial.token_ns)),
        ("exposed_ms", "wait").in_unit_of("token_ms") => of(|trial| trial.exposed_ns),
        ("copy_ms", "copies").in_unit_of("token_ms") => of(|trial| trial.copied_ns),
        ("outcome", "outcome").drop(1) => Cell::text(if row.trial.is_some() { "ok" } else { "not measured" }),
    ]);
    table.fact("conclusion", "conclusion", Cell::text(answer.conclusion.words()));
    let limits = &answer.limits;
    for (key, ratio) in [
        ("overhead", answer.overhead),
        ("with_more", answer.with_more),
        ("by_copies", answer.by_copies),
        ("waits", answer.waits),
        ("minimal_limit", Some(limits.minimal)),
        ("helps_limit", Some(limits.helps)),
        ("beyond_copies_limit", Some(limits.beyond_copies)),
        ("waits_limit", Some(limits.waits)),
    ] {
        table.machine_fact(key, Cell::number(ratio));
    }
    if let Some(rate) = emulated_gbps {
        table.fact("emulated_gbps", "emulated link (GB/s)", Cell::Number(rate));
    }
    for row in rows.iter().filter(|row| row.trial.is_none()) {
        table.note(format!("`{}` could not run: {}.", row.name, row.reason.as_deref().unwrap_or("unknown reason")));
    }
    table.note(reasons(answer));
    table.legend(format!(
        "Overhead is minimal up to {:.2}x (or {:.0} % of waits); more layers help if the time falls to {:.2}x or less; \
         overlap is broken if offloading costs more than {:.2}x its copies.",
        limits.minimal,
        100.0 * limits.waits,
        limits.helps,
        limits.beyond_copies
    ));
    table
}

/// The ratios that led to a conclusion.
fn reasons(answer: &Experiment) -> String {
    let mut reasons: Vec<String> = Vec::new();
    reasons.extend(answer.overhead.map(|ratio| format!("a token takes {ratio:.2}x the time without offloading")));
    if answer.overhead.is_none() {
        reasons.extend(answer.waits.map(|share| format!("waits are {:.0} % of a token", 100.0 * share)));
    }
    reasons.extend(answer.with_more.map(|ratio| format!("with more layers on the GPU it takes {ratio:.2}x")));
    reasons.extend(answer.by_copies.map(|ratio| format!("offloading costs {ratio:.2}x the time of its copies")));
    let reasons = if reasons.is_empty() { "no ratio is known".to_owned() } else { reasons.join("; ") };
    format!("Conclusion: {}: {reasons}.", answer.conclusion.words())
}

/// Where a finding is: a line if one is known, else a span, else the device that was idle.
fn place(evidence: &[Evidence]) -> Option<String> {
    let line = evidence.iter().find_map(|place| place.line.as_ref());
    let span = || evidence.iter().map(|place| &place.name).find(|name| *name != "idle");
    line.or_else(span).or_else(|| evidence.first().map(|place| &place.track)).cloned()
}
