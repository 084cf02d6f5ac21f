//! The console of a run with offloaded layers, as its users know it: blocks between rules of 80 characters.

use std::fmt::Write;

use laptime_analyze::{Offload, Thresholds};
use laptime_trace::run::Environment;

const WIDTH: usize = 80;

/// One layer of a summary. Times are in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LayerLine {
    /// Its number.
    pub layer: u64,
    /// What compute waited for it.
    pub pre_ns: f64,
    /// What its release took.
    pub post_ns: f64,
    /// Whether its copy was asked for ahead.
    pub is_async: bool,
}

impl LayerLine {
    /// The layer in one line; one beyond a limit is pointed at.
    pub fn told(&self, limits: &Thresholds) -> String {
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

/// The layers of the last token, every few tokens.
pub fn profiling_summary(token: u64, layers: &[LayerLine], limits: &Thresholds) -> String {
    let mut lines = vec![usage(layers)];
    lines.extend(layers.iter().map(|layer| layer.told(limits)));
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
    /// Whether any are.
    pub enabled: bool,
    /// Layers that stay on the device.
    pub gpu_layers: u64,
    /// Layers.
    pub layers: u64,
    /// Whether host memory is pinned.
    pub pin_memory: bool,
    /// Whether copies are asked for ahead.
    pub prefetch: bool,
    /// Whether copies run beside compute.
    pub async_transfer: bool,
    /// Tokens between two clearings of the cache; never if none.
    pub cache_clear_interval: Option<u64>,
}

/// The configuration, before a run.
pub fn offload_configuration(told: &OffloadConfiguration) -> String {
    let word = |yes: bool| if yes { "True" } else { "False" };
    let clearing = match told.cache_clear_interval {
        Some(1) => "every token".to_owned(),
        Some(tokens) => format!("every {tokens} tokens"),
        None => "never".to_owned(),
    };
    let lines = [
        format!("Enabled: {}", word(told.enabled)),
        format!("Layers on GPU: {}/{}", told.gpu_layers, told.layers),
        format!("Pin memory: {}", word(told.pin_memory)),
        format!("Prefetch next layer: {}", word(told.prefetch)),
        format!("Async transfer: {}", word(told.async_transfer)),
        format!("Cache clearing: {clearing}"),
    ];
    block("OFFLOAD CONFIGURATION", &lines)
}

/// What a generation came to; what is not known is left out.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Generation {
    /// What it is called.
    pub name: String,
    /// How long it took, in seconds.
    pub seconds: f64,
    /// How long the audio is, in seconds; none where there is none.
    pub audio_seconds: Option<f64>,
    /// Tokens of the prompt.
    pub prefilled: u64,
    /// Tokens that were made.
    pub generated: u64,
    /// The highest use of the device's memory, and all of it, in bytes.
    pub memory: Option<(u64, u64)>,
    /// Layers on the device and on the host.
    pub layers: Option<(u64, u64)>,
    /// What compute waited for copies, in nanoseconds, all tokens together.
    pub exposed_ns: Option<f64>,
    /// The mean time of a copy, in nanoseconds.
    pub copy_ns: Option<f64>,
}

impl Generation {
    fn overhead(&self) -> Option<f64> {
        (self.seconds > 0.0).then_some(self.exposed_ns? / (1e9 * self.seconds))
    }

