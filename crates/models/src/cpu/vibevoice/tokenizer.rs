//! The operations of tokenizers on the CPU. All tokenizers share the buffers: one runs after the other.

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
    /// The input, then hidden states that blocks add to, at the end latents or samples.
    pub stream: Vec<T>,
    seen: Vec<T>,
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
        let Buffers { stream, seen, .. } = &mut self.buffers;
        see(&mut flow.contexts[at], stream, seen);
        let rows = stream.len() / conv.inputs / conv.step * conv.stride;
        reserve(stream, rows * conv.outputs());
        stream.resize(rows * conv.outputs(), T::default());
        conv.run_behind(&self.crew, seen, stream);
        Ok(())
    }

    fn add_norm(
        &mut self,
        flow: &mut Flow<T>,
        to: Rows,
        made: Option<&Mixer<Self>>,
        next: Option<&Mixer<Self>>,
    ) -> Done {
        let Buffers { stream, seen, third, .. } = &mut self.buffers;
        let size = stream.len();
        if let Some(block) = made {
            add_scaled(&self.crew, &block.ffn_scale, &third[..size], stream);
        }
        if let Some(block) = next {
            fit(third, size)?;
            Norm { weight: &block.norm, eps: to.eps }.rows(&self.crew, 1, stream, third);
            see(&mut flow.contexts[to.at], &third[..size], seen);
        }
        Ok(())
    }

    fn block(&mut self, flow: &mut Flow<T>, to: Rows, block: &Mixer<Self>) -> Done {
        let (crew, Buffers { stream, seen, second, third }) = (&self.crew, &mut self.buffers);
        let (size, inner) = (stream.len(), to.rows * block.up.bias.len());
        fit(second, seen.len().max(inner))?;
        block.mixer.run(crew, seen, second);
        // The positions before are mixed too, with too little before them, and left out.
        add_scaled(crew, &block.scale, &second[flow.contexts[to.at].len()..seen.len()], stream);
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

fn see<T: Number>(context: &mut [T], rows: &[T], seen: &mut Vec<T>) {
    reserve(seen, context.len() + rows.len());
    seen.extend_from_slice(context);
    seen.extend_from_slice(rows);
    context.copy_from_slice(&seen[seen.len() - context.len()..]);
}

fn reserve<T>(buffer: &mut Vec<T>, size: usize) {
    buffer.clear();
    if buffer.capacity() < size {
        *buffer = Vec::new();
        buffer.reserve_exact(size);
    }
}
