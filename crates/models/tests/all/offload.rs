//! Offloaded layers on the CPU: every mode gives what resident layers give.

use std::{
    fs::{self, OpenOptions},
    path::{Path, PathBuf},
};

use crate::common::speech::{config as speech_config, expected, model};
use laptime_models::{
    Attention, CacheCapacity, Config, Decoder, Dtype, GraphMode, Home, KeysValues, LayerVisit, Marks, ModelError,
    Offload, Options, StreamMode, Tokens, Weights, cpu,
};
use tempfile::tempdir;

fn options(dtype: Dtype, offload: Option<Offload>) -> Options {
    Options {
        dtype,
        attention: Attention::Dense,
        kept: None,
        batch: 2,
        capacity: CacheCapacity::Growing,
        graph: GraphMode::Auto,
        marks: Marks::default(),
        offload,
    }
}

/// A preset with more layers than it has, so that buffers take several turns.
fn config(preset: &str) -> Config {
    Config { layers: 5, ..Config::from_preset(preset).unwrap() }
}

fn decoder(preset: &str, dtype: Dtype, offload: Option<Offload>) -> Box<dyn Decoder> {
    let config = config(preset);
    let weights = Weights::synthetic(&config, 3);
    cpu::decoder(config, &weights, options(dtype, offload), 2).unwrap()
}

fn prompt() -> Tokens {
    Tokens { ids: (0..18).map(|at| at * 7919 % 500).collect(), batch: 2 }
}

/// All that a decoder leaves: logits of every position, of a prompt, of steps, and its cache.
fn left(decoder: &mut dyn Decoder) -> (Vec<Vec<f32>>, Vec<KeysValues>) {
    decoder.forward(&prompt()).unwrap();
    let mut logits = vec![decoder.logits().unwrap()];
    decoder.prefill(&prompt()).unwrap();
    logits.push(decoder.logits().unwrap());
    for _ in 0..4 {
        decoder.step().unwrap();
        logits.push(decoder.logits().unwrap());
    }
    let cache = (0..5).map(|layer| decoder.read_cache(layer).unwrap()).collect();
    (logits, cache)
}

/// Files of a folder that this process has open, though they have no name any more.
fn open_files(folder: &Path) -> Vec<PathBuf> {
    let open = fs::read_dir("/proc/self/fd").unwrap().map(|entry| entry.unwrap().path());
    open.filter(|link| fs::read_link(link).is_ok_and(|file| file.starts_with(folder))).collect()
}

fn is_empty(folder: &Path) -> bool {
    fs::read_dir(folder).unwrap().next().is_none()
}

#[test]
fn every_mode_and_number_of_offloaded_layers_matches_the_resident_model() {
    let home = tempdir().unwrap();
    for (preset, dtype) in
        [("tiny", Dtype::F32), ("tiny-qwen2", Dtype::Bf16), ("tiny-llama", Dtype::F16), ("tiny-gemma3", Dtype::Bf16)]
    {
        let resident = left(&mut *decoder(preset, dtype, None));
        for mode in StreamMode::ALL {
            for stay in [0, 2, 3, 4, 5] {
                let offload = Offload::new(mode, stay, home.path());
                let streamed = left(&mut *decoder(preset, dtype, Some(offload)));
                assert!(streamed == resident, "{preset} {dtype} {mode}, {stay} layers stay");
            }
        }
    }
    assert!(is_empty(home.path()) && open_files(home.path()).is_empty(), "the files go with the decoders");
}

#[test]
fn freed_memory_and_a_slow_link_change_no_result() {
    let home = tempdir().unwrap();
    let resident = left(&mut *decoder("tiny", Dtype::F32, None));
    for mode in StreamMode::ALL {
        let offload = Offload { clear_every: Some(2), link_gbps: Some(10.0), ..Offload::new(mode, 2, home.path()) };
        assert!(left(&mut *decoder("tiny", Dtype::F32, Some(offload))) == resident, "{mode}");
    }
}

