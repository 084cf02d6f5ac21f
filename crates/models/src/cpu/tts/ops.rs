//! The operations of a synthesis on the CPU.

use std::{ops::Range, sync::Arc};

use super::super::cache::{fit, zeros};
use super::super::conv::{self, Conv, Linear};
use super::super::product::{Put, project};
use super::super::stack::{Before, Stack};
use super::super::steps::{Snake, add_row, add_scaled, embed, gelu, layer_norm, silu};
use super::super::{crew::Crew, number::Number, rows::Rows};
use super::CpuParts;
use crate::tts::{
    Choice, CodecOps, CodecSizes, CodecWeights, Flow, LoadedWeights, NEXT_EPS, NextWeights, Prompt, Sampling,
    SamplingPart, Suppressed, TtsConfig, TtsOps, TtsOptions, decode, keep_top_p, penalise, pick, random_bits, sample,
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
    /// Rows of the talker's width, and of the predictor's.
    wide: Vec<T>,
    narrow: Vec<T>,
    /// Codes of all frames, frame by frame. The first code of the next frame is there once it is drawn.
    codes: Vec<u32>,
    chunk: Range<usize>,
    sampling: Sampling,
    suppressed: Suppressed,
    seen: Vec<bool>,
    scores: Vec<f32>,
    weights: Vec<u32>,
}

struct Buffers<T> {
    sizes: CodecSizes,
    hidden: Vec<T>,
    second: Vec<T>,
    inner: Vec<T>,
    gathered: Vec<T>,
}

