//! The passes of a decoder on a GPU.

// Token IDs are copied from pageable memory.
#![allow(unsafe_code)]

use std::{ops::Range, sync::Arc};

use laptime_cuda::decode::{State, Step};
use laptime_cuda::nn::{Attention, BlockAttention};
use laptime_cuda::{Blas, Buffer, Cache, Device, nvrtc};

use super::cache::{DeviceCache, GpuCache};
use super::captured::Captured;
use super::memory::{Head, PassSizes};
use super::pass::{Buffers, DeviceRope, is_fused};
use super::prompt::Prompt;
use super::sparse::{DENSE, Sparse};
use super::step::{Stepper, step_sizes};
use super::stepping::{first_replay, steps_by_pass};
use super::weights::{GpuWeights, Number};
use super::{size, streamed::Streamed};
use crate::error::{ensure, fit};
use crate::{
    CacheCapacity, Config, DecoderBackend, Done, Dtype, LayerVisit, Marks, ModelError, Offloading, Options, Replay,
    decoder::generic::{Passes, Results},
};

/// The number of sampled tokens that stay on the device.
const MOST_CHOSEN: u32 = 4096;

/// The graphs are the first fields, so they are dropped before the buffers that they use.
pub struct GpuPasses<'a, T> {
    pub(super) graph: Option<Captured>,
    pub(super) prompt: Option<Prompt>,
    pub(super) replay: Replay,
    pub(super) device: &'a Device,
    pub(super) config: Arc<Config>,
    pub(super) options: Options,
    pub(super) weights: Arc<GpuWeights<T>>,
    pub(super) blas: Blas,
    pub(super) attention: Attention<T>,
    /// Attention of layers with a sliding window.
    pub(super) windowed: Option<Attention<T>>,
    /// Sparse attention, if the options ask for it.
    pub(super) sparse: Option<Sparse<T>>,
    /// Dense attention in blocks, for long prompts that begin with the first position. Loaded with the first of them.
    pub(super) dense: Option<Sparse<T>>,
    pub(super) streamed: Option<Streamed<'a, T>>,
    pub(super) rope: DeviceRope,
    pub(super) cache: GpuCache<T>,
    pub(super) uncached: Option<[Buffer<T>; 2]>,
    pub(super) buffers: Option<Buffers<T>>,
    pub(super) stepper: Option<Stepper<T>>,
    /// Whether a step ran, so that everything it needs is loaded.
    pub(super) is_warm: bool,
    pub(super) state: State,
    /// Whether the last logits are those of a step, and not of a pass over many tokens.
    pub(super) has_step_logits: bool,
    results: Results,
}

/// Starts compiling the kernels that loading the weights does not need.
pub fn compile_ahead<T: Number>(device: &Device, config: &Config, options: &Options) -> Done {
    let head_dim = size(config.head_dim)?;
    let mut requests = Vec::new();
    if let CacheCapacity::Static(capacity @ 1..) = options.capacity {
        if !steps_by_pass(options) {
            let sizes = step_sizes(config, options.batch, capacity)?;
            requests.extend(Step::<T>::requests(device, &sizes)?);
            if options.dtype == Dtype::Fp8 && is_fused(config, options.batch) {
                requests.push(Step::<T>::fp8_request(device, &sizes, config.weight_scales.into())?);
            }
        }
        if Sparse::<T>::suits_dense(device, config, options, capacity)? {
            requests.extend(BlockAttention::<T>::requests(device, head_dim));
        }
    }
    if options.kept.is_some() {
        requests.extend(BlockAttention::<T>::requests(device, head_dim));
    }
    if let Some(window) = config.window {
        requests.extend(Attention::<T>::requests(device, head_dim, Some(size(window.size)?)));
    }
    nvrtc::compile_ahead(device, &Cache::of_user(), requests);
    Ok(())
}

