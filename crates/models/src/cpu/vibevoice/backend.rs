//! VibeVoice on the CPU: the language model, and the values that parts pass on.

use std::ops::Range;

use super::super::cache::{Cache, Heap, fit};
use super::super::stack::{Before, Stack};
use super::super::steps::{Norm, embed};
use super::super::{crew::Crew, model::Loader, number::Number};
use super::diffusion::Diffusion;
use super::tokenizer::{Buffers, Flow};
use crate::vibevoice::{
    Backend, CONNECTOR_EPS, Connector, Done, Engine, Guidance, Read, STREAMS, Side, VibeVoiceConfig, VibeVoiceOptions,
    VibeVoiceWeights,
};
use crate::{LayerVisit, ModelError, Offloading, marks::stage_mark};

pub struct Cpu<T> {
    pub crew: Crew,
    embedding: Vec<T>,
    /// The rows of the head for the special ids.
    choices: Vec<T>,
    stack: Stack<T>,
    negative: Cache<T>,
    row: Vec<T>,
    /// The normed hidden states of both streams.
    pub hidden: Vec<T>,
    /// The negative state of a batch, until the token is known to be one of audio.
    pending: Option<Vec<T>>,
    logits: Vec<f32>,
    choice: usize,
    pub diffusion: Diffusion<T>,
    pub buffers: Buffers<T>,
    connecting: Connecting<T>,
    semantic: Vec<T>,
    pub latents: Vec<f32>,
    samples: Vec<f32>,
}

impl<T: Number> Cpu<T> {
    pub fn load(
        config: &VibeVoiceConfig,
        weights: &VibeVoiceWeights,
        options: &VibeVoiceOptions,
        crew: Crew,
    ) -> Result<Self, ModelError> {
        let language_model = weights.decoder();
        let loader = Loader::new(Some(&language_model), &crew);
        let (stepped, hidden) = (config.stepped_decoder(), config.decoder.hidden);
        let head = config.decoder.head_tensor().unwrap_or_else(|| config.decoder.embedding_tensor());
        Ok(Self {
            embedding: loader.stacked(&[config.decoder.embedding_tensor()])?,
            choices: loader.rows(&head, &config.ids.all())?,
            negative: Cache::allocate(&Heap, &stepped, &options.decoder(options.negative_capacity))?,
            stack: Stack::load(stepped, options.decoder(options.capacity), loader)?,
            row: vec![T::default(); hidden],
            hidden: vec![T::default(); STREAMS * hidden],
            pending: None,
            logits: Vec::new(),
            choice: 0,
            diffusion: Diffusion::new(config, &Guidance::default())?,
            buffers: Buffers::default(),
            connecting: Connecting::default(),
            semantic: Vec::new(),
            latents: Vec::new(),
            samples: Vec::new(),
            crew,
        })
    }

    fn sample(&mut self) {
        let _stage = stage_mark!(self.stack.options.marks, Layer, "sampling");
        let count = self.choices.len() / self.row.len();
        self.logits.clear();
        self.logits.extend(self.stack.logits()[..count].iter().map(|logit| logit.wide()));
        let best = self.logits.iter().enumerate().reduce(|best, next| if next.1 > best.1 { next } else { best });
        self.choice = best.map_or(count, |(at, _)| at);
    }
}

#[derive(Default)]
struct Connecting<T> {
    inner: Vec<T>,
    normed: Vec<T>,
}

impl<T: Number> Connecting<T> {
    fn run(&mut self, crew: &Crew, weights: &Connector<Cpu<T>>, from: &[T]) -> Result<&[T], ModelError> {
        let (Self { inner, normed }, width) = (self, weights.norm.len());
        let size = from.len() / (weights.enter.weight.len() / width) * width;
        fit(inner, size)?;
        fit(normed, size)?;
        weights.enter.run(crew, from, inner);
        Norm { weight: &weights.norm, eps: CONNECTOR_EPS }.rows(crew, 1, &inner[..size], normed);
        weights.leave.run(crew, &normed[..size], inner);
        Ok(&inner[..size])
    }
}

impl<T: Number> Backend for Cpu<T> {
    type Voice = Vec<T>;

    fn begin_diffusion(engine: &mut Engine<Self>, guidance: &Guidance, _: usize) -> Done {
        let Engine { backend, config, weights, .. } = engine;
        backend.diffusion = Diffusion::new(config, guidance)?;
        backend.diffusion.embed_times(&backend.crew, config, &weights.diffusion_head);
        Ok(())
    }

    fn begin_latent(&mut self, audio: usize) -> Done {
        if let Some(row) = self.pending.take() {
            self.hidden[self.row.len()..].copy_from_slice(&row);
        }
        self.diffusion.begin(audio);
        Ok(())
    }

