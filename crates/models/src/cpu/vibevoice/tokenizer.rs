//! Tokenizers: audio to latents, or latents to audio, a few positions at a time.
//!
//! All convolutions are causal, so what comes later goes on from the last positions that each of them saw: a [`Stream`].

use super::super::{
    conv::{Conv, Depthwise},
    crew::Crew,
    linear::Linear,
    model::Source,
    number::Number,
    steps::{Norm, gelu},
};
use crate::{
    ModelError,
    cpu::tts::add_scaled,
    tts::ConvTensors,
    vibevoice::{MixerTensors, StageTensors, TokenizerConfig, TokenizerTensors, Way},
};

/// A tokenizer with its weights, one way.
pub struct Tokenizer<T> {
    stages: Vec<Stage<T>>,
    head: Conv<T>,
    kernel: usize,
    eps: f32,
}

struct Stage<T> {
    enter: Conv<T>,
    /// Positions that become one.
    step: usize,
    blocks: Vec<Mixer<T>>,
}

/// A block: what mixes positions channel by channel, and a feed-forward part.
struct Mixer<T> {
    norm: Vec<f32>,
    mixer: Depthwise,
    scale: Vec<f32>,
    ffn_norm: Vec<f32>,
    up: Linear<T>,
    down: Linear<T>,
    ffn_scale: Vec<f32>,
}

/// Tokens of audio that are run at a time where there are many.
pub const TOGETHER: usize = 4;

/// The last positions that each convolution saw, in the order in which they run.
pub struct Stream<T> {
    contexts: Vec<Vec<T>>,
}

/// What a tokenizer computes in, kept from one run to the next.
#[derive(Default)]
pub struct Buffers<T> {
    /// What blocks add to.
    stream: Vec<T>,
    /// What a convolution sees.
    seen: Vec<T>,
    second: Vec<T>,
    third: Vec<T>,
}

impl<T: Number> Tokenizer<T> {
    /// Puts the weights into memory.
    pub fn load(
        tensors: &TokenizerTensors,
        config: &TokenizerConfig,
        way: Way,
        source: Source<'_>,
    ) -> Result<Self, ModelError> {
        let stages = tensors.stages.iter().enumerate().map(|(at, stage)| {
            let ratio = at.checked_sub(1).map(|at| match way {
                Way::Encoder => config.ratios[at],
                Way::Decoder => config.ratios[config.ratios.len() - 1 - at],
            });
            Stage::load(stage, way, ratio, source)
        });
        Ok(Self {
            stages: stages.collect::<Result<_, _>>()?,
            head: conv(&tensors.head, source)?,
            kernel: config.kernel,
            eps: config.norm_eps as f32,
        })
    }

    /// A stream with silence before it.
    pub fn stream(&self) -> Stream<T> {
        let mut contexts = Vec::new();
        let silence = |positions: usize, channels: usize| vec![T::default(); positions * channels];
        for stage in &self.stages {
            contexts.push(silence(stage.enter.context(stage.step), stage.enter.inputs()));
            contexts.extend(stage.blocks.iter().map(|block| silence(self.kernel - 1, block.scale.len())));
        }
        contexts.push(silence(self.head.context(1), self.head.inputs()));
        Stream { contexts }
    }

    /// Runs rows that go on from a stream, and gives what comes out.
    pub fn run<'b>(&self, crew: &Crew, rows: &[T], stream: &mut Stream<T>, buffers: &'b mut Buffers<T>) -> &'b [T] {
        make_room(&mut buffers.stream, rows.len());
        buffers.stream.extend_from_slice(rows);
        let mut contexts = stream.contexts.iter_mut();
        for stage in &self.stages {
            if let Some(context) = contexts.next() {
                buffers.conv(crew, &stage.enter, stage.step, context);
            }
            for (block, context) in stage.blocks.iter().zip(&mut contexts) {
                block.run(crew, self.eps, context, buffers);
            }
        }
        if let Some(context) = contexts.next() {
            buffers.conv(crew, &self.head, 1, context);
        }
        &buffers.stream
    }

    /// Runs rows from silence on, a few tokens at a time, each of which has this many numbers.
    pub fn run_all(&self, crew: &Crew, numbers: &[f32], each: usize, buffers: &mut Buffers<T>) -> Vec<f32> {
        let mut stream = self.stream();
        let mut all = Vec::new();
        for part in numbers.chunks(TOGETHER * each) {
            let part: Vec<T> = part.iter().map(|number| T::narrow(*number)).collect();
            all.extend(self.run(crew, &part, &mut stream, buffers).iter().map(|number| number.wide()));
        }
        all
    }
}

