//! One path of a projector over the tokens of a section.

use super::{
    super::{
        cache::zeros,
        crew::Crew,
        number::Number,
        product::{Put, project},
        rows::Rows,
        steps::{Norm, gelu},
        vectors::sigmoid,
    },
    model::{Block, PathWeights},
};
use crate::{Marks, ModelError, fuser::FuserConfig, marks::stage_mark};

/// What is added under the root of a norm.
const EPS: f32 = 1e-6;

/// What paths compute in, kept from one to the next.
#[derive(Default)]
pub struct Buffers<T> {
    /// What was heard and what is there, side by side: a row for each token.
    joined: Vec<T>,
    stream: Vec<T>,
    /// The stream of the value path.
    second: Vec<T>,
    normed: Vec<T>,
    inner: Vec<T>,
    /// What is to be added, before it is weighted.
    value: Vec<T>,
    /// A weight for each head of each token.
    weights: Vec<T>,
}

/// How many numbers the buffers have for this many tokens.
#[derive(Debug, Clone, Copy)]
pub struct Sizes {
    joined: usize,
    stream: usize,
    inner: usize,
    value: usize,
    weights: usize,
}

impl Sizes {
    pub fn new(config: &FuserConfig, rows: usize) -> Self {
        let by_rows = |width: usize| rows.saturating_mul(width);
        Self {
            joined: by_rows(config.sharer.width().saturating_add(config.receiver.width())),
            stream: by_rows(config.hidden),
            inner: by_rows(config.hidden.max(config.intermediate)),
            value: by_rows(config.receiver.width()),
            weights: by_rows(config.receiver.kv_heads),
        }
    }

    /// All of them; there are three streams.
    pub fn numbers(&self) -> usize {
        let all = [self.joined, self.stream, self.stream, self.stream, self.inner, self.value, self.weights];
        all.into_iter().fold(0, usize::saturating_add)
    }
}

impl<T: Number> Buffers<T> {
    /// Makes every buffer at least as large as is needed.
    pub fn fit(&mut self, sizes: &Sizes) -> Result<(), ModelError> {
        let all = [
            (&mut self.joined, sizes.joined),
            (&mut self.stream, sizes.stream),
            (&mut self.second, sizes.stream),
            (&mut self.normed, sizes.stream),
            (&mut self.inner, sizes.inner),
            (&mut self.value, sizes.value),
            (&mut self.weights, sizes.weights),
        ];
        for (buffer, size) in all {
            if buffer.len() < size {
                // The old one is not needed, and not both at once.
                *buffer = Vec::new();
                *buffer = zeros(size)?;
            }
        }
        Ok(())
    }
}

/// Keys or values of a section, `[batch, kv_heads, length, head_dim]`, as numbers.
#[derive(Clone, Copy)]
pub struct Heads<'a> {
    pub numbers: &'a [f32],
    pub kv_heads: usize,
    pub head_dim: usize,
    /// Positions.
    pub length: usize,
}

impl<'a> Heads<'a> {
    fn width(&self) -> usize {
        self.kv_heads * self.head_dim
    }

    /// The heads of a token, counted over all sequences.
    fn of_token(self, token: usize) -> impl Iterator<Item = &'a [f32]> {
        (0..self.kv_heads).map(move |head| &self.numbers[self.place(token, head)..][..self.head_dim])
    }

    /// Where a head of a token begins.
    fn place(&self, token: usize, head: usize) -> usize {
        let (sequence, position) = (token / self.length, token % self.length);
        ((sequence * self.kv_heads + head) * self.length + position) * self.head_dim
    }
}

/// One path over the tokens of a section.
pub struct Run<'a, T> {
    pub crew: &'a Crew,
    pub marks: &'a Marks,
    pub config: &'a FuserConfig,
    pub path: &'a PathWeights<T>,
    /// Tokens of all sequences.
    pub rows: usize,
}

impl<T: Number> Run<'_, T> {
    /// Adds to `to` what the path makes of what was heard and of what is there.
    pub fn add(&self, buffers: &mut Buffers<T>, heard: Heads<'_>, there: Heads<'_>, to: &mut [f32]) {
        {
            let _stage = stage_mark!(self.marks, Ops, "fuse_input");
            join(heard, there, self.rows, &mut buffers.joined);
            self.path.input.run(self.crew, self.rows, &buffers.joined, &mut buffers.stream);
        }
        {
            let _stage = stage_mark!(self.marks, Ops, "fuse_common");
            self.block(&self.path.common, &mut buffers.stream, &mut buffers.normed, &mut buffers.inner);
            buffers.second[..self.rows * self.config.hidden]
                .copy_from_slice(&buffers.stream[..self.rows * self.config.hidden]);
        }
        {
            let _stage = stage_mark!(self.marks, Ops, "fuse_weight");
            self.block(&self.path.weight, &mut buffers.stream, &mut buffers.normed, &mut buffers.inner);
            self.path.head.run(self.crew, self.rows, &buffers.stream, &mut buffers.weights);
        }
        {
            let _stage = stage_mark!(self.marks, Ops, "fuse_value");
            for block in &self.path.value {
                self.block(block, &mut buffers.second, &mut buffers.normed, &mut buffers.inner);
            }
            self.path.output.run(self.crew, self.rows, &buffers.second, &mut buffers.value);
        }
        let _stage = stage_mark!(self.marks, Ops, "fuse_add");
        add_weighted(&buffers.weights, &buffers.value, self.rows, there, to);
    }

    /// `x + down(gelu(up(norm(x))))`, where `x` is.
    fn block(&self, block: &Block<T>, stream: &mut [T], normed: &mut [T], inner: &mut [T]) {
        let (rows, hidden) = (self.rows, self.config.hidden);
        let width = block.up.len() / hidden;
        Norm { weight: &block.norm, eps: EPS }.rows(self.crew, 1, &stream[..rows * hidden], normed);
        let up = Rows::dense(&block.up, width, hidden);
        project(self.crew, Rows::dense(normed, rows, hidden), up, inner, Put::OVER);
        gelu(self.crew, width, &mut inner[..rows * width]);
        let down = Rows::dense(&block.down, hidden, width);
        project(self.crew, Rows::dense(inner, rows, width), down, stream, Put::ONTO);
    }
}

/// Puts what was heard of each token, and behind it what is there, into a row.
fn join<T: Number>(heard: Heads<'_>, there: Heads<'_>, rows: usize, out: &mut [T]) {
    let width = heard.width() + there.width();
    for (token, out) in out.chunks_mut(width).take(rows).enumerate() {
        let numbers = heard.of_token(token).chain(there.of_token(token)).flatten();
        out.iter_mut().zip(numbers).for_each(|(out, number)| *out = T::narrow(*number));
    }
}

/// Adds the value of every head, times its weight, to a section of keys or values.
fn add_weighted<T: Number>(weights: &[T], values: &[T], rows: usize, shape: Heads<'_>, to: &mut [f32]) {
    let values = values.chunks(shape.width()).zip(weights.chunks(shape.kv_heads)).take(rows);
    for (token, (values, weights)) in values.enumerate() {
        for (head, (values, weight)) in values.chunks(shape.head_dim).zip(weights).enumerate() {
            let weight = T::narrow(sigmoid(weight.wide())).wide();
            let to = &mut to[shape.place(token, head)..][..shape.head_dim];
            to.iter_mut().zip(values).for_each(|(to, value)| *to += weight * value.wide());
        }
    }
}
