//! Qwen3-TTS on a GPU: numerics, refusals, memory and speed.

use std::time::Instant;

use laptime_models::gpu::{needed_tts_bytes, qwen_tts};
use laptime_models::tts::{Prompt, QwenTts, Sampling, TextFeed, TtsConfig, TtsOptions, TtsWeights};
use laptime_models::{Dtype, GraphMode, StageWork, Tokenizer, cpu};
use serde::Deserialize;

use crate::models::{fixture::distance, memory::compare, speed::median};
use crate::{Answer, Bench, Failed, expect};

/// Tolerance of f32 logits and samples.
const WITHIN: f32 = 1e-4;

/// Bytes and operations per second, measured on an H200.
const BANDWIDTH: f64 = 4.2e12;
const OPERATIONS: f64 = 750e12;

/// The text of speed tests and comparisons.
const TEXT: &str = "The quick brown fox jumps over the lazy dog, and nobody minds at all today.";

/// The expected results of the fixture `tts`.
#[derive(Deserialize)]
struct Expected {
    cases: Vec<Case>,
    audio: Audio,
}

#[derive(Deserialize)]
struct Case {
    text: String,
    speaker: Option<String>,
    language: String,
    whole: bool,
    codes: Vec<Vec<u32>>,
    ends: bool,
    /// The hidden states of the talker, by step.
    hidden: Vec<Vec<f32>>,
    first_logits: Vec<f32>,
    /// The first logits, by step.
    logits: Vec<Vec<f32>>,
}

#[derive(Deserialize)]
struct Audio {
    codes: Vec<Vec<u32>>,
    samples: Vec<f32>,
    frames_40_to_44: Vec<f32>,
    frames_3_to_7: Vec<f32>,
}

/// The fixture's model.
struct Fixture {
    config: TtsConfig,
    weights: TtsWeights,
    tokenizer: Tokenizer,
    expected: Expected,
}

impl Fixture {
    fn open(bench: &Bench) -> Result<Self, Failed> {
        let folder = bench.fixtures.join("tts");
        let text =
            std::fs::read_to_string(folder.join("expected.json")).map_err(|error| Failed::Wrong(error.to_string()))?;
        let config = TtsConfig::from_folder(&folder)?;
        Ok(Self {
            weights: TtsWeights::open(&folder, &config)?,
            tokenizer: config.tokenizer(Some(&folder))?,
            config,
            expected: serde_json::from_str(&text).map_err(|error| Failed::Wrong(error.to_string()))?,
        })
    }

    fn speaker<'a>(&self, bench: &'a Bench, options: TtsOptions) -> Result<QwenTts<'a>, Failed> {
        Ok(qwen_tts(&bench.device, self.config.clone(), &self.weights, options)?)
    }

    fn prompt(&self, case: &Case) -> Result<Prompt, Failed> {
        let feed = if case.whole { TextFeed::Whole } else { TextFeed::ByFrame };
        let Case { text, speaker, language, .. } = case;
        Ok(Prompt::new(&self.config, &self.tokenizer, text, speaker.as_deref(), language, feed)?)
    }
}

pub fn codes(bench: &Bench) -> Answer {
    let fixture = Fixture::open(bench)?;
    let mut worst = 0_f32;
    for graph in [GraphMode::On, GraphMode::Off] {
        let mut speaker = fixture.speaker(bench, TtsOptions { graph, ..TtsOptions::new(Dtype::F32, 128) })?;
        for case in &fixture.expected.cases {
            worst = worst.max(follow(&mut speaker, &fixture.prompt(case)?, case)?);
        }
    }
    Ok(format!("codes of {} texts, logits and streams within {worst:.1e}", fixture.expected.cases.len()))
}

/// Runs a case and returns the largest error.
fn follow(speaker: &mut QwenTts<'_>, prompt: &Prompt, case: &Case) -> Result<f32, Failed> {
    let most = (case.codes.len() + usize::from(!case.ends)).max(case.hidden.len());
    speaker.begin(prompt, &Sampling::likeliest(), most)?;
    let mut worst = distance(&speaker.logits()?, &case.first_logits)?;
    for (at, codes) in case.codes.iter().enumerate() {
        worst = worst.max(distance(&speaker.hidden()?, &case.hidden[at])?);
        let count = case.logits[at].len();
        worst = worst.max(distance(&speaker.logits()?[..count], &case.logits[at])?);
        expect(worst < WITHIN, || format!("`{}`, frame {at}: off by {worst:.1e}", case.text))?;
        let frame = speaker.frame()?;
        let made = speaker.codes(at..at + 1)?;
        expect(made == *codes, || format!("`{}`, frame {at}: {made:?}, not {codes:?}", case.text))?;
        expect((frame.index, frame.token) == (at, codes[0]), || format!("{frame:?} was reported for {codes:?}"))?;
        let is_end = case.ends && at + 1 == case.codes.len();
        expect(frame.is_end == is_end, || format!("`{}`, frame {at}: {frame:?}", case.text))?;
    }
    Ok(worst)
}

