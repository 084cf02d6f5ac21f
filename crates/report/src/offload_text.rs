//! The console output of a run with offloaded layers, in the format of VibeVoice offload: blocks between 80-character rules.

use std::fmt::Write;

use laptime_analyze::{Expected, Offload, Thresholds, TokenPart};
use laptime_trace::run::Environment;

const WIDTH: usize = 80;

/// One layer of a summary. Times are in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LayerLine {
    /// Its number.
    pub layer: u64,
    /// How long compute waited for it.
    pub pre_ns: f64,
    /// The time of its release.
    pub post_ns: f64,
    /// Whether it was prefetched.
    pub is_async: bool,
}

impl LayerLine {
    /// The layer in one line, with a mark if it exceeds a limit.
    pub fn line(&self, limits: &Thresholds) -> String {
        let tag = if self.is_async { "[ASYNC]" } else { "[SYNC]" };
        let line = format!(
            "  Layer {:2}: Pre={:6.2}ms  Post={:6.2}ms  {tag}",
            self.layer,
            self.pre_ns / 1e6,
            self.post_ns / 1e6
        );
        let is_bad = self.pre_ns > limits.pre_bad_ns || self.post_ns > limits.post_bad_ns;
        if is_bad { format!("{line}  <-- PROBLEM!") } else { line }
    }
}

fn block(title: &str, lines: &[String]) -> String {
    let rule = "=".repeat(WIDTH);
    let mut text = format!("{rule}\n{title}\n{rule}\n");
    for line in lines {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{line}");
    }
    text
}

/// The layers of the last token, every few tokens, with its time and the rate of an emulated link.
pub fn profiling_summary(
    token: u64,
    layers: &[LayerLine],
    limits: &Thresholds,
    nanos: Option<f64>,
    emulated_gbps: Option<f64>,
) -> String {
    let mut lines = vec![if layers.is_empty() { "No layer is offloaded".to_owned() } else { usage(layers) }];
    lines.extend(layers.iter().map(|layer| layer.line(limits)));
    lines.extend(nanos.map(|nanos| format!("Token: {:.2} ms", nanos / 1e6)));
    lines.extend(emulated_gbps.map(|rate| format!("Link: emulated, {rate} GB/s")));
    block(&format!("PROFILING SUMMARY - Token {token}"), &lines)
}

fn usage(layers: &[LayerLine]) -> String {
    let ahead = layers.iter().filter(|layer| layer.is_async).count();
    let share = if layers.is_empty() { 0 } else { 100 * ahead / layers.len() };
    format!("Async usage: {ahead}/{} layers ({share}%)", layers.len())
}

/// How layers are offloaded.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct OffloadConfiguration {
    /// Whether any layers are offloaded.
    pub enabled: bool,
    /// Whether the device is a GPU: otherwise layers stay in memory, and the others come from a file.
    pub is_gpu: bool,
    /// Layers on the device.
    pub gpu_layers: u64,
    /// Layers.
    pub layers: u64,
    /// Whether host memory is pinned.
    pub pin_memory: bool,
    /// Whether layers are prefetched.
    pub prefetch: bool,
    /// Whether copies overlap with compute.
    pub async_transfer: bool,
    /// Copies between two clearings of the cache; none for never.
    pub cache_clear_interval: Option<u64>,
    /// The mode, by its name.
    pub mode: String,
    /// The rate of an emulated link, in GB/s.
    pub emulated_gbps: Option<f64>,
    /// The estimated peak memory, in bytes.
    pub predicted: Option<u64>,
    /// The available or allowed memory, in bytes.
    pub budget: Option<u64>,
}

impl OffloadConfiguration {
    fn clearing(&self) -> String {
        match self.cache_clear_interval {
            Some(1) => "every copy".to_owned(),
            Some(copies) => format!("every {copies} copies"),
            None => "never".to_owned(),
        }
    }

    fn slow_tier(&self) -> String {
        match (self.is_gpu, self.emulated_gbps) {
            (true, _) => "host memory".to_owned(),
            (false, None) => "a file, read as fast as it can be".to_owned(),
            (false, Some(rate)) => format!("a file, over an emulated link of {rate} GB/s"),
        }
    }
}

/// Without a GPU, no text mentions one.
fn resident_label(is_gpu: bool, resident: u64, layers: u64) -> String {
    format!("Layers {}: {resident}/{layers}", if is_gpu { "on GPU" } else { "in memory" })
}

