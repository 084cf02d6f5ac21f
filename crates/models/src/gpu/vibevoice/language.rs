//! The language model on a GPU, with two streams over one set of weights: each has a cache and a position of its own.
//!
//! The streams take their steps one after the other, or together: then the weights of a layer are read once for both.

use laptime_cuda::{Blas, Buffer, Cache, CudaError, Device, Slice, decode::State, nn::Attention};

use super::{
    super::{
        cache::GpuCache,
        pass::{Apart, Buffers, Context, KeysValuesIn, Pass, PassRows, PromptRows, Sequences, Turns, head_sizes},
        room::{Head, PassSizes},
        size,
        step::Stepper,
        streamed::Streamed,
        weights::Number,
    },
    batches, decoder_options,
    weights::SpeechGpuWeights,
};
use crate::{
    Config, ModelError, Options,
    decoder::layers::{run_all, run_offloaded, run_resident},
    marks::stage_mark,
    vibevoice::{VibeVoiceConfig, VibeVoiceOptions},
};

/// Which of the two streams is stepped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// What has heard the script.
    Positive,
    /// What has not.
    Negative,
    /// Both, as one batch.
    Both,
}

/// The language model's streams, and what goes through them.
pub struct Language<T> {
    config: Config,
    options: Options,
    streams: Streams<T>,
    turns: Turns,
    attention: Attention<T>,
    /// What the positive stream runs next, or ran last.
    pub row: Buffer<T>,
    /// What both streams left, normed: the positive row, then the negative one.
    pub hidden: Buffer<T>,
    /// The token that was chosen last, as a place among those that may be.
    pub choice: Buffer<u32>,
    /// Whose logits are the last.
    last: Side,
}

struct Streams<T> {
    positive: Stream<T>,
    negative: Stream<T>,
    /// For both at once, where they are one batch.
    both: Option<Stepper<T>>,
}

/// A stream.
struct Stream<T> {
    stepper: Stepper<T>,
    state: State,
    cache: GpuCache<T>,
}

impl<T: Number> Stream<T> {
    fn new(device: &Device, config: &Config, room: usize) -> Result<Self, CudaError> {
        Ok(Self {
            stepper: Stepper::new(device, config, 1, room)?,
            state: State::new(device, 1, 1)?,
            cache: GpuCache::new(device, config, 1, room)?,
        })
    }
}

/// Positions that there is room for in the cache of the negative stream: those who step together have caches alike.
pub fn negative_room(options: &VibeVoiceOptions) -> usize {
    if batches(options) { options.room.max(options.negative_room) } else { options.negative_room }.max(1)
}

impl<T: Number> Streams<T> {
    fn new(device: &Device, config: &Config, options: &VibeVoiceOptions) -> Result<Self, CudaError> {
        let (negative, is_batched) = (negative_room(options), batches(options));
        let room = if is_batched { negative } else { options.room.max(1) };
        Ok(Self {
            positive: Stream::new(device, config, room)?,
            negative: Stream::new(device, config, negative)?,
            both: is_batched.then(|| Stepper::new(device, config, 2, room)).transpose()?,
        })
    }

    /// The stepper of one or both streams, and their positions.
    fn of(&mut self, side: Side) -> Result<(&mut Stepper<T>, Sequences<'_, T>), CudaError> {
        let Self { positive, negative, both } = self;
        match side {
            Side::Positive => Ok((&mut positive.stepper, Sequences::Together(&positive.state, &mut positive.cache))),
            Side::Negative => Ok((&mut negative.stepper, Sequences::Together(&negative.state, &mut negative.cache))),
            Side::Both => {
                let alone = || CudaError::refused("stepping", 0, "the streams are no batch");
                let rows = vec![
                    Apart { position: &positive.state.position, cache: &mut positive.cache },
                    Apart { position: &negative.state.position, cache: &mut negative.cache },
                ];
                Ok((both.as_mut().ok_or_else(alone)?, Sequences::Apart(rows)))
            }
        }
    }
}

/// What the language model is run with.
pub struct Model<'a, T> {
    pub device: &'a Device,
    pub blas: &'a Blas,
    pub weights: &'a SpeechGpuWeights<T>,
}

impl<T> Model<'_, T> {
    /// The number of offloaded layers.
    fn streamed(&self) -> usize {
        self.weights.homes.as_ref().map_or(0, |homes| homes.layers())
    }
}

/// What a step needs of the language model.
fn context<'a, T>(
    model: &'a Model<'a, T>,
    config: &'a Config,
    options: &'a Options,
    turns: &'a Turns,
) -> Context<'a, T> {
    Context {
        stream: model.device.stream(),
        blas: model.blas,
        config,
        marks: &options.marks,
        operations: &model.weights.kernels.operations,
        turns,
    }
}

impl<T: Number> Language<T> {
    pub fn new(device: &Device, config: &VibeVoiceConfig, options: &VibeVoiceOptions) -> Result<Self, ModelError> {
        let stepped = config.stepped_decoder();
        let positions = options.room.max(negative_room(options));
        let mut row = device.allocate(stepped.hidden)?;
        row.zero()?;
        Ok(Self {
            options: decoder_options(options),
            streams: Streams::new(device, &stepped, options)?,
            turns: Turns::new(device, &stepped, positions)?,
            attention: Attention::load(device, &Cache::of_user(), size(stepped.head_dim)?)?,
            row,
            hidden: device.allocate(2 * stepped.hidden)?,
            choice: device.upload(&[0])?,
            last: Side::Positive,
            config: stepped,
        })
    }

