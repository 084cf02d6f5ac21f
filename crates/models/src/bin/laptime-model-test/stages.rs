//! Whether stages have the same names on a GPU as on the CPU: both are checked against the lists of `stages`.

use laptime_models::gpu::{self, GpuModel};
use laptime_models::stages::{forward_stages, training_stages};
use laptime_models::{
    Attention, Config, Dtype, GraphMode, Marks, Options, Room, Tokens, TrainOptions, Weights, random_batch,
};
use laptime_trace::{Trace, run::Depth};

use crate::{Answer, Bench, Failed, expect};

const TOKENS: usize = 32;

/// Runs something while it is recorded; the names of its stages, in their order.
fn recorded(act: impl FnOnce() -> Result<(), Failed>) -> Result<Vec<String>, Failed> {
    Ok(recorded_trace(act)?.spans().map(|span| span.name.to_owned()).collect())
}

/// Runs something while it is recorded.
pub fn recorded_trace(act: impl FnOnce() -> Result<(), Failed>) -> Result<Trace, Failed> {
    let failed = |error: &dyn std::fmt::Display| Failed::Wrong(error.to_string());
    let path = std::env::temp_dir().join(format!("laptime-model-test-{}.pftrace", std::process::id()));
    let recording = laptime_trace::record_to(&path).map_err(|error| failed(&error))?;
    act()?;
    recording.finish().map_err(|error| failed(&error))?;
    let trace = laptime_trace::read(&path).map_err(|error| failed(&error))?;
    std::fs::remove_file(&path).map_err(|error| failed(&error))?;
    Ok(trace)
}

pub fn alike(bench: &Bench) -> Answer {
    let config = Config::from_preset("tiny")?;
    let weights = Weights::synthetic(&config, 1);
    let marks = Marks { depth: Depth::Ops, ..Marks::default() };
    let model = GpuModel::load(&bench.device, &config, &weights, Dtype::F32)?;
    for attention in [Attention::Naive, Attention::Dense] {
        let options = Options {
            dtype: Dtype::F32,
            attention,
            kept: None,
            batch: 1,
            room: Room::Growing,
            graph: GraphMode::Off,
            marks: marks.clone(),
            offload: None,
        };
        let mut decoder = model.decoder(&bench.device, options)?;
        let prompt = Tokens::one(vec![1; TOKENS]);
        // The first pass allocates, which is a stage of its own.
        decoder.forward(&prompt)?;
        let found = recorded(|| Ok(decoder.forward(&prompt)?))?;
        compare("forward", attention, &found, &forward_stages(config.layers, attention))?;
        let options = TrainOptions { attention, marks: marks.clone(), ..TrainOptions::new(Dtype::F32, 1, TOKENS) };
        let (tokens, targets) = random_batch(&config, 1, TOKENS, 1)?;
        let mut trainer = gpu::trainer(&bench.device, &config, &weights, options)?;
        trainer.forward(&tokens, &targets)?;
        trainer.backward()?;
        let found = recorded(|| {
            trainer.forward(&tokens, &targets)?;
            Ok(trainer.backward()?)
        })?;
        compare("training", attention, &found, &training_stages(config.layers, attention))?;
    }
    Ok("forward and training, naive and dense".to_owned())
}

fn compare(what: &str, attention: Attention, found: &[String], expected: &[&str]) -> Result<(), Failed> {
    expect(found == expected, || format!("{what}, {attention:?}: {found:?}, expected {expected:?}"))
}