#[test]
fn what_came_of_it_is_told() {
    let home = tempdir().unwrap();
    let streamed = decoder("tiny", Dtype::Bf16, Some(Offload::new(StreamMode::Wrap, 2, home.path())));
    let offloading = streamed.offloading().unwrap();
    assert_eq!((offloading.layers, offloading.streamed, offloading.home), (5, 3, Home::File));
    let files = open_files(home.path());
    assert_eq!(files.len(), 1);
    assert_eq!(fs::metadata(&files[0]).unwrap().len(), 3 * offloading.layer_bytes);
    assert!(is_empty(home.path()), "a process that is killed leaves no file");
    drop(streamed);
    assert!(open_files(home.path()).is_empty());
    let all_stay = decoder("tiny", Dtype::Bf16, Some(Offload::new(StreamMode::Wrap, 5, home.path())));
    assert_eq!(all_stay.offloading(), None);
    assert_eq!(decoder("tiny", Dtype::Bf16, None).offloading(), None);
}

/// The visits of three passes of a model with three streamed layers.
fn visits(mode: StreamMode) -> Vec<LayerVisit> {
    let home = tempdir().unwrap();
    let mut decoder = decoder("tiny", Dtype::F32, Some(Offload::new(mode, 2, home.path())));
    decoder.prefill(&prompt()).unwrap();
    let mut visits = decoder.layer_visits().unwrap();
    decoder.step().unwrap();
    decoder.step().unwrap();
    visits.extend(decoder.layer_visits().unwrap());
    assert!(decoder.layer_visits().unwrap().is_empty(), "each is reported once");
    visits
}

#[test]
fn every_layer_is_visited_once_per_pass_and_requested_as_early_as_the_mode_allows() {
    for mode in StreamMode::ALL {
        let visits = visits(mode);
        let turns: Vec<(u64, usize)> = visits.iter().map(|visit| (visit.pass, visit.layer)).collect();
        let wanted: Vec<(u64, usize)> = (0..3).flat_map(|pass| (0..3).map(move |layer| (pass, layer))).collect();
        assert_eq!(turns, wanted, "{mode}");
        for visit in visits {
            let is_ahead = match mode {
                StreamMode::Sync | StreamMode::Pinned => false,
                StreamMode::Prefetch => visit.layer > 0,
                StreamMode::Wrap | StreamMode::Batched => visit.layer > 0 || visit.pass > 0,
            };
            assert_eq!(visit.is_ahead, is_ahead, "{mode}: {visit:?}");
            assert!(visit.copy_ns > 0.0 && visit.wait_ns >= 0.0 && visit.release_ns >= 0.0);
        }
    }
}

#[test]
fn an_emulated_link_slows_down_copies() {
    let home = tempdir().unwrap();
    let offload = Offload { link_gbps: Some(0.1), ..Offload::new(StreamMode::Wrap, 3, home.path()) };
    let mut decoder = decoder("tiny", Dtype::F32, Some(offload));
    decoder.prefill(&prompt()).unwrap();
    let least = decoder.offloading().unwrap().layer_bytes as f64 / 0.1;
    assert!(decoder.layer_visits().unwrap().iter().all(|visit| visit.copy_ns >= least));
}

#[test]
fn invalid_offloading_is_refused_and_leaves_no_file() {
    let home = tempdir().unwrap();
    let config = config("tiny");
    let make = |offload: Offload| {
        let weights = Weights::synthetic(&config, 3);
        cpu::decoder(config.clone(), &weights, options(Dtype::F32, Some(offload)), 1).err().unwrap()
    };
    let offload = Offload::new(StreamMode::Wrap, 6, home.path());
    assert_eq!(make(offload.clone()).to_string(), "6 resident layers are more than the 5 of `tiny`");
    let error = make(Offload { resident: 2, link_gbps: Some(0.0), ..offload.clone() });
    assert!(error.to_string().contains("is not a bandwidth"), "{error}");
    let error = make(Offload { resident: 2, home: home.path().join("missing"), ..offload });
    assert!(matches!(error, ModelError::Write { .. }), "{error}");
    assert!(is_empty(home.path()) && open_files(home.path()).is_empty());
}

