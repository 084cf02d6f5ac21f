//! The operations of tokenizers on the CPU. Tokenizers run one after another and share the buffers.

use super::super::steps::{Norm, add_scaled, gelu};
use super::super::{cache::fit, number::Number};
use super::{super::conv::Conv, backend::Cpu};
use crate::ModelError;
use crate::vibevoice::{Done, Mixer, Plan, Rows, TokenizerOps, TokenizerShape};

pub struct Flow<T> {
    contexts: Vec<Vec<T>>,
}

#[derive(Default)]
pub struct Buffers<T> {
    /// The input, then the hidden states, finally latents or samples.
    pub stream: Vec<T>,
    input: Vec<T>,
    second: Vec<T>,
    third: Vec<T>,
}

impl<T: Number> TokenizerOps for Cpu<T> {
    type Flow = Flow<T>;

    const TOGETHER: usize = 4;

    fn flow(&self, shape: &TokenizerShape, tokens: usize) -> Result<Flow<T>, ModelError> {
        let lists = Plan::new(shape, tokens).lists.into_iter();
        Ok(Flow { contexts: lists.map(|list| vec![T::default(); list.kept * list.width]).collect() })
    }

    fn forget(&mut self, flow: &mut Flow<T>) -> Done {
        flow.contexts.iter_mut().for_each(|context| context.fill(T::default()));
        Ok(())
    }

    fn enter(&mut self, _: &mut Flow<T>, numbers: &[f32]) -> Done {
        self.buffers.enter(numbers.iter().copied());
        Ok(())
    }

    fn convolve(&mut self, flow: &mut Flow<T>, at: usize, conv: &Conv<T>, _: usize) -> Done {
        let Buffers { stream, input, .. } = &mut self.buffers;
        join(&mut flow.contexts[at], stream, input);
        let rows = stream.len() / conv.inputs / conv.step * conv.stride;
        reserve(stream, rows * conv.outputs());
        stream.resize(rows * conv.outputs(), T::default());
        conv.run_streaming(&self.crew, input, stream);
        Ok(())
    }

    fn add_norm(
        &mut self,
        flow: &mut Flow<T>,
        to: Rows,
        done: Option<&Mixer<Self>>,
        next: Option<&Mixer<Self>>,
    ) -> Done {
        let Buffers { stream, input, third, .. } = &mut self.buffers;
        let size = stream.len();
        if let Some(block) = done {
            add_scaled(&self.crew, &block.ffn_scale, &third[..size], stream);
        }
        if let Some(block) = next {
            fit(third, size)?;
            Norm { weight: &block.norm, eps: to.eps }.rows(&self.crew, 1, stream, third);
            join(&mut flow.contexts[to.at], &third[..size], input);
        }
        Ok(())
    }

    fn block(&mut self, flow: &mut Flow<T>, to: Rows, block: &Mixer<Self>) -> Done {
        let (crew, Buffers { stream, input, second, third }) = (&self.crew, &mut self.buffers);
        let (size, inner) = (stream.len(), to.rows * block.up.bias.len());
        fit(second, input.len().max(inner))?;
        block.mixer.run(crew, input, second);
        // The context positions are convolved too, without their own context, and skipped.
        add_scaled(crew, &block.scale, &second[flow.contexts[to.at].len()..input.len()], stream);
        Norm { weight: &block.ffn_norm, eps: to.eps }.rows(crew, 1, stream, third);
        block.up.run(crew, &third[..size], second);
        gelu(crew, &mut second[..inner]);
        block.down.run(crew, &second[..inner], third);
        Ok(())
    }

    fn leave(&mut self, _: &Flow<T>, _: &TokenizerShape, _: usize) -> Result<Vec<f32>, ModelError> {
        Ok(self.buffers.stream.iter().map(|number| number.wide()).collect())
    }
}

impl<T: Number> Buffers<T> {
    pub fn enter(&mut self, numbers: impl ExactSizeIterator<Item = f32>) {
        reserve(&mut self.stream, numbers.len());
        self.stream.extend(numbers.map(T::narrow));
    }
}

fn join<T: Number>(context: &mut [T], rows: &[T], input: &mut Vec<T>) {
    reserve(input, context.len() + rows.len());
    input.extend_from_slice(context);
    input.extend_from_slice(rows);
    context.copy_from_slice(&input[input.len() - context.len()..]);
}

fn reserve<T>(buffer: &mut Vec<T>, size: usize) {
    buffer.clear();
    if buffer.capacity() < size {
        *buffer = Vec::new();
        buffer.reserve_exact(size);
    }
}
