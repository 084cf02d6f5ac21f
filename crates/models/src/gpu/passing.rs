//! Passes of a decoder on a GPU over many tokens.

use std::slice::from_mut;

use super::pass::{Buffers, DeviceRope, Pass, PassRows, PromptRows, head_sizes};
use super::{decoder::GpuPasses, memory::Head, size, sparse::Sparse, stepping::context, weights::Number};
use crate::decoder::layers::{run_all, run_head};
use crate::{Done, marks::mark_embedding};

impl<T: Number> GpuPasses<'_, T> {
    /// A pass from the ids in the buffers to logits. Keys and values go to the cache, unless every position is wanted.
    pub(super) fn pass(&mut self, tokens: usize, start: usize, head: Head) -> Done {
        self.embed(tokens)?;
        self.run_embedded(tokens, start, head)
    }

    pub(super) fn embed(&mut self, tokens: usize) -> Done {
        let (context, parameters) = (context!(self), &self.weights.parameters);
        let Some(Buffers { ids, parts, .. }) = &mut self.buffers else { return Ok(()) };
        let _stage = mark_embedding!(context.marks, tokens);
        let shape = [size(self.config.vocab)?, size(self.config.hidden)?];
        context.operations.embed(context.stream, &*ids, &parameters.embedding, &mut parts.x, shape)?;
        context.scale_embedding(&mut parts.x, self.options.batch * tokens)
    }

    /// The part of a pass behind the embedding.
    pub(super) fn run_embedded(&mut self, tokens: usize, start: usize, head: Head) -> Done {
        let capacity = if head == Head::All { tokens } else { self.cache.capacity };
        let heads = head_sizes(&self.config, self.options.batch, tokens, capacity)?;
        let (context, parameters) = (context!(self), &self.weights.parameters);
        let Some(buffers) = &mut self.buffers else { return Ok(()) };
        let prompt = PromptRows {
            attention: &self.attention,
            windowed: self.windowed.as_ref(),
            blocks: self.sparse.as_ref().and_then(Sparse::parts),
            dense: self.dense.as_ref().filter(|_| start == 0).and_then(|dense| dense.parts_for(tokens)),
            kind: self.options.attention,
            start: &self.state.position,
            heads,
            keys: size(start + tokens)?,
            head,
            cache: match &mut self.uncached {
                Some(uncached) if head == Head::All => from_mut(uncached),
                _ => &mut self.cache.layers,
            },
        };
        let mut pass = Pass { context, buffers, rows: PassRows::Prompt(prompt) };
        run_all(&mut pass, self.streamed.as_mut(), &parameters.layers, |pass| {
            run_head(pass, &parameters.norm, Some(parameters.head()))
        })
    }

    pub(super) fn allocate_uncached(&mut self, length: usize) -> Done {
        let numbers = self.options.batch * self.config.kv_heads * length * self.config.head_dim;
        if self.uncached.as_ref().is_none_or(|[keys, _]| keys.length() != numbers) {
            self.uncached = None;
            self.uncached = Some([self.device.allocate(numbers)?, self.device.allocate(numbers)?]);
        }
        let positions = self.rope.cosines.length() / (self.config.head_dim / 2).max(1);
        if positions < length {
            // A graph would go on with the old ones.
            self.drop_graphs()?;
            self.rope = DeviceRope::new(self.device, &self.config, length)?;
        }
        Ok(())
    }
}
