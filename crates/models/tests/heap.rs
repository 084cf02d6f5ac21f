//! Compares the predicted memory of models on the CPU, with and without offloaded layers, with what they use. The counts are
//! those of the process, so there is no test harness with threads of its own.

// An allocator cannot be written without `unsafe`, and without a harness the lint does not see that this is a test.
#![allow(unsafe_code, clippy::unwrap_used)]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

use laptime_models::{
    Attention, CacheCapacity, Config, Dtype, GraphMode, Marks, Offload, Options, StreamMode, Tokens, TrainOptions,
    Weights,
    cpu::{self, Pass, needed_bytes, needed_fuser_bytes, needed_train_bytes, needed_tts_bytes, needed_vibevoice_bytes},
    fuser::{Alignment, FuseOptions, FuserConfig, FuserWeights, SharerMask, sections},
    most_resident, random_batch,
    tts::{Prompt, Sampling, TextFeed, TtsConfig, TtsOptions, TtsWeights},
    vibevoice::{
        Guidance, ReadingSizes, Script, VibeVoiceConfig, VibeVoiceOptions, VibeVoiceWeights, Voice, VoicePrompt,
    },
};

/// A heap that counts live bytes and the most there were.
struct Heap;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: all is handed on to the system's heap; only sizes are counted.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        PEAK.fetch_max(LIVE.fetch_add(layout.size(), Relaxed) + layout.size(), Relaxed);
        // SAFETY: as asked.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as asked.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static HEAP: Heap = Heap;

/// Checks that a case uses no more memory than was predicted, and from 100 MB on at most 5 % less. In smaller ones, what is not
/// counted one by one weighs more.
fn check(what: &str, needed: u64, used: u64) {
    let most = if used >= 100_000_000 { 105 } else { 125 };
    let case = format!("{what}: needed {needed}, used {used}");
    assert!(used <= needed, "{case}");
    assert!(needed * 100 <= used * most, "{case}");
}

/// A model whose parts are large compared with what is not counted.
fn config() -> Config {
    config_like("tiny")
}

fn config_like(preset: &str) -> Config {
    Config { layers: 3, hidden: 512, ffn: 1024, vocab: 40_000, head_dim: 64, ..Config::from_preset(preset).unwrap() }
}

fn main() {
    for dtype in [Dtype::F32, Dtype::Bf16, Dtype::Fp8] {
        for attention in [Attention::Naive, Attention::Dense] {
            for (capacity, pass) in [
                (CacheCapacity::Growing, Pass::Forward),
                (CacheCapacity::Growing, Pass::Cached),
                (CacheCapacity::Static(512), Pass::Cached),
            ] {
                a_decoder_uses_what_was_predicted(config(), dtype, attention, capacity, pass, None);
            }
        }
        let windowed = config_like("tiny-gemma3");
        a_decoder_uses_what_was_predicted(
            windowed,
            dtype,
            Attention::Dense,
            CacheCapacity::Growing,
            Pass::Cached,
            None,
        );
        offloaded_layers_use_the_predicted_memory(dtype);
    }
    for dtype in [Dtype::F32, Dtype::Bf16] {
        for attention in [Attention::Naive, Attention::Dense] {
            a_trainer_uses_what_was_predicted(dtype, attention);
        }
        a_fuser_uses_what_was_predicted(dtype);
        speech_uses_what_was_predicted(dtype);
        offloaded_voices_use_the_predicted_memory(dtype);
    }
}

const STREAMED: [(StreamMode, usize); 6] = [
    (StreamMode::Sync, 0),
    (StreamMode::Sync, 2),
    (StreamMode::Wrap, 0),
    (StreamMode::Wrap, 2),
    (StreamMode::Batched, 0),
    (StreamMode::Batched, 2),
];

fn offloaded_layers_use_the_predicted_memory(dtype: Dtype) {
    let home = tempfile::tempdir().unwrap();
    for (mode, resident) in STREAMED {
        let offload = Offload { clear_every: Some(5), ..Offload::new(mode, resident, home.path()) };
        // Streamed layers are to be felt.
        let config = Config { layers: 5, hidden: 768, ffn: 3072, vocab: 60_000, ..config() };
        let (capacity, attention) = (CacheCapacity::Static(512), Attention::Dense);
        a_decoder_uses_what_was_predicted(config, dtype, attention, capacity, Pass::Cached, Some(offload));
    }
}

