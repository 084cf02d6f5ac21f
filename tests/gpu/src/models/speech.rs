//! VibeVoice on a GPU: numerics, refusals, memory and speed.

use std::time::Instant;

use laptime_models::gpu::{needed_vibevoice_bytes, vibevoice};
use laptime_models::vibevoice::{
    Guidance, Noise, ReadingSizes, Script, VibeVoice, VibeVoiceConfig, VibeVoiceOptions, VibeVoiceWeights, Voice,
    VoicePrompt,
};
use laptime_models::{Dtype, GraphMode, StageWork, cpu};
use serde::Deserialize;

use crate::models::{fixture::distance, memory};
use crate::{Answer, Bench, Failed, expect};

/// Tolerance of f32 results.
const WITHIN: f32 = 1e-4;

/// Bytes and operations per second, measured on an H200.
const BANDWIDTH: f64 = 4.2e12;
const OPERATIONS: f64 = 750e12;

/// The expected results of the fixture `speech`.
#[derive(Deserialize)]
struct Expected {
    scale: f32,
    cases: Vec<Case>,
    tokenizers: Tokenizers,
}

#[derive(Deserialize)]
struct Case {
    steps: usize,
    ids: Vec<u32>,
    voices: Vec<Vec<f32>>,
    tokens: Vec<u32>,
    noise: Vec<Vec<f32>>,
    hidden: Vec<Vec<f32>>,
    logits: Vec<Vec<f32>>,
    negative: Vec<Vec<f32>>,
    latents: Vec<Vec<f32>>,
    audio: Vec<Vec<f32>>,
    semantic: Vec<Vec<f32>>,
}

#[derive(Deserialize)]
struct Tokenizers {
    audio: Vec<f32>,
    acoustic: Vec<f32>,
    semantic: Vec<f32>,
    latents: Vec<f32>,
    decoded: Vec<f32>,
}

/// The fixture's model.
struct Fixture {
    config: VibeVoiceConfig,
    weights: VibeVoiceWeights,
    expected: Expected,
}

impl Fixture {
    fn open(bench: &Bench) -> Result<Self, Failed> {
        let folder = bench.fixtures.join("speech");
        let text =
            std::fs::read_to_string(folder.join("expected.json")).map_err(|error| Failed::Wrong(error.to_string()))?;
        let config = VibeVoiceConfig::from_folder(&folder)?;
        let expected = serde_json::from_str(&text).map_err(|error| Failed::Wrong(error.to_string()))?;
        Ok(Self { weights: VibeVoiceWeights::open(&folder, &config)?, config, expected })
    }

    fn model<'a>(&self, bench: &'a Bench, dtype: Dtype, graph: GraphMode) -> Result<Box<dyn VibeVoice + 'a>, Failed> {
        let options = VibeVoiceOptions { graph, ..VibeVoiceOptions::new(dtype, 128, 16) };
        Ok(vibevoice(&bench.device, None, self.config.clone(), &self.weights, options)?)
    }

    fn prompt(&self, case: &Case) -> Result<VoicePrompt, Failed> {
        let hop = self.config.token_samples();
        let voices = case.voices.iter().map(|samples| {
            let mut samples = Voice::new(samples.clone())?.samples;
            samples.resize(samples.len().next_multiple_of(hop), 0.0);
            Ok(samples)
        });
        Ok(VoicePrompt { ids: case.ids.clone(), voices: voices.collect::<Result<_, Failed>>()? })
    }

    fn guidance(&self, case: &Case) -> Guidance {
        let noise = Noise::Given(case.noise.concat());
        Guidance { steps: case.steps, scale: self.expected.scale, noise, varies_voices: false, is_endless: false }
    }
}

pub fn fixtures(bench: &Bench) -> Answer {
    let fixture = Fixture::open(bench)?;
    let mut worst = 0_f32;
    for graph in [GraphMode::On, GraphMode::Off] {
        let mut model = fixture.model(bench, Dtype::F32, graph)?;
        for case in &fixture.expected.cases {
            worst = worst.max(follow(&mut *model, &fixture, case)?);
        }
    }
    Ok(format!("{} scripts, all numbers within {worst:.1e}", fixture.expected.cases.len()))
}