#[test]
fn a_truncated_layer_file_ends_the_pass_with_its_name_and_the_layer() {
    for mode in StreamMode::ALL {
        let home = tempdir().unwrap();
        let mut decoder = decoder("tiny", Dtype::F32, Some(Offload::new(mode, 1, home.path())));
        decoder.prefill(&prompt()).unwrap();
        let file = open_files(home.path()).remove(0);
        let bytes = decoder.offloading().unwrap().layer_bytes;
        let opened = OpenOptions::new().write(true).open(&file).unwrap();
        opened.set_len(2 * bytes + bytes / 2).unwrap();
        let error = decoder.step().unwrap_err().to_string();
        let wanted = format!("layer 2 cannot be read back from `{}", home.path().display());
        assert!(error.starts_with(&wanted) && error.contains("truncated"), "{mode}: {error}");
        assert_eq!(decoder.length(), 9, "the cache is as it was");
        let error = decoder.step().unwrap_err().to_string();
        assert!(error.contains("cannot be read back"), "{mode}: {error}");
    }
}

/// All that is made of the fixture's prompts: tokens, logits, what both streams leave, latents and audio.
fn spoken(dtype: Dtype, offload: Option<Offload>) -> Vec<Vec<f32>> {
    let expected = expected();
    let mut model = model(dtype, offload);
    let mut all = Vec::new();
    for case in &expected.cases {
        model.begin(&case.prompt(), &case.guidance(expected.scale), case.tokens.len()).unwrap();
        let mut is_end = false;
        while !is_end {
            let token = model.token().unwrap();
            is_end = token.is_end;
            all.extend([vec![token.id as f32], model.logits().unwrap()]);
            all.extend(model.hidden().unwrap());
        }
        let made = model.audio_tokens();
        all.extend([model.latents(0..made).unwrap(), model.audio(0..made).unwrap()]);
    }
    all
}

#[test]
fn speech_is_the_same_in_every_mode() {
    let home = tempdir().unwrap();
    let layers = speech_config().decoder.layers;
    for dtype in [Dtype::F32, Dtype::Bf16] {
        let resident = spoken(dtype, None);
        for mode in StreamMode::ALL {
            for stay in [0, 1, layers] {
                let streamed = spoken(dtype, Some(Offload::new(mode, stay, home.path())));
                assert!(streamed == resident, "{dtype} {mode}, {stay} layers stay");
            }
        }
    }
}

#[test]
fn one_batch_of_both_streams_copies_each_layer_once_per_token() {
    let home = tempdir().unwrap();
    let expected = expected();
    let case = &expected.cases[0];
    let audio = case.latents.len();
    for (mode, passes) in [(StreamMode::Wrap, case.tokens.len() + audio), (StreamMode::Batched, case.tokens.len())] {
        let mut model = model(Dtype::F32, Some(Offload::new(mode, 0, home.path())));
        model.begin(&case.prompt(), &case.guidance(expected.scale), case.tokens.len()).unwrap();
        while !model.token().unwrap().is_end {}
        let visits = model.layer_visits().unwrap();
        // The prompt is the positive stream's pass in the first token.
        let alone = usize::from(mode == StreamMode::Batched && case.tokens[0] == speech_config().ids.audio);
        assert_eq!(visits.len(), (passes + alone) * speech_config().decoder.layers, "{mode}");
        assert_eq!(model.offloading().unwrap().streamed, speech_config().decoder.layers);
    }
}

#[test]
fn generated_audio_stays_readable_when_a_layer_is_lost() {
    for mode in [StreamMode::Sync, StreamMode::Wrap, StreamMode::Batched] {
        let home = tempdir().unwrap();
        let expected = expected();
        let case = &expected.cases[0];
        let mut model = model(Dtype::F32, Some(Offload::new(mode, 0, home.path())));
        model.begin(&case.prompt(), &case.guidance(expected.scale), case.tokens.len()).unwrap();
        while model.audio_tokens() < 2 {
            model.token().unwrap();
        }
        let before = model.audio(0..2).unwrap();
        let file = open_files(home.path()).remove(0);
        OpenOptions::new().write(true).open(&file).unwrap().set_len(10).unwrap();
        let mut failed = model.token();
        // One copy may have been on its way.
        while failed.is_ok() {
            failed = model.token();
        }
        let error = failed.unwrap_err();
        assert!(
            matches!(&error, ModelError::LayerFile { path, .. } if path.starts_with(home.path())),
            "{mode}: {error}"
        );
        assert_eq!(model.audio(0..2).unwrap(), before, "{mode}");
        assert!(model.token().is_err());
    }
}
