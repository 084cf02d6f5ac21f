//! The operations of the codec decoder on the CPU.

use super::{
    super::{
        cache::zeros,
        conv::{self, Conv},
        crew::Crew,
        number::Number,
        product::{Put, project},
        rows::Rows,
        stack::{Before, Stack},
        steps::gelu,
    },
    load::CpuParts,
    steps::{Snake, add_scaled, layer_norm},
};
use crate::{
    ModelError,
    tts::{CodecOps, CodecSizes, CodecWeights, Flow, NEXT_EPS, NextWeights},
};

/// The buffers of the codec decoder, kept from one chunk to the next.
pub struct Buffers<T> {
    sizes: CodecSizes,
    pub hidden: Vec<T>,
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
    pub fn new(sizes: CodecSizes) -> Self {
        Self { sizes, hidden: Vec::new(), second: Vec::new(), inner: Vec::new(), gathered: Vec::new() }
    }

    /// Makes every buffer as large as this many frames need.
    pub fn fit(&mut self, frames: usize) -> Result<(), ModelError> {
        let Self { sizes, hidden, second, inner, gathered: columns } = self;
        let numbers = frames.saturating_mul(sizes.hidden);
        let inside = numbers.max(frames.saturating_mul(sizes.inner));
        let wanted = [(hidden, numbers), (second, numbers), (inner, inside), (columns, gathered(sizes, frames))];
        for (buffer, size) in wanted {
            if buffer.len() < size {
                // The old one is not needed, and not both at once.
                *buffer = Vec::new();
                *buffer = zeros(size)?;
            }
        }
        Ok(())
    }
}

/// A chunk on its way through the codec decoder.
pub struct Codec<'a, T> {
    pub crew: &'a Crew,
    pub codes: &'a [u32],
    pub transformer: &'a mut Stack<T>,
    pub buffers: &'a mut Buffers<T>,
}

type Weights<T> = CodecWeights<CpuParts<T>>;
type Next<T> = NextWeights<CpuParts<T>>;

impl<T: Number> CodecOps for Codec<'_, T> {
    type Parts = CpuParts<T>;
    type Error = ModelError;

    fn look_up(&mut self, weights: &Weights<T>, frames: usize) -> Result<(), ModelError> {
        let groups = self.codes.len() / frames.max(1);
        let Buffers { hidden, second, .. } = &mut *self.buffers;
        let width = weights.input.inputs() / 2;
        let book = weights.codebooks.len() / groups;
        let mut sum = vec![0.0; width];
        for (codes, out) in self.codes.chunks(groups).zip(second.chunks_mut(2 * width)) {
            let vector = |group: usize| &weights.codebooks[group * book + codes[group] as usize * width..][..width];
            let (first, rest) = out.split_at_mut(width);
            first.iter_mut().zip(vector(0)).for_each(|(out, number)| *out = T::narrow(*number));
            sum.fill(0.0);
            (1..groups).for_each(|group| sum.iter_mut().zip(vector(group)).for_each(|(sum, number)| *sum += number));
            rest.iter_mut().zip(&sum).for_each(|(out, sum)| *out = T::narrow(*sum));
        }
        let projection = Rows::dense(&weights.projection, weights.projection.len() / (2 * width), 2 * width);
        project(self.crew, Rows::dense(second, frames, 2 * width), projection, hidden, Put::OVER);
        Ok(())
    }

    fn conv(&mut self, conv: &Conv<T>, snake: Option<&Snake>, rows: usize, flow: Flow) -> Result<usize, ModelError> {
        let Buffers { hidden, second, inner, gathered, .. } = &mut *self.buffers;
        let size = rows * conv.inputs();
        let Some(snake) = snake else {
            conv.run(self.crew, &hidden[..size], second, gathered, Put::OVER);
            std::mem::swap(hidden, second);
            return Ok(rows * conv.stride());
        };
        snake.run(self.crew, if flow == Flow::Add { &inner[..size] } else { &hidden[..size] }, second);
        let (to, put) = match flow {
            Flow::Hidden => (hidden, Put::OVER),
            Flow::Inner => (inner, Put::OVER),
            Flow::Add => (hidden, Put::ONTO),
        };
        conv.run(self.crew, &second[..size], to, gathered, put);
        Ok(rows * conv.stride())
    }

    fn transformer(&mut self, _: &Weights<T>, frames: usize) -> Result<(), ModelError> {
        let Self { crew, transformer, buffers, .. } = self;
        let hidden = &mut buffers.hidden;
        transformer.run(crew, frames, Before::Nothing, None, |to| to.copy_from_slice(&hidden[..to.len()]))?;
        let normed = transformer.normed();
        hidden[..normed.len()].copy_from_slice(normed);
        Ok(())
    }

    fn depthwise_norm(&mut self, next: &Next<T>, rows: usize) -> Result<(), ModelError> {
        let Buffers { hidden, second, .. } = &mut *self.buffers;
        let size = rows * next.scale.len();
        next.depthwise.run(self.crew, &hidden[..size], second);
        layer_norm(self.crew, &next.norm, NEXT_EPS, &mut second[..size]);
        Ok(())
    }

    fn up_gelu(&mut self, next: &Next<T>, rows: usize) -> Result<(), ModelError> {
        let Buffers { second, inner, .. } = &mut *self.buffers;
        let width = next.up.outputs();
        next.up.run(self.crew, rows, second, inner);
        gelu(self.crew, width, &mut inner[..rows * width]);
        Ok(())
    }

    fn down_add(&mut self, next: &Next<T>, rows: usize) -> Result<(), ModelError> {
        let Buffers { hidden, second, inner, .. } = &mut *self.buffers;
        next.down.run(self.crew, rows, inner, second);
        add_scaled(self.crew, &next.scale, &second[..rows * next.scale.len()], hidden);
        Ok(())
    }

    fn to_samples(&mut self, weights: &Weights<T>, rows: usize) -> Result<(), ModelError> {
        self.conv(&weights.last, Some(&weights.snake), rows, Flow::Hidden).map(drop)
    }
}