/// Runs a case and returns the largest error.
fn follow(model: &mut dyn VibeVoice, fixture: &Fixture, case: &Case) -> Result<f32, Failed> {
    model.begin(&fixture.prompt(case)?, &fixture.guidance(case), case.tokens.len())?;
    let mut audio = 0;
    let mut worst = 0_f32;
    for (at, id) in case.tokens.iter().enumerate() {
        let token = model.token()?;
        expect((token.index, token.id) == (at, *id), || format!("{token:?}, not {id}"))?;
        let [positive, negative] = model.hidden()?;
        let mut apart = vec![
            ("hidden", distance(&positive, &case.hidden[at])?),
            ("logits", distance(&model.logits()?, &case.logits[at])?),
        ];
        if token.audio.is_some() {
            let samples: Vec<f32> = case.audio[audio].iter().map(|sample| sample.clamp(-1.0, 1.0)).collect();
            apart.extend([
                ("negative", distance(&negative, &case.negative[audio])?),
                ("latent", distance(&model.latents(audio..audio + 1)?, &case.latents[audio])?),
                ("audio", distance(&model.audio(audio..audio + 1)?, &samples)?),
                ("semantic", distance(&model.semantic()?, &case.semantic[audio])?),
            ]);
            audio += 1;
        }
        for (what, off) in apart {
            expect(off < WITHIN, || format!("{what} of token {at} in {} steps: off by {off:.1e}", case.steps))?;
            worst = worst.max(off);
        }
        expect(token.is_end == (at + 1 == case.tokens.len()), || format!("{token:?}"))?;
    }
    Ok(worst)
}

pub fn tokenizers(bench: &Bench) -> Answer {
    let fixture = Fixture::open(bench)?;
    let expected = &fixture.expected.tokenizers;
    let largest = |row: &[f32]| row.iter().fold(0.0, |most: f32, number| most.max(number.abs()));
    let mut lines = Vec::new();
    for (dtype, within) in [(Dtype::F32, WITHIN), (Dtype::F16, 0.01), (Dtype::Bf16, 0.08)] {
        let mut model = fixture.model(bench, dtype, GraphMode::On)?;
        let [acoustic, semantic] = model.encode(&expected.audio)?;
        let decoded = model.decode(&expected.latents)?;
        let case = &fixture.expected.cases[0];
        model.begin(&fixture.prompt(case)?, &fixture.guidance(case), 1)?;
        let [hidden, _] = model.hidden()?;
        let pairs = [
            ("acoustic", acoustic, &expected.acoustic),
            ("semantic", semantic, &expected.semantic),
            ("decoded", decoded, &expected.decoded),
            ("hidden", hidden, &case.hidden[0]),
        ];
        let mut worst = 0_f32;
        for (what, found, expected) in pairs {
            let off = distance(&found, expected)? / largest(expected);
            expect(off < within, || format!("{dtype} {what}: off by {off:.1e} of the largest"))?;
            worst = worst.max(off);
        }
        lines.push(format!("{dtype} {worst:.1e}"));
    }
    Ok(lines.join(", "))
}

/// A script of two speakers with synthetic voices.
pub fn prompt(config: &VibeVoiceConfig) -> Result<VoicePrompt, Failed> {
    let script = Script::parse("Speaker 1: Hello there, how are you?\nSpeaker 2: Fine, and nobody minds at all.")?;
    let voices = [0, 1].map(|speaker| Voice::synthetic(config, 1, speaker));
    Ok(VoicePrompt::new(config, &config.tokenizer(None)?, &script, &voices)?)
}

pub fn against_cpu(bench: &Bench) -> Answer {
    let config = VibeVoiceConfig::from_preset("tiny")?;
    let (weights, tokens) = (VibeVoiceWeights::synthetic(1), 12);
    let prompt = prompt(&config)?;
    let options = VibeVoiceOptions::new(Dtype::F32, prompt.ids.len(), tokens);
    let mut gpu = vibevoice(&bench.device, None, config.clone(), &weights, options.clone())?;
    let mut cpu = cpu::vibevoice(config, &weights, options, 16)?;
    let mut lines = Vec::new();
    for (steps, is_endless) in [(10, true), (20, true), (5, false)] {
        let guidance = Guidance { steps, is_endless, ..Guidance::default() };
        lines.push(format!("{steps} steps: {}", alike(&mut *cpu, &mut *gpu, &prompt, &guidance, tokens)?));
    }
    Ok(lines.join("\n"))
}

