//! The language model on a GPU: two streams with separate caches and positions over one set of weights.
//!
//! The streams step one after the other or together, in which case the weights of a layer are read once for both.

use std::{ops::Range, sync::Arc};

use laptime_cuda::{Buffer, Cache, CudaError, Device, Region, Slice, decode::State, nn::Attention};

use super::super::memory::{Head, PassSizes};
use super::super::pass::{Buffers, Context, DeviceRope, Pass, PassRows, PromptRows, SequenceRow, Sequences};
use super::super::streamed::{HostLayers, Streamed};
use super::super::weights::{LayerWeights, Loader, Number};
use super::super::{audio::Kit, cache::GpuCache, size, step::Stepper};
use crate::decoder::layers::{run_all, run_offloaded, run_resident};
use crate::decoder::weights::load_layers;
use crate::vibevoice::{STREAMS, Side, VibeVoiceConfig, VibeVoiceOptions, VibeVoiceWeights};
use crate::{Config, Done, Marks, ModelError, Options, marks::stage_mark};

pub struct Language<T> {
    model: Model<T>,
    streams: Streams<T>,
    attention: Attention<T>,
    /// The positive stream's next or last input row.
    pub row: Buffer<T>,
    /// The normed hidden states: positive, then negative.
    pub hidden: Buffer<T>,
    pub choice: Buffer<u32>,
    last: Side,
}

struct Model<T> {
    config: Config,
    options: Options,
    rope: DeviceRope,
    embedding: Buffer<T>,
    /// The rows of the head for the special ids.
    choices: Buffer<T>,
    /// The resident layers, and the number of offloaded ones before them.
    layers: Vec<LayerWeights<T>>,
    first: usize,
    norm: Buffer<T>,
}

impl<T: Number> Model<T> {
    fn context<'c>(&'c self, kit: &'c Kit<'_, T>) -> Context<'c, T> {
        kit.context(&self.config, &self.options.marks, &self.rope)
    }
}

struct Streams<T> {
    positive: Stream<T>,
    negative: Stream<T>,
    /// For both streams as one batch.
    both: Option<Stepper<T>>,
}

struct Stream<T> {
    stepper: Stepper<T>,
    state: State,
    cache: GpuCache<T>,
}

impl<T: Number> Stream<T> {
    fn new(device: &Device, config: &Config, capacity: usize) -> Result<Self, ModelError> {
        Ok(Self {
            stepper: Stepper::new(device, config, 1, capacity)?,
            state: State::new(device, 1, 1)?,
            cache: GpuCache::new(device, config, 1, capacity)?,
        })
    }
}

/// The capacity of the negative stream's cache. In a batch, both caches have the same size.
pub fn negative_capacity(options: &VibeVoiceOptions) -> usize {
    options.negative_capacity.max(if options.is_batched() { options.capacity } else { 1 }).max(1)
}

impl<T: Number> Streams<T> {
    fn new(device: &Device, config: &Config, options: &VibeVoiceOptions) -> Result<Self, ModelError> {
        let (negative, is_batched) = (negative_capacity(options), options.is_batched());
        let capacity = if is_batched { negative } else { options.capacity.max(1) };
        Ok(Self {
            positive: Stream::new(device, config, capacity)?,
            negative: Stream::new(device, config, negative)?,
            both: is_batched.then(|| Stepper::new(device, config, STREAMS, capacity)).transpose()?,
        })
    }

    fn of(&mut self, side: Side) -> Result<(&mut Stepper<T>, Sequences<'_, T>), ModelError> {
        let Self { positive, negative, both } = self;
        match side {
            Side::Positive => Ok((&mut positive.stepper, Sequences::Together(&positive.state, &mut positive.cache))),
            Side::Negative => Ok((&mut negative.stepper, Sequences::Together(&negative.state, &mut negative.cache))),
            Side::Both => {
                let alone = || CudaError::refused("stepping", 0, "the streams are not a batch");
                let rows = vec![
                    SequenceRow { position: &positive.state.position, cache: &mut positive.cache },
                    SequenceRow { position: &negative.state.position, cache: &mut negative.cache },
                ];
                Ok((both.as_mut().ok_or_else(alone)?, Sequences::Separate(rows)))
            }
        }
    }
}