impl<T: Number> Stage<T> {
    fn load(tensors: &StageTensors, way: Way, ratio: Option<usize>, source: Source<'_>) -> Result<Self, ModelError> {
        let (enter, step) = match (way, ratio) {
            (Way::Decoder, Some(ratio)) => (lengthen(&tensors.enter, ratio, source)?, 1),
            (_, ratio) => (conv(&tensors.enter, source)?, ratio.unwrap_or(1)),
        };
        let blocks = tensors.blocks.iter().map(|block| Mixer::load(block, source)).collect::<Result<_, _>>()?;
        Ok(Self { enter, step, blocks })
    }
}

impl<T: Number> Mixer<T> {
    fn load(tensors: &MixerTensors, source: Source<'_>) -> Result<Self, ModelError> {
        let rounded = |spec| source.rounded::<T>(&[spec]);
        Ok(Self {
            norm: rounded(&tensors.norm)?,
            mixer: Depthwise::new(&rounded(&tensors.mixer.weight)?, rounded(&tensors.mixer.bias)?),
            scale: rounded(&tensors.scale)?,
            ffn_norm: rounded(&tensors.ffn_norm)?,
            up: Linear::load(&tensors.up, source)?,
            down: Linear::load(&tensors.down, source)?,
            ffn_scale: rounded(&tensors.ffn_scale)?,
        })
    }

    fn run(&self, crew: &Crew, eps: f32, context: &mut [T], buffers: &mut Buffers<T>) {
        let (channels, inner) = (self.scale.len(), self.up.outputs());
        let Buffers { stream, seen, second, third } = buffers;
        let (size, rows) = (stream.len(), stream.len() / channels);
        fit(third, size);
        Norm { weight: &self.norm, eps }.rows(crew, 1, stream, third);
        go_on(context, &third[..size], seen);
        fit(second, seen.len().max(rows * inner));
        self.mixer.run(crew, seen, second);
        // Those before are mixed too, with too little before them, and left out.
        add_scaled(crew, &self.scale, &second[context.len()..seen.len()], stream);
        Norm { weight: &self.ffn_norm, eps }.rows(crew, 1, stream, third);
        self.up.run(crew, rows, &third[..size], second);
        gelu(crew, inner, &mut second[..rows * inner]);
        self.down.run(crew, rows, &second[..rows * inner], third);
        add_scaled(crew, &self.ffn_scale, &third[..size], stream);
    }
}

impl<T: Number> Buffers<T> {
    /// Convolves the stream behind what came before it.
    fn conv(&mut self, crew: &Crew, conv: &Conv<T>, step: usize, context: &mut [T]) {
        let Self { stream, seen, .. } = self;
        go_on(context, stream, seen);
        let rows = stream.len() / conv.inputs() / step * conv.stride();
        make_room(stream, rows * conv.outputs());
        stream.resize(rows * conv.outputs(), T::default());
        conv.run_behind(crew, seen, step, stream);
    }
}

/// Puts rows behind those before them, and keeps the last for what comes next.
fn go_on<T: Number>(context: &mut [T], rows: &[T], seen: &mut Vec<T>) {
    make_room(seen, context.len() + rows.len());
    seen.extend_from_slice(context);
    seen.extend_from_slice(rows);
    context.copy_from_slice(&seen[seen.len() - context.len()..]);
}

fn fit<T: Number>(buffer: &mut Vec<T>, size: usize) {
    if buffer.len() < size {
        make_room(buffer, size);
        buffer.resize(size, T::default());
    }
}

/// Empties a buffer and gives it memory for this many numbers, no more, and not beside what it had.
fn make_room<T>(buffer: &mut Vec<T>, size: usize) {
    buffer.clear();
    if buffer.capacity() < size {
        *buffer = Vec::new();
        buffer.reserve_exact(size);
    }
}

fn conv<T: Number>(tensors: &ConvTensors, source: Source<'_>) -> Result<Conv<T>, ModelError> {
    let kernel = source.stacked::<T>(&[&tensors.weight])?;
    Ok(Conv::new(&kernel, tensors.weight.shape[1], source.rounded::<T>(&[&tensors.bias])?, 1))
}

fn lengthen<T: Number>(tensors: &ConvTensors, stride: usize, source: Source<'_>) -> Result<Conv<T>, ModelError> {
    let kernel = source.stacked::<T>(&[&tensors.weight])?;
    let bias = source.rounded::<T>(&[&tensors.bias])?;
    Ok(Conv::lengthening(&kernel, tensors.weight.shape[0], &bias, stride))
}
