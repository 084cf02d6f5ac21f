//! Says a text on the CPU, writes it as a WAV file and tells how long each part took.
//!
//! `speak PRESET|FOLDER f32|bf16|f16 FRAMES TEXT OUT.wav`
//!
//! A preset has synthetic weights, which say nothing and know no end: exactly so many frames of 80 ms are made. A folder is
//! one of a published checkpoint; there so many are made at most.

#![allow(clippy::print_stdout)]

use std::{env, error::Error, path::Path, thread};

use laptime_models::{
    Dtype,
    cpu::{self, needed_tts_bytes},
    tts::{Sampling, SpeechOptions, Synthesizer, TextFeed, TtsConfig, TtsOptions, TtsWeights},
};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [model, dtype, frames, text, out] = arguments.as_slice() else {
        return Err("PRESET|FOLDER f32|bf16|f16 FRAMES TEXT OUT.wav".into());
    };
    let (dtype, most_frames): (Dtype, usize) = (dtype.parse()?, frames.parse()?);
    let threads = thread::available_parallelism()?.get();
    let folder = Some(Path::new(model)).filter(|path| path.is_dir());
    let (config, weights, sampling) = match folder {
        Some(folder) => {
            let config = TtsConfig::from_folder(folder)?;
            let weights = TtsWeights::open(folder, &config)?;
            (config, weights, Sampling::from_folder(folder)?)
        }
        None => {
            let sampling = Sampling { is_endless: true, ..Sampling::default() };
            (TtsConfig::from_preset(model)?, TtsWeights::synthetic(1), sampling)
        }
    };
    let tokenizer = config.tokenizer(folder)?;
    let options = SpeechOptions { sampling, most_frames, feed: TextFeed::ByFrame };
    let room = most_frames + text.len() + 16;
    let speak = TtsOptions::new(dtype, room);
    println!("at most {} MiB", needed_tts_bytes(&config, &speak, [text.len() + 16, most_frames], threads) >> 20);
    let speaking = cpu::qwen_tts(config, &weights, speak, threads)?;
    let mut synthesizer = Synthesizer::new(speaking, tokenizer, options);
    let (audio, timing) = synthesizer.synthesize_with_timing(text, "", "auto", None)?;
    println!("prefill  {:8.1} ms", timing.prefill_ms);
    println!("generate {:8.1} ms, {} frames", timing.generation_ms, timing.generation_frames);
    println!("decode   {:8.1} ms", timing.decode_ms);
    let total = timing.prefill_ms + timing.generation_ms + timing.decode_ms;
    println!("rtf      {:8.3} (time of computing over time of audio)", total / audio.seconds() / 1e3);
    let square: f32 = audio.samples.iter().map(|sample| sample * sample).sum::<f32>() / audio.samples.len() as f32;
    println!("loudness {:8.3} (root of the mean square)", square.sqrt());
    audio.write_wav(Path::new(out))?;
    Ok(())
}
