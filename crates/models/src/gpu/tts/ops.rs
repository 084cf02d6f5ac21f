//! The operations of a synthesis on a GPU. The talker's step and the code predictor are graphs, and codes are sampled on the
//! device, so the host reads one word per frame.

// Graphs keep addresses of buffers, and copies those of pinned memory; the operations own both.
#![allow(unsafe_code)]

use std::{ops::Range, sync::Arc};

use laptime_cuda::decode::{
    self, FrameStep, FrameTables, Frames, NextRow, Norm, Rules, SampledCode, Sampler, Sampling as Rule, State,
};
use laptime_cuda::nn::{Activation, Attention};
use laptime_cuda::{Buffer, Cache, Device, Pinned};
use laptime_probe::stage;

use super::super::captured::{Captured, most_stages};
use super::super::memory::{Head, Parts, PassSizes};
use super::super::pass::{Buffers, DeviceRope, Pass, PassRows, PromptRows, Sequences};
use super::super::{audio::Kit, cache::GpuCache, size, step::Stepper, weights::Number};
use super::GpuParts;
use super::codec::{self, Chunk, Codec};
use crate::decoder::{layers::run_resident, weights::Body};
use crate::tts::{
    Choice, FramePart, LoadedWeights, Prompt, Sampling, SamplingPart, TtsConfig, TtsOps, TtsOptions,
    decode as run_codec, suppressed,
};
use crate::{CacheCapacity, Config, Done, GraphMode, Marks, ModelError, Options};

pub const TEXT_CAPACITY: usize = 1024;

type Weights<T> = LoadedWeights<GpuParts<T>>;

/// The decoders with their caches, the codes of all frames, and the buffers. The graphs are dropped first.
pub struct GpuOps<'a, T> {
    graphs: [Option<Captured>; 2],
    wants_graphs: bool,
    kit: Kit<'a, T>,
    config: Arc<TtsConfig>,
    options: TtsOptions,
    prefill: Options,
    marks: Marks,
    talker: Inner<T>,
    state: State,
    attention: Attention<T>,
    /// The text that is added to the frames, a row each; the last one serves all later frames.
    text: Buffer<T>,
    text_rows: Buffer<u32>,
    predictor: Inner<T>,
    /// One per position, since graphs keep their addresses.
    states: Vec<State>,
    codec: Codec<T>,
    buffers: Option<codec::Buffers<T>>,
    kernels: FrameStep<T>,
    sampler: Sampler<T>,
    /// The sampling rules of the talker and of the predictor.
    rules: [Rule; 2],
    frames: Frames,
    /// The first semantic code and the latest one, as read by the host.
    words: [Pinned<u32>; 2],
    weights: Weights<T>,
}

struct Inner<T> {
    config: Config,
    stepper: Stepper<T>,
    cache: GpuCache<T>,
    rope: DeviceRope,
}

impl<T: Number> Inner<T> {
    fn new(device: &Device, config: &Config, capacity: usize) -> Result<Self, ModelError> {
        Ok(Self {
            stepper: Stepper::new(device, config, 1, capacity)?,
            cache: GpuCache::new(device, config, 1, capacity)?,
            rope: DeviceRope::new(device, config, capacity)?,
            config: config.clone(),
        })
    }

    fn layers(&mut self, kit: &Kit<'_, T>, marks: &Marks, body: &Body<Buffer<T>>, state: &State) -> Done {
        let Self { config, stepper, cache, rope } = self;
        let mut pass = stepper.pass(kit.context(config, marks, rope), Sequences::Together(state, cache));
        run_resident(&mut pass, 0, &body.layers)
    }

    fn head(&mut self, kit: &Kit<'_, T>, marks: &Marks, body: &Body<Buffer<T>>, head: &Buffer<T>) -> Done {
        let Self { config, stepper, rope, .. } = self;
        stepper.head(kit.context(config, marks, rope), &body.norm, head)
    }
}

