//! The operations of a synthesis on the CPU.

use std::{ops::Range, sync::Arc};

use super::super::cache::{fit, zeros};
use super::super::conv::{self, Conv};
use super::super::product::{Put, project};
use super::super::stack::{Before, Stack};
use super::super::steps::{Snake, add_row, add_scaled, embed, gelu, layer_norm, silu};
use super::super::{crew::Crew, number::Number, rows::Rows};
use super::CpuParts;
use crate::tts::{
    Choice, CodecOps, CodecSizes, CodecWeights, Flow, LoadedWeights, NEXT_EPS, NextWeights, Prompt, Sampling,
    SamplingPart, TtsConfig, TtsOps, TtsOptions, decode, keep_top_p, penalise, pick, random_bits, sample, suppressed,
    weigh,
};
use crate::{CacheCapacity, Done, Marks, ModelError};

type Weights<T> = LoadedWeights<CpuParts<T>>;

pub struct CpuOps<T> {
    marks: Marks,
    config: Arc<TtsConfig>,
    crew: Crew,
    talker: Stack<T>,
    predictor: Stack<T>,
    transformer: Stack<T>,
    buffers: Buffers<T>,
    following: Vec<T>,
    /// Rows of the talker's width, and the same in the predictor's.
    wide: Vec<T>,
    narrow: Vec<T>,
    /// `[frames, groups]`, and the semantic code of the next frame.
    codes: Vec<u32>,
    chunk: Range<usize>,
    sampling: Sampling,
    sampled: Vec<bool>,
    scores: Vec<f32>,
    shares: Vec<u32>,
    weights: Arc<Weights<T>>,
}

struct Buffers<T> {
    sizes: CodecSizes,
    hidden: Vec<T>,
    second: Vec<T>,
    inner: Vec<T>,
    gathered: Vec<T>,
}

/// The size of the gather buffer for this many frames.
pub fn gathered(sizes: &CodecSizes, frames: usize) -> usize {
    let of_conv = |[rows, inputs, taps]: [usize; 3]| conv::gathered(rows.saturating_mul(frames), inputs, taps);
    sizes.convs.iter().copied().map(of_conv).max().unwrap_or(0)
}

impl<T: Number> Buffers<T> {
    fn new(sizes: CodecSizes) -> Self {
        Self { sizes, hidden: Vec::new(), second: Vec::new(), inner: Vec::new(), gathered: Vec::new() }
    }

    fn fit(&mut self, frames: usize) -> Done {
        let Self { sizes, hidden, second, inner, gathered: columns } = self;
        let numbers = frames.saturating_mul(sizes.hidden);
        let inside = numbers.max(frames.saturating_mul(sizes.inner));
        let wanted = [(hidden, numbers), (second, numbers), (inner, inside), (columns, gathered(sizes, frames))];
        wanted.into_iter().try_for_each(|(buffer, size)| fit(buffer, size))
    }
}

impl<T: Number> CpuOps<T> {
    pub fn new(
        config: &Arc<TtsConfig>,
        options: &TtsOptions,
        weights: Weights<T>,
        crew: Crew,
    ) -> Result<Self, ModelError> {
        let codec = &config.codec;
        let of = |config: &crate::Config, capacity, kept, body: &Arc<_>| {
            Stack::new(config.clone(), options.decoder(capacity, kept), Arc::clone(body))
        };
        Ok(Self {
            talker: of(&config.talker, CacheCapacity::Static(options.capacity), None, &weights.talker.body)?,
            predictor: of(&config.predictor, CacheCapacity::Static(config.groups), None, &weights.predictor.body)?,
            transformer: of(&codec.transformer, CacheCapacity::Growing, Some(codec.kept()), &weights.codec.body)?,
            buffers: Buffers::new(CodecSizes::new(config)),
            following: Vec::new(),
            wide: Vec::new(),
            narrow: Vec::new(),
            codes: Vec::new(),
            chunk: 0..0,
            sampling: Sampling::default(),
            sampled: vec![false; config.talker.vocab],
            scores: Vec::new(),
            shares: Vec::new(),
            weights: Arc::new(weights),
            marks: options.marks.clone(),
            config: Arc::clone(config),
            crew,
        })
    }

    /// Projects the wide rows to the predictor's width.
    fn cross(&mut self) {
        let rows = self.wide.len() / self.config.talker.hidden;
        self.narrow.resize(rows * self.config.predictor.hidden, T::default());
        match &self.weights.predictor.bridge {
            Some(bridge) => bridge.run(&self.crew, &self.wide, &mut self.narrow),
            None => self.narrow.copy_from_slice(&self.wide),
        }
    }

    fn project_text(&self, ids: &[u32]) -> Result<Vec<T>, ModelError> {
        let (talker, width, crew) = (&self.weights.talker, self.config.text_width, &self.crew);
        let mut text = zeros(ids.len() * width)?;
        embed(crew, ids, &talker.text_embedding, width, &mut text);
        let mut inner = zeros(ids.len() * talker.text_up.outputs())?;
        talker.text_up.run(crew, &text, &mut inner);
        silu(crew, &mut inner);
        let mut rows = zeros(ids.len() * talker.text_down.outputs())?;
        talker.text_down.run(crew, &inner, &mut rows);
        Ok(rows)
    }

