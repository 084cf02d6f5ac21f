//! The parts of a token: put on the stream kernel by kernel, or captured once and replayed.

// Graphs keep addresses of buffers; the engine holds them as long as it lives.
#![allow(unsafe_code)]

use std::{sync::Arc, time::Instant};

use laptime_cuda::{CudaError, Graph};
use laptime_probe::stage;
use laptime_trace::run::Depth;

use super::{
    super::{size, weights::Number},
    batches,
    diffusion::Sounding,
    engine::Engine,
    language::{Model, Side},
    tokenizer::Run,
};
use crate::{
    GraphMode, ModelError, Replay,
    marks::stage_mark,
    vibevoice::{VibeVoice, VibeVoiceOptions},
};

/// A part of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    Positive,
    Negative,
    /// The two before as one batch.
    Both,
    Diffusion,
    Decode,
    Encode,
    Connect,
}

/// All of them, in order.
const PARTS: [Part; 7] =
    [Part::Positive, Part::Negative, Part::Both, Part::Diffusion, Part::Decode, Part::Encode, Part::Connect];

/// Those of a model whose streams are one batch or not: the first token always has a negative part of its own.
pub fn parts(is_batched: bool) -> Vec<Part> {
    let left_out = if is_batched { Part::Positive } else { Part::Both };
    PARTS.into_iter().filter(|part| *part != left_out).collect()
}

impl Part {
    /// The stage that it is.
    fn word(self) -> &'static str {
        match self {
            Self::Positive => "transformer_positive",
            Self::Negative => "transformer_negative",
            Self::Both => "transformer",
            Self::Diffusion => "diffusion",
            Self::Decode => "audio_decode",
            Self::Encode => "semantic_encode",
            Self::Connect => "connect",
        }
    }
}

/// A graph for each part that is replayed.
pub type Graphs = [Option<Graph>; PARTS.len()];

impl<T: Number> Engine<'_, T> {
    /// A step of one or both streams: the offloaded layers, and the rest as one part.
    pub(super) fn launch_step(&mut self, side: Side) -> Result<(), CudaError> {
        let part = match side {
            Side::Positive => Part::Positive,
            Side::Negative => Part::Negative,
            Side::Both => Part::Both,
        };
        self.language.stepped(side);
        let Self { device, blas, weights, language, streamed, .. } = self;
        let forward = match streamed {
            None => None,
            Some(streamed) => {
                language.begin_step(&Model { device, blas, weights }, streamed, side)?;
                Some(streamed.pass_number())
            }
        };
        let _resident = forward.map(|forward| stage_mark!(self.options.marks, Pipeline, "resident", forward = forward));
        self.launch(part)
    }

    /// Does a part: replays it, or puts its kernels on the stream.
    pub(super) fn launch(&mut self, part: Part) -> Result<(), CudaError> {
        match &self.graphs[part as usize] {
            // SAFETY: the buffers live in this engine, which waits for the stream before it goes.
            Some(graph) => unsafe { graph.launch(self.device.stream()) },
            None => self.put(part),
        }
    }

    /// Puts the kernels of a part on the stream.
    pub(super) fn put(&mut self, part: Part) -> Result<(), CudaError> {
        match part {
            Part::Positive => self.put_step(Side::Positive),
            Part::Negative => self.put_step(Side::Negative),
            Part::Both => self.put_step(Side::Both),
            Part::Diffusion => self.put_diffusion(),
            Part::Decode => self.put_decode(),
            Part::Encode => self.put_encode(),
            Part::Connect => self.put_connect(),
        }
    }

    fn put_step(&mut self, side: Side) -> Result<(), CudaError> {
        let Self { device, blas, weights, language, .. } = self;
        language.step(&Model { device, blas, weights }, side)
    }

    fn put_diffusion(&mut self) -> Result<(), CudaError> {
        let Self { device, blas, weights, language, diffusion, sounding, .. } = self;
        let to = Sounding { entrance: sounding.entrance(1)?, factors: weights.factors };
        diffusion.run(device, blas, &weights.head, &language.hidden, to)
    }

    fn put_decode(&mut self) -> Result<(), CudaError> {
        let Self { device, blas, weights, diffusion, sounding, hearing, audio, config, .. } = self;
        let kernels = &weights.kernels;
        sounding.run(&Run { device, blas, kernels }, &weights.decoder, 1)?;
        let (from, samples) = ((&sounding.samples, &diffusion.drawing.token), size(config.token_samples())?);
        kernels.streams.put_samples(device.stream(), from, audio, hearing.entrance(1)?, samples)
    }

    fn put_encode(&mut self) -> Result<(), CudaError> {
        let Self { device, blas, weights, hearing, .. } = self;
        hearing.run(&Run { device, blas, kernels: &weights.kernels }, &weights.semantic, 1)
    }

    /// The next input of the positive stream, from the latent and the semantic encoding.
    fn put_connect(&mut self) -> Result<(), CudaError> {
        let Self { device, blas, weights, language, diffusion, hearing, connecting, config, .. } = self;
        let with = (*device, &*blas, &weights.kernels);
        let [acoustic, semantic] = &weights.connectors;
        connecting.run(with, acoustic, diffusion.row.all(), language.row.all_mut(), false)?;
        let heard = hearing.x.slice(0..config.semantic.latent)?;
        connecting.run(with, semantic, heard, language.row.all_mut(), true)
    }

    /// Runs every part once, so that all it needs is loaded, and captures those that are replayed.
    pub(super) fn prepare(&mut self, parts: &[Part]) -> Result<(), ModelError> {
        if !matches!(self.replay, Replay::Graph { .. }) {
            return Ok(());
        }
        let _stage = stage!("capture");
        for part in parts {
            self.graphs[*part as usize] = None;
            self.put(*part)?;
        }
        self.device.stream().synchronise()?;
        for part in parts {
            match self.capture(*part) {
                Ok(graph) => self.graphs[*part as usize] = Some(graph),
                Err(error) if self.options.graph == GraphMode::On => return Err(error.into()),
                Err(error) => {
                    self.graphs = Graphs::default();
                    self.replay = Replay::FellBack(error.to_string());
                    return Ok(());
                }
            }
        }
        let nodes = self.graphs.iter().flatten().map(Graph::nodes).sum();
        self.replay = Replay::Graph { nodes };
        Ok(())
    }

    /// A part with the turns that it begins with.
    fn whole(&mut self, part: Part) -> Result<(), CudaError> {
        match part {
            Part::Positive => self.launch_step(Side::Positive),
            Part::Negative => self.launch_step(Side::Negative),
            Part::Both => self.launch_step(Side::Both),
            _ => self.launch(part),
        }
    }

    fn capture(&mut self, part: Part) -> Result<Graph, CudaError> {
        let stream = Arc::clone(self.device.stream());
        let graph = Graph::capture(&stream, || self.put(part))?;
        graph.upload(&stream).map(|()| graph)
    }
}

impl<T: Number> Engine<'_, T> {
    /// The milliseconds of each part of a token: the mean of this many replays.
    pub(super) fn time_parts(&mut self, times: usize) -> Result<Vec<(&'static str, f64)>, ModelError> {
        let mut taken = Vec::new();
        for part in parts(batches(&self.options)) {
            self.whole(part)?;
            self.device.stream().synchronise()?;
            let began = Instant::now();
            (0..times).try_for_each(|_| self.whole(part))?;
            self.device.stream().synchronise()?;
            taken.push((part.word(), began.elapsed().as_secs_f64() * 1e3 / times.max(1) as f64));
        }
        self.reset()?;
        Ok(taken)
    }
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
