//! The parts of a token as graphs: captured once and replayed.

use std::{sync::Arc, time::Instant};

use laptime_cuda::{CudaError, Graph};
use laptime_probe::stage;
use laptime_trace::run::Depth;

use super::{super::weights::Number, backend::Cuda};
use crate::vibevoice::{Done, Engine, Part, VibeVoice, VibeVoiceOptions};
use crate::{GraphMode, ModelError, Replay};

#[derive(Default)]
pub struct Graphs([Option<Graph>; Part::ALL.len()]);

impl Graphs {
    pub fn of(&mut self, part: Part) -> &mut Option<Graph> {
        let at = Part::ALL.iter().position(|other| *other == part).unwrap_or_default();
        &mut self.0[at]
    }
}

/// Runs every part once, so that all it needs is loaded, and captures those that are replayed.
pub fn prepare<T: Number>(engine: &mut Engine<Cuda<'_, T>>, parts: &[Part]) -> Done {
    if !matches!(engine.backend.replay, Replay::Graph { .. }) {
        return Ok(());
    }
    let _stage = stage!("capture");
    for part in parts {
        *engine.backend.graphs.of(*part) = None;
        engine.run_part(*part)?;
    }
    engine.backend.on.device.stream().synchronise()?;
    for part in parts {
        match capture(engine, *part) {
            Ok(graph) => *engine.backend.graphs.of(*part) = Some(graph),
            Err(error) if engine.options.graph == GraphMode::On => return Err(error.into()),
            Err(error) => {
                engine.backend.graphs = Graphs::default();
                engine.backend.replay = Replay::FellBack(error.to_string());
                return Ok(());
            }
        }
    }
    let nodes = engine.backend.graphs.0.iter().flatten().map(Graph::nodes).sum();
    engine.backend.replay = Replay::Graph { nodes };
    Ok(())
}

fn capture<T: Number>(engine: &mut Engine<Cuda<'_, T>>, part: Part) -> Result<Graph, CudaError> {
    let stream = Arc::clone(engine.backend.on.device.stream());
    let run = || match engine.run_part(part) {
        Err(ModelError::Cuda(error)) => Err(error),
        Err(other) => Err(CudaError::refused("capturing a graph", 0, other.to_string())),
        Ok(()) => Ok(()),
    };
    let graph = Graph::capture(&stream, run)?;
    graph.upload(&stream).map(|()| graph)
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
        taken.push((part.name(), began.elapsed().as_secs_f64() * 1e3 / times.max(1) as f64));
    }
    engine.reset()?;
    Ok(taken)
}

/// What is known of graphs before anything ran.
pub fn first_replay(options: &VibeVoiceOptions) -> Result<Replay, ModelError> {
    let is_deep = options.marks.depth > Depth::Pipeline;
    let reason = "the stages inside a token are marked, so its kernels are launched one by one";
    match options.graph {
        GraphMode::Off => Ok(Replay::Launches),
        GraphMode::On if is_deep => Err(ModelError::Refused(format!("there is no graph: {reason}"))),
        GraphMode::Auto if is_deep => Ok(Replay::FellBack(reason.to_owned())),
        _ => Ok(Replay::Graph { nodes: 0 }),
    }
}
