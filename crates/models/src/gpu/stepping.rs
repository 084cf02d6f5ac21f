//! Decode steps on a GPU: launched, or captured once and replayed.

// A graph keeps addresses of buffers, which the decoder keeps as long as the graph.
#![allow(unsafe_code)]

use super::decoder::GpuPasses;
use super::memory::{Head, PassSizes};
use super::{pass::Sequences, step::Stepper, streamed::Streamed, weights::Number};
use crate::decoder::layers::{run_head, run_offloaded, run_resident};
use crate::{Attention, Done, GraphMode, ModelError, Options, Replay, marks::stage_mark};

/// The largest batch whose tokens are sampled inside a step.
const MOST_STEPPED: usize = 256;

/// The context of a pass of a decoder. A macro, so that other fields can be borrowed mutably.
macro_rules! context {
    ($decoder:ident) => {
        $crate::gpu::pass::Context {
            stream: $decoder.device.stream(),
            blas: &$decoder.blas,
            config: &$decoder.config,
            marks: &$decoder.options.marks,
            operations: &$decoder.weights.operations,
            rope: &$decoder.rope,
            fp8: $decoder.weights.fp8.as_ref(),
        }
    };
}

pub(super) use context;

impl<T: Number> GpuPasses<'_, T> {
    /// Enqueues a step: offloaded layers kernel by kernel, then resident layers, as a graph if there is one.
    pub(super) fn run_step(&mut self) -> Done {
        // A step that is a pass has turns and stages of its own.
        let is_split = self.streamed.is_some() && !steps_by_pass(&self.options);
        if is_split {
            self.launch_offloaded()?;
        }
        let pass = self.streamed.as_ref().filter(|_| is_split).map(Streamed::pass_number);
        let replay = if is_split { self.next_number()? } else { None };
        let marks = &self.options.marks;
        let _resident = pass.map(|pass| stage_mark!(marks, Pipeline, "resident", forward = pass, replay = replay));
        match &mut self.graph {
            // SAFETY: this decoder owns the buffers and waits for the stream before it drops them.
            Some(graph) => unsafe { graph.launch(self.device.stream()) },
            None => {
                self.launch_resident()?;
                self.is_warm = true;
                Ok(())
            }
        }
    }

    /// The number of the next replay, if its stages are recorded.
    pub(super) fn next_number(&mut self) -> Result<Option<u64>, ModelError> {
        self.graph.as_mut().map_or(Ok(None), |graph| graph.next_number(self.device))
    }

    /// Drops the graphs before addresses in them change. Waits for the device.
    pub(super) fn drop_graphs(&mut self) -> Done {
        self.device.stream().synchronise()?;
        self.drop_prompt()?;
        self.graph.take().map_or(Ok(()), |mut graph| graph.hand_on(self.device))
    }

    fn launch_offloaded(&mut self) -> Done {
        self.make_stepper()?;
        let (Some(stepper), Some(streamed)) = (&mut self.stepper, &mut self.streamed) else { return Ok(()) };
        let context = context!(self);
        stepper.embed(&context, &self.weights.parameters.embedding, &self.state)?;
        let sequences = Sequences::Together(&self.state, &mut self.cache);
        run_offloaded(&mut stepper.pass(context, sequences), streamed)
    }

    /// The part of a step that a graph can hold: all of it, or what follows the offloaded layers.
    fn launch_resident(&mut self) -> Done {
        if steps_by_pass(&self.options) {
            return self.pass_step();
        }
        self.make_stepper()?;
        let Some(stepper) = &mut self.stepper else { return Ok(()) };
        let (context, parameters) = (context!(self), &self.weights.parameters);
        let first = self.streamed.as_ref().map_or(0, |streamed| streamed.layers);
        if first == 0 {
            stepper.embed(&context, &parameters.embedding, &self.state)?;
        }
        let mut pass = stepper.pass(context, Sequences::Together(&self.state, &mut self.cache));
        run_resident(&mut pass, first, &parameters.layers)?;
        run_head(&mut pass, &parameters.norm, Some(parameters.head()))?;
        stepper.sample(&context, &mut self.state)
    }

    fn make_stepper(&mut self) -> Done {
        if self.stepper.is_none() {
            let (batch, capacity) = (self.options.batch, self.cache.capacity);
            let stepper = Stepper::new(self.device, &self.config, batch, capacity)?;
            self.stepper = Some(stepper.with_fp8(self.device, &self.config, self.weights.fp8.as_ref())?);
            self.is_warm = false;
        }
        Ok(())
    }

    /// A step that is a pass over one token of each sequence.
    fn pass_step(&mut self) -> Done {
        let sizes = PassSizes::new(&self.config, &self.options, 1, self.cache.capacity, Head::Last);
        self.make_buffers(sizes)?;
        if let Some(buffers) = &mut self.buffers {
            buffers.ids.all_mut().copy_from(self.device.stream(), self.state.token.all())?;
        }
        let length = self.cache.length();
        self.set_position(length)?;
        self.pass(1, length, Head::Last)?;
        self.sample()?;
        self.set_position(length + 1)
    }

    /// Captures a step once everything it needs is loaded.
    pub(super) fn capture(&mut self) -> Done {
        if self.graph.is_some() || !self.is_warm || !matches!(self.replay, Replay::Graph { .. }) {
            return Ok(());
        }
        match self.captured(Self::launch_resident)? {
            Ok(graph) => {
                self.replay = Replay::Graph { nodes: graph.nodes() };
                self.graph = Some(graph);
            }
            Err(reason) => self.replay = Replay::FellBack(reason),
        }
        Ok(())
    }
}

/// Whether steps are passes over one token: with stored scores, or with too many sequences to sample inside a step.
pub(super) fn steps_by_pass(options: &Options) -> bool {
    options.attention == Attention::Naive || options.batch > MOST_STEPPED
}

/// How steps will run, as far as the options tell.
pub(super) fn first_replay(options: &Options) -> Result<Replay, ModelError> {
    let obstacle = match (options.attention, steps_by_pass(options)) {
        (Attention::Naive, _) => Some("the scores of naive attention grow with every token"),
        (_, true) => Some("with this many sequences the host launches the sampling after each pass"),
        _ => None,
    };
    match (options.graph, obstacle) {
        (GraphMode::Off, _) => Ok(Replay::Launches),
        (GraphMode::On, Some(reason)) => Err(ModelError::Refused(format!("there is no graph: {reason}"))),
        (GraphMode::Auto, Some(reason)) => Ok(Replay::FellBack(reason.to_owned())),
        (_, None) => Ok(Replay::Graph { nodes: 0 }),
    }
}
