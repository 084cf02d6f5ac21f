//! Traces of a decoder on a GPU whose first layers are streamed, one of each mode, as `laptime diagnose` reads them.
//!
//! `offload_traces FOLDER [MODEL [STREAMED [TOKENS]]]` writes `FOLDER/MODE.pftrace`, and prints what a token takes while it
//! is recorded and while it is not.

#![allow(clippy::print_stdout)]

use std::{env, error::Error, fs, path::PathBuf, sync::Arc, time::Instant};

use laptime_cuda::{Device, EventClock};
use laptime_models::{
    Attention, Config, Decoder, Dtype, GraphMode, Marks, Offload, Options, Room, StreamMode, Tokens, Weights,
    gpu::GpuModel,
};
use laptime_probe::{DeviceClock, Lane, lap, stage, sync_point};

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = env::args().skip(1).collect();
    let word = |at: usize, otherwise: &str| words.get(at).cloned().unwrap_or_else(|| otherwise.to_owned());
    let folder = PathBuf::from(word(0, "traces"));
    let config = Config::from_preset(&word(1, "Qwen2.5-7B"))?;
    let (streamed, tokens): (usize, usize) = (word(2, "8").parse()?, word(3, "12").parse()?);
    let resident = config.layers.checked_sub(streamed).ok_or("the model has not so many layers")?;
    fs::create_dir_all(&folder)?;
    let device = Device::open(0)?;
    let copies = device.beside()?;
    let clocks = [clock(&device)?, clock(&copies)?];
    let lanes = [Lane::device("GPU 0", Arc::clone(&clocks[0])), Lane::device("GPU 0 stream 2", Arc::clone(&clocks[1]))];
    let weights = Weights::synthetic(&config, 1);
    for mode in StreamMode::ALL {
        let lane = Some(lanes[1].clone());
        let clear_every = (mode == StreamMode::Sync).then_some(10);
        let offload = Offload { mode, resident, home: PathBuf::new(), link_gbps: None, clear_every, lane };
        let model = GpuModel::load_offloaded(&device, &config, &weights, Dtype::Bf16, &offload)?;
        let mut decoder = model.decoder_offloaded(&device, &copies, options(&lanes[0], offload))?;
        decoder.prefill(&Tokens::one((0..64).collect()))?;
        let plain = run(&mut *decoder, &lanes[0], tokens)?;
        // The clocks are anchored anew, where both streams stand still.
        let recording = laptime_trace::record_to(folder.join(format!("{mode}.pftrace")))?;
        device.synchronise()?;
        clocks.iter().for_each(|clock| clock.anchor());
        let recorded = run(&mut *decoder, &lanes[0], tokens)?;
        recording.finish()?;
        println!("{mode}: token {plain:.2} ms, recorded {recorded:.2} ms");
    }
    Ok(())
}

fn clock(device: &Device) -> Result<Arc<dyn DeviceClock>, Box<dyn Error>> {
    Ok(Arc::new(EventClock::new(Arc::clone(device.stream()))?))
}

fn options(lane: &Lane, offload: Offload) -> Options {
    Options {
        dtype: Dtype::Bf16,
        attention: Attention::Dense,
        kept: None,
        batch: 1,
        room: Room::Static(512),
        graph: GraphMode::Auto,
        marks: Marks { lane: Some(lane.clone()), ..Marks::default() },
        offload: Some(offload),
    }
}

/// Milliseconds of a token whose choice the host reads before the next.
fn run(decoder: &mut dyn Decoder, lane: &Lane, tokens: usize) -> Result<f64, Box<dyn Error>> {
    let began = Instant::now();
    for token in 0..tokens {
        let _token = lap!("token", token = token);
        {
            let _forward = stage!("transformer", on = lane);
            decoder.step()?;
        }
        sync_point!("read_token", decoder.chosen())?;
    }
    Ok(began.elapsed().as_secs_f64() * 1e3 / tokens.max(1) as f64)
}