fn offloaded_voices_use_the_predicted_memory(dtype: Dtype) {
    let home = tempfile::tempdir().unwrap();
    a_voice_uses_what_was_predicted(dtype, None);
    for (mode, resident) in STREAMED.into_iter().filter(|(_, resident)| *resident > 0) {
        let offload = Offload { clear_every: Some(5), ..Offload::new(mode, resident, home.path()) };
        a_voice_uses_what_was_predicted(dtype, Some(offload));
    }
}

fn a_decoder_uses_what_was_predicted(
    config: Config,
    dtype: Dtype,
    attention: Attention,
    capacity: CacheCapacity,
    pass: Pass,
    offload: Option<Offload>,
) {
    let (threads, tokens) = (2, 400);
    let told = format!("{offload:?}");
    let options = Options {
        dtype,
        attention,
        kept: None,
        batch: 2,
        capacity,
        graph: GraphMode::Auto,
        marks: Marks::default(),
        offload: offload.clone(),
    };
    let needed = needed_bytes(&config, &options, pass, [0, tokens], threads);
    if let Some(offload) = offload {
        let of = |resident| Options { offload: Some(Offload { resident, ..offload.clone() }), ..options.clone() };
        let needs = |resident| needed_bytes(&config, &of(resident), pass, [0, tokens], threads);
        let most = |budget| most_resident(config.layers, budget, needs);
        assert_eq!(most(needed).unwrap(), offload.resident);
        assert_eq!(most(u64::MAX).unwrap(), config.layers);
        assert!(most(needed / 4).is_err());
    }
    let start = LIVE.load(Relaxed);
    PEAK.store(start, Relaxed);
    run(config, options, pass, tokens, threads);
    let used = (PEAK.load(Relaxed) - start) as u64;
    check(&format!("{dtype} {attention:?} {capacity:?} {pass:?} {told}"), needed, used);
}

/// A model whose language model and tokenizers are large compared with what is not counted.
fn vibevoice_config() -> VibeVoiceConfig {
    let mut config = VibeVoiceConfig::from_preset("tiny").unwrap();
    config.decoder = Config { layers: 5, hidden: 768, ffn: 3072, vocab: 8000, head_dim: 64, ..config.decoder };
    config.head.ffn = 2304;
    config.acoustic.filters = 8;
    config.semantic.filters = 8;
    config
}

fn a_voice_uses_what_was_predicted(dtype: Dtype, offload: Option<Offload>) {
    let (config, threads, tokens) = (vibevoice_config(), 2, 12);
    let voices = [0, 1].map(|speaker| Voice::synthetic(&config, 1, speaker));
    let tokenizer = config.tokenizer(None).unwrap();
    let prompt = VoicePrompt::new(&config, &tokenizer, &Script::built_in(), &voices).unwrap();
    let told = format!("{offload:?}");
    let positions = prompt.ids.len();
    let options = VibeVoiceOptions { offload: offload.clone(), ..VibeVoiceOptions::new(dtype, positions, tokens) };
    let heard = prompt.voices.iter().map(|samples| samples.len() / config.token_samples()).sum();
    let reading = ReadingSizes { positions, voices: heard, tokens, steps: Guidance::default().steps };
    let needed = needed_vibevoice_bytes(&config, &options, reading, threads);
    if let Some(offload @ Offload { resident, .. }) = offload {
        let with = |resident| {
            let offload = Some(Offload { resident, ..offload.clone() });
            needed_vibevoice_bytes(&config, &VibeVoiceOptions { offload, ..options.clone() }, reading, threads)
        };
        let most = |budget| most_resident(config.decoder.layers, budget, with);
        assert_eq!(most(needed).unwrap(), resident);
        assert!(most(needed / 4).is_err());
    }
    let start = LIVE.load(Relaxed);
    PEAK.store(start, Relaxed);
    {
        let mut model = cpu::vibevoice(config, &VibeVoiceWeights::synthetic(1), options, threads).unwrap();
        let guidance = Guidance { is_endless: true, ..Guidance::default() };
        model.begin(&prompt, &guidance, tokens).unwrap();
        while !model.token().unwrap().is_end {}
    }
    let used = (PEAK.load(Relaxed) - start) as u64;
    check(&format!("a voice, {dtype} {told}"), needed, used);
}

