//! A pass over many tokens: products by cuBLAS, kernels of our own between them.

use laptime_cuda::{
    Batch, Blas, Buffer, CudaError, Device, Matrices, Sizes, Slice, Stream,
    nn::{Attention, BlockAttention, BlockLayout, HeadNorm, HeadSizes, Operations, Packed, Pairing, Rotation},
};

use super::{
    room::PassSizes,
    size,
    weights::{LayerWeights, Number},
};
use crate::{Attention as Kind, Config, Marks, Options, RopeLayout, marks::stage_mark, rope::RopeTable};

/// What goes from operation to operation in a pass.
#[derive(Debug)]
pub struct Buffers<T> {
    pub sizes: PassSizes,
    pub ids: Buffer<u32>,
    pub x: Buffer<T>,
    pub normed: Buffer<T>,
    qkv: Buffer<T>,
    queries: Buffer<T>,
    attended: Buffer<T>,
    scores: Buffer<T>,
    gate_up: Buffer<T>,
    activated: Buffer<T>,
    pub logits: Buffer<T>,
}

impl<T: Number> Buffers<T> {
    pub fn new(device: &Device, sizes: PassSizes) -> Result<Self, CudaError> {
        Ok(Self {
            sizes,
            ids: device.allocate(sizes.rows)?,
            x: device.allocate(sizes.hidden)?,
            normed: device.allocate(sizes.hidden)?,
            qkv: device.allocate(sizes.qkv)?,
            queries: device.allocate(sizes.queries)?,
            attended: device.allocate(sizes.queries)?,
            scores: device.allocate(sizes.scores)?,
            gate_up: device.allocate(sizes.gate_up)?,
            activated: device.allocate(sizes.activated)?,
            logits: device.allocate(sizes.logits)?,
        })
    }
}

/// By how much heads are turned at each position, on the device.
#[derive(Debug)]
pub struct Turns {
    pub cosines: Buffer<f32>,
    pub sines: Buffer<f32>,
    pub layout: RopeLayout,
}

impl Turns {
    pub fn new(device: &Device, config: &Config, positions: usize) -> Result<Self, CudaError> {
        let mut table = RopeTable::new(config);
        table.reach(positions);
        let (cosines, sines) = table.all();
        Ok(Self { cosines: device.upload(cosines)?, sines: device.upload(sines)?, layout: config.rope.layout })
    }

    fn rotation(&self) -> Rotation<'_> {
        let pairing = match self.layout {
            RopeLayout::Halves => Pairing::Halves,
            RopeLayout::Pairs => Pairing::Pairs,
        };
        Rotation { cosines: self.cosines.all(), sines: self.sines.all(), pairing }
    }
}

/// The packed product of a layer, and what is to be done with it on the way to heads.
pub fn packed<'a, T: Number>(
    config: &Config,
    turns: &'a Turns,
    start: &'a Buffer<u32>,
    weights: &'a LayerWeights<T>,
    qkv: &'a Buffer<T>,
) -> Packed<'a, T> {
    let norm = match (&weights.query_norm, &weights.key_norm) {
        (Some(q), Some(k)) => Some(HeadNorm { q: q.all(), k: k.all(), epsilon: config.norm_eps as f32 }),
        _ => None,
    };
    let bias = weights.qkv_bias.as_ref().map(Buffer::all);
    Packed { packed: qkv.all(), bias, norm, rotation: turns.rotation(), start: start.all() }
}

/// All that a pass needs beside weights, cache and buffers.
pub struct Pass<'a, T> {
    pub stream: &'a Stream,
    pub blas: &'a Blas,
    pub operations: &'a Operations<T>,
    pub attention: &'a Attention<T>,
    /// What attention keeps, in blocks; none for all that causality allows.
    pub blocks: Option<(&'a BlockAttention<T>, &'a BlockLayout)>,
    pub config: &'a Config,
    pub options: &'a Options,
    pub turns: &'a Turns,
    /// The position of the first token.
    pub start: &'a Buffer<u32>,
    pub heads: HeadSizes,
    /// Positions that the last token sees.
    pub keys: u32,
}

