//! The stage tree of each model: one list, which the traces of every device must have.
//!
//! `trees/*.txt` has the lists. `tests/stage_marks` compares them with traces of the CPU, and `laptime-gpu-test` with those
//! of a GPU. Left out are stages that depend on memory, and the two that request a copy of a layer: on the CPU another thread
//! copies. Text to speech is compared by its parts, since its first two rows may run at once or one after the other.

use std::error::Error;

use laptime_models::{
    Attention, CacheCapacity, Config, Decoder, Dtype, GraphMode, Marks, ModelError, Offload, Options, StreamMode,
    Tokens, TrainOptions, Trainer, Weights,
    fuser::{Alignment, FuseOptions, FuseOrder, FuserConfig, FuserWeights, Fusing, Section, SharerMask},
    random_batch,
    tts::{Prompt, QwenTts, Sampling, TextFeed, TtsConfig, TtsOptions, TtsWeights},
    vibevoice::{Guidance, Script, VibeVoice, VibeVoiceConfig, VibeVoiceOptions, VibeVoiceWeights, Voice, VoicePrompt},
};
use laptime_trace::{Trace, run::Depth};

type Failure = Box<dyn Error>;

const TOKENS: usize = 32;

const NOT_COMPARED: [&str; 6] = ["allocate", "capture", "start_threads", "layer_copy", "layer_issue", "weights"];

/// A device that loads synthetic models.
pub trait Device {
    fn decoder(&self, config: &Config, options: Options) -> Result<Box<dyn Decoder + '_>, ModelError>;

    fn trainer(&self, config: &Config, options: TrainOptions) -> Result<Box<dyn Trainer + '_>, ModelError>;

    fn fuser(&self, config: &FuserConfig, options: FuseOptions) -> Result<Box<dyn Fusing + '_>, ModelError>;

    fn qwen_tts(&self, config: TtsConfig, options: TtsOptions) -> Result<QwenTts<'_>, ModelError>;

    fn vibevoice(
        &self,
        config: VibeVoiceConfig,
        options: VibeVoiceOptions,
    ) -> Result<Box<dyn VibeVoice + '_>, ModelError>;
}

/// A model with its list, and what gives its tree on a device.
pub struct Case {
    pub name: &'static str,
    pub expected: &'static str,
    tree: fn(&dyn Device) -> Result<String, Failure>,
}

macro_rules! cases {
    ($($name:literal: $tree:expr),* $(,)?) => {
        &[$(Case { name: $name, expected: include_str!(concat!("trees/", $name, ".txt")), tree: $tree }),*]
    };
}

pub const CASES: &[Case] = cases! {
    "forward_naive": |device| forward(device, Attention::Naive),
    "forward_dense": |device| forward(device, Attention::Dense),
    "decode": |device| decode(device, None),
    "offload": offloaded,
    "training_naive": |device| training(device, Attention::Naive),
    "training_dense": |device| training(device, Attention::Dense),
    "c2c": fusing,
    "tts": speech,
    "vibevoice": reading,
};

impl Case {
    /// The stages of the model on a device, one per line, indented by depth.
    pub fn found(&self, device: &dyn Device) -> Result<String, Failure> {
        (self.tree)(device)
    }
}

/// Runs something twice, the second time recorded: the first time allocates and starts threads.
fn recorded(mut act: impl FnMut() -> Result<(), ModelError>) -> Result<String, Failure> {
    act()?;
    Ok(tree(&recorded_trace::<Failure>(|| Ok(act()?))?))
}

/// Runs something while it is recorded.
pub fn recorded_trace<E: From<Failure>>(act: impl FnOnce() -> Result<(), E>) -> Result<Trace, E> {
    let path = std::env::temp_dir().join(format!("laptime-stage-trees-{}.pftrace", std::process::id()));
    let recording = laptime_trace::record_to(&path).map_err(Failure::from)?;
    act()?;
    recording.finish().map_err(Failure::from)?;
    let trace = laptime_trace::read(&path).map_err(Failure::from)?;
    std::fs::remove_file(&path).map_err(Failure::from)?;
    Ok(trace)
}

fn tree(trace: &Trace) -> String {
    let mut depths: Vec<usize> = Vec::new();
    let mut lines = String::new();
    for span in trace.spans() {
        let depth = span.parent.map_or(0, |parent| depths[parent.index()] + 1);
        depths.push(depth);
        if !NOT_COMPARED.contains(&span.name) {
            lines += &format!("{}{}\n", "  ".repeat(depth), span.name);
        }
    }
    lines
}

fn options(attention: Attention, depth: Depth) -> Options {
    let marks = Marks { depth, ..Marks::default() };
    Options { attention, marks, ..Options::new(Dtype::F32, CacheCapacity::Static(2 * TOKENS)) }
}