pub fn samples(bench: &Bench) -> Answer {
    let fixture = Fixture::open(bench)?;
    let audio = &fixture.expected.audio;
    let mut report = Vec::new();
    // Unused codebook vectors overflow f16; the first frames have none.
    for (dtype, within, most) in
        [(Dtype::F32, WITHIN, audio.codes.len()), (Dtype::F16, 0.01, 40), (Dtype::Bf16, 0.08, 40)]
    {
        let mut speaker = fixture.speaker(bench, TtsOptions::new(dtype, 128))?;
        speaker.set_codes(&audio.codes.concat())?;
        let length = fixture.config.codec.frame_samples();
        let whole = &audio.samples[..most * length];
        let parts = [(0..most, whole), (40..44, &audio.frames_40_to_44), (3..7, &audio.frames_3_to_7)];
        let mut worst = 0_f32;
        for (frames, expected) in parts.into_iter().filter(|(frames, _)| frames.end <= most) {
            let off = distance(&speaker.decode(frames.clone())?, expected)?;
            expect(off < within, || format!("{dtype} frames {frames:?}: off by {off:.1e}"))?;
            worst = worst.max(off);
        }
        report.push(format!("{dtype} {worst:.1e}"));
    }
    Ok(report.join(", "))
}

fn prompt(config: &TtsConfig) -> Result<Prompt, Failed> {
    let tokenizer = Tokenizer::bytes(&config.talker)?;
    Ok(Prompt::new(config, &tokenizer, TEXT, Some("ryan"), "english", TextFeed::ByFrame)?)
}

pub fn against_cpu(bench: &Bench) -> Answer {
    let mut report = Vec::new();
    for (name, frames) in [("tiny", 40), ("0.6b", 3)] {
        let config = TtsConfig::from_preset(name)?;
        let weights = TtsWeights::synthetic(1);
        let options = TtsOptions::new(Dtype::F32, 256);
        let mut gpu = qwen_tts(&bench.device, config.clone(), &weights, options.clone())?;
        let mut cpu = cpu::qwen_tts(config.clone(), &weights, options, 16)?;
        for sampling in [Sampling::likeliest(), Sampling::default()] {
            let sampling = Sampling { is_endless: true, ..sampling };
            let worst = alike(&mut cpu, &mut gpu, &sampling, frames)?;
            report.push(format!("{name}, {frames} frames: {worst}"));
        }
    }
    Ok(report.join("\n"))
}

/// Compares codes, logits and samples of the CPU and the GPU.
fn alike(cpu: &mut QwenTts<'_>, gpu: &mut QwenTts<'_>, by: &Sampling, frames: usize) -> Answer {
    let prompt = prompt(cpu.config())?;
    cpu.begin(&prompt, by, frames)?;
    gpu.begin(&prompt, by, frames)?;
    let mut worst = distance(&cpu.logits()?, &gpu.logits()?)?;
    for frame in 0..frames {
        let both = (cpu.frame()?, gpu.frame()?);
        let codes = (cpu.codes(frame..frame + 1)?, gpu.codes(frame..frame + 1)?);
        expect(both.0 == both.1 && codes.0 == codes.1, || format!("{both:?}, {codes:?}"))?;
        worst = worst.max(distance(&cpu.logits()?, &gpu.logits()?)?);
    }
    let (here, there) = (cpu.decode(0..frames)?, gpu.decode(0..frames)?);
    let off = distance(&here, &there)?;
    expect(worst < 1e-3 && off < 1e-3, || format!("logits {worst:.1e}, samples {off:.1e}"))?;
    Ok(format!("logits {worst:.1e}, samples {off:.1e}"))
}

pub fn refused(bench: &Bench) -> Answer {
    let config = TtsConfig::from_preset("tiny")?;
    let load = |capacity| {
        let options = TtsOptions::new(Dtype::Bf16, capacity);
        qwen_tts(&bench.device, config.clone(), &TtsWeights::synthetic(1), options)
    };
    for capacity in [0, 1 << 20] {
        expect(load(capacity).is_err(), || format!("a cache of {capacity} positions was taken"))?;
    }
    let mut speaker = load(128)?;
    expect(speaker.frame().is_err(), || "a frame came of nothing".to_owned())?;
    expect(speaker.logits().is_err() && speaker.hidden().is_err(), || "logits came of nothing".to_owned())?;
    let prompt = prompt(&config)?;
    let endless = Sampling { is_endless: true, ..Sampling::default() };
    expect(speaker.begin(&prompt, &endless, 1000).is_err(), || "frames beyond the capacity were taken".to_owned())?;
    speaker.begin(&prompt, &endless, 2)?;
    let first = speaker.frame()?;
    let second = speaker.frame()?;
    expect(!first.is_end && second.is_end, || format!("{first:?}, {second:?}"))?;
    expect(speaker.frame().is_err(), || "there was a frame behind the last".to_owned())?;
    expect(speaker.codes(1..3).is_err(), || "codes of missing frames were returned".to_owned())?;
    // A text beyond the initial capacity, and codes of more frames.
    speaker.set_codes(&vec![1; 200 * config.groups])?;
    expect(speaker.decode(0..200)?.len() == 200 * 1920, || "samples are missing".to_owned())?;
    speaker.begin(&prompt, &endless, 2)?;
    let again = speaker.frame()?;
    expect(again == first, || format!("{again:?}, not {first:?}"))?;
    Ok(String::new())
}