impl<T: Number> Pass<'_, T> {
    /// One layer, from `x` to `x`.
    pub fn layer(
        &self,
        index: usize,
        weights: &LayerWeights<T>,
        cache: [&mut Buffer<T>; 2],
        buffers: &mut Buffers<T>,
    ) -> Result<(), CudaError> {
        let _layer = stage_mark!(self.marks(), Layer, "layer", layer = index);
        self.layer_parts(weights, cache, buffers)
    }

    /// The same without a stage around it: what runs a streamed layer has one.
    pub fn layer_parts(
        &self,
        weights: &LayerWeights<T>,
        cache: [&mut Buffer<T>; 2],
        buffers: &mut Buffers<T>,
    ) -> Result<(), CudaError> {
        {
            let _part = stage_mark!(self.marks(), Layer, "attention");
            self.attention_part(weights, cache, buffers)?;
        }
        let _part = stage_mark!(self.marks(), Layer, "ffn");
        self.ffn_part(weights, buffers)
    }

    pub fn marks(&self) -> &Marks {
        &self.options.marks
    }

    fn attention_part(
        &self,
        weights: &LayerWeights<T>,
        [keys, values]: [&mut Buffer<T>; 2],
        buffers: &mut Buffers<T>,
    ) -> Result<(), CudaError> {
        let config = self.config;
        self.norm(&weights.attention_norm, buffers)?;
        {
            let _op = stage_mark!(self.marks(), Ops, "qkv");
            let sizes = self.sizes(super::room::qkv_width(config), config.hidden)?;
            self.blas.multiply_slices([buffers.normed.all(), weights.qkv.all()], buffers.qkv.all_mut(), sizes)?;
        }
        {
            let _op = stage_mark!(self.marks(), Ops, "rope");
            let packed = packed(self.config, self.turns, self.start, weights, &buffers.qkv);
            let Buffers { queries, .. } = buffers;
            self.operations.split_heads(self.stream, &packed, queries, &mut *keys, &mut *values, &self.heads)?;
        }
        match (self.blocks, self.options.attention) {
            (Some(blocks), _) => self.blocks(blocks, [keys, values], buffers)?,
            (None, Kind::Naive) => self.naive([keys, values], buffers)?,
            (None, Kind::Dense) => self.fused([keys, values], buffers)?,
        }
        let _op = stage_mark!(self.marks(), Ops, "output");
        let sizes = self.sizes(config.hidden, config.heads * config.head_dim)?;
        self.blas.multiply_add([buffers.attended.all(), weights.output.all()], buffers.x.all_mut(), sizes)
    }

    fn scale(&self) -> f32 {
        1.0 / (self.config.head_dim as f32).sqrt()
    }

    fn fused(&self, [keys, values]: [&Buffer<T>; 2], buffers: &mut Buffers<T>) -> Result<(), CudaError> {
        let _op = stage_mark!(self.marks(), Ops, "fused");
        let Buffers { queries, attended, .. } = buffers;
        let inputs = [queries.all(), keys.all(), values.all()];
        self.attention.attend(self.stream, inputs, self.start, attended, &self.heads, self.scale())
    }

    fn blocks(
        &self,
        (attention, layout): (&BlockAttention<T>, &BlockLayout),
        [keys, values]: [&Buffer<T>; 2],
        buffers: &mut Buffers<T>,
    ) -> Result<(), CudaError> {
        let _op = stage_mark!(self.marks(), Ops, "blocks");
        let Buffers { queries, attended, .. } = buffers;
        attention.attend(self.stream, &self.heads, [queries.all(), keys.all(), values.all()], layout, attended)
    }

    /// Scores of all pairs, their softmax, and the sum of values weighted by it.
    fn naive(&self, [keys, values]: [&Buffer<T>; 2], buffers: &mut Buffers<T>) -> Result<(), CudaError> {
        let HeadSizes { batch, tokens, kv_heads, head_dim, capacity, .. } = self.heads;
        // The queries of a group lie one behind the other, so that keys are read once for all of them.
        let (count, rows) = (batch * kv_heads, self.heads.group() * tokens);
        let apart = u64::from(capacity) * u64::from(head_dim);
        let scores = Matrices::plain(rows, self.keys);
        let product = |n, k, a, b, c| Batch { count, m: rows, n, k, a, b, c, scale: 1.0, is_added: false };
        let Buffers { queries, scores: pairs, attended, .. } = buffers;
        {
            let _op = stage_mark!(self.marks(), Ops, "scores");
            let (a, b) = (Matrices::plain(rows, head_dim), Matrices::transposed(head_dim, self.keys).every(apart));
            let batch = product(self.keys, head_dim, a, b, scores);
            self.blas.multiply_batch([queries.all(), keys.all()], pairs.all_mut(), &batch)?;
        }
        {
            let _op = stage_mark!(self.marks(), Ops, "softmax");
            self.operations.softmax_causal(
                self.stream,
                &mut *pairs,
                self.start,
                &self.heads,
                self.keys,
                self.scale(),
            )?;
        }
        let _op = stage_mark!(self.marks(), Ops, "weighted");
        let (b, c) = (Matrices::plain(self.keys, head_dim).every(apart), Matrices::plain(rows, head_dim));
        let batch = product(head_dim, self.keys, scores, b, c);
        self.blas.multiply_batch([pairs.all(), values.all()], queries.all_mut(), &batch)?;
        self.operations.merge_heads(self.stream, &*queries, attended, &self.heads)
    }

    fn ffn_part(&self, weights: &LayerWeights<T>, buffers: &mut Buffers<T>) -> Result<(), CudaError> {
        let (hidden, ffn, rows) = (self.config.hidden, self.config.ffn, size(buffers.sizes.rows)?);
        self.norm(&weights.ffn_norm, buffers)?;
        {
            let _op = stage_mark!(self.marks(), Ops, "gate_up");
            let sizes = self.sizes(2 * ffn, hidden)?;
            self.blas.multiply_slices(
                [buffers.normed.all(), weights.gate_up.all()],
                buffers.gate_up.all_mut(),
                sizes,
            )?;
        }
        {
            let _op = stage_mark!(self.marks(), Ops, "swiglu");
            let bias = weights.gate_up_bias.as_ref().map(Buffer::all);
            let Buffers { gate_up, activated, .. } = buffers;
            self.operations.swiglu(self.stream, &*gate_up, bias, activated, [rows, size(ffn)?])?;
        }
        let _op = stage_mark!(self.marks(), Ops, "down");
        let sizes = self.sizes(hidden, ffn)?;
        self.blas.multiply_add([buffers.activated.all(), weights.down.all()], buffers.x.all_mut(), sizes)?;
        match &weights.down_bias {
            Some(bias) => self.operations.add_bias(self.stream, &mut buffers.x, bias, [rows, size(hidden)?]),
            None => Ok(()),
        }
    }

    fn norm(&self, weight: &Buffer<T>, buffers: &mut Buffers<T>) -> Result<(), CudaError> {
        let _op = stage_mark!(self.marks(), Ops, "norm");
        let shape = [size(buffers.sizes.rows)?, size(self.config.hidden)?];
        let Buffers { x, normed, .. } = buffers;
        self.operations.rms_norm(self.stream, &*x, weight, normed, shape, self.config.norm_eps as f32)
    }

    /// Logits of the rows that were normed.
    pub fn head(&self, rows: Slice<'_, T>, head: &Buffer<T>, logits: &mut Buffer<T>) -> Result<(), CudaError> {
        let (n, k) = (size(self.config.vocab)?, size(self.config.hidden)?);
        let m = size(rows.length() / self.config.hidden.max(1))?;
        self.blas.multiply_slices([rows, head.all()], logits.all_mut(), Sizes { m, n, k, b_is_transposed: true })
    }

    fn sizes(&self, out: usize, width: usize) -> Result<Sizes, CudaError> {
        let rows = u32::try_from(self.heads.rows()).unwrap_or(u32::MAX);
        Ok(Sizes { m: rows, n: size(out)?, k: size(width)?, b_is_transposed: true })
    }
}
