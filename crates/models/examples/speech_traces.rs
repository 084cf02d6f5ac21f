//! Traces of a speech model on a GPU, all layers resident or some of them streamed, and what its stages take there.
//!
//! `speech_traces FOLDER [MODEL [STREAMED [TOKENS]]]` writes `FOLDER/resident.pftrace`, `batched.pftrace` and, of so many
//! streamed layers, `MODE_streamed.pftrace`; and prints medians of stages by the events of the device.

#![allow(clippy::print_stdout)]

use std::{
    collections::BTreeMap,
    env,
    error::Error,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Instant,
};

use laptime_cuda::{Device, EventClock};
use laptime_models::{
    Dtype, Marks, Offload, StreamMode,
    gpu::vibevoice,
    vibevoice::{Guidance, Reader, Script, VibeVoiceConfig, VibeVoiceOptions, VibeVoiceWeights, Voice, VoicePrompt},
};
use laptime_probe::{DeviceClock, Lane};

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = env::args().skip(1).collect();
    let word = |at: usize, otherwise: &str| words.get(at).cloned().unwrap_or_else(|| otherwise.to_owned());
    let folder = PathBuf::from(word(0, "traces"));
    let config = VibeVoiceConfig::from_preset(&word(1, "7b"))?;
    let (streamed, tokens): (usize, usize) = (word(2, "8").parse()?, word(3, "12").parse()?);
    let layers = config.decoder.layers;
    let some = layers.checked_sub(streamed).ok_or("the model has not so many layers")?;
    fs::create_dir_all(&folder)?;
    let script = Script::parse("Speaker 1: Hello there, how are you?\nSpeaker 2: Fine, and nobody minds at all.")?;
    let voices = [0, 1].map(|speaker| Voice::synthetic(&config, 1, speaker));
    let prompt = VoicePrompt::new(&config, &config.tokenizer(None)?, &script, &voices)?;
    let device = Device::open(0)?;
    let copies = device.with_new_streams()?;
    let clocks = [clock(&device)?, clock(&copies)?];
    let lanes = [Lane::device("GPU 0", Arc::clone(&clocks[0])), Lane::device("GPU 0 stream 2", Arc::clone(&clocks[1]))];
    let bench = Bench { device, copies, clocks, lanes, config, prompt, tokens };
    let modes = [("resident", None), ("batched", Some((StreamMode::Batched, layers)))];
    for (name, mode) in modes.into_iter().chain([
        ("wrap_streamed", Some((StreamMode::Wrap, some))),
        ("batched_streamed", Some((StreamMode::Batched, some))),
    ]) {
        bench.record(&folder.join(format!("{name}.pftrace")), name, mode)?;
    }
    Ok(())
}

/// What every recording is made with.
struct Bench {
    device: Device,
    copies: Device,
    clocks: [Arc<dyn DeviceClock>; 2],
    lanes: [Lane; 2],
    config: VibeVoiceConfig,
    prompt: VoicePrompt,
    tokens: usize,
}

impl Bench {
    /// Reads the script twice, the second time recorded.
    fn record(&self, path: &Path, name: &str, mode: Option<(StreamMode, usize)>) -> Result<(), Box<dyn Error>> {
        let [lane, of_copies] = &self.lanes;
        let offload = mode.map(|(mode, resident)| {
            let (home, lane) = (PathBuf::new(), Some(of_copies.clone()));
            Offload { mode, resident, home, link_gbps: None, clear_every: None, lane }
        });
        let marks = Marks { lane: Some(lane.clone()), ..Marks::default() };
        let options = VibeVoiceOptions {
            marks,
            offload,
            ..VibeVoiceOptions::new(Dtype::Bf16, self.prompt.ids.len(), self.tokens)
        };
        let (weights, guidance) =
            (VibeVoiceWeights::synthetic(1), Guidance { is_endless: true, ..Guidance::default() });
        let model = vibevoice(&self.device, Some(&self.copies), self.config.clone(), &weights, options)?;
        let mut reader = Reader::new(model);
        let (_, plain) = reader.read(&self.prompt, &guidance, self.tokens)?;
        let recording = laptime_trace::record_to(path)?;
        self.device.synchronise()?;
        self.clocks.iter().for_each(|clock| clock.anchor());
        let began = Instant::now();
        let (audio, timing) = reader.read(&self.prompt, &guidance, self.tokens)?;
        let whole = began.elapsed().as_secs_f64();
        recording.finish()?;
        let each = |ms: f64| ms / self.tokens as f64;
        println!(
            "{name}: token {:.3} ms, recorded {:.3} ms; {:.2} s of audio in {whole:.3} s",
            each(plain.generation_ms),
            each(timing.generation_ms),
            audio.seconds(),
        );
        tell(path)
    }
}

fn clock(device: &Device) -> Result<Arc<dyn DeviceClock>, Box<dyn Error>> {
    Ok(Arc::new(EventClock::new(Arc::clone(device.stream()))?))
}

/// How often each stage is on the device, and the median of what it takes.
fn tell(path: &Path) -> Result<(), Box<dyn Error>> {
    let trace = laptime_trace::read(path)?;
    let mut stages: BTreeMap<(String, &str), Vec<u64>> = BTreeMap::new();
    for span in trace.spans() {
        let lane = trace.name(trace.track(span.track).name).to_owned();
        if lane.starts_with("GPU") {
            stages.entry((lane, span.name)).or_default().push(span.duration.0);
        }
    }
    for ((lane, name), mut taken) in stages {
        taken.sort_unstable();
        let median = taken[taken.len() / 2] as f64 / 1e6;
        println!("    {lane:<16} {name:<22} {:>5} x {median:>9.3} ms", taken.len());
    }
    Ok(())
}