impl<T: Number> Language<T> {
    pub fn load(
        kit: &Kit<'_, T>,
        config: &VibeVoiceConfig,
        weights: &VibeVoiceWeights,
        options: &VibeVoiceOptions,
    ) -> Result<(Self, Option<Arc<HostLayers>>), ModelError> {
        let (device, decoder, weights) = (kit.device, &config.decoder, weights.decoder());
        let mut loader = Loader { device, operations: &kit.operations, weights: &weights, fp8: None };
        let host_layers = options
            .offload
            .as_ref()
            .map(|offload| HostLayers::of(&loader, decoder, offload, &Region::pinned))
            .transpose()?;
        let host_layers = host_layers.flatten().map(Arc::new);
        // Offloaded layers and a separate head are on the device only for a moment, so they come first.
        let own_choices = decoder.head_tensor().map(|head| choices(device, config, &loader.packed(&[head])?));
        let own_choices = own_choices.transpose()?;
        let embedding = loader.packed(&[decoder.embedding_tensor()])?;
        let choices = own_choices.map_or_else(|| choices(device, config, &embedding), Ok)?;
        let first = host_layers.as_ref().map_or(0, |host_layers| host_layers.layers);
        let layers = load_layers(decoder, first, &mut loader)?;
        let norm = loader.packed(&[decoder.final_norm_tensor()])?;
        let stepped = config.stepped_decoder();
        let mut row = device.allocate(stepped.hidden)?;
        row.zero()?;
        let language = Self {
            streams: Streams::new(device, &stepped, options)?,
            attention: Attention::load(device, &Cache::of_user(), size(stepped.head_dim)?, None)?,
            row,
            hidden: device.allocate(STREAMS * stepped.hidden)?,
            choice: device.upload(&[0])?,
            last: Side::Positive,
            model: Model {
                options: Options { offload: None, ..options.decoder(options.capacity) },
                rope: DeviceRope::new(device, &stepped, options.capacity.max(negative_capacity(options)))?,
                config: stepped,
                embedding,
                choices,
                layers,
                first,
                norm,
            },
        };
        Ok((language, host_layers))
    }