impl<'a, T: Number> GpuPasses<'a, T> {
    /// `copies` is the same device with the stream that offloaded layers are copied on.
    pub fn new(
        device: &'a Device,
        copies: Option<&'a Device>,
        config: Arc<Config>,
        weights: Arc<GpuWeights<T>>,
        options: Options,
    ) -> Result<Self, ModelError> {
        options.check(&config)?;
        let capacity = match options.capacity {
            CacheCapacity::Static(positions) => positions,
            CacheCapacity::Growing => 0,
        };
        fit(capacity, &config.name, config.context)?;
        let replay = first_replay(&options)?;
        compile_ahead::<T>(device, &config, &options)?;
        let head_dim = size(config.head_dim)?;
        let attention = |window| Attention::load(device, &Cache::of_user(), head_dim, window);
        let windowed =
            config.window.map(|window| Ok::<_, ModelError>(attention(Some(size(window.size)?))?)).transpose()?;
        let wanted = options.offload.as_ref().map_or(Ok(0), |offload| offload.streamed_layers(&config))?;
        let loaded = weights.host_layers.as_ref().map_or(0, |host_layers| host_layers.layers);
        ensure!(wanted == loaded, "the weights were loaded with {loaded} offloaded layers, not with {wanted}");
        let (host_layers, offload) = (weights.host_layers.as_ref(), options.offload.as_ref());
        let streamed = Streamed::of((device, copies), host_layers, offload, &options.marks)?;
        let sparse = options.kept.clone().map(|kept| Sparse::load(device, &config, kept)).transpose()?;
        Ok(Self {
            graph: None,
            prompt: None,
            replay,
            device,
            blas: Blas::new(device)?,
            attention: attention(None)?,
            windowed,
            sparse,
            dense: None,
            streamed,
            rope: DeviceRope::new(device, &config, capacity)?,
            cache: GpuCache::allocate(device, &config, &options)?,
            uncached: None,
            buffers: None,
            stepper: None,
            is_warm: false,
            state: State::new(device, size(options.batch)?, MOST_CHOSEN)?,
            has_step_logits: false,
            results: Results::default(),
            config,
            options,
            weights,
        })
    }

    pub(super) fn set_position(&mut self, position: usize) -> Done {
        Ok(self.state.position.set_all(self.device.stream(), size(position)?)?)
    }

    pub(super) fn make_buffers(&mut self, sizes: PassSizes) -> Done {
        if self.buffers.as_ref().is_none_or(|buffers| buffers.sizes != sizes) {
            // The old buffers are freed first, so that both never exist at once.
            self.drop_prompt()?;
            self.buffers = None;
            self.buffers = Some(Buffers::new(self.device, sizes)?);
        }
        Ok(())
    }

    /// Builds the layout of block attention for a pass, if it uses block attention.
    fn lay_out(&mut self, tokens: usize, start: usize) -> Done {
        if let Some(sparse) = &mut self.sparse {
            return sparse.lay_out(self.device, tokens, &self.options.marks);
        }
        let is_there = self.dense.as_ref().is_some_and(|dense| dense.parts_for(tokens).is_some());
        let is_needed = start == 0 && !is_there;
        if !is_needed || !Sparse::<T>::suits_dense(self.device, &self.config, &self.options, tokens)? {
            return Ok(());
        }
        // A graph has the addresses of the old layout.
        self.drop_prompt()?;
        let dense = match self.dense.take() {
            Some(dense) => dense,
            None => Sparse::load(self.device, &self.config, DENSE)?,
        };
        self.dense.insert(dense).lay_out(self.device, tokens, &Marks::default())
    }

    fn last_logits(&self) -> Option<&Buffer<T>> {
        let of_step = self.stepper.as_ref().map(|stepper| &stepper.buffers);
        let buffers = if self.has_step_logits { of_step } else { self.buffers.as_ref() };
        buffers.map(|buffers| &buffers.parts.logits)
    }

    fn upload_ids(&mut self, ids: &[u32]) -> Done {
        let Some(buffers) = &mut self.buffers else { return Ok(()) };
        // SAFETY: a slice of pageable memory is staged before the call returns.
        Ok(unsafe { buffers.ids.begin_write(ids, self.device.stream()) }?)
    }

    fn tokens(&self, ids: &[u32]) -> usize {
        ids.len() / self.options.batch
    }
}

