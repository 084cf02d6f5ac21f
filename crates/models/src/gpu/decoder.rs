//! The decoder on a GPU as [`Decoder`] asks for it.

// Tokens are copied from the host's own memory.
#![allow(unsafe_code)]

use std::sync::Arc;

use laptime_cuda::{Blas, Buffer, Cache, CudaError, Device, Graph, decode::State, nn::Attention};

use super::{
    cache::GpuCache,
    device_cache::DeviceCache,
    pass::{Buffers, Turns},
    room::{Head, PassSizes},
    size,
    sparse::Sparse,
    step::Stepper,
    stepping::{first_replay, steps_by_pass},
    streamed::Streamed,
    weights::{GpuWeights, Number},
};
use crate::{
    Config, Decoder, KeysValues, LayerVisit, ModelError, Offloading, Options, Replay, Room, Tokens,
    cache_rules::CacheRules,
};

/// Logits that are read at a time when they are looked at.
const LOOKED_AT: usize = 16 << 20;

/// Tokens that the device remembers of a generation.
const CHOSEN_ROOM: u32 = 4096;

/// A decoder on a GPU. The graph comes first: it goes before the buffers that it uses.
pub struct GpuDecoder<'a, T> {
    pub(super) graph: Option<Graph>,
    pub(super) replay: Replay,
    pub(super) device: &'a Device,
    pub(super) config: Arc<Config>,
    pub(super) options: Options,
    pub(super) weights: Arc<GpuWeights<T>>,
    pub(super) blas: Blas,
    pub(super) attention: Attention<T>,
    /// What takes its place where only some pairs are kept.
    pub(super) sparse: Option<Sparse<T>>,
    /// The offloaded layers, which are the first ones.
    pub(super) streamed: Option<Streamed<'a, T>>,
    pub(super) turns: Turns,
    pub(super) cache: GpuCache<T>,
    /// Keys and values of a layer in a pass without the cache.
    pub(super) beside: Option<[Buffer<T>; 2]>,
    pub(super) buffers: Option<Buffers<T>>,
    pub(super) stepper: Option<Stepper<T>>,
    /// Whether a step ran, so that everything it needs is loaded.
    pub(super) is_warm: bool,
    pub(super) state: State,
    pub(super) length: usize,
    rules: CacheRules,
    /// Positions that were written to each layer beside passes.
    written: Vec<usize>,
    /// Whether there is a token to go on from.
    has_token: bool,
    pub(super) logits: Logits,
}

/// Where the logits of the last pass are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Logits {
    None,
    OfPass,
    OfStep,
}

impl<'a, T: Number> GpuDecoder<'a, T> {
    /// `copies` is the same device, whose stream the weights of streamed layers come over.
    pub fn new(
        device: &'a Device,
        copies: Option<&'a Device>,
        config: Arc<Config>,
        weights: Arc<GpuWeights<T>>,
        options: Options,
    ) -> Result<Self, ModelError> {
        if options.batch == 0 {
            return Err(ModelError::Refused("a batch has at least one sequence".to_owned()));
        }
        let capacity = match options.room {
            Room::Static(positions) if positions > config.context => {
                return Err(too_long(positions, &config.name, config.context));
            }
            Room::Static(positions) => positions,
            Room::Growing => 0,
        };
        let replay = first_replay(&options)?;
        let streamed = streamed(device, copies, &config, &weights, &options)?;
        let sparse = options.kept.clone().map(|kept| Sparse::load(device, &config, kept)).transpose()?;
        Ok(Self {
            graph: None,
            replay,
            device,
            blas: Blas::new(device)?,
            attention: Attention::load(device, &Cache::of_user(), size(config.head_dim)?)?,
            sparse,
            streamed,
            turns: Turns::new(device, &config, capacity)?,
            cache: GpuCache::new(device, &config, options.batch, capacity)?,
            beside: None,
            buffers: None,
            stepper: None,
            is_warm: false,
            state: State::new(device, size(options.batch)?, CHOSEN_ROOM)?,
            length: 0,
            rules: CacheRules::new(&config, &options),
            written: vec![0; config.layers],
            has_token: false,
            logits: Logits::None,
            config,
            options,
            weights,
        })
    }

