//! Steps of a decoder on a GPU: launched, or captured once and replayed.

// A graph keeps addresses of buffers; the decoder holds them as long as it.
#![allow(unsafe_code)]

use laptime_probe::stage;

use super::captured::{Captured, most_stages};
use super::decoder::{GpuPasses, Logits};
use super::memory::{Head, PassSizes};
use super::{pass::Sequences, size, step::Stepper, streamed::Streamed, weights::Number};
use crate::decoder::layers::{run_head, run_offloaded, run_resident};
use crate::{Attention, Done, GraphMode, ModelError, Options, Replay, marks::stage_mark};

/// Sequences at most that choose their tokens inside a step.
const MOST_STEPPED: usize = 256;

/// What a step needs of its decoder, some fields of which stay free to be written.
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
    /// Puts a step on the stream: what is streamed, kernel by kernel, and what stays, as a graph if there is one.
    pub(super) fn run_step(&mut self) -> Done {
        // A step that is a pass has turns and stages of its own.
        let is_split = self.streamed.is_some() && !steps_by_pass(&self.options);
        if is_split {
            self.launch_streamed()?;
        }
        let pass = self.streamed.as_ref().filter(|_| is_split).map(Streamed::pass_number);
        let replay = if is_split { self.next_number()? } else { None };
        let marks = &self.options.marks;
        let _resident = pass.map(|pass| stage_mark!(marks, Pipeline, "resident", forward = pass, replay = replay));
        match &mut self.graph {
            // SAFETY: the buffers live in this decoder, which waits for the stream before it goes.
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

    /// Drops the graphs, since addresses in them are about to change. Waits for the device.
    pub(super) fn drop_graphs(&mut self) -> Done {
        self.device.stream().synchronise()?;
        self.drop_prompt()?;
        self.graph.take().map_or(Ok(()), |mut graph| graph.hand_on(self.device))
    }

    fn launch_streamed(&mut self) -> Done {
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
        self.logits = Logits::OfStep;
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
        let stream = self.device.stream();
        if let Some(buffers) = &mut self.buffers {
            buffers.ids.all_mut().copy_from(stream, self.state.token.all())?;
        }
        let length = self.cache.length();
        self.set_position(length)?;
        self.pass(1, length, Head::Last)?;
        self.logits = Logits::OfPass;
        self.choose_most_likely()?;
        self.set_position(length + 1)
    }

    pub(super) fn choose_most_likely(&mut self) -> Done {
        let Some(buffers) = &self.buffers else { return Ok(()) };
        let _stage = stage_mark!(self.options.marks, Layer, "sampling");
        let shape = [size(self.options.batch)?, size(self.config.vocab)?];
        let operations = &self.weights.operations;
        Ok(operations.argmax(self.device.stream(), &buffers.parts.logits, &mut self.state.token, shape)?)
    }

    pub(super) fn capture(&mut self) -> Done {
        let wanted = !matches!(self.replay, Replay::FellBack(_) | Replay::Launches);
        if self.graph.is_some() || !wanted || !self.is_warm {
            return Ok(());
        }
        let _stage = stage!("capture");
        let (marks, stages) = (self.options.marks.clone(), most_stages(self.config.layers, &self.options.marks));
        match Captured::new(self.device, &marks, stages, |marks| self.with_marks(marks, Self::launch_resident)) {
            Ok(graph) => {
                self.replay = Replay::Graph { nodes: graph.nodes() };
                self.graph = Some(graph);
                Ok(())
            }
            Err(error) if self.options.graph == GraphMode::On => Err(error),
            Err(error) => {
                self.replay = Replay::FellBack(error.to_string());
                Ok(())
            }
        }
    }
}

/// Whether steps are passes over one token: scores are to be stored, or the sequences are too many to choose on the way.
pub(super) fn steps_by_pass(options: &Options) -> bool {
    options.attention == Attention::Naive || options.batch > MOST_STEPPED
}

/// What is known of graphs before anything ran.
pub(super) fn first_replay(options: &Options) -> Result<Replay, ModelError> {
    let cannot = if options.attention == Attention::Naive {
        Some("naive attention grows with every token, and a graph does not")
    } else if steps_by_pass(options) {
        Some("with this many sequences the host starts the sampling behind each pass")
    } else {
        None
    };
    match (options.graph, cannot) {
        (GraphMode::Off, _) => Ok(Replay::Launches),
        (GraphMode::On, Some(reason)) => Err(ModelError::Refused(format!("there is no graph: {reason}"))),
        (GraphMode::Auto, Some(reason)) => Ok(Replay::FellBack(reason.to_owned())),
        (_, None) => Ok(Replay::Graph { nodes: 0 }),
    }
}