impl<T: Number> DecoderBackend for GpuPasses<'_, T> {
    fn config(&self) -> &Config {
        &self.config
    }

    fn options(&self) -> &Options {
        &self.options
    }

    fn next_replay(&mut self) -> Result<Option<u64>, ModelError> {
        // The resident part of a step has its own stage, which carries the number.
        if self.streamed.is_some() {
            return Ok(None);
        }
        self.capture()?;
        self.next_number()
    }

    fn next_prefill_replay(&mut self, tokens: usize) -> Result<Option<u64>, ModelError> {
        self.next_prompt_number(tokens)
    }

    fn replay(&self) -> Replay {
        self.replay.clone()
    }

    fn prompt_replay(&self) -> Replay {
        self.replay_of_prompts()
    }

    fn offloading(&self) -> Option<Offloading> {
        self.streamed.as_ref().map(Streamed::offloading)
    }

    fn layer_visits(&mut self) -> Result<Vec<LayerVisit>, ModelError> {
        self.streamed.as_mut().map_or(Ok(Vec::new()), Streamed::visits)
    }

    fn device_cache(&mut self) -> Option<DeviceCache<'_>> {
        Some(DeviceCache { device: self.device, cache: &mut self.cache })
    }
}

impl<T: Number> Passes for GpuPasses<'_, T> {
    type Buffer = Buffer<T>;
    type Memory = Device;

    fn results(&mut self) -> &mut Results {
        &mut self.results
    }

    fn cache(&self) -> &GpuCache<T> {
        &self.cache
    }

    fn cache_mut(&mut self) -> (&mut GpuCache<T>, &Device) {
        (&mut self.cache, self.device)
    }

    fn reserve(&mut self, positions: usize) -> Done {
        self.cache.check(positions)?;
        if positions <= self.cache.capacity {
            return Ok(());
        }
        // Graphs have the old addresses. The next step is launched, so that nothing is allocated during a capture.
        self.drop_graphs()?;
        self.stepper = None;
        self.is_warm = false;
        self.cache.reserve(self.device, positions)?;
        self.rope = DeviceRope::new(self.device, &self.config, self.cache.capacity)?;
        Ok(())
    }

    fn length_changed(&mut self) -> Done {
        self.graph.as_mut().map_or(Ok(()), |graph| graph.hand_on_if_half_full(self.device))?;
        self.set_position(self.cache.length())
    }

    fn run_forward(&mut self, ids: &[u32]) -> Done {
        let length = self.tokens(ids);
        let sizes = PassSizes::new(&self.config, &self.options, length, length, Head::All);
        self.make_buffers(sizes)?;
        self.allocate_uncached(length)?;
        self.lay_out(length, 0)?;
        self.upload_ids(ids)?;
        self.set_position(0)?;
        self.pass(length, 0, Head::All)?;
        self.has_step_logits = false;
        self.set_position(self.cache.length())
    }

    fn run_prefill(&mut self, ids: &[u32]) -> Done {
        let (length, start) = (self.tokens(ids), self.cache.length());
        self.lay_out(length, start)?;
        self.make_buffers(self.prompt_sizes(length))?;
        self.upload_ids(ids)?;
        self.set_position(start)?;
        self.run_prompt(length)?;
        self.cache.advance(start + length);
        self.set_position(start + length)
    }

    fn run_next(&mut self) -> Done {
        self.capture()?;
        self.run_step()?;
        self.has_step_logits = !steps_by_pass(&self.options);
        self.cache.advance(self.cache.length() + 1);
        Ok(())
    }

    fn write_next(&mut self, ids: &[u32]) -> Done {
        // SAFETY: a slice of pageable memory is staged before the call returns.
        unsafe { self.state.token.begin_write(ids, self.device.stream())? };
        Ok(())
    }

    fn read_next(&mut self) -> Result<Vec<u32>, ModelError> {
        Ok(self.state.token.read()?)
    }

    fn logits_count(&self) -> usize {
        self.last_logits().map_or(0, Buffer::length)
    }

    fn read_logits(&self, range: Range<usize>) -> Result<Vec<f32>, ModelError> {
        let logits = self.last_logits().ok_or_else(ModelError::no_pass)?.slice(range)?.read()?;
        Ok(logits.into_iter().map(T::widened).collect())
    }
}

impl<T> Drop for GpuPasses<'_, T> {
    fn drop(&mut self) {
        // Enqueued work uses memory that is freed now. A stream that failed runs nothing more.
        let _ = self.device.stream().synchronise();
        let prompt = self.prompt.take().and_then(Prompt::into_graph);
        for mut graph in self.graph.take().into_iter().chain(prompt) {
            let _ = graph.hand_on(self.device);
        }
    }
}