/// Predicted and used memory are the same.
pub fn memory(bench: &Bench) -> Answer {
    let mut lines = Vec::new();
    for (name, dtype, frames) in [("0.6b", Dtype::Bf16, 400), ("0.6b", Dtype::F32, 20), ("1.7b", Dtype::Bf16, 100)] {
        let config = TtsConfig::from_preset(name)?;
        let options = TtsOptions::new(dtype, 1024);
        let prompt = prompt(&config)?;
        let text = prompt.positions.len() + prompt.following.len() + 1;
        let needed = needed_tts_bytes(&config, &options, [text, frames]);
        lines.push(compare(bench, &format!("{name} {dtype}, {frames} frames"), needed, || {
            let mut speaker = qwen_tts(&bench.device, config.clone(), &TtsWeights::synthetic(1), options)?;
            speaker.begin(&prompt, &Sampling { is_endless: true, ..Sampling::default() }, frames)?;
            while !speaker.frame()?.is_end {}
            speaker.decode(0..frames)?;
            Ok(())
        })?);
    }
    Ok(lines.join("\n"))
}

/// Frames of the speed test.
const FRAMES: usize = 100;

pub fn speed(bench: &Bench) -> Answer {
    let mut report = Vec::new();
    // Maximum milliseconds per frame.
    for (name, budget) in [("0.6b", 5.6), ("1.7b", 8.8)] {
        let config = TtsConfig::from_preset(name)?;
        for graph in [GraphMode::On, GraphMode::Off] {
            let options = TtsOptions { graph, ..TtsOptions::new(Dtype::Bf16, 512) };
            let began = Instant::now();
            let mut speaker = qwen_tts(&bench.device, config.clone(), &TtsWeights::synthetic(1), options)?;
            let loaded = began.elapsed().as_secs_f64() * 1e3;
            let (words, frame) = speed_of(bench, &mut speaker)?;
            report.push(format!("{name}, {graph:?}: loaded in {loaded:.0} ms, {words}"));
            expect(graph == GraphMode::Off || frame < budget, || report.join("\n"))?;
        }
    }
    Ok(report.join("\n"))
}

/// Host times, synchronised at both ends, and milliseconds per frame.
fn speed_of(bench: &Bench, speaker: &mut QwenTts<'_>) -> Result<(String, f64), Failed> {
    let config = speaker.config().clone();
    let prompt = prompt(&config)?;
    let sampling = Sampling { is_endless: true, ..Sampling::default() };
    let prefill = median(bench, 10, || Ok(speaker.begin(&prompt, &sampling, FRAMES)?))?;
    // A single frame runs the predictor only.
    let alone = median(bench, 20, || {
        speaker.begin(&prompt, &sampling, 1)?;
        speaker.frame()?;
        Ok(())
    })? - prefill;
    let whole = median(bench, 3, || {
        speaker.begin(&prompt, &sampling, FRAMES)?;
        while !speaker.frame()?.is_end {}
        Ok(())
    })?;
    let frame = (whole - prefill) / FRAMES as f64;
    let decode = median(bench, 5, || Ok(speaker.decode(0..FRAMES).map(drop)?))?;
    let first = median(bench, 10, || {
        speaker.begin(&prompt, &sampling, FRAMES)?;
        (0..4).try_for_each(|_| speaker.frame().map(drop))?;
        Ok(speaker.decode(0..4).map(drop)?)
    })?;
    let position = prompt.positions.len() + FRAMES / 2;
    let limit = |work: StageWork| {
        let bytes = work.weight_bytes as f64 + work.kv_read as f64;
        (bytes / BANDWIDTH).max(work.flops as f64 / OPERATIONS) * 1e3
    };
    let step = config.code_predictor_work(Dtype::Bf16).plus(config.talker_step_work(position, Dtype::Bf16));
    let of_frame = limit(step.plus(config.sampling_work()));
    let of_predictor = limit(config.code_predictor_work(Dtype::Bf16));
    let of_decode = limit(config.decode_work(0..FRAMES, Dtype::Bf16));
    let of_talker = limit(config.talker_step_work(position, Dtype::Bf16));
    // A frame is 80 ms.
    let rtf = (whole + decode) / (FRAMES as f64 * 80.0);
    let words = format!(
        "a frame {frame:.3} ms ({:.1} x limit), predictor {alone:.3} ms ({:.1}), all else of it {:.3} ms ({:.1}), prefill \
         of {} {prefill:.3} ms, decode of {FRAMES} {decode:.2} ms ({:.1}), first audio at 4 frames {first:.2} ms, RTF \
         {rtf:.4}",
        frame / of_frame,
        alone / of_predictor,
        frame - alone,
        (frame - alone) / of_talker,
        prompt.positions.len(),
        decode / of_decode,
    );
    Ok((words, frame))
}
