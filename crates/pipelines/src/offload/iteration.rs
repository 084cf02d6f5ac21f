//! Iterations of generation with offloaded layers, their work, and facts.

use std::path::PathBuf;

use anyhow::ensure;
use laptime_bench::{AxisValue, Fact, Iteration, Nanos, Work};
use laptime_models::{Dtype, HasTensors, Home, Offloading, Stage, StageWork, StreamMode};
use laptime_stats::Sorted;
use laptime_trace::run::Traffic;

use super::layers::Fit;
use super::runner::{Loaded, Run, Runner};
use super::subject::{Kind, Spec, Subject};
use crate::{backend::is_gpu, check::check_finite, request::fact};

pub struct OffloadIteration<'a> {
    runner: Runner<'a>,
    last: Run,
}

impl<'a> OffloadIteration<'a> {
    pub fn new(runner: Runner<'a>) -> Self {
        Self { runner, last: Run::default() }
    }

    fn audio_s(&self) -> Option<f64> {
        match &self.runner.subject.kind {
            Kind::Speech { config, .. } => Some(self.last.samples.len() as f64 / f64::from(config.sample_rate.max(1))),
            Kind::Lm { .. } => None,
        }
    }

    /// Checks that the audio is finite and has the expected length, or that the logits of a language model are finite.
    fn check_output(&mut self) -> anyhow::Result<()> {
        let generated = self.last.tokens_ns.len();
        let (expected, is_endless) = (self.runner.subject.tokens, self.runner.subject.folder.is_none());
        let is_cut = self.runner.observer.is_stopped();
        ensure!(!is_endless || is_cut || generated == expected, "there are {generated} tokens, expected {expected}");
        match &mut self.runner.loaded {
            Loaded::Speech(model) => {
                let (samples, hop) = (model.audio_tokens(), model.config().token_samples());
                let expected = samples.saturating_mul(hop);
                let length = self.last.samples.len();
                ensure!(length == expected, "{samples} tokens of audio are {expected} samples, and there are {length}");
                check_finite("sample", &self.last.samples, 0)
            }
            Loaded::Lm(decoder) => check_finite("logit", &decoder.logits()?, 0),
        }
    }
}

impl Iteration for OffloadIteration<'_> {
    fn check(&mut self) -> anyhow::Result<()> {
        self.ready()?;
        self.run()?;
        self.runner.notify_observer(&self.last);
        self.check_output()
    }

    fn ready(&mut self) -> anyhow::Result<()> {
        self.last = Run::default();
        if let Loaded::Speech(model) = &mut self.runner.loaded {
            model.reset()?;
        }
        Ok(())
    }

    fn run(&mut self) -> anyhow::Result<()> {
        Ok(self.runner.generate(&mut self.last).inspect_err(|_| {
            // Tokens generated before the failure are kept.
            self.runner.notify_observer(&self.last);
        })?)
    }

    fn readings(&mut self, wall: Nanos) -> Vec<Option<f64>> {
        self.runner.notify_observer(&self.last);
        let Run { prefill_ns, tokens_ns, generation_ns, visits, .. } = &self.last;
        let over = |one: f64, other: f64| (other > 0.0).then(|| one / other);
        let (wall, audio) = (wall.0 as f64 / 1e9, self.audio_s());
        let tokens = Sorted::<u64>::from_unsorted(tokens_ns.clone());
        let token = |part: f64| tokens.quantile(part).map(|nanos| nanos / 1e6);
        let a_token = |nanos: f64| over(nanos / 1e6, tokens_ns.len() as f64).filter(|_| visits.count > 0);
        let bytes = self.runner.loaded.offloading().map_or(0, |offloading| offloading.layer_bytes);
        vec![
            audio.and_then(|audio| over(wall, audio)),
            over(tokens_ns.len() as f64, *generation_ns as f64 / 1e9),
            token(0.5),
            token(0.95),
            Some(*prefill_ns as f64 / 1e6),
            Some(*generation_ns as f64 / 1e6),
            a_token(visits.wait_ns),
            a_token(visits.copy_ns),
            over(visits.wait_ns, visits.copy_ns).map(|exposed| (1.0 - exposed).clamp(0.0, 1.0)),
            over(visits.ahead as f64, visits.count as f64),
            over(bytes as f64 * visits.count as f64, visits.copy_ns),
        ]
    }

    fn work(&self) -> Option<Work> {
        work(&self.runner.subject, &self.runner.spec)
    }

    fn facts(&self) -> Vec<Fact> {
        facts(&self.runner, &self.last)
    }
}