/// Numbers of the largest buffer that convolutions gather for this many frames.
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
        weights: &Weights<T>,
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
            suppressed: Suppressed::of(config),
            seen: vec![false; config.talker.vocab],
            scores: Vec::new(),
            weights: Vec::new(),
            marks: options.marks.clone(),
            config: Arc::clone(config),
            crew,
        })
    }

    fn cross(&mut self, bridge: Option<&Linear<T>>) {
        let rows = self.wide.len() / self.config.talker.hidden;
        self.narrow.resize(rows * self.config.predictor.hidden, T::default());
        match bridge {
            Some(bridge) => bridge.run(&self.crew, &self.wide, &mut self.narrow),
            None => self.narrow.copy_from_slice(&self.wide),
        }
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
    type Parts = CpuParts<T>;
    type Rows = Vec<T>;

    fn marks(&self) -> &Marks {
        &self.marks
    }

    fn begin(&mut self, _: &Weights<T>, _: &Prompt, sampling: &Sampling) -> Done {
        self.sampling = *sampling;
        self.seen.fill(false);
        Ok(())
    }

    fn embed_text(&mut self, weights: &Weights<T>, ids: &[u32]) -> Result<Vec<T>, ModelError> {
        let width = self.config.text_width;
        let mut rows = zeros(ids.len() * width)?;
        embed(&self.crew, ids, &weights.talker.text_embedding, width, &mut rows);
        Ok(rows)
    }

    fn linear(&mut self, linear: &Linear<T>, rows: &Vec<T>, has_silu: bool) -> Result<Vec<T>, ModelError> {
        let (count, width) = (rows.len() / self.config.text_width, linear.outputs());
        let mut out = zeros(count * width)?;
        linear.run(&self.crew, rows, &mut out);
        if has_silu {
            silu(&self.crew, &mut out);
        }
        Ok(out)
    }

    fn prefill(&mut self, weights: &Weights<T>, prompt: &Prompt, mut rows: Vec<T>) -> Done {
        let (hidden, count) = (self.config.talker.hidden, prompt.positions.len());
        self.following = rows.split_off(count * hidden);
        for (position, to) in prompt.positions.iter().zip(rows.chunks_mut(hidden)) {
            if let Some(codec) = position.codec {
                add_row(to, row(&weights.talker.embedding, codec as usize, hidden));
            }
        }
        let enter = |stream: &mut [T]| stream.copy_from_slice(&rows);
        self.talker.run(&self.crew, count, Before::Cache, Some(&weights.talker.head), enter)
    }

    fn sum_codes(&mut self, weights: &Weights<T>) -> Done {
        let (hidden, vocab, groups) = (self.config.talker.hidden, self.config.predictor.vocab, self.config.groups);
        let frame = self.codes.len() / groups - 1;
        let [first, others @ ..] = &self.codes[frame * groups..] else { return Ok(()) };
        self.wide.clear();
        self.wide.extend_from_slice(row(&weights.talker.embedding, *first as usize, hidden));
        for (group, code) in others.iter().enumerate() {
            add_row(&mut self.wide, row(&weights.predictor.embeddings, group * vocab + *code as usize, hidden));
        }
        let last = self.following.len() / hidden - 1;
        add_row(&mut self.wide, row(&self.following, frame.min(last), hidden));
        Ok(())
    }

    fn step(&mut self, weights: &Weights<T>) -> Done {
        let enter = |stream: &mut [T]| stream.copy_from_slice(&self.wide);
        self.talker.run(&self.crew, 1, Before::Cache, Some(&weights.talker.head), enter)
    }

    fn enter(&mut self, weights: &Weights<T>) -> Done {
        let Some(code) = self.codes.last() else { return Ok(()) };
        self.wide.clear();
        self.wide.extend_from_slice(self.talker.normed());
        self.wide.extend_from_slice(row(&weights.talker.embedding, *code as usize, self.config.talker.hidden));
        self.predictor.cache.truncate(0);
        self.cross(weights.predictor.bridge.as_ref());
        Ok(())
    }

    fn predict(&mut self, weights: &Weights<T>, group: usize) -> Done {
        // Both first positions are run at once.
        let (rows, head) = (self.narrow.len() / self.config.predictor.hidden, &weights.predictor.heads[group - 1]);
        let enter = |stream: &mut [T]| stream.copy_from_slice(&self.narrow);
        self.predictor.run(&self.crew, rows, Before::Cache, Some(head), enter)
    }

    fn sample_code(&mut self, weights: &Weights<T>, group: usize) -> Done {
        let bits = self.bits(self.codes.len() / self.config.groups, group);
        self.scores.clear();
        self.scores.extend(wide(self.predictor.logits()));
        let code = sample(&mut self.scores, self.sampling.predictor, bits);
        self.codes.push(code);
        if group < weights.predictor.heads.len() {
            let at = (group - 1) * self.config.predictor.vocab + code as usize;
            self.wide.clear();
            self.wide.extend_from_slice(row(&weights.predictor.embeddings, at, self.config.talker.hidden));
            self.cross(weights.predictor.bridge.as_ref());
        }
        Ok(())
    }

    fn sample(&mut self, part: SamplingPart, frame: usize) -> Done {
        match (part, self.sampling.talker) {
            (SamplingPart::TopK, choice) => {
                self.scores.clear();
                self.scores.extend(wide(self.talker.logits()));
                penalise(&mut self.scores, &self.seen, self.sampling.repetition_penalty);
                self.suppressed.apply(&mut self.scores, self.sampling.may_end(frame));
                self.weights = weigh(&mut self.scores, choice);
            }
            (SamplingPart::TopP, Choice::Drawn { top_p, .. }) => keep_top_p(&self.scores, &mut self.weights, top_p),
            (SamplingPart::TopP, Choice::Likeliest) => {}
            (SamplingPart::Draw, _) => {
                let code = pick(&self.scores, &self.weights, self.bits(frame, 0));
                self.seen[code as usize] = true;
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

    fn decode(&mut self, weights: &Weights<T>, frames: Range<usize>) -> Done {
        let (count, groups) = (frames.len(), self.config.groups);
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

    fn hidden(&mut self, _: &Weights<T>) -> Result<Vec<f32>, ModelError> {
        Ok(wide(self.talker.normed()).collect())
    }

    fn wait(&mut self) -> Done {
        Ok(())
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

    fn depthwise_norm(&mut self, next: &NextWeights<CpuParts<T>>, rows: usize) -> Done {
        let Buffers { hidden, second, .. } = &mut self.buffers;
        let size = rows * next.scale.len();
        next.depthwise.run(&self.crew, &hidden[..size], second);
        layer_norm(&self.crew, &next.norm, NEXT_EPS, &mut second[..size]);
        Ok(())
    }

    fn up_gelu(&mut self, next: &NextWeights<CpuParts<T>>, rows: usize) -> Done {
        let Buffers { second, inner, .. } = &mut self.buffers;
        let width = next.up.outputs();
        next.up.run(&self.crew, &second[..rows * next.scale.len()], inner);
        gelu(&self.crew, &mut inner[..rows * width]);
        Ok(())
    }

    fn down_add(&mut self, next: &NextWeights<CpuParts<T>>, rows: usize) -> Done {
        let Buffers { hidden, second, inner, .. } = &mut self.buffers;
        next.down.run(&self.crew, &inner[..rows * next.up.outputs()], second);
        add_scaled(&self.crew, &next.scale, &second[..rows * next.scale.len()], hidden);
        Ok(())
    }

    fn to_samples(&mut self, weights: &CodecWeights<CpuParts<T>>, rows: usize) -> Done {
        self.conv(&weights.last, Some(&weights.snake), rows, Flow::Hidden).map(drop)
    }
}
