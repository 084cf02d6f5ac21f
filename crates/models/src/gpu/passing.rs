//! Passes of a decoder on a GPU over many tokens.

use laptime_cuda::{Buffer, CudaError, nn::HeadSizes};

use super::{
    cache::GpuCache,
    decoder::GpuDecoder,
    pass::{Buffers, Pass, Turns},
    room::Head,
    size,
    streamed::Streamed,
    weights::{GpuWeights, Number},
};
use crate::marks::{mark, mark_embedding};

impl<T: Number> GpuDecoder<'_, T> {
    fn head_sizes(&self, tokens: usize, capacity: usize) -> Result<HeadSizes, CudaError> {
        Ok(HeadSizes {
            batch: size(self.options.batch)?,
            tokens: size(tokens)?,
            heads: size(self.config.heads)?,
            kv_heads: size(self.config.kv_heads)?,
            head_dim: size(self.config.head_dim)?,
            capacity: size(capacity)?,
        })
    }

    /// A pass from the ids in the buffers to logits; keys and values go to the cache unless every position is wanted.
    pub(super) fn pass(&mut self, tokens: usize, start: usize, head: Head) -> Result<(), CudaError> {
        let capacity = if head == Head::All { tokens } else { self.cache.capacity };
        let heads = self.head_sizes(tokens, capacity)?;
        let Some(buffers) = &mut self.buffers else { return Ok(()) };
        let pass = Pass {
            stream: self.device.stream(),
            blas: &self.blas,
            operations: &self.weights.operations,
            attention: &self.attention,
            blocks: self.sparse.as_ref().and_then(|sparse| Some((&sparse.attention, sparse.layout.as_ref()?))),
            config: &self.config,
            options: &self.options,
            turns: &self.turns,
            start: &self.state.position,
            heads,
            keys: size(start + tokens)?,
        };
        {
            let _stage = mark_embedding!(pass.marks(), tokens);
            let shape = [size(self.config.vocab)?, size(self.config.hidden)?];
            let Buffers { ids, x, .. } = &mut *buffers;
            pass.operations.embed(pass.stream, &*ids, &self.weights.parameters.embedding, x, shape)?;
        }
        let mut kept = Kept { beside: self.beside.as_mut().filter(|_| head == Head::All), cache: &mut self.cache };
        let streamed = self.streamed.as_mut();
        let first = streamed.as_ref().map_or(0, |streamed| streamed.layers());
        let stays = match streamed {
            Some(streamed) => {
                streamed_layers(&pass, streamed, &mut kept, buffers)?;
                Some(streamed.pass())
            }
            None => None,
        };
        let _resident = stays.map(|forward| mark!(pass.marks(), Pipeline, "resident", forward = forward));
        for (index, layer) in (first..).zip(&self.weights.parameters.layers) {
            pass.layer(index, layer, kept.layer(index), buffers)?;
        }
        let _stage = mark!(pass.marks(), Layer, "head");
        finish(&pass, &self.weights, buffers, tokens, head)
    }

    /// Keys and values of one layer, and how far positions are turned, for a pass without the cache.
    pub(super) fn make_beside(&mut self, length: usize) -> Result<(), CudaError> {
        let numbers = self.options.batch * self.config.kv_heads * length * self.config.head_dim;
        if self.beside.as_ref().is_none_or(|[keys, _]| keys.length() != numbers) {
            self.beside = None;
            self.beside = Some([self.device.allocate(numbers)?, self.device.allocate(numbers)?]);
        }
        let positions = self.turns.cosines.length() / (self.config.head_dim / 2).max(1);
        if positions < length {
            // A graph would go on with the old ones.
            self.device.stream().synchronise()?;
            self.graph = None;
            self.turns = Turns::new(self.device, &self.config, length)?;
        }
        Ok(())
    }
}

/// Where a pass puts keys and values.
struct Kept<'a, T> {
    /// Those of one layer after the other, in a pass without the cache.
    beside: Option<&'a mut [Buffer<T>; 2]>,
    cache: &'a mut GpuCache<T>,
}

impl<T> Kept<'_, T> {
    fn layer(&mut self, index: usize) -> [&mut Buffer<T>; 2] {
        let [keys, values] = match &mut self.beside {
            Some(beside) => beside,
            None => &mut self.cache.layers[index],
        };
        [keys, values]
    }
}

/// The turns of the layers that do not stay.
fn streamed_layers<T: Number>(
    pass: &Pass<'_, T>,
    streamed: &mut Streamed<'_, T>,
    kept: &mut Kept<'_, T>,
    buffers: &mut Buffers<T>,
) -> Result<(), CudaError> {
    streamed.begin()?;
    for index in 0..streamed.layers() {
        streamed.turn(index, |weights| pass.layer_parts(weights, kept.layer(index), buffers))?;
    }
    Ok(())
}

/// The norm before the head, and the head.
fn finish<T: Number>(
    pass: &Pass<'_, T>,
    weights: &GpuWeights<T>,
    buffers: &mut Buffers<T>,
    tokens: usize,
    head: Head,
) -> Result<(), CudaError> {
    let (hidden, epsilon) = (size(pass.config.hidden)?, pass.config.norm_eps as f32);
    let (batch, operations) = (pass.heads.batch, pass.operations);
    let Buffers { x, normed, logits, sizes, .. } = buffers;
    let norm = mark!(pass.marks(), Ops, "norm");
    match head {
        Head::All => {
            let shape = [size(sizes.rows)?, hidden];
            operations.rms_norm(pass.stream, &*x, &weights.parameters.norm, &mut *normed, shape, epsilon)?;
            drop(norm);
            pass.head(normed.all(), weights.parameters.head(), logits)
        }
        Head::Last => {
            operations.last_rows(pass.stream, &*x, &mut *normed, [batch, size(tokens)?, hidden])?;
            operations.rms_norm(pass.stream, &*normed, &weights.parameters.norm, &mut *x, [batch, hidden], epsilon)?;
            drop(norm);
            let rows = batch as usize * pass.config.hidden;
            pass.head(x.slice(0..rows)?, weights.parameters.head(), logits)
        }
    }
}