    fn bits(&self, frame: usize, group: usize) -> u32 {
        random_bits(self.sampling.seed, frame as u32, group as u32)
    }
}

fn row<T>(matrix: &[T], at: usize, width: usize) -> &[T] {
    &matrix[at * width..][..width]
}

fn wide<T: Number>(numbers: &[T]) -> impl Iterator<Item = f32> {
    numbers.iter().map(|number| number.wide())
}

impl<T: Number> TtsOps for CpuOps<T> {
    fn marks(&self) -> &Marks {
        &self.marks
    }

    fn begin(&mut self, _: &Prompt, sampling: &Sampling) -> Done {
        self.sampling = *sampling;
        self.sampled.fill(false);
        Ok(())
    }

    fn prefill(&mut self, prompt: &Prompt) -> Done {
        let (hidden, count) = (self.config.talker.hidden, prompt.positions.len());
        let mut rows = self.project_text(&prompt.text_ids())?;
        self.following = rows.split_off(count * hidden);
        for (position, to) in prompt.positions.iter().zip(rows.chunks_mut(hidden)) {
            if let Some(codec) = position.codec {
                add_row(to, row(&self.weights.talker.embedding, codec as usize, hidden));
            }
        }
        let enter = |stream: &mut [T]| stream.copy_from_slice(&rows);
        self.talker.run(&self.crew, count, Before::Cache, Some(&self.weights.talker.head), enter)
    }

    fn sum_codes(&mut self) -> Done {
        let (hidden, vocab, groups) = (self.config.talker.hidden, self.config.predictor.vocab, self.config.groups);
        let frame = self.codes.len() / groups - 1;
        let [first, others @ ..] = &self.codes[frame * groups..] else { return Ok(()) };
        self.wide.clear();
        self.wide.extend_from_slice(row(&self.weights.talker.embedding, *first as usize, hidden));
        for (group, code) in others.iter().enumerate() {
            add_row(&mut self.wide, row(&self.weights.predictor.embeddings, group * vocab + *code as usize, hidden));
        }
        let last = self.following.len() / hidden - 1;
        add_row(&mut self.wide, row(&self.following, frame.min(last), hidden));
        Ok(())
    }

    fn step(&mut self) -> Done {
        let enter = |stream: &mut [T]| stream.copy_from_slice(&self.wide);
        self.talker.run(&self.crew, 1, Before::Cache, Some(&self.weights.talker.head), enter)
    }

    fn enter(&mut self) -> Done {
        let Some(code) = self.codes.last() else { return Ok(()) };
        self.wide.clear();
        self.wide.extend_from_slice(self.talker.normed());
        self.wide.extend_from_slice(row(&self.weights.talker.embedding, *code as usize, self.config.talker.hidden));
        self.predictor.cache.truncate(0);
        self.cross();
        Ok(())
    }

    fn predict(&mut self, group: usize) -> Done {
        // The first two positions run together.
        let (rows, heads) = (self.narrow.len() / self.config.predictor.hidden, &self.weights.predictor.heads);
        let enter = |stream: &mut [T]| stream.copy_from_slice(&self.narrow);
        self.predictor.run(&self.crew, rows, Before::Cache, Some(&heads[group - 1]), enter)?;
        let bits = self.bits(self.codes.len() / self.config.groups, group);
        self.scores.clear();
        self.scores.extend(wide(self.predictor.logits()));
        let code = sample(&mut self.scores, self.sampling.predictor, bits);
        self.codes.push(code);
        if group < heads.len() {
            let at = (group - 1) * self.config.predictor.vocab + code as usize;
            self.wide.clear();
            self.wide.extend_from_slice(row(&self.weights.predictor.embeddings, at, self.config.talker.hidden));
            self.cross();
        }
        Ok(())
    }

    fn sample(&mut self, part: SamplingPart, frame: usize) -> Done {
        match (part, self.sampling.talker) {
            (SamplingPart::TopK, choice) => {
                self.scores.clear();
                self.scores.extend(wide(self.talker.logits()));
                penalise(&mut self.scores, &self.sampled, self.sampling.repetition_penalty);
                let end = Some(self.config.ids.eos).filter(|_| !self.sampling.may_end(frame));
                for id in suppressed(&self.config).chain(end) {
                    self.scores[id as usize] = f32::NEG_INFINITY;
                }
                self.shares = weigh(&mut self.scores, choice);
            }
            (SamplingPart::TopP, Choice::Drawn { top_p, .. }) => keep_top_p(&self.scores, &mut self.shares, top_p),
            (SamplingPart::TopP, Choice::Likeliest) => {}
            (SamplingPart::Draw, _) => {
                let code = pick(&self.scores, &self.shares, self.bits(frame, 0));
                self.sampled[code as usize] = true;
                self.codes.push(code);
            }
        }
        Ok(())
    }

    fn drawn(&self, frame: usize) -> (u32, bool) {
        let code = self.codes[frame * self.config.groups];
        (code, code == self.config.ids.eos)
    }

