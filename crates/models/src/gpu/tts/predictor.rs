//! The code predictor on a GPU: all codes of a frame but the first, without the host.

use laptime_cuda::{
    Blas, Buffer, CudaError, Device, Slice,
    decode::{Choice, FrameStep, Frames, Linear, NextRow, Norm, Sampler, Sampling, State},
};

use super::{
    super::{
        cache::GpuCache,
        pass::{Sequences, Turns},
        size,
        step::Stepper,
        weights::Number,
    },
    captured::{Border, inside_graphs},
    context, decoder_options,
    weights::TtsGpuWeights,
};
use crate::{
    Config, ModelError, Options,
    decoder::layers::run_resident,
    tts::{SpeakOptions, TtsConfig},
};

/// The cache of one frame, and what goes through it.
pub struct Predictor<T> {
    config: Config,
    options: Options,
    /// The stream's width and norm of the talker, from which the first position is made.
    talker_width: usize,
    talker_epsilon: f32,
    talker_vocab: usize,
    stepper: Stepper<T>,
    /// One for each position: what is captured has them for good.
    states: Vec<State>,
    cache: GpuCache<T>,
    turns: Turns,
}

/// How codes are chosen, and where they go.
pub struct Choosing<'a, T> {
    pub kernels: &'a FrameStep<T>,
    pub sampler: &'a mut Sampler<T>,
    pub sampling: &'a mut Sampling,
    pub frames: &'a mut Frames,
}

impl<T: Number> Predictor<T> {
    pub fn new(device: &Device, config: &TtsConfig, options: &SpeakOptions) -> Result<Self, ModelError> {
        let (predictor, room) = (config.predictor.clone(), config.groups);
        let state = |position: usize| -> Result<State, CudaError> {
            let mut state = State::new(device, 1, 1)?;
            state.begin(&[0], size(position)?)?;
            Ok(state)
        };
        Ok(Self {
            options: decoder_options(&inside_graphs(options), room, None),
            talker_width: config.talker.hidden,
            talker_epsilon: config.talker.norm_eps as f32,
            talker_vocab: config.talker.vocab,
            stepper: Stepper::new(device, &predictor, 1, room)?,
            states: (0..room).map(state).collect::<Result<_, _>>()?,
            cache: GpuCache::new(device, &predictor, 1, room)?,
            turns: Turns::new(device, &predictor, room)?,
            config: predictor,
        })
    }

    /// Stages that a frame has at most: what comes before the first code, and each code.
    pub fn stages(&self) -> usize {
        self.states.len()
    }

    /// Puts a frame on the stream: what the talker left at the first position, its semantic code at the second, and from
    /// there on each code as it is chosen.
    pub fn run(
        &mut self,
        device: &Device,
        blas: &Blas,
        weights: &TtsGpuWeights<T>,
        left: &Buffer<T>,
        choosing: &mut Choosing<'_, T>,
        border: Border<'_>,
    ) -> Result<(), CudaError> {
        border("enter", None)?;
        self.enter(device, weights, left)?;
        self.layers(device, blas, weights, 0)?;
        let groups = self.states.len();
        let width = size(self.config.hidden)?;
        let (table, rows) = self.table(weights, 0)?;
        let x = &mut self.stepper.buffers.x;
        choosing.kernels.row(device.stream(), (choosing.frames, 0), (table, rows), x, width)?;
        for group in 1..groups {
            border("code", Some(("group", group)))?;
            self.layers(device, blas, weights, group)?;
            self.choose(device, blas, weights, group, choosing)?;
        }
        Ok(())
    }

    /// What the talker left, normed and as wide as the predictor.
    fn enter(&mut self, device: &Device, weights: &TtsGpuWeights<T>, left: &Buffer<T>) -> Result<(), CudaError> {
        let (stream, norm) = (device.stream(), &weights.talker.norm);
        match &weights.predictor.bridge {
            Some(bridge) => {
                let norm = Norm { weight: norm, epsilon: self.talker_epsilon };
                let linear = Linear { weight: &bridge.linear.weight, bias: Some(&bridge.linear.bias) };
                self.stepper.enter(stream, left, &norm, &linear, self.talker_width)
            }
            None => {
                let (x, shape) = (&mut self.stepper.buffers.x, [1, size(self.talker_width)?]);
                weights.operations.rms_norm(stream, left, norm, x, shape, self.talker_epsilon)
            }
        }
    }

    fn layers(
        &mut self,
        device: &Device,
        blas: &Blas,
        weights: &TtsGpuWeights<T>,
        position: usize,
    ) -> Result<(), CudaError> {
        let of = (&self.config, &self.options, &self.turns);
        let context = context(device, blas, &weights.operations, of);
        let sequences = Sequences::Together(&self.states[position], &mut self.cache);
        run_resident(&mut self.stepper.pass(context, sequences), 0, &weights.predictor.layers, |_| Ok(()))
    }

    /// Chooses a group's code, and begins the next position with its row.
    fn choose(
        &mut self,
        device: &Device,
        blas: &Blas,
        weights: &TtsGpuWeights<T>,
        group: usize,
        choosing: &mut Choosing<'_, T>,
    ) -> Result<(), CudaError> {
        let of = (&self.config, &self.options, &self.turns);
        let context = context(device, blas, &weights.operations, of);
        self.stepper.head(context, &weights.predictor.norm, &weights.predictor.heads[group - 1])?;
        let is_last = group + 1 == self.states.len();
        let next = if is_last { None } else { Some(self.table(weights, group)?) };
        let (width, buffers) = (size(self.config.hidden)?, &mut self.stepper.buffers);
        let x = &mut buffers.x;
        let next = next.map(|(table, size)| NextRow { table, size, x, width });
        let choice = Choice { next, ..Choice::code(size(group)?) };
        let Choosing { sampler, sampling, frames, .. } = choosing;
        sampler.sample(device.stream(), &buffers.logits, sampling, frames, choice)
    }

    /// The rows that a group's codes stand for, as wide as the predictor, and how many there are.
    fn table<'a>(&self, weights: &'a TtsGpuWeights<T>, group: usize) -> Result<(Slice<'a, T>, u32), CudaError> {
        let bridge = weights.predictor.bridge.as_ref();
        if group == 0 {
            let first = bridge.map_or(&weights.talker.embedding, |bridge| &bridge.first);
            return Ok((first.all(), size(self.talker_vocab)?));
        }
        let others = bridge.map_or(&weights.predictor.embeddings, |bridge| &bridge.others);
        let numbers = self.config.vocab * self.config.hidden;
        Ok((others.slice((group - 1) * numbers..group * numbers)?, size(self.config.vocab)?))
    }
}