    fn rtf(&self) -> Option<f64> {
        self.audio_seconds.filter(|&audio| audio > 0.0).map(|audio| self.seconds / audio)
    }
}

const GIB: f64 = (1_u64 << 30) as f64;

/// The end of a generation.
pub fn generation_summary(told: &Generation) -> String {
    let mut lines = vec![format!("Generation time: {:.2} s", told.seconds)];
    lines.extend(told.audio_seconds.map(|audio| format!("Audio duration: {audio:.2} s")));
    lines.extend(told.rtf().map(|rtf| format!("RTF (time / audio, lower is better): {rtf:.2}x")));
    lines.push(format!("Prefilling tokens: {}", told.prefilled));
    lines.push(format!("Generated tokens: {}", told.generated));
    lines.push(format!("Total tokens: {}", told.prefilled.saturating_add(told.generated)));
    if let Some((used, all)) = told.memory {
        lines.push(format!("VRAM used: {:.2} / {:.2} GiB", used as f64 / GIB, all as f64 / GIB));
        lines.extend((all > 0).then(|| format!("VRAM utilisation: {:.1} %", 100.0 * used as f64 / all as f64)));
    }
    if let Some((device, host)) = told.layers {
        lines.push(String::new());
        lines.push("Offloading:".to_owned());
        lines.push(format!("  Layers on GPU: {device}/{}", device.saturating_add(host)));
        lines.push(format!("  Layers on CPU: {host}/{}", device.saturating_add(host)));
        lines.extend(told.exposed_ns.map(|time| format!("  Transfer overhead: {:.2} ms", time / 1e6)));
        lines.extend(told.copy_ns.map(|time| format!("  Avg layer transfer: {:.2} ms", time / 1e6)));
        lines.extend(told.overhead().map(|share| format!("  Overhead: {:.1} %", 100.0 * share)));
    }
    block(&format!("GENERATION SUMMARY - {}", told.name), &lines)
}

/// Several configurations side by side.
pub fn benchmark_comparison(rows: &[Generation]) -> String {
    let line = |name: &str, cells: [String; 4]| {
        let [memory, rtf, time, overhead] = cells;
        format!("{name:<32} {memory:>10} {rtf:>10} {time:>10} {overhead:>12}").trim_end().to_owned()
    };
    let number =
        |number: Option<f64>, decimals: usize| number.map_or_else(String::new, |number| format!("{number:.decimals$}"));
    let heads = ["VRAM (GiB)", "RTF", "Time (s)", "Overhead %"].map(str::to_owned);
    let mut lines = vec![line("Configuration", heads), "-".repeat(WIDTH)];
    lines.extend(rows.iter().map(|row| {
        let memory = row.memory.map(|(used, _)| used as f64 / GIB);
        let cells = [
            number(memory, 2),
            number(row.rtf(), 2),
            number(Some(row.seconds), 2),
            number(row.overhead().map(|share| 100.0 * share), 1),
        ];
        line(&row.name, cells)
    }));
    block("BENCHMARK COMPARISON", &lines)
}

/// What to paste where somebody asks for help: the share asked for ahead, three layers, the bottleneck, the machine.
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
    lines.extend(answer.gb_s().map(|rate| format!("Link: {rate:.1} GB/s{}", peak(answer))));
    lines.push(match baseline_ns {
        Some(baseline) => format!("Without offloading: {} a token", ms(baseline)),
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
    answer.facts.link_gbps.map_or_else(String::new, |peak| format!(" of {peak:.1} measured"))
}

/// The first, the middle and the last layer.
fn shared_layers(answer: &Offload) -> Vec<String> {
    let count = answer.layers.len();
    let mut places = vec![0, count / 2, count.saturating_sub(1)];
    places.dedup();
    let lines = places.into_iter().filter_map(|at| answer.layers.get(at)).map(|layer| LayerLine {
        layer: layer.layer,
        pre_ns: layer.exposed_ns.unwrap_or(0.0),
        post_ns: layer.release_ns.unwrap_or(0.0),
        is_async: layer.is_async() == Some(true),
    });
    lines.map(|line| line.told(&answer.thresholds)).collect()
}

fn machine(environment: &Environment) -> String {
    let machine = &environment.machine;
    let gpus = machine.gpus.iter().map(|gpu| gpu.name.clone());
    let cpu = machine.cpu.clone().unwrap_or_else(|| "unknown CPU".to_owned());
    let build = &environment.build;
    let parts: Vec<String> = gpus.chain([cpu, machine.os.clone()]).filter(|part| !part.is_empty()).collect();
    format!("Machine: {}; laptime {} ({}, {})", parts.join(", "), build.version, build.commit, build.profile)
}