/// The configuration, before a run.
pub fn offload_configuration(info: &OffloadConfiguration) -> String {
    let word = |yes: bool| if yes { "True" } else { "False" };
    let resident = resident_label(info.is_gpu, info.gpu_layers, info.layers);
    let mut lines = vec![format!("Enabled: {}", word(info.enabled)), resident];
    if info.enabled {
        lines.extend([
            format!("Pin memory: {}", word(info.pin_memory)),
            format!("Prefetch next layer: {}", word(info.prefetch)),
            format!("Async transfer: {}", word(info.async_transfer)),
            format!("Cache clearing: {}", info.clearing()),
            format!("Mode: {}", info.mode),
            format!("Slow tier: {}", info.slow_tier()),
        ]);
    }
    let there = info.budget.map_or_else(String::new, |budget| format!(" of {}", bytes(budget)));
    lines.extend(info.predicted.map(|predicted| format!("Memory needed at most: {}{there}", bytes(predicted))));
    block("OFFLOAD CONFIGURATION", &lines)
}

/// Bytes in a suitable unit.
fn bytes(count: u64) -> String {
    let mib = count as f64 / f64::from(1 << 20);
    if mib < 1024.0 { format!("{mib:.1} MiB") } else { format!("{:.2} GiB", mib / 1024.0) }
}

/// The expected time of a token, before a run.
pub fn expected_timing(info: &Expected) -> String {
    let line = |(label, time): (&str, f64)| format!("{label:<26} {:>10.2} ms", time / 1e6);
    let mut lines: Vec<String> = TIMES.into_iter().zip(expected_times(info)).map(line).collect();
    lines.push("From sizes and from what `laptime peaks` measured.".to_owned());
    block("EXPECTED TIMING (per token)", &lines)
}

/// The times of a token, expected and measured.
const TIMES: [&str; 8] = [
    "Resident compute",
    "Offloaded wait",
    "Offloaded compute",
    "Release",
    "Transformer total",
    "Diffusion",
    "Other",
    "Total",
];

fn expected_times(info: &Expected) -> [f64; 8] {
    let layers = [info.resident_compute, info.offloaded_wait, info.offloaded_compute, info.release];
    let [compute, wait, offloaded, release] = layers;
    [compute, wait, offloaded, release, info.transformer, info.diffusion, info.other, info.total]
}

/// The time of a token, next to the expected time and the lower bound.
pub fn time_breakdown(answer: &Offload) -> String {
    let expected = answer.expected.as_ref().map(expected_times);
    let mut lines = vec![format!("{:<26} {:>13} {:>13}", "", "measured (ms)", "expected (ms)")];
    for (at, (label, time)) in TIMES.into_iter().zip(measured_times(answer)).enumerate() {
        let expected = expected.map_or_else(String::new, |times| format!("{:.2}", times[at] / 1e6));
        lines.push(format!("{label:<26} {:>13.2} {expected:>13}", time / 1e6).trim_end().to_owned());
    }
    let (least, wraps) = (&answer.minimum, answer.facts.wraps());
    let ms = |nanos: u64| nanos as f64 / 1e6;
    lines.push(String::new());
    lines.push(format!(
        "Theoretical minimum: {:.2} ms (copies {:.2}, compute {:.2}; 2 buffers{})",
        ms(least.least(wraps)),
        ms(least.copies),
        ms(least.compute),
        if wraps { ", wrap" } else { "" }
    ));
    lines.push(format!("Perfect overlap would save: {:.2} ms per token", ms(least.saves(wraps))));
    let rate = answer.facts.link_gbps.map_or_else(String::new, |rate| format!(", {rate} GB/s"));
    lines.extend(answer.facts.is_emulated().then(|| format!("Link: emulated{rate}")));
    block("TIME BREAKDOWN (per token)", &lines)
}

fn measured_times(answer: &Offload) -> [f64; 8] {
    let (usual, total) = (&answer.usual, answer.length.median);
    let diffusion = answer.part(TokenPart::Diffusion).unwrap_or(0.0);
    let passes = answer.parts.iter().filter(|(part, _)| part.is_transformer());
    let transformer: f64 = passes.map(|(_, figures)| figures.median).sum();
    let resident = (usual.compute - usual.offloaded).max(0.0);
    let other = (total - transformer - diffusion).max(0.0);
    [resident, usual.exposed, usual.offloaded, usual.released, transformer, diffusion, other, total]
}

/// The summary of a generation; unknown values are left out.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Generation {
    /// Its name.
    pub name: String,
    /// How long it took, in seconds.
    pub seconds: f64,
    /// The length of the audio, in seconds; none if there is none.
    pub audio_seconds: Option<f64>,
    /// Tokens of the prompt.
    pub prefilled: u64,
    /// Generated tokens.
    pub generated: u64,
    /// Whether the device is a GPU.
    pub is_gpu: bool,
    /// The peak memory of the device, in bytes.
    pub memory: Option<u64>,
    /// The memory of the device, in bytes.
    pub memory_of: Option<u64>,
    /// The predicted memory, in bytes.
    pub predicted: Option<u64>,
    /// The rate of an emulated link, in GB/s.
    pub emulated_gbps: Option<f64>,
    /// Layers on the device and on the host.
    pub layers: Option<(u64, u64)>,
    /// How long compute waited for copies, in nanoseconds, over all tokens.
    pub exposed_ns: Option<f64>,
    /// The time of a copy, in nanoseconds.
    pub copy_ns: Option<f64>,
    /// The number of generations that the medians are over.
    pub iterations: usize,
}