/// Streams of classifier-free guidance: one with the script (positive) and one without (negative).
const STREAMS: u64 = 2;

fn number(name: &str, value: f64) -> Fact {
    Fact::new(name, AxisValue::Float(value))
}

/// Facts that are known before anything is allocated.
pub fn sizes(subject: &Subject) -> Vec<Fact> {
    let (parameters, weight_bytes) = match &subject.kind {
        Kind::Speech { config, .. } => (config.parameters(), config.weight_bytes(subject.dtype)),
        Kind::Lm { found, .. } => (found.config.parameters(), found.config.weight_bytes(subject.dtype)),
    };
    vec![
        fact("prompt_positions", subject.kind.positions() as u64),
        fact("parameters", parameters),
        fact("weight_bytes", weight_bytes),
        fact("cache_bytes", cache_bytes(subject)),
    ]
}

fn cache_bytes(subject: &Subject) -> u64 {
    let capacity = subject.kind.positions().saturating_add(subject.tokens);
    match &subject.kind {
        Kind::Speech { config, .. } => config.cache_bytes(capacity, subject.tokens, subject.dtype),
        Kind::Lm { found, .. } => found.config.kv_bytes_per_token(subject.dtype).saturating_mul(capacity as u64),
    }
}

/// The work of one token: a layer in one pass, the diffusion head, and the rest.
struct Parts {
    layer: StageWork,
    diffusion: StageWork,
    other: StageWork,
}

fn parts(subject: &Subject, spec: &Spec) -> Parts {
    let (dtype, position) = (subject.dtype, subject.kind.positions().saturating_add(subject.tokens / 2));
    match &subject.kind {
        Kind::Speech { config, .. } => {
            let pass = config.stepped_decoder().step_work(1, position, dtype);
            let rest = [
                pass.stage(Stage::Head),
                config.audio_decode_work(1, dtype),
                config.semantic_encode_work(1, dtype),
                config.connect_work(dtype),
            ];
            let other = rest.into_iter().fold(StageWork::default(), StageWork::plus);
            Parts { layer: layer(subject, position, dtype), diffusion: config.diffusion_work(spec.steps, dtype), other }
        }
        Kind::Lm { found, .. } => {
            let pass = found.config.step_work(1, position, dtype);
            let other = pass.stage(Stage::Embed).plus(pass.stage(Stage::Head));
            Parts { layer: layer(subject, position, dtype), diffusion: StageWork::default(), other }
        }
    }
}

/// The work of one layer in one pass at this position.
fn layer(subject: &Subject, position: usize, dtype: Dtype) -> StageWork {
    let decoder = subject.kind.decoder();
    let pass = decoder.step_work(1, position, dtype);
    let of_layers = [Stage::Qkv, Stage::Attention, Stage::OProj, Stage::Ffn].map(|stage| pass.stage(stage));
    let all = of_layers.into_iter().fold(StageWork::default(), StageWork::plus);
    let each = |amount: u64| amount / decoder.layers.max(1) as u64;
    StageWork {
        flops: each(all.flops),
        weight_bytes: each(all.weight_bytes),
        kv_read: each(all.kv_read),
        kv_written: each(all.kv_written),
    }
}

/// The work of an iteration: the prompt, and all tokens.
pub fn work(subject: &Subject, spec: &Spec) -> Option<Work> {
    if subject.folder.is_some() {
        return None;
    }
    let (dtype, tokens) = (subject.dtype, subject.tokens);
    let (prompt, positions) = match &subject.kind {
        Kind::Speech { config, prompt, .. } => {
            let hop = config.token_samples().max(1);
            let voices = prompt.voices.iter().map(|voice| config.voice_encode_work(voice.len() / hop, dtype));
            (
                voices.fold(config.prefill_work(subject.kind.positions(), dtype), StageWork::plus),
                subject.kind.positions(),
            )
        }
        Kind::Lm { found, .. } => {
            let prefill =
                found.config.prefill_work(1, subject.kind.positions(), 0, laptime_models::Attention::Dense, dtype);
            (prefill.total(), subject.kind.positions())
        }
    };
    let token = |at: usize| match &subject.kind {
        Kind::Speech { config, .. } => config.token_work([positions.saturating_add(at), at], spec.steps, dtype),
        Kind::Lm { found, .. } => found.config.step_work(1, positions.saturating_add(at), dtype).total(),
    };
    let all = (0..tokens).map(token).fold(prompt, StageWork::plus);
    Some(Work {
        flops: all.flops,
        dtype: dtype.activations().word().to_owned(),
        bytes: all.bytes_read(),
        traffic: Traffic::Read,
    })
}