fn forward(device: &dyn Device, attention: Attention) -> Result<String, Failure> {
    let mut decoder = device.decoder(&Config::from_preset("tiny")?, options(attention, Depth::Ops))?;
    recorded(|| decoder.forward(&Tokens::one(vec![1; TOKENS])))
}

/// A prompt and a step, which has other kernels.
fn decode(device: &dyn Device, offload: Option<Offload>) -> Result<String, Failure> {
    let options = Options { offload, ..options(Attention::Dense, Depth::Layer) };
    let mut decoder = device.decoder(&Config::from_preset("tiny")?, options)?;
    recorded(|| {
        decoder.truncate(0)?;
        decoder.prefill(&Tokens::one(vec![1; TOKENS]))?;
        decoder.step()
    })
}

/// The graph of a step on a GPU samples the token inside `resident`, the CPU after it.
fn offloaded(device: &dyn Device) -> Result<String, Failure> {
    let offload = Offload::new(StreamMode::Wrap, 1, std::env::temp_dir());
    Ok(decode(device, Some(offload))?.replace("\n  sampling\n", "\nsampling\n"))
}

fn training(device: &dyn Device, attention: Attention) -> Result<String, Failure> {
    let config = Config::from_preset("tiny")?;
    let marks = Marks { depth: Depth::Ops, ..Marks::default() };
    let options = TrainOptions { attention, marks, ..TrainOptions::new(Dtype::F32, 1, TOKENS) };
    let (tokens, targets) = random_batch(&config, 1, TOKENS, 1)?;
    let mut trainer = device.trainer(&config, options)?;
    recorded(|| {
        trainer.forward(&tokens, &targets)?;
        trainer.backward()?;
        trainer.update()
    })
}

fn fusing(device: &dyn Device) -> Result<String, Failure> {
    let [receiver, sharer] = [Config::from_preset("tiny")?, Config::from_preset("tiny-qwen2")?];
    let marks = Marks { depth: Depth::Ops, ..Marks::default() };
    let fuse_options = FuseOptions { order: FuseOrder::ByLayer, marks, ..FuseOptions::new(Dtype::F32) };
    let mut fuser = device.fuser(&FuserConfig::new(&receiver, &sharer, Alignment::LastAligned), fuse_options)?;
    let options = options(Attention::Dense, Depth::Pipeline);
    let mut receiver = device.decoder(&receiver, options.clone())?;
    let mut sharer = device.decoder(&sharer, options)?;
    for decoder in [&mut receiver, &mut sharer] {
        decoder.prefill(&Tokens::one(vec![1; TOKENS]))?;
    }
    let section = Section { positions: 0..TOKENS, sharer_starts: vec![0], mask: SharerMask::FIRST };
    recorded(|| fuser.fuse(&mut *receiver, &mut [&mut *sharer], &section).map(drop))
}

fn speech(device: &dyn Device) -> Result<String, Failure> {
    let config = TtsConfig::from_preset("tiny")?;
    let tokenizer = config.tokenizer(None)?;
    let prompt = Prompt::new(&config, &tokenizer, "Hi.", Some("ryan"), "english", TextFeed::Whole)?;
    let options = TtsOptions { graph: GraphMode::Off, ..TtsOptions::new(Dtype::F32, 40) };
    let mut model = device.qwen_tts(config, options)?;
    let sampling = Sampling { is_endless: true, ..Sampling::default() };
    recorded(|| {
        model.begin(&prompt, &sampling, 2)?;
        while !model.frame()?.is_end {}
        model.decode(0..2).map(drop)
    })
}

fn reading(device: &dyn Device) -> Result<String, Failure> {
    let config = VibeVoiceConfig::from_preset("tiny")?;
    let voices = [Voice::new(vec![0.1; 3200])?];
    let script = Script::parse("Speaker 1: Hi.")?;
    let prompt = VoicePrompt::new(&config, &config.tokenizer(None)?, &script, &voices)?;
    let marks = Marks { depth: Depth::Layer, ..Marks::default() };
    let options =
        VibeVoiceOptions { marks, graph: GraphMode::Off, ..VibeVoiceOptions::new(Dtype::F32, prompt.ids.len() + 2, 2) };
    let mut model = device.vibevoice(config, options)?;
    let guidance = Guidance { is_endless: true, ..Guidance::default() };
    recorded(|| {
        model.begin(&prompt, &guidance, 2)?;
        while !model.token()?.is_end {}
        Ok(())
    })
}

/// The weights of all synthetic models.
pub fn weights(config: &Config) -> Weights {
    Weights::synthetic(config, 1)
}

pub fn fuser_weights() -> FuserWeights {
    FuserWeights::synthetic(1)
}

pub fn tts_weights() -> TtsWeights {
    TtsWeights::synthetic(1)
}

pub fn vibevoice_weights() -> VibeVoiceWeights {
    VibeVoiceWeights::synthetic(1)
}