/// Compares tokens, latents and samples of the CPU and the GPU.
fn alike(
    cpu: &mut dyn VibeVoice,
    gpu: &mut dyn VibeVoice,
    prompt: &VoicePrompt,
    guidance: &Guidance,
    tokens: usize,
) -> Answer {
    cpu.begin(prompt, guidance, tokens)?;
    gpu.begin(prompt, guidance, tokens)?;
    let mut worst = 0_f32;
    let all = loop {
        let (here, there) = (cpu.token()?, gpu.token()?);
        expect(here == there, || format!("{there:?}, not {here:?}"))?;
        let (here_left, there_left) = (cpu.hidden()?, gpu.hidden()?);
        for (here, there) in here_left.iter().zip(&there_left) {
            worst = worst.max(distance(here, there)?);
        }
        worst = worst.max(distance(&cpu.logits()?, &gpu.logits()?)?);
        if here.is_end {
            break here.index + 1;
        }
    };
    let made = cpu.audio_tokens();
    let latents = distance(&cpu.latents(0..made)?, &gpu.latents(0..made)?)?;
    let samples = distance(&cpu.audio(0..made)?, &gpu.audio(0..made)?)?;
    expect(worst < 1e-3 && latents < 1e-3 && samples < 1e-3, || {
        format!("streams {worst:.1e}, latents {latents:.1e}, samples {samples:.1e}")
    })?;
    Ok(format!("{all} tokens, {made} of audio; streams {worst:.1e}, latents {latents:.1e}, samples {samples:.1e}"))
}

pub fn refused(bench: &Bench) -> Answer {
    let config = VibeVoiceConfig::from_preset("tiny")?;
    let weights = VibeVoiceWeights::synthetic(1);
    let prompt = prompt(&config)?;
    let options = VibeVoiceOptions::new(Dtype::Bf16, prompt.ids.len(), 4);
    let long = VibeVoiceOptions { capacity: 1 << 20, ..options.clone() };
    let is_refused = vibevoice(&bench.device, None, config.clone(), &weights, long).is_err();
    expect(is_refused, || "a cache beyond the context was taken".to_owned())?;
    let mut model = vibevoice(&bench.device, None, config, &weights, options)?;
    expect(model.token().is_err(), || "a token came of nothing".to_owned())?;
    let endless = Guidance { is_endless: true, ..Guidance::default() };
    expect(model.begin(&prompt, &endless, 5).is_err(), || "tokens beyond the room were taken".to_owned())?;
    model.begin(&prompt, &endless, 2)?;
    let (first, second) = (model.token()?, model.token()?);
    expect(!first.is_end && second.is_end, || format!("{first:?}, {second:?}"))?;
    expect(model.token().is_err(), || "there was a token behind the last".to_owned())?;
    expect(model.audio(1..3).is_err(), || "audio was returned that was not generated".to_owned())?;
    let once = model.audio(0..2)?;
    // The last generation is forgotten, and encoding does not change the next one.
    model.begin(&prompt, &endless, 2)?;
    model.token()?;
    model.encode(&vec![0.1; 3200])?;
    model.token()?;
    expect(model.audio(0..2)? == once, || "the same script sounds otherwise".to_owned())?;
    Ok(String::new())
}

/// Predicted and used memory are the same.
pub fn memory(bench: &Bench) -> Answer {
    let run = |(name, tokens)| {
        let config = VibeVoiceConfig::from_preset(name)?;
        let prompt = prompt(&config)?;
        let options = VibeVoiceOptions::new(Dtype::Bf16, prompt.ids.len(), tokens);
        let needed = needed_vibevoice_bytes(&config, &options, reading_sizes(&config, &prompt, tokens));
        memory::compare(bench, name, needed, || {
            let mut model = vibevoice(&bench.device, None, config, &VibeVoiceWeights::synthetic(1), options)?;
            model.begin(&prompt, &Guidance { is_endless: true, ..Guidance::default() }, tokens)?;
            (0..5).try_for_each(|_| model.token().map(drop))?;
            Ok(model.wait()?)
        })
    };
    [("1.5b", 200), ("7b", 100)].into_iter().map(run).collect::<Result<Vec<_>, _>>().map(|lines| lines.join("\n"))
}