impl<'a, T: Number> GpuOps<'a, T> {
    pub fn new(
        kit: Kit<'a, T>,
        config: &Arc<TtsConfig>,
        options: &TtsOptions,
        weights: Weights<T>,
    ) -> Result<Self, ModelError> {
        let (device, capacity) = (kit.device, options.capacity);
        let suppressed: Vec<u32> = suppressed(config).collect();
        let rules = [
            Rule::new(device, size(config.talker.vocab)?, &suppressed, true)?,
            Rule::new(device, size(config.predictor.vocab)?, &[], false)?,
        ];
        let state = |position: usize| -> Result<State, ModelError> {
            let mut state = State::new(device, 1, 1)?;
            state.begin(&[0], size(position)?)?;
            Ok(state)
        };
        let mut ops = Self {
            graphs: [None, None],
            wants_graphs: options.graph != GraphMode::Off,
            prefill: options.decoder(CacheCapacity::Static(capacity), None),
            marks: options.marks.clone(),
            talker: Inner::new(device, &config.talker, capacity)?,
            state: State::new(device, 1, 1)?,
            attention: Attention::load(device, &Cache::of_user(), size(config.talker.head_dim)?, None)?,
            text: device.allocate(TEXT_CAPACITY * config.talker.hidden)?,
            text_rows: device.upload(&[0])?,
            predictor: Inner::new(device, &config.predictor, config.groups)?,
            states: (0..config.groups).map(state).collect::<Result<_, _>>()?,
            codec: Codec::new(device, config, options)?,
            buffers: None,
            kernels: FrameStep::load(device, &Cache::of_user())?,
            sampler: Sampler::load(device, &Cache::of_user())?,
            rules,
            frames: Frames::new(device, size(capacity)?, size(config.groups)?)?,
            words: [device.allocate_pinned(2)?, device.allocate_pinned(2)?],
            kit,
            config: Arc::clone(config),
            options: options.clone(),
            weights,
        };
        ops.capture()?;
        Ok(ops)
    }

    fn capture(&mut self) -> Done {
        if !self.wants_graphs || self.graphs[0].is_some() {
            return Ok(());
        }
        let _stage = stage!("capture");
        match self.capture_both() {
            Ok(graphs) => self.graphs = graphs.map(Some),
            Err(error) if self.options.graph == GraphMode::On => return Err(error),
            Err(_) => self.wants_graphs = false,
        }
        Ok(())
    }

    fn capture_both(&mut self) -> Result<[Captured; 2], ModelError> {
        let (device, marks, predicted) = (self.kit.device, self.marks.clone(), self.config.predicted());
        // The position before the first code runs the layers too.
        let codes = self.config.groups.saturating_mul(most_stages(self.config.predictor.layers, &marks));
        let layers = most_stages(self.config.talker.layers, &marks);
        let mut part = |part: FramePart, stages: usize| {
            Captured::new(device, &marks, stages, |marks| {
                let usual = std::mem::replace(&mut self.marks, marks);
                let ran = part.run(self, predicted);
                self.marks = usual;
                ran
            })
        };
        Ok([part(FramePart::CodePredictor, codes)?, part(FramePart::TalkerStep, layers)?])
    }

    fn project_text(&self, ids: &[u32]) -> Result<Buffer<T>, ModelError> {
        let Self { kit, config, weights: LoadedWeights { talker, .. }, .. } = self;
        let (device, stream, count) = (kit.device, kit.device.stream(), size(ids.len())?);
        let (width, hidden) = (size(config.text_width)?, size(config.talker.hidden)?);
        let (ids, shape) = (device.upload(ids)?, [size(config.text_vocab)?, width]);
        let mut text = device.allocate(ids.length() * config.text_width)?;
        kit.operations.embed(stream, &ids, &talker.text_embedding, &mut text, shape)?;
        let mut inner = device.allocate(text.length())?;
        kit.product(&text, &talker.text_up.weight, &mut inner, [count, width])?;
        let bias = Some(talker.text_up.bias.all());
        kit.rows.bias_activation(stream, &mut inner, bias, [count, width], Activation::Silu)?;
        let mut rows = device.allocate(ids.length() * config.talker.hidden)?;
        kit.product(&inner, &talker.text_down.weight, &mut rows, [count, hidden])?;
        kit.operations.add_bias(stream, &mut rows, &talker.text_down.bias, [count, hidden])?;
        Ok(rows)
    }