    /// Makes room for this many positions.
    fn reach(&mut self, positions: usize) -> Result<(), ModelError> {
        self.rules.check_room(positions)?;
        if positions <= self.cache.capacity {
            return Ok(());
        }
        // What was captured has the old addresses; the next step is launched, so that what it needs is made outside a
        // capture.
        self.device.stream().synchronise()?;
        self.graph = None;
        self.stepper = None;
        self.is_warm = false;
        self.cache.grow(self.device, positions, self.length, self.config.context)?;
        self.turns = Turns::new(self.device, &self.config, self.cache.capacity)?;
        Ok(())
    }

    pub(super) fn set_position(&mut self, position: usize) -> Result<(), CudaError> {
        self.state.position.set_all(self.device.stream(), size(position)?)
    }

    /// Buffers for a pass of these sizes: those of the last one if they are the same.
    pub(super) fn make_buffers(&mut self, sizes: PassSizes) -> Result<(), CudaError> {
        if self.buffers.as_ref().is_none_or(|buffers| buffers.sizes != sizes) {
            // The old ones go first, so that both are never there at once.
            self.buffers = None;
            self.buffers = Some(Buffers::new(self.device, sizes)?);
        }
        Ok(())
    }

    /// Builds the layout of what is kept, where only some pairs are.
    fn lay_out(&mut self, tokens: usize, start: usize) -> Result<(), ModelError> {
        match &mut self.sparse {
            None => Ok(()),
            Some(_) if start > 0 => Err(behind_a_cache()),
            Some(sparse) => sparse.lay_out(self.device, tokens, &self.options.marks),
        }
    }

    fn last_logits(&self) -> Result<&Buffer<T>, ModelError> {
        match (self.logits, &self.buffers, &self.stepper) {
            (Logits::OfPass, Some(buffers), _) => Ok(&buffers.logits),
            (Logits::OfStep, _, Some(stepper)) => Ok(&stepper.buffers.logits),
            _ => Err(ModelError::no_pass()),
        }
    }

    fn upload_ids(&mut self, tokens: &Tokens) -> Result<(), CudaError> {
        match &mut self.buffers {
            // SAFETY: a list of the host's own memory is no pinned memory.
            Some(buffers) => unsafe { buffers.ids.put(self.device.stream(), &tokens.ids) },
            None => Ok(()),
        }
    }
}

/// The offloaded layers, as requested and as the weights were loaded.
fn streamed<'a, T: Number>(
    device: &'a Device,
    copies: Option<&'a Device>,
    config: &Config,
    weights: &GpuWeights<T>,
    options: &Options,
) -> Result<Option<Streamed<'a, T>>, ModelError> {
    let wanted = options.offload.as_ref().map_or(Ok(0), |offload| offload.streamed_layers(config))?;
    let there = weights.homes.as_ref().map_or(0, |homes| homes.layers());
    if wanted != there {
        let reason = format!("{there} layers were loaded to be streamed, and not the {wanted} that are asked for");
        return Err(ModelError::Refused(reason));
    }
    let no_stream = || ModelError::Refused("layers are streamed over a stream of their own".to_owned());
    match (&weights.homes, &options.offload) {
        (Some(homes), Some(offload)) => {
            Streamed::new(device, copies.ok_or_else(no_stream)?, homes, offload, &options.marks).map(Some)
        }
        _ => Ok(None),
    }
}

fn behind_a_cache() -> ModelError {
    ModelError::Refused("sparse attention begins with the first token: the cache must be empty".to_owned())
}

fn too_long(tokens: usize, what: &str, room: usize) -> ModelError {
    ModelError::TooLong { tokens, what: what.to_owned(), room }
}