impl Generation {
    fn overhead(&self) -> Option<f64> {
        (self.seconds > 0.0).then_some(self.exposed_ns? / (1e9 * self.seconds))
    }

    /// Whether no layer is offloaded.
    fn has_no_offload(&self) -> bool {
        self.layers.is_none_or(|(_, host)| host == 0)
    }

    fn rtf(&self) -> Option<f64> {
        self.audio_seconds.filter(|&audio| audio > 0.0).map(|audio| self.seconds / audio)
    }
}

/// The end of a generation.
pub fn generation_summary(info: &Generation) -> String {
    let of = if info.iterations > 1 { format!(" (median of {} iterations)", info.iterations) } else { String::new() };
    let mut lines = vec![format!("Generation time: {:.2} s{of}", info.seconds)];
    lines.extend(info.audio_seconds.map(|audio| format!("Audio duration: {audio:.2} s")));
    lines.extend(info.rtf().map(|rtf| format!("RTF (time / audio, lower is better): {rtf:.2}x")));
    lines.push(format!("Prefilling tokens: {}", info.prefilled));
    lines.push(format!("Generated tokens: {}", info.generated));
    lines.push(format!("Total tokens: {}", info.prefilled.saturating_add(info.generated)));
    lines.extend(memory_lines(info));
    if let Some((device, host)) = info.layers.filter(|(_, host)| *host > 0) {
        let all = device.saturating_add(host);
        lines.push(String::new());
        lines.push("Offloading:".to_owned());
        lines.push(format!("  {}", resident_label(info.is_gpu, device, all)));
        lines.push(format!("  Layers {}: {host}/{all}", if info.is_gpu { "on CPU" } else { "in a file" }));
        lines.extend(info.emulated_gbps.map(|rate| format!("  Link: emulated, {rate} GB/s")));
        lines.extend(info.exposed_ns.map(|time| format!("  Transfer overhead: {:.2} ms", time / 1e6)));
        lines.extend(info.copy_ns.map(|time| format!("  Avg layer transfer: {:.2} ms", time / 1e6)));
        lines.extend(info.overhead().map(|share| format!("  Overhead: {:.1} %", 100.0 * share)));
    }
    block(&format!("GENERATION SUMMARY - {}", info.name), &lines)
}

fn memory_lines(info: &Generation) -> Vec<String> {
    let Some(used) = info.memory else { return Vec::new() };
    let what = if info.is_gpu { "VRAM" } else { "Memory" };
    let all = info.memory_of.filter(|all| *all > 0);
    let of = all.map_or_else(String::new, |all| format!(" / {}", bytes(all)));
    let predicted = info.predicted.map_or_else(String::new, |predicted| format!(" (predicted: {})", bytes(predicted)));
    let mut lines = vec![format!("{what} used: {}{of}{predicted}", bytes(used))];
    lines.extend(all.map(|all| format!("{what} utilisation: {:.1} %", 100.0 * used as f64 / all as f64)));
    lines
}

/// Several configurations compared. Overhead is relative to the one without offloading if there is one, else the share
/// of time that compute waited.
pub fn benchmark_comparison(rows: &[Generation]) -> String {
    let line = |name: &str, cells: [String; 4]| {
        let [memory, rtf, time, overhead] = cells;
        format!("{name:<32} {memory:>12} {rtf:>10} {time:>10} {overhead:>12}").trim_end().to_owned()
    };
    let number =
        |number: Option<f64>, decimals: usize| number.map_or_else(String::new, |number| format!("{number:.decimals$}"));
    let what = if rows.iter().any(|row| row.is_gpu) { "VRAM" } else { "Memory" };
    let is_large = rows.iter().filter_map(|row| row.memory).any(|used| used >= 1 << 30);
    let (unit, size) = if is_large { ("GiB", 1_u64 << 30) } else { ("MiB", 1 << 20) };
    let heads = [format!("{what} ({unit})"), "RTF".to_owned(), "Time (s)".to_owned(), "Overhead %".to_owned()];
    let mut lines = vec![line("Configuration", heads), "-".repeat(WIDTH)];
    let baseline = rows.iter().find(|row| row.has_no_offload()).map(|row| row.seconds).filter(|&time| time > 0.0);
    lines.extend(rows.iter().map(|row| {
        let overhead = match baseline {
            Some(_) if row.has_no_offload() => None,
            Some(baseline) => Some(row.seconds / baseline - 1.0),
            None => row.overhead(),
        };
        let cells = [
            number(row.memory.map(|used| used as f64 / size as f64), 2),
            number(row.rtf(), 2),
            number(Some(row.seconds), 2),
            number(overhead.map(|share| 100.0 * share), 1),
        ];
        line(&row.name, cells)
    }));
    let mut rates: Vec<String> = rows.iter().filter_map(|row| row.emulated_gbps).map(|rate| rate.to_string()).collect();
    rates.dedup();
    lines.extend((!rates.is_empty()).then(|| format!("Link: emulated, {} GB/s", rates.join(" and "))));
    block("BENCHMARK COMPARISON", &lines)
}