    /// Grows the buffer of the text. Graphs with the old address are dropped; the reset has read their stamps.
    fn fit_text(&mut self, rows: usize) -> Done {
        let numbers = rows.saturating_mul(self.config.talker.hidden);
        if numbers > self.text.length() {
            self.kit.device.stream().synchronise()?;
            self.text = self.kit.device.allocate(numbers.next_power_of_two())?;
            self.graphs = [None, None];
        }
        Ok(())
    }

    fn hand_on(&mut self) -> Done {
        self.graphs.iter_mut().flatten().try_for_each(|graph| graph.hand_on(self.kit.device))
    }
}

fn rules(sampling: &Sampling, choice: Choice, end: u32) -> Rules {
    let (temperature, top_k, top_p) = match choice {
        Choice::Likeliest => (0.0, 0, 1.0),
        Choice::Drawn { temperature, top_k, top_p } => (temperature, top_k, top_p),
    };
    let counted = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    Rules {
        temperature,
        repetition_penalty: sampling.repetition_penalty,
        top_k: counted(top_k),
        top_p,
        seed: sampling.seed,
        least_frames: if sampling.is_endless { u32::MAX } else { counted(sampling.least_frames) },
        end,
    }
}

impl<T: Number> TtsOps for GpuOps<'_, T> {
    fn marks(&self) -> &Marks {
        &self.marks
    }

    fn begin(&mut self, prompt: &Prompt, sampling: &Sampling) -> Done {
        self.fit_text(prompt.following.len() + 1)?;
        self.capture()?;
        let (stream, end) = (self.kit.device.stream(), self.config.ids.eos);
        self.rules[0].begin(stream, &rules(sampling, sampling.talker, end))?;
        self.rules[1].begin(stream, &rules(sampling, sampling.predictor, end))?;
        Ok(self.frames.begin(stream)?)
    }

    fn prefill(&mut self, prompt: &Prompt) -> Done {
        let rows = self.project_text(&prompt.text_ids())?;
        let Self { kit, config, prefill: options, talker, state, text, text_rows, weights, .. } = self;
        let (device, stream, config) = (kit.device, kit.device.stream(), &config.talker);
        let (hidden, count) = (config.hidden, prompt.positions.len());
        text.all_mut().copy_from(stream, rows.slice(count * hidden..rows.length())?)?;
        text_rows.set_all(stream, size(rows.length() / hidden - count)?)?;

        let mut buffers = Buffers::new(device, PassSizes::new(config, options, count, count, Head::Last))?;
        buffers.parts.x.all_mut().copy_from(stream, rows.slice(0..count * hidden)?)?;
        let codec: Vec<u32> = prompt.positions.iter().map(|position| position.codec.unwrap_or(u32::MAX)).collect();
        let codec = device.upload(&codec)?;
        let shape = [size(config.vocab)?, size(hidden)?];
        kit.rows.add_embedding(stream, codec.all(), weights.talker.embedding.all(), &mut buffers.parts.x, shape)?;
        state.position.set_all(stream, 0)?;
        let sizes = (config, count, talker.cache.capacity);
        let cache = &mut talker.cache.layers;
        let prompt = PromptRows::of_sequence(&self.attention, options.attention, &state.position, sizes, cache)?;
        let context = kit.context(config, &options.marks, &talker.rope);
        let mut pass = Pass { context, buffers: &mut buffers, rows: PassRows::Prompt(prompt) };
        run_resident(&mut pass, 0, &weights.talker.body.layers)?;
        let x = &mut talker.stepper.buffers.parts.x;
        kit.operations.last_rows(stream, &buffers.parts.x, x, [1, size(count)?, size(hidden)?])?;
        state.position.set_all(stream, size(count)?)?;
        talker.head(kit, &options.marks, &weights.talker.body, &weights.talker.head)
    }

    fn sum_codes(&mut self) -> Done {
        let tables = FrameTables {
            first: &self.weights.talker.embedding,
            first_size: size(self.config.talker.vocab)?,
            others: &self.weights.predictor.embeddings,
            size: size(self.config.predictor.vocab)?,
            text: &self.text,
            text_rows: &self.text_rows,
        };
        let (hidden, x) = (size(self.config.talker.hidden)?, &mut self.talker.stepper.buffers.parts.x);
        Ok(self.kernels.sum(self.kit.device.stream(), &self.frames, &tables, x, hidden)?)
    }

    fn step(&mut self) -> Done {
        let Self { kit, marks, talker, state, weights, .. } = self;
        talker.layers(kit, marks, &weights.talker.body, state)?;
        talker.head(kit, marks, &weights.talker.body, &weights.talker.head)
    }

    fn enter(&mut self) -> Done {
        let Self { kit, config, marks, states, frames, weights: LoadedWeights { talker, predictor, .. }, .. } = self;
        let (stream, left) = (kit.device.stream(), &self.talker.stepper.buffers.parts.x);
        let (width, epsilon) = (config.talker.hidden, config.talker.norm_eps as f32);
        match &predictor.bridge {
            Some(bridge) => {
                let norm = Norm { weight: &talker.body.norm, epsilon };
                let linear =
                    decode::Linear { weight: &bridge.linear.weight, bias: Some(&bridge.linear.bias), fp8: None };
                self.predictor.stepper.enter(stream, left, &norm, &linear, width)?;
            }
            None => {
                let (x, shape) = (&mut self.predictor.stepper.buffers.parts.x, [1, size(width)?]);
                kit.operations.rms_norm(stream, left, &talker.body.norm, x, shape, epsilon)?;
            }
        }
        self.predictor.layers(kit, marks, &predictor.body, &states[0])?;
        let table = predictor.bridge.as_ref().map_or(&talker.embedding, |bridge| &bridge.first);
        let (rows, width) = (size(config.talker.vocab)?, size(config.predictor.hidden)?);
        let x = &mut self.predictor.stepper.buffers.parts.x;
        Ok(self.kernels.embed_code(stream, (frames, 0), (table.all(), rows), x, width)?)
    }

    fn predict(&mut self, group: usize) -> Done {
        let Self { kit, marks, predictor, states, weights: LoadedWeights { predictor: weights, .. }, .. } = self;
        predictor.layers(kit, marks, &weights.body, &states[group])?;
        predictor.head(kit, marks, &weights.body, &weights.heads[group - 1])?;
        let Config { vocab, hidden, .. } = self.config.predictor;
        let tables = weights.bridge.as_ref().map_or(&weights.embeddings, |bridge| &bridge.others);
        let table = || tables.slice((group - 1) * vocab * hidden..group * vocab * hidden);
        let table = (group < weights.heads.len()).then(table).transpose()?;
        let (size_of, width, Parts { x, logits, .. }) =
            (size(vocab)?, size(hidden)?, &mut predictor.stepper.buffers.parts);
        let next = table.map(|table| NextRow { table, size: size_of, x, width });
        let choice = SampledCode { next, ..SampledCode::code(size(group)?) };
        let (stream, sampling) = (kit.device.stream(), (&mut self.rules[1], &mut self.frames));
        Ok(self.sampler.sample(decode::SamplingPart::All, stream, logits, sampling, choice)?)
    }

    fn sample(&mut self, part: SamplingPart, frame: usize) -> Done {
        let (stream, is_draw) = (self.kit.device.stream(), part == SamplingPart::Draw);
        let position = (frame > 0 && is_draw).then_some(&mut self.state.position);
        let place = SampledCode { group: 0, begins: frame > 0, position, is_reported: true, next: None };
        let part = match part {
            SamplingPart::TopK => decode::SamplingPart::TopK,
            SamplingPart::TopP => decode::SamplingPart::TopP,
            SamplingPart::Draw => decode::SamplingPart::Draw,
        };
        let logits = &self.talker.stepper.buffers.parts.logits;
        self.sampler.sample(part, stream, logits, (&mut self.rules[0], &mut self.frames), place)?;
        let word = &mut self.words[usize::from(frame > 0)];
        // SAFETY: both are owned here, and the word is read after a wait for the stream.
        if is_draw { Ok(unsafe { self.frames.word.begin_read(word, stream) }?) } else { Ok(()) }
    }

    fn drawn(&self, frame: usize) -> (u32, bool) {
        let word = &self.words[usize::from(frame > 0)];
        (word[0], word[1] != 0)
    }

    fn replay_number(&mut self, part: FramePart) -> Result<Option<u64>, ModelError> {
        self.graphs[part as usize].as_mut().map_or(Ok(None), |graph| graph.next_number(self.kit.device))
    }

    fn replay(&mut self, part: FramePart) -> Result<bool, ModelError> {
        let Some(graph) = &mut self.graphs[part as usize] else { return Ok(false) };
        // SAFETY: the buffers are owned here, and dropping waits for the stream.
        unsafe { graph.launch(self.kit.device.stream()) }?;
        Ok(true)
    }

    fn codes(&self, frames: Range<usize>) -> Result<Vec<u32>, ModelError> {
        Ok(self.frames.read(frames)?)
    }

    fn set_codes(&mut self, codes: &[u32]) -> Done {
        let frames = size(codes.len() / self.config.groups)?;
        if frames > self.frames.capacity() {
            // They have the old address.
            self.graphs = [None, None];
            self.frames = Frames::new(self.kit.device, frames, size(self.config.groups)?)?;
        }
        Ok(self.frames.codes.write(codes)?)
    }

    fn decode(&mut self, frames: Range<usize>) -> Done {
        let (count, groups) = (frames.len(), self.config.groups);
        let codes = self.frames.codes.slice(frames.start * groups..frames.end * groups)?;
        let buffers = self.codec.fit(self.kit.device, count, &mut self.buffers)?;
        let mut chunk = Chunk { kit: &self.kit, codec: &self.codec, buffers, codes };
        run_codec(&mut chunk, &self.weights.codec, count)
    }

    fn read_samples(&mut self, samples: Range<usize>, to: &mut Vec<f32>) -> Done {
        if let Some(buffers) = &self.buffers {
            to.extend(buffers.samples.slice(samples)?.read()?);
        }
        Ok(())
    }

    fn logits(&mut self) -> Result<Vec<f32>, ModelError> {
        Ok(self.talker.stepper.buffers.parts.logits.read()?.into_iter().map(T::widened).collect())
    }

    fn hidden(&mut self) -> Result<Vec<f32>, ModelError> {
        let (device, talker) = (self.kit.device, &self.config.talker);
        let mut normed = device.allocate::<T>(talker.hidden)?;
        let (x, norm) = (&self.talker.stepper.buffers.parts.x, &self.weights.talker.body.norm);
        let (shape, epsilon) = ([1, size(talker.hidden)?], talker.norm_eps as f32);
        self.kit.operations.rms_norm(device.stream(), x, norm, &mut normed, shape, epsilon)?;
        Ok(normed.read()?.into_iter().map(T::widened).collect())
    }

    fn wait(&mut self) -> Done {
        Ok(self.kit.device.stream().synchronise()?)
    }

    fn reset(&mut self) -> Done {
        // Pending reads must arrive before the next ones.
        self.wait()?;
        self.hand_on()
    }
}

impl<T> Drop for GpuOps<'_, T> {
    fn drop(&mut self) {
        // Pending work uses memory that is freed now.
        let device = self.kit.device;
        let _ = device.stream().synchronise();
        let _ = self.graphs.iter_mut().flatten().try_for_each(|graph| graph.hand_on(device));
    }
}