/// The sizes of a prompt and this many tokens.
pub fn reading_sizes(config: &VibeVoiceConfig, prompt: &VoicePrompt, tokens: usize) -> ReadingSizes {
    let voices = prompt.ids.iter().filter(|id| **id == config.ids.audio).count();
    ReadingSizes { positions: prompt.ids.len(), voices, tokens, steps: Guidance::default().steps }
}

/// Tokens of the speed test.
const TOKENS: usize = 60;

pub fn speed(bench: &Bench) -> Answer {
    let mut lines = Vec::new();
    // Maximum real-time factor.
    for (name, most) in [("7b", 0.20), ("1.5b", 0.20)] {
        let config = VibeVoiceConfig::from_preset(name)?;
        let prompt = prompt(&config)?;
        for graph in [GraphMode::On, GraphMode::Off] {
            let began = Instant::now();
            let options = VibeVoiceOptions { graph, ..VibeVoiceOptions::new(Dtype::Bf16, prompt.ids.len(), TOKENS) };
            let mut model = vibevoice(&bench.device, None, config.clone(), &VibeVoiceWeights::synthetic(1), options)?;
            let ready = began.elapsed().as_secs_f64() * 1e3;
            let (words, factor) = speed_of(&mut *model, &prompt)?;
            lines.push(format!("{name}, graph {graph:?}: ready in {ready:.0} ms; {words}"));
            expect(graph == GraphMode::Off || factor < most, || lines.join("\n"))?;
        }
    }
    Ok(lines.join("\n"))
}

/// Host times, synchronised at both ends, and the real-time factor of tokens.
fn speed_of(model: &mut dyn VibeVoice, prompt: &VoicePrompt) -> Result<(String, f64), Failed> {
    let config = model.config().clone();
    let guidance = Guidance { is_endless: true, ..Guidance::default() };
    let mut best: Option<[f64; 2]> = None;
    for _ in 0..3 {
        let began = Instant::now();
        model.begin(prompt, &guidance, TOKENS)?;
        model.wait()?;
        let begun = Instant::now();
        while !model.token()?.is_end {}
        model.wait()?;
        let prefill = (begun - began).as_secs_f64() * 1e3;
        let token = begun.elapsed().as_secs_f64() * 1e3 / TOKENS as f64;
        best = Some(best.filter(|best| best[1] <= token).unwrap_or([prefill, token]));
    }
    let [prefill, token] = best.unwrap_or_default();
    let audio = config.token_seconds() * 1e3;
    let position = prompt.ids.len() + TOKENS;
    let of_parts = [
        config.positive_work(position, Dtype::Bf16),
        config.negative_work(TOKENS, Dtype::Bf16),
        config.diffusion_work(guidance.steps, Dtype::Bf16),
        config.audio_decode_work(1, Dtype::Bf16),
        config.semantic_encode_work(1, Dtype::Bf16),
        config.connect_work(Dtype::Bf16),
    ];
    let mut words = vec![format!(
        "voices and prompt of {} {prefill:.1} ms, a token {token:.3} ms of {audio:.1} ms of audio: RTF {:.4}",
        prompt.ids.len(),
        token / audio
    )];
    for ((name, ms), work) in model.part_times(20)?.into_iter().zip(of_parts) {
        let limit = limit(work);
        words.push(format!("    {name:<22} {ms:>8.3} ms, limit {limit:>7.3} ms: {:.2} x", ms / limit));
    }
    Ok((words.join("\n"), token / audio))
}

fn limit(work: StageWork) -> f64 {
    let bytes = work.weight_bytes as f64 + work.kv_read as f64;
    (bytes / BANDWIDTH).max(work.flops as f64 / OPERATIONS) * 1e3
}