    /// The logits of the tokens that may be chosen.
    pub fn logits(&mut self) -> Result<Slice<'_, T>, CudaError> {
        let (stepper, _) = self.streams.of(self.last)?;
        stepper.buffers.logits.slice(0..self.config.vocab)
    }

    /// Says at which position a stream's next row is.
    pub fn place(&mut self, device: &Device, side: Side, position: usize) -> Result<(), CudaError> {
        let of = match side {
            Side::Negative => &mut self.streams.negative,
            _ => &mut self.streams.positive,
        };
        of.state.position.set_all(device.stream(), size(position)?)
    }

    /// Copies the row to the hidden states of each stream that is stepped.
    fn enter(&mut self, model: &Model<'_, T>, side: Side) -> Result<(), CudaError> {
        let (operations, width) = (&model.weights.kernels.operations, self.config.hidden);
        let (stepper, _) = self.streams.of(side)?;
        let x = &mut stepper.buffers.x;
        for begin in (0..if side == Side::Both { 2 } else { 1 }).map(|row| row * width) {
            // Waits for all that is on the device's stream, as what begins a step must.
            let to = x.slice_mut(begin..begin + width)?;
            operations.last_rows(model.device.stream(), self.row.all(), to, [1, 1, size(width)?])?;
        }
        Ok(())
    }

    /// Enqueues the offloaded layers: the beginning of a step.
    pub fn begin_step(
        &mut self,
        model: &Model<'_, T>,
        streamed: &mut Streamed<'_, T>,
        side: Side,
    ) -> Result<(), CudaError> {
        self.enter(model, side)?;
        let context = context(model, &self.config, &self.options, &self.turns);
        let (stepper, sequences) = self.streams.of(side)?;
        run_offloaded(&mut stepper.pass(context, sequences), streamed)
    }

    /// Enqueues a step, or the part behind the offloaded layers. The positive stream
    /// chooses a token.
    pub fn step(&mut self, model: &Model<'_, T>, side: Side) -> Result<(), CudaError> {
        let first = model.streamed();
        if first == 0 {
            self.enter(model, side)?;
        }
        let context = context(model, &self.config, &self.options, &self.turns);
        let (stepper, sequences) = self.streams.of(side)?;
        run_resident(&mut stepper.pass(context, sequences), first, &model.weights.layers, |_| Ok(()))?;
        self.leave(model, side)
    }

    /// Says who took a step last.
    pub fn stepped(&mut self, side: Side) {
        if side != Side::Negative {
            self.last = side;
        }
    }

    /// What is left of rows that went through all layers: normed for what comes next; and a token is chosen of the
    /// positive stream's.
    fn leave(&mut self, model: &Model<'_, T>, side: Side) -> Result<(), CudaError> {
        let (weights, width) = (model.weights, self.config.hidden);
        let context = context(model, &self.config, &self.options, &self.turns);
        let (stepper, _) = self.streams.of(side)?;
        let operations = context.operations;
        if side != Side::Negative {
            stepper.head(context, &weights.norm, &weights.choices)?;
            let _stage = stage_mark!(self.options.marks, Layer, "choose");
            let shape = [1, size(self.config.vocab)?];
            operations.argmax(context.stream, &stepper.buffers.logits, &mut self.choice, shape)?;
        }
        let (begin, rows) = match side {
            Side::Positive => (0, 1),
            Side::Negative => (width, 1),
            Side::Both => (0, 2),
        };
        let (to, shape) = (self.hidden.slice_mut(begin..begin + rows * width)?, [size(rows)?, size(width)?]);
        let (x, epsilon) = (stepper.buffers.x.all(), self.config.norm_eps as f32);
        operations.rms_norm(context.stream, x, weights.norm.all(), to, shape, epsilon)
    }

    /// Runs the rows of a prompt, which `fill` puts where they begin.
    pub fn prefill(
        &mut self,
        model: &Model<'_, T>,
        streamed: Option<&mut Streamed<'_, T>>,
        count: usize,
        fill: impl FnOnce(&mut Buffer<T>) -> Result<(), CudaError>,
    ) -> Result<(), CudaError> {
        let stream = model.device.stream();
        let sizes = PassSizes::new(&self.config, &self.options, count, count, Head::Last);
        let mut buffers = Buffers::new(model.device, sizes)?;
        fill(&mut buffers.x)?;
        self.place(model.device, Side::Positive, 0)?;
        self.run_prompt(model, streamed, &mut buffers, count)?;
        let x = &mut self.streams.positive.stepper.buffers.x;
        let shape = [1, size(count)?, size(self.config.hidden)?];
        model.weights.kernels.operations.last_rows(stream, &buffers.x, x, shape)?;
        self.stepped(Side::Positive);
        self.leave(model, Side::Positive)
    }

    /// The layers, over all positions of a prompt.
    fn run_prompt(
        &mut self,
        model: &Model<'_, T>,
        streamed: Option<&mut Streamed<'_, T>>,
        buffers: &mut Buffers<T>,
        count: usize,
    ) -> Result<(), CudaError> {
        let Stream { state, cache, .. } = &mut self.streams.positive;
        let prompt = PromptRows {
            attention: &self.attention,
            blocks: None,
            kind: self.options.attention,
            start: &state.position,
            heads: head_sizes(&self.config, 1, count, cache.capacity)?,
            keys: size(count)?,
            head: Head::Last,
            cache: KeysValuesIn::Cache(cache),
        };
        let context = context(model, &self.config, &self.options, &self.turns);
        let mut pass = Pass { context, buffers, rows: PassRows::Prompt(prompt) };
        run_all(&mut pass, streamed, &model.weights.layers, |_| Ok(()))
    }
}