/// Forward passes per token in which layers are copied.
fn passes(subject: &Subject, mode: StreamMode) -> u64 {
    match &subject.kind {
        Kind::Speech { .. } if mode == StreamMode::Batched => 1,
        Kind::Speech { .. } => STREAMS,
        Kind::Lm { .. } => 1,
    }
}

/// Facts about a case on a device before its iterations, for offloaded layers of this size.
pub fn planned(subject: &Subject, spec: &Spec, fit: &Fit, is_gpu: bool) -> Vec<Fact> {
    let home = match (is_gpu, spec.mode) {
        (false, _) => Home::File,
        (true, StreamMode::Sync) => Home::Pageable,
        (true, _) => Home::Pinned,
    };
    let (layers, layer_bytes) = (subject.kind.decoder().layers, parts(subject, spec).layer.weight_bytes);
    let streamed = layers.saturating_sub(fit.resident);
    let mut facts = of_case(subject, spec, fit);
    if streamed > 0 {
        let offloading = Offloading { layers, streamed, layer_bytes, home };
        facts.extend(of_offloading(subject, spec, &offloading, is_gpu));
    }
    facts
}

pub fn facts(runner: &Runner<'_>, last: &Run) -> Vec<Fact> {
    let Runner { subject, spec, fit, .. } = runner;
    let mut facts = of_case(subject, spec, fit);
    facts.push(fact("tokens_made", last.tokens_ns.len() as u64));
    if let Kind::Speech { config, resampled, .. } = &subject.kind {
        facts.push(number("audio_s", last.samples.len() as f64 / f64::from(config.sample_rate.max(1))));
        let shown =
            |(file, rate): &(PathBuf, u32)| Fact::new("resampled", format!("{} from {rate} Hz", file.display()));
        facts.extend(resampled.iter().map(shown));
    }
    if let Some(offloading) = runner.loaded.offloading() {
        facts.extend(of_offloading(subject, spec, &offloading, is_gpu(runner.device)));
    }
    facts
}

fn of_case(subject: &Subject, spec: &Spec, fit: &Fit) -> Vec<Fact> {
    let mut facts = sizes(subject);
    facts.extend([
        Fact::new("weights", if subject.folder.is_some() { "folder" } else { "synthetic" }),
        fact("layers", subject.kind.decoder().layers as u64),
        fact("gpu_layers", fit.resident as u64),
        Fact::new("dtype", subject.dtype.word()),
        fact("predicted_bytes", fit.needed),
        fact("streams", passes(subject, spec.mode)),
    ]);
    facts.extend(subject.token_seconds().map(|seconds| number("audio_ms", 1e3 * seconds)));
    if !spec.is_lm {
        facts.extend([fact("diffusion_steps", spec.steps as u64), number("cfg", spec.cfg_scale)]);
    }
    facts
}

fn of_offloading(subject: &Subject, spec: &Spec, offloading: &Offloading, is_gpu: bool) -> Vec<Fact> {
    let Parts { layer, diffusion, other } = parts(subject, spec);
    // A batch of both streams computes twice as much per pass.
    let rows = if spec.mode == StreamMode::Batched && !spec.is_lm { STREAMS } else { 1 };
    let emulated = spec.link_gbps.filter(|_| !is_gpu);
    let [tier, link] = tier_and_link(&offloading.home);
    let mut facts = vec![
        Fact::new("mode", spec.mode.word()),
        fact("layer_bytes", offloading.layer_bytes),
        fact("layer_flops", layer.flops.saturating_mul(rows)),
        Fact::new("slow_tier", tier),
        Fact::new("link_kind", if emulated.is_some() { "emulated" } else { link }),
        fact("diffusion_bytes", diffusion.weight_bytes),
        fact("diffusion_flops", diffusion.flops),
        fact("other_bytes", other.bytes_read()),
        fact("other_flops", other.flops),
    ];
    facts.extend(emulated.map(|rate| number("link_gbps", rate)));
    if let Home::Refused(reason) = &offloading.home {
        facts.push(Fact::new("pinned_refused", reason.clone()));
    }
    facts
}

/// Where offloaded layers are stored, and the link they are copied over.
fn tier_and_link(home: &Home) -> [&'static str; 2] {
    match home {
        Home::File => ["file", "file"],
        Home::Pinned => ["host memory", "pinned"],
        Home::Pageable | Home::Refused(_) => ["host memory", "pageable"],
    }
}