    fn codes(&self, frames: Range<usize>) -> Result<Vec<u32>, ModelError> {
        let groups = self.config.groups;
        Ok(self.codes[frames.start * groups..frames.end * groups].to_vec())
    }

    fn set_codes(&mut self, codes: &[u32]) -> Done {
        self.codes = codes.to_vec();
        Ok(())
    }

    fn decode(&mut self, frames: Range<usize>) -> Done {
        let (count, groups, weights) = (frames.len(), self.config.groups, Arc::clone(&self.weights));
        self.buffers.fit(count)?;
        self.chunk = frames.start * groups..frames.end * groups;
        decode(self, &weights.codec, count)
    }

    fn read_samples(&mut self, samples: Range<usize>, to: &mut Vec<f32>) -> Done {
        let samples = &self.buffers.hidden[samples];
        let bytes = 4 * samples.len() as u64;
        to.try_reserve_exact(samples.len()).map_err(|_| ModelError::OutOfMemory { bytes })?;
        to.extend(wide(samples).map(|sample| sample.clamp(-1.0, 1.0)));
        Ok(())
    }

    fn logits(&mut self) -> Result<Vec<f32>, ModelError> {
        Ok(wide(self.talker.logits()).collect())
    }

    fn hidden(&mut self) -> Result<Vec<f32>, ModelError> {
        Ok(wide(self.talker.normed()).collect())
    }

    fn reset(&mut self) -> Done {
        self.talker.cache.truncate(0);
        self.codes.clear();
        Ok(())
    }
}

impl<T: Number> CodecOps for CpuOps<T> {
    type Parts = CpuParts<T>;

    fn look_up(&mut self, weights: &CodecWeights<CpuParts<T>>, frames: usize) -> Done {
        let groups = self.config.groups;
        let Buffers { hidden, second, .. } = &mut self.buffers;
        let width = weights.input.inputs / 2;
        let book = weights.codebooks.len() / groups;
        let mut sum = vec![0.0; width];
        for (codes, out) in self.codes[self.chunk.clone()].chunks(groups).zip(second.chunks_mut(2 * width)) {
            let vector = |group: usize| &weights.codebooks[group * book + codes[group] as usize * width..][..width];
            let (first, rest) = out.split_at_mut(width);
            first.iter_mut().zip(vector(0)).for_each(|(out, number)| *out = T::narrow(*number));
            sum.fill(0.0);
            (1..groups).for_each(|group| sum.iter_mut().zip(vector(group)).for_each(|(sum, number)| *sum += number));
            rest.iter_mut().zip(&sum).for_each(|(out, sum)| *out = T::narrow(*sum));
        }
        let projection = Rows::dense(&weights.projection, weights.projection.len() / (2 * width), 2 * width);
        project(&self.crew, Rows::dense(second, frames, 2 * width), projection, hidden, Put::OVER);
        Ok(())
    }

    fn conv(&mut self, conv: &Conv<T>, snake: Option<&Snake>, rows: usize, flow: Flow) -> Result<usize, ModelError> {
        let Buffers { hidden, second, inner, gathered, .. } = &mut self.buffers;
        let size = rows * conv.inputs;
        let Some(snake) = snake else {
            conv.run(&self.crew, &hidden[..size], second, gathered, Put::OVER);
            std::mem::swap(hidden, second);
            return Ok(rows * conv.stride);
        };
        snake.run(&self.crew, if flow == Flow::Add { &inner[..size] } else { &hidden[..size] }, second);
        let (to, put) = match flow {
            Flow::Hidden => (hidden, Put::OVER),
            Flow::Inner => (inner, Put::OVER),
            Flow::Add => (hidden, Put::ONTO),
        };
        conv.run(&self.crew, &second[..size], to, gathered, put);
        Ok(rows * conv.stride)
    }

    fn transformer(&mut self, _: &CodecWeights<CpuParts<T>>, frames: usize) -> Done {
        let (crew, transformer, hidden) = (&self.crew, &mut self.transformer, &mut self.buffers.hidden);
        transformer.run(crew, frames, Before::Nothing, None, |to| to.copy_from_slice(&hidden[..to.len()]))?;
        let normed = transformer.normed();
        hidden[..normed.len()].copy_from_slice(normed);
        Ok(())
    }

    fn next_block(&mut self, next: &NextWeights<CpuParts<T>>, rows: usize) -> Done {
        let (crew, Buffers { hidden, second, inner, .. }) = (&self.crew, &mut self.buffers);
        let (size, inside) = (rows * next.scale.len(), rows * next.up.outputs());
        next.depthwise.run(crew, &hidden[..size], second);
        layer_norm(crew, &next.norm, NEXT_EPS, &mut second[..size]);
        next.up.run(crew, &second[..size], inner);
        gelu(crew, &mut inner[..inside]);
        next.down.run(crew, &inner[..inside], second);
        add_scaled(crew, &next.scale, &second[..size], hidden);
        Ok(())
    }

    fn to_samples(&mut self, weights: &CodecWeights<CpuParts<T>>, rows: usize) -> Done {
        self.conv(&weights.last, Some(&weights.snake), rows, Flow::Hidden).map(drop)
    }
}
