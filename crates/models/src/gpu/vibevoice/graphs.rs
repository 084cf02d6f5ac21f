//! The parts of a token as graphs: captured once and replayed.

use std::time::Instant;

use laptime_cuda::Device;
use laptime_probe::stage;

use super::super::captured::{Captured, most_stages};
use super::{super::weights::Number, backend::Cuda};
use crate::vibevoice::{Done, Engine, Part, VibeVoice, VibeVoiceOptions};
use crate::{GraphMode, Marks, ModelError, Replay};

#[derive(Default)]
pub struct Graphs([Option<Captured>; Part::ALL.len()]);

impl Graphs {
    /// Passes the stages of all replays to the device. Waits for it if there are some.
    pub fn hand_on(&mut self, device: &Device) -> Done {
        self.0.iter_mut().flatten().try_for_each(|graph| graph.hand_on(device))
    }

    pub fn of(&mut self, part: Part) -> &mut Option<Captured> {
        &mut self.0[part as usize]
    }
}

/// Runs every part once, which loads kernels, and captures it.
pub fn prepare<T: Number>(engine: &mut Engine<Cuda<'_, T>>, parts: &[Part]) -> Done {
    if !matches!(engine.backend.replay, Replay::Graph { .. }) {
        return Ok(());
    }
    let _stage = stage!("capture");
    for part in parts {
        *engine.backend.graphs.of(*part) = None;
        engine.run_part(*part)?;
    }
    engine.backend.kit.device.stream().synchronise()?;
    for part in parts {
        match capture(engine, *part) {
            Ok(graph) => *engine.backend.graphs.of(*part) = Some(graph),
            Err(error) if engine.options.graph == GraphMode::On => return Err(error),
            Err(error) => {
                engine.backend.graphs = Graphs::default();
                engine.backend.replay = Replay::FellBack(error.to_string());
                return Ok(());
            }
        }
    }
    let nodes = engine.backend.graphs.0.iter().flatten().map(Captured::nodes).sum();
    engine.backend.replay = Replay::Graph { nodes };
    Ok(())
}

fn capture<T: Number>(engine: &mut Engine<Cuda<'_, T>>, part: Part) -> Result<Captured, ModelError> {
    let device = engine.backend.kit.device;
    // Only the steps of the language model have stages inside.
    let marks = if part.side().is_some() { engine.options.marks.clone() } else { Marks::default() };
    let stages = most_stages(engine.config.decoder.layers, &marks);
    Captured::new(device, &marks, stages, |marks| {
        let usual = engine.backend.language.set_marks(marks);
        let ran = engine.run_part(part);
        engine.backend.language.set_marks(usual);
        ran
    })
}

pub fn part_times<T: Number>(
    engine: &mut Engine<Cuda<'_, T>>,
    times: usize,
) -> Result<Vec<(&'static str, f64)>, ModelError> {
    let mut taken = Vec::new();
    for part in engine.parts() {
        engine.launch(part)?;
        engine.wait()?;
        let began = Instant::now();
        (0..times).try_for_each(|_| engine.launch(part))?;
        engine.wait()?;
        taken.push((part.word(), began.elapsed().as_secs_f64() * 1e3 / times.max(1) as f64));
    }
    engine.reset()?;
    Ok(taken)
}

/// The replay before anything ran.
pub fn first_replay(options: &VibeVoiceOptions) -> Replay {
    if options.graph == GraphMode::Off { Replay::Launches } else { Replay::Graph { nodes: 0 } }
}