    pub fn logits(&mut self, range: Range<usize>) -> Result<Slice<'_, T>, ModelError> {
        let (stepper, _) = self.streams.of(self.last)?;
        Ok(stepper.buffers.parts.logits.slice(range)?)
    }

    pub fn place(&mut self, kit: &Kit<'_, T>, side: Side, position: usize) -> Done {
        let of = match side {
            Side::Negative => &mut self.streams.negative,
            _ => &mut self.streams.positive,
        };
        Ok(of.state.position.set_all(kit.device.stream(), size(position)?)?)
    }

    pub fn take_row(&mut self, kit: &Kit<'_, T>, id: u32) -> Done {
        let (at, hidden) = (id as usize, self.model.config.hidden);
        let row = self.model.embedding.slice(at * hidden..(at + 1) * hidden)?;
        Ok(self.row.all_mut().copy_from(kit.device.stream(), row)?)
    }

    fn enter(&mut self, kit: &Kit<'_, T>, side: Side) -> Done {
        let width = self.model.config.hidden;
        let (stepper, _) = self.streams.of(side)?;
        let x = &mut stepper.buffers.parts.x;
        for begin in (0..if side == Side::Both { STREAMS } else { 1 }).map(|row| row * width) {
            // Waits for all earlier work on the stream, as the first kernel of a step must.
            let to = x.slice_mut(begin..begin + width)?;
            kit.operations.last_rows(kit.device.stream(), self.row.all(), to, [1, 1, size(width)?])?;
        }
        Ok(())
    }

    /// Replaces the marks of steps, and returns the old ones.
    pub fn set_marks(&mut self, marks: Marks) -> Marks {
        std::mem::replace(&mut self.model.options.marks, marks)
    }

    pub fn stepped(&mut self, side: Side) {
        if side != Side::Negative {
            self.last = side;
        }
    }

    pub fn begin_step(&mut self, kit: &Kit<'_, T>, streamed: &mut Streamed<'_, T>, side: Side) -> Done {
        self.enter(kit, side)?;
        let (stepper, sequences) = self.streams.of(side)?;
        run_offloaded(&mut stepper.pass(self.model.context(kit), sequences), streamed)
    }

    /// Enqueues a step, or its part after the offloaded layers. The positive stream samples a token.
    pub fn step(&mut self, kit: &Kit<'_, T>, side: Side) -> Done {
        if self.model.first == 0 {
            self.enter(kit, side)?;
        }
        let Self { model, streams, .. } = self;
        let (stepper, sequences) = streams.of(side)?;
        let mut pass = stepper.pass(model.context(kit), sequences);
        run_resident(&mut pass, model.first, &model.layers)?;
        self.leave(kit, side)
    }

    /// Norms the hidden states for the next parts, and samples a token of the positive stream.
    fn leave(&mut self, kit: &Kit<'_, T>, side: Side) -> Done {
        let (model, width) = (&self.model, self.model.config.hidden);
        let (stepper, _) = self.streams.of(side)?;
        let (operations, stream) = (&kit.operations, kit.device.stream());
        let mut _head = None;
        if side == Side::Negative {
            _head = stage_mark!(model.options.marks, Layer, "head");
        } else {
            stepper.head(model.context(kit), &model.norm, &model.choices)?;
            let _stage = stage_mark!(model.options.marks, Layer, "sampling");
            let shape = [1, size(model.config.vocab)?];
            operations.argmax(stream, &stepper.buffers.parts.logits, &mut self.choice, shape)?;
        }
        let (begin, rows) = match side {
            Side::Positive => (0, 1),
            Side::Negative => (width, 1),
            Side::Both => (0, STREAMS),
        };
        let (to, shape) = (self.hidden.slice_mut(begin..begin + rows * width)?, [size(rows)?, size(width)?]);
        let (x, epsilon) = (stepper.buffers.parts.x.all(), model.config.norm_eps as f32);
        Ok(operations.rms_norm(stream, x, model.norm.all(), to, shape, epsilon)?)
    }

    /// Runs a prompt. `place_voices` replaces the embeddings of tokens of audio by the rows of voices.
    pub fn prefill(
        &mut self,
        kit: &Kit<'_, T>,
        streamed: Option<&mut Streamed<'_, T>>,
        ids: &Buffer<u32>,
        vocab: usize,
        place_voices: impl FnOnce(&mut Buffer<T>) -> Done,
    ) -> Done {
        let (stream, model, count) = (kit.device.stream(), &self.model, ids.length());
        let sizes = PassSizes::new(&model.config, &model.options, count, count, Head::Last);
        let mut buffers = Buffers::new(kit.device, sizes)?;
        let shape = [size(vocab)?, size(model.config.hidden)?];
        kit.operations.embed(stream, ids, &model.embedding, &mut buffers.parts.x, shape)?;
        place_voices(&mut buffers.parts.x)?;
        self.place(kit, Side::Positive, 0)?;
        let (model, Stream { stepper, state, cache }) = (&self.model, &mut self.streams.positive);
        let (kind, sizes) = (model.options.attention, (&model.config, count, cache.capacity));
        let prompt = PromptRows::of_sequence(&self.attention, kind, &state.position, sizes, &mut cache.layers)?;
        let mut pass = Pass { context: model.context(kit), buffers: &mut buffers, rows: PassRows::Prompt(prompt) };
        run_all(&mut pass, streamed, &model.layers, |_| Ok(()))?;
        let (x, shape) = (&mut stepper.buffers.parts.x, [1, size(count)?, size(model.config.hidden)?]);
        kit.operations.last_rows(stream, &buffers.parts.x, x, shape)?;
        self.last = Side::Positive;
        self.leave(kit, Side::Positive)
    }
}

fn choices<T: Number>(device: &Device, config: &VibeVoiceConfig, head: &Buffer<T>) -> Result<Buffer<T>, ModelError> {
    let (ids, hidden) = (config.ids.all(), config.decoder.hidden);
    let mut rows = device.allocate(ids.len() * hidden)?;
    for (at, id) in ids.into_iter().enumerate() {
        let from = head.slice(id as usize * hidden..(id as usize + 1) * hidden)?;
        rows.slice_mut(at * hidden..(at + 1) * hidden)?.copy_from(device.stream(), from)?;
    }
    Ok(rows)
}