fn run(config: Config, options: Options, pass: Pass, tokens: usize, threads: usize) {
    let weights = Weights::synthetic(&config, 1);
    let ids = |count: usize| Tokens { ids: vec![1; count], batch: options.batch };
    let (all, prompt) = (ids(2 * tokens), ids(2 * (tokens - 2)));
    let mut decoder = cpu::decoder(config, &weights, options, threads).unwrap();
    match pass {
        Pass::Forward => decoder.forward(&all).unwrap(),
        Pass::Cached => {
            decoder.prefill(&prompt).unwrap();
            decoder.step().unwrap();
            decoder.step().unwrap();
        }
    }
}

fn a_fuser_uses_what_was_predicted(dtype: Dtype) {
    let (config, threads, tokens) = (config(), 2, 400);
    let fuser = FuserConfig::new(&config, &Config { layers: 5, kv_heads: 4, ..config.clone() }, Alignment::LastAligned);
    let options = FuseOptions::new(dtype);
    let needed = needed_fuser_bytes(std::slice::from_ref(&fuser), &options, [1, tokens], threads);
    let mut decoders = [config.clone(), Config { layers: 5, kv_heads: 4, ..config }].map(|config| {
        let (attention, graph, marks) = (Attention::Dense, GraphMode::Auto, Marks::default());
        let options = Options {
            dtype,
            attention,
            batch: 1,
            capacity: CacheCapacity::Growing,
            graph,
            marks,
            kept: None,
            offload: None,
        };
        let mut decoder = cpu::decoder(config.clone(), &Weights::synthetic(&config, 1), options, threads).unwrap();
        decoder.prefill(&Tokens::one(vec![1; tokens])).unwrap();
        decoder
    });
    let [receiver, sharer] = &mut decoders;
    let start = LIVE.load(Relaxed);
    PEAK.store(start, Relaxed);
    {
        let weights = FuserWeights::synthetic(1);
        let mut fuser = cpu::fuser(vec![(fuser, &weights)], options, threads).unwrap();
        let section = &sections(tokens + 1, 1, SharerMask::FIRST)[0];
        fuser.fuse(&mut **receiver, &mut [&mut **sharer], section).unwrap();
    }
    let used = (PEAK.load(Relaxed) - start) as u64;
    check(&format!("fusing, {dtype}"), needed, used);
}

/// A model whose talker and codec are large compared with what is not counted.
fn tts_config() -> TtsConfig {
    let mut config = TtsConfig::from_preset("tiny").unwrap();
    config.text_vocab = 46_000;
    config.text_width = 512;
    config.talker = Config { hidden: 512, ffn: 1024, ..config.talker };
    config.codec.channels = 256;
    config
}

fn speech_uses_what_was_predicted(dtype: Dtype) {
    let (config, threads, frames) = (tts_config(), 2, 60);
    let options = TtsOptions::new(dtype, 200);
    let needed = needed_tts_bytes(&config, &options, [80, frames], threads);
    let tokenizer = config.tokenizer(None).unwrap();
    let text = "x".repeat(70);
    let prompt = Prompt::new(&config, &tokenizer, &text, None, "auto", TextFeed::Whole).unwrap();
    let start = LIVE.load(Relaxed);
    PEAK.store(start, Relaxed);
    {
        let weights = TtsWeights::synthetic(1);
        let mut tts = cpu::qwen_tts(config, &weights, options, threads).unwrap();
        let sampling = Sampling { is_endless: true, ..Sampling::default() };
        tts.begin(&prompt, &sampling, frames).unwrap();
        while !tts.frame().unwrap().is_end {}
        tts.decode(0..frames).unwrap();
    }
    let used = (PEAK.load(Relaxed) - start) as u64;
    check(&format!("speech, {dtype}"), needed, used);
}

fn a_trainer_uses_what_was_predicted(dtype: Dtype, attention: Attention) {
    let (config, threads) = (config(), 2);
    let options = TrainOptions { attention, ..TrainOptions::new(dtype, 2, 400) };
    let needed = needed_train_bytes(&config, &options, threads);
    let (tokens, targets) = random_batch(&config, 2, 400, 1).unwrap();
    let start = LIVE.load(Relaxed);
    PEAK.store(start, Relaxed);
    {
        let weights = Weights::synthetic(&config, 1);
        let mut trainer = cpu::trainer(config, &weights, options, threads).unwrap();
        trainer.forward(&tokens, &targets).unwrap();
        trainer.backward().unwrap();
        trainer.update().unwrap();
    }
    let used = (PEAK.load(Relaxed) - start) as u64;
    check(&format!("training, {dtype} {attention:?}"), needed, used);
}