impl<T: Number> Decoder for GpuDecoder<'_, T> {
    fn config(&self) -> &Config {
        &self.config
    }

    fn options(&self) -> &Options {
        &self.options
    }

    fn forward(&mut self, tokens: &Tokens) -> Result<(), ModelError> {
        tokens.check_batch(&self.config, self.options.batch)?;
        let length = tokens.length();
        if length > self.config.context {
            return Err(too_long(length, &self.config.name, self.config.context));
        }
        let sizes = PassSizes::new(&self.config, &self.options, length, length, Head::All);
        self.make_buffers(sizes)?;
        self.make_beside(length)?;
        self.lay_out(length, 0)?;
        self.upload_ids(tokens)?;
        self.set_position(0)?;
        self.pass(length, 0, Head::All)?;
        self.logits = Logits::OfPass;
        Ok(self.set_position(self.length)?)
    }

    fn prefill(&mut self, tokens: &Tokens) -> Result<(), ModelError> {
        tokens.check_batch(&self.config, self.options.batch)?;
        let (length, start) = (tokens.length(), self.length);
        self.reach(start + length)?;
        self.lay_out(length, start)?;
        let sizes = PassSizes::new(&self.config, &self.options, length, start + length, Head::Last);
        self.make_buffers(sizes)?;
        self.upload_ids(tokens)?;
        self.set_position(start)?;
        self.pass(length, start, Head::Last)?;
        self.logits = Logits::OfPass;
        self.choose_most_likely()?;
        self.has_token = true;
        self.length = start + length;
        Ok(self.set_position(self.length)?)
    }

    fn step(&mut self) -> Result<(), ModelError> {
        if !self.has_token {
            return Err(ModelError::no_token());
        }
        if self.sparse.is_some() {
            return Err(behind_a_cache());
        }
        self.reach(self.length + 1)?;
        self.capture()?;
        self.run_step()?;
        self.logits = if steps_by_pass(&self.options) { Logits::OfPass } else { Logits::OfStep };
        self.length += 1;
        Ok(())
    }

    fn choose(&mut self, ids: &[u32]) -> Result<(), ModelError> {
        Tokens { ids: ids.to_vec(), batch: ids.len() }.check_batch(&self.config, self.options.batch)?;
        self.has_token = true;
        // SAFETY: a list of the host's own memory is no pinned memory.
        unsafe { self.state.token.put(self.device.stream(), ids)? };
        Ok(())
    }

    fn chosen(&mut self) -> Result<Vec<u32>, ModelError> {
        match self.has_token {
            true => Ok(self.state.token.read()?),
            false => Err(ModelError::no_token()),
        }
    }

    fn logits(&mut self) -> Result<Vec<f32>, ModelError> {
        Ok(self.last_logits()?.read()?.into_iter().map(T::widened).collect())
    }

    fn look(&mut self, row: &mut dyn FnMut(&[f32])) -> Result<(), ModelError> {
        let (logits, vocab) = (self.last_logits()?, self.config.vocab);
        // As many rows at a time as the host has room for without being asked.
        let block = (LOOKED_AT / vocab.max(1)).max(1) * vocab;
        for begin in (0..logits.length()).step_by(block) {
            let end = logits.length().min(begin + block);
            let numbers: Vec<f32> = logits.slice(begin..end)?.read()?.into_iter().map(T::widened).collect();
            numbers.chunks(vocab).for_each(&mut *row);
        }
        Ok(())
    }

    fn length(&self) -> usize {
        self.length
    }

    fn truncate(&mut self, length: usize) -> Result<(), ModelError> {
        if length < self.length { self.set_length(length) } else { Ok(()) }
    }

    fn read_cache(&mut self, layer: usize) -> Result<KeysValues, ModelError> {
        self.rules.check_layer(layer)?;
        Ok(self.cache.read(self.device, layer, self.length)?)
    }

    fn write_cache(&mut self, layer: usize, start: usize, values: &KeysValues) -> Result<(), ModelError> {
        self.rules.check_layer(layer)?;
        let (written, end) = (self.written[layer].max(self.length), start.saturating_add(values.length));
        self.rules.check_write(layer, written, start, values)?;
        self.reach(end)?;
        self.cache.write(self.device, layer, start, values)?;
        self.written[layer] = written.max(end);
        Ok(())
    }

    fn set_length(&mut self, length: usize) -> Result<(), ModelError> {
        self.rules.check_length(length, self.written.iter().map(|written| (*written).max(self.length)))?;
        self.length = length;
        self.written.fill(length);
        Ok(self.set_position(length)?)
    }

    fn replay(&self) -> Replay {
        self.replay.clone()
    }

    fn offloading(&self) -> Option<Offloading> {
        self.streamed.as_ref().map(Streamed::offloading)
    }

    fn layer_visits(&mut self) -> Result<Vec<LayerVisit>, ModelError> {
        Ok(self.streamed.as_mut().map_or(Ok(Vec::new()), Streamed::visits)?)
    }

    fn device_cache(&mut self) -> Option<DeviceCache<'_>> {
        Some(DeviceCache { device: self.device, cache: &mut self.cache })
    }
}

impl<T> Drop for GpuDecoder<'_, T> {
    fn drop(&mut self) {
        // What is on the stream uses memory that goes now; a stream that failed does no more.
        let _ = self.device.stream().synchronise();
    }
}