    fn place(&mut self, side: Side, position: usize) -> Done {
        let cache = if side == Side::Negative { &mut self.negative } else { &mut self.stack.cache };
        cache.truncate(position);
        Ok(())
    }

    fn step(&mut self, side: Side) -> Done {
        let Self { crew, stack, negative: other, row, hidden, choices, .. } = self;
        let enter = |to: &mut [T]| to.chunks_mut(row.len()).for_each(|to| to.copy_from_slice(row));
        match side {
            Side::Positive => stack.run(crew, 1, Before::Cache, Some(choices), enter)?,
            Side::Both => stack.run_both(crew, other, Some(choices), enter)?,
            Side::Negative => {
                std::mem::swap(&mut stack.cache, other);
                let ran = stack.run(crew, 1, Before::Cache, None, enter);
                std::mem::swap(&mut stack.cache, other);
                ran?;
            }
        }
        let (left, (positive, negative)) = (stack.normed(), hidden.split_at_mut(row.len()));
        match side {
            Side::Positive => positive.copy_from_slice(left),
            Side::Negative => negative.copy_from_slice(left),
            Side::Both => {
                positive.copy_from_slice(&left[..row.len()]);
                self.pending = Some(left[row.len()..].to_vec());
            }
        }
        if side != Side::Negative {
            self.sample();
        }
        Ok(())
    }

    fn take_samples(&mut self, _: &mut Flow<T>, _: &mut Flow<T>) -> Done {
        self.samples.extend(self.buffers.stream.iter().map(|sample| sample.wide()));
        Ok(())
    }

    fn voice(&mut self, latents: &[f32], connector: &Connector<Self>) -> Result<Vec<T>, ModelError> {
        let latents: Vec<T> = latents.iter().map(|latent| T::narrow(*latent)).collect();
        Ok(self.connecting.run(&self.crew, connector, &latents)?.to_vec())
    }

    fn connect(&mut self, _: &Flow<T>, [of_acoustic, of_semantic]: [&Connector<Self>; 2]) -> Done {
        let Self { crew, connecting, row, semantic, .. } = self;
        let latent: Vec<T> = self.diffusion.sample.iter().map(|number| T::narrow(*number)).collect();
        row.copy_from_slice(connecting.run(crew, of_acoustic, &latent)?);
        semantic.clone_from(&self.buffers.stream);
        let added = connecting.run(crew, of_semantic, semantic)?;
        row.iter_mut().zip(added).for_each(|(to, added)| *to = T::narrow(to.wide() + added.wide()));
        Ok(())
    }

    fn take_row(&mut self, id: u32) -> Done {
        let hidden = self.row.len();
        self.row.copy_from_slice(&self.embedding[id as usize * hidden..][..hidden]);
        Ok(())
    }

    fn prefill(&mut self, config: &VibeVoiceConfig, ids: &[u32], voices: &[Vec<T>]) -> Done {
        let Self { crew, stack, embedding, choices, row, hidden, .. } = self;
        let width = row.len();
        stack.cache.truncate(0);
        stack.run(crew, ids.len(), Before::Cache, Some(choices), |to| {
            embed(crew, ids, embedding, width, to);
            let places = ids.iter().zip(to.chunks_mut(width)).filter(|(id, _)| **id == config.ids.audio);
            let rows = voices.iter().flat_map(|voice| voice.chunks(width));
            places.zip(rows).for_each(|((_, to), row)| to.copy_from_slice(row));
        })?;
        hidden[..width].copy_from_slice(stack.normed());
        self.sample();
        Ok(())
    }

    fn choice(&mut self) -> Result<usize, ModelError> {
        Ok(self.choice)
    }

    fn read(&mut self, what: Read<'_, Self>, range: Range<usize>) -> Result<Vec<f32>, ModelError> {
        let numbers = match what {
            Read::Logits => &self.logits,
            Read::Latents => &self.latents,
            Read::Samples => &self.samples,
            Read::Hidden => return Ok(self.hidden[range].iter().map(|number| number.wide()).collect()),
            Read::Semantic(_) => return Ok(self.semantic[range].iter().map(|number| number.wide()).collect()),
        };
        Ok(numbers[range].to_vec())
    }

    fn offloading(&self) -> Option<Offloading> {
        self.stack.offloading()
    }

    fn layer_visits(&mut self) -> Result<Vec<LayerVisit>, ModelError> {
        self.stack.visits()
    }

    fn reset(&mut self) -> Done {
        (self.latents, self.samples) = (Vec::new(), Vec::new());
        Ok(())
    }
}
