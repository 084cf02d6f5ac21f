//! The forward operations of training. Each layer keeps the activations for backward.

use laptime_cuda::{Buffer, CudaError, Sizes};

use super::GpuTraining;
use crate::decoder::layers::{LinearAt, LinearOf, NormAt, Ops};
use crate::gpu::pass::{Naive, packed};
use crate::gpu::size;
use crate::gpu::weights::{LayerWeights, Number};
use crate::train::buffers::{Kept, KeptLayer, Scratch};
use crate::{Attention, Done, Marks, marks::stage_mark};

impl<T: Number> GpuTraining<'_, T> {
    pub(super) fn shape(&self, width: usize) -> Result<[u32; 2], CudaError> {
        Ok([size(self.rows)?, size(width)?])
    }

    pub(super) fn scale(&self) -> f32 {
        1.0 / (self.config.head_dim as f32).sqrt()
    }

    pub(super) fn epsilon(&self) -> f32 {
        self.config.norm_eps as f32
    }

    pub(super) fn naive_weights(&mut self, marks: &Marks) -> Done {
        let (naive, scale) = (Naive::new(&self.sizes, self.sizes.tokens), self.scale());
        let ([queries, keys, _], probabilities) = (&self.heads, &mut self.scratch.probabilities);
        {
            let _op = stage_mark!(marks, Ops, "scores");
            self.blas.multiply_batch([queries.all(), keys.all()], probabilities.all_mut(), &naive.scores())?;
        }
        let _op = stage_mark!(marks, Ops, "softmax");
        let (stream, sizes) = (self.device.stream(), &self.sizes);
        Ok(self.operations.softmax_causal(stream, probabilities, &self.start, sizes, (sizes.tokens, None), scale)?)
    }

    fn attend_naive(&mut self, layer: usize) -> Done {
        self.naive_weights(&self.options.marks.clone())?;
        let _op = stage_mark!(self.options.marks, Ops, "weighted");
        let weighted = Naive::new(&self.sizes, self.sizes.tokens).weighted();
        let (probabilities, [_, _, values], by_head) = (&self.scratch.probabilities, &self.heads, &mut self.by_head);
        self.blas.multiply_batch([probabilities.all(), values.all()], by_head.all_mut(), &weighted)?;
        let attended = &mut self.kept.layers[layer].attended;
        Ok(self.operations.merge_heads(self.device.stream(), &*by_head, attended, &self.sizes)?)
    }

    fn attend_fused(&mut self, layer: usize) -> Done {
        let _op = stage_mark!(self.options.marks, Ops, "fused");
        let (stream, scale) = (self.device.stream(), self.scale());
        let inputs = self.heads.each_ref().map(Buffer::all);
        let Kept { layers, row_sums, .. } = &mut self.kept;
        let out = (layers[layer].attended.all_mut(), Some(row_sums[layer].all_mut()));
        Ok(self.attention.attend(stream, inputs, &self.start, out, &self.sizes, scale)?)
    }
}

impl<T: Number> Ops for GpuTraining<'_, T> {
    type Matrix = Buffer<T>;
    type Vector = Buffer<T>;

    fn marks(&self) -> &Marks {
        &self.options.marks
    }

    fn norm(&mut self, at: NormAt, weight: &Buffer<T>) -> Done {
        let (shape, epsilon) = (self.shape(self.config.hidden)?, self.epsilon());
        let (hidden, normed) = (self.kept.norm_input(at), &mut self.scratch.normed);
        Ok(self.operations.rms_norm(self.device.stream(), hidden, weight, normed, shape, epsilon)?)
    }

    /// RoPE adds the bias of queries, keys and values, and SwiGLU that of gate and up.
    fn linear(&mut self, at: LinearAt, linear: LinearOf<'_, Self>) -> Done {
        let [out, width] = at.shape(&self.config);
        let sizes = Sizes { m: size(self.rows)?, n: size(out)?, k: size(width)?, b_is_transposed: true };
        let (stream, blas, weight) = (self.device.stream(), &self.blas, linear.weight.all());
        let (Scratch { normed, activated, .. }, Kept { layers, logits, .. }) = (&self.scratch, &mut self.kept);
        let out = match at {
            LinearAt::Qkv(layer) => &mut layers[layer].qkv,
            LinearAt::GateUp(layer) => &mut layers[layer].gate_up,
            LinearAt::Head => logits,
            LinearAt::Output(layer) => {
                let KeptLayer { input, attended, middle, .. } = &mut layers[layer];
                middle.all_mut().copy_from(stream, input.all())?;
                return Ok(blas.multiply_add([attended.all(), weight], middle.all_mut(), sizes)?);
            }
            LinearAt::Down(layer) => {
                let (middle, hidden) = self.kept.middle_and_next(layer);
                hidden.all_mut().copy_from(stream, middle.all())?;
                blas.multiply_add([activated.all(), weight], hidden.all_mut(), sizes)?;
                if let Some(bias) = linear.bias {
                    self.operations.add_bias(stream, hidden, bias, [sizes.m, sizes.n])?;
                }
                return Ok(());
            }
        };
        Ok(blas.multiply_slices([normed.all(), weight], out.all_mut(), sizes)?)
    }

    fn rope(&mut self, layer: usize, weights: &LayerWeights<T>) -> Done {
        let packed = packed(&self.config, &self.rope, &self.start, weights, &self.kept.layers[layer].qkv);
        let [queries, keys, values] = &mut self.heads;
        Ok(self.operations.split_heads(self.device.stream(), &packed, queries, keys, values, &self.sizes)?)
    }

    fn attend(&mut self, layer: usize, _: &LayerWeights<T>) -> Done {
        match self.options.attention {
            Attention::Naive => self.attend_naive(layer),
            Attention::Dense => self.attend_fused(layer),
        }
    }

    fn swiglu(&mut self, layer: usize, weights: &LayerWeights<T>) -> Done {
        let shape = self.shape(self.config.ffn)?;
        let bias = weights.gate_up_bias.as_ref().map(Buffer::all);
        let (gate_up, activated) = (&self.kept.layers[layer].gate_up, &mut self.scratch.activated);
        Ok(self.operations.swiglu(self.device.stream(), gate_up, bias, activated, shape)?)
    }
}