/// A block to paste into a bug report: the prefetched share, three layers, the bottleneck, the machine.
pub fn share(answer: &Offload, baseline_ns: Option<f64>, environment: Option<&Environment>) -> String {
    let ms = |nanos: f64| format!("{:.2} ms", nanos / 1e6);
    let (ahead, all) = answer.ahead();
    let share = answer.async_share().map_or_else(String::new, |share| format!(" ({:.0}%)", 100.0 * share));
    let mut lines = vec![format!("Async usage: {ahead}/{all} copies{share}")];
    lines.extend(shared_layers(answer));
    let rtf = answer.rtf().map_or_else(String::new, |rtf| format!(", RTF {rtf:.2} (time / audio)"));
    lines.push(format!(
        "Token: {}{rtf}, least with wrap {}",
        ms(answer.length.median),
        ms(answer.minimum.with_wrap as f64)
    ));
    lines.extend(answer.gb_s().map(|rate| format!("Link: {} GB/s{}", rate_text(rate), peak(answer))));
    lines.push(match baseline_ns {
        Some(baseline) => format!("Without offloading: {} per token", ms(baseline)),
        None => "Without offloading: not measured".to_owned(),
    });
    let facts = &answer.facts;
    let known = [("mode", facts.mode.as_ref()), ("dtype", facts.dtype.as_ref()), ("link", facts.link_kind.as_ref())];
    let known: Vec<String> =
        known.iter().filter_map(|(name, value)| Some(format!("{name} {}", value.as_ref()?))).collect();
    lines.extend((!known.is_empty()).then(|| format!("Run: {}", known.join(", "))));
    lines.push(answer.findings.first().map_or_else(
        || "Bottleneck: none".to_owned(),
        |found| format!("Bottleneck: {} ({})", found.finding.rule, found.finding.evidence),
    ));
    lines.extend(environment.map(machine));
    block("LAPTIME DIAGNOSIS", &lines)
}

fn peak(answer: &Offload) -> String {
    let word = if answer.facts.is_emulated() { "emulated" } else { "measured" };
    answer.facts.link_gbps.map_or_else(String::new, |peak| format!(" of {} {word}", rate_text(peak)))
}

/// A rate with enough digits.
fn rate_text(rate: f64) -> String {
    if rate < 1.0 { format!("{rate:.3}") } else { format!("{rate:.1}") }
}

/// The first, the middle and the last layer, for each forward pass of a token.
fn shared_layers(answer: &Offload) -> Vec<String> {
    let count = answer.layers.len();
    let places = [0, count / 2, count.saturating_sub(1)];
    let chosen: Vec<u64> = places.iter().filter_map(|at| Some(answer.layers.get(*at)?.layer)).collect();
    let has_kinds = answer.passes.iter().any(|layer| layer.pass.is_some_and(|pass| pass.place > 0));
    let shown = answer.passes.iter().filter(|layer| chosen.contains(&layer.layer));
    let lines = shown.map(|layer| {
        let line = LayerLine {
            layer: layer.layer,
            pre_ns: layer.exposed_ns.unwrap_or(0.0),
            post_ns: layer.release_ns.unwrap_or(0.0),
            is_async: layer.is_async() == Some(true),
        };
        let pass = layer.pass.filter(|_| has_kinds).map_or_else(String::new, |pass| format!("  {}", pass.label()));
        line.line(&answer.thresholds) + &pass
    });
    lines.collect()
}

fn machine(environment: &Environment) -> String {
    let machine = &environment.machine;
    let gpus = machine.gpus.iter().map(|gpu| gpu.name.clone());
    let cpu = machine.cpu.clone().unwrap_or_else(|| "unknown CPU".to_owned());
    let build = &environment.build;
    let parts: Vec<String> = gpus.chain([cpu, machine.os.clone()]).filter(|part| !part.is_empty()).collect();
    format!("Machine: {}; laptime {} ({}, {})", parts.join(", "), build.version, build.commit, build.profile)
}
