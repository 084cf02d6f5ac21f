//! The language model on a GPU, with two streams over one set of weights: each has a cache and a position of its own.

use laptime_cuda::{
    Blas, Buffer, Cache, CudaError, Device,
    decode::State,
    nn::{Attention, HeadSizes},
};

use super::{
    super::{
        cache::GpuCache,
        pass::{Buffers, Pass, Turns},
        room::{Head, PassSizes},
        size,
        step::{Context, Stepper},
        weights::Number,
    },
    decoder_options,
    weights::SpeechGpuWeights,
};
use crate::{
    Config, ModelError, Options,
    marks::mark,
    speech::{SpeechConfig, VoicingOptions},
};

/// One of the two streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// What has heard the script.
    Positive,
    /// What has not.
    Negative,
}

/// The language model's streams, and what goes through them.
pub struct Language<T> {
    config: Config,
    options: Options,
    positive: Stream<T>,
    negative: Stream<T>,
    turns: Turns,
    attention: Attention<T>,
    /// What the positive stream runs next, or ran last.
    pub row: Buffer<T>,
    /// What both streams left, normed: the positive row, then the negative one.
    pub hidden: Buffer<T>,
}

/// A stream.
pub struct Stream<T> {
    stepper: Stepper<T>,
    state: State,
    cache: GpuCache<T>,
}

impl<T: Number> Stream<T> {
    fn new(device: &Device, config: &Config, room: usize) -> Result<Self, CudaError> {
        let room = room.max(1);
        Ok(Self {
            stepper: Stepper::new(device, config, 1, room)?,
            state: State::new(device, 1, 1)?,
            cache: GpuCache::new(device, config, 1, room)?,
        })
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
        layers: &model.weights.layers,
        turns,
    }
}

/// What the language model is run with.
pub struct Model<'a, T> {
    pub device: &'a Device,
    pub blas: &'a Blas,
    pub weights: &'a SpeechGpuWeights<T>,
}

impl<T: Number> Language<T> {
    pub fn new(device: &Device, config: &SpeechConfig, options: &VoicingOptions) -> Result<Self, ModelError> {
        let stepped = config.stepped_decoder();
        let positions = options.room.max(options.negative_room);
        let mut row = device.allocate(stepped.hidden)?;
        row.zero()?;
        Ok(Self {
            options: decoder_options(options),
            positive: Stream::new(device, &stepped, options.room)?,
            negative: Stream::new(device, &stepped, options.negative_room)?,
            turns: Turns::new(device, &stepped, positions)?,
            attention: Attention::load(device, &Cache::of_user(), size(stepped.head_dim)?)?,
            row,
            hidden: device.allocate(2 * stepped.hidden)?,
            config: stepped,
        })
    }

    /// The token that was chosen last, as a place among those that may be.
    pub fn choice(&self) -> &Buffer<u32> {
        &self.positive.state.token
    }

    /// The logits of the tokens that may be chosen.
    pub fn logits(&self) -> &Buffer<T> {
        &self.positive.stepper.activations.logits
    }

    /// Puts a step of a stream on the device's: the row through all layers. The positive one chooses a token.
    pub fn step(&mut self, model: &Model<'_, T>, side: Side) -> Result<(), CudaError> {
        let width = size(self.config.hidden)?;
        let of = match side {
            Side::Positive => &mut self.positive,
            Side::Negative => &mut self.negative,
        };
        let operations = &model.weights.kernels.operations;
        let x = &mut of.stepper.activations.x;
        // Waits for all that is on the device's stream, as what begins a step must.
        operations.last_rows(model.device.stream(), &self.row, x, [1, 1, width])?;
        let context = context(model, &self.config, &self.options, &self.turns);
        of.stepper.layers(&context, &of.state, &mut of.cache)?;
        self.leave(model, side)
    }

    /// Says at which position a stream's next row is.
    pub fn place(&mut self, device: &Device, side: Side, position: usize) -> Result<(), CudaError> {
        let of = match side {
            Side::Positive => &mut self.positive,
            Side::Negative => &mut self.negative,
        };
        of.state.position.set_all(device.stream(), size(position)?)
    }

    /// What is left of the row that went through all layers: normed for what comes next; and a token is chosen of the
    /// positive stream's.
    fn leave(&mut self, model: &Model<'_, T>, side: Side) -> Result<(), CudaError> {
        let (stream, weights, width) = (model.device.stream(), model.weights, self.config.hidden);
        let (of, begin) = match side {
            Side::Positive => (&mut self.positive, 0),
            Side::Negative => (&mut self.negative, width),
        };
        if side == Side::Positive {
            let context = context(model, &self.config, &self.options, &self.turns);
            of.stepper.head(&context, &weights.norm, &weights.choices)?;
            let _stage = mark!(self.options.marks, Layer, "choose");
            let (logits, choice) = (&of.stepper.activations.logits, &mut of.state.token);
            weights.kernels.operations.argmax(stream, logits, choice, [1, size(self.config.vocab)?])?;
        }
        let to = self.hidden.slice_mut(begin..begin + width)?;
        let (x, epsilon) = (&of.stepper.activations.x, self.config.norm_eps as f32);
        weights.kernels.operations.rms_norm(stream, x, &weights.norm, to, [1, size(width)?], epsilon)
    }

    /// Runs the rows of a prompt, which `fill` puts where they begin.
    pub fn prefill(
        &mut self,
        model: &Model<'_, T>,
        count: usize,
        fill: impl FnOnce(&mut Buffer<T>) -> Result<(), CudaError>,
    ) -> Result<(), CudaError> {
        let stream = model.device.stream();
        let sizes = PassSizes::new(&self.config, &self.options, count, count, Head::Last);
        let mut buffers = Buffers::new(model.device, sizes)?;
        fill(&mut buffers.x)?;
        self.positive.state.position.set_all(stream, 0)?;
        self.run_prompt(model, &mut buffers, count)?;
        let x = &mut self.positive.stepper.activations.x;
        let shape = [1, size(count)?, size(self.config.hidden)?];
        model.weights.kernels.operations.last_rows(stream, &buffers.x, x, shape)?;
        self.leave(model, Side::Positive)
    }

    /// The layers, over all positions of a prompt.
    fn run_prompt(&mut self, model: &Model<'_, T>, buffers: &mut Buffers<T>, count: usize) -> Result<(), CudaError> {
        let heads = HeadSizes {
            batch: 1,
            tokens: size(count)?,
            heads: size(self.config.heads)?,
            kv_heads: size(self.config.kv_heads)?,
            head_dim: size(self.config.head_dim)?,
            capacity: size(self.positive.cache.capacity)?,
        };
        let pass = Pass {
            stream: model.device.stream(),
            blas: model.blas,
            operations: &model.weights.kernels.operations,
            attention: &self.attention,
            blocks: None,
            config: &self.config,
            options: &self.options,
            turns: &self.turns,
            start: &self.positive.state.position,
            heads,
            keys: size(count)?,
        };
        for (index, layer) in model.weights.layers.iter().enumerate() {
            let [keys, values] = &mut self.positive.cache.layers[index];
            pass.layer(index, layer, [keys, values], buffers)?;
        }
        Ok(())
    }
}
