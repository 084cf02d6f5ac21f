//! The backward operations of training.

use std::ops::Range;

use laptime_cuda::nn::{Attended, HeadNormGradients, Normed};
use laptime_cuda::{Batch, Buffer, Sizes};

use super::{GpuTraining, all_parameters};
use crate::decoder::layers::{LinearAt, NormAt};
use crate::decoder::weights::Part;
use crate::gpu::pass::{Naive, packed};
use crate::gpu::size;
use crate::gpu::weights::{LayerWeights, Number};
use crate::train::buffers::Scratch;
use crate::train::ops::{TrainDevice, TrainOps, TrainState};
use crate::{Attention, Config, Done, Marks, ModelError, TrainOptions, marks::stage_mark};

impl<T: Number> GpuTraining<'_, T> {
    fn naive_back(&mut self) -> Done {
        let (marks, stream, scale) = (self.options.marks.clone(), self.device.stream(), self.scale());
        let naive = Naive::new(&self.sizes, self.sizes.tokens);
        {
            let _op = stage_mark!(marks, Ops, "weights_again");
            self.naive_weights(&Marks::default())?;
        }
        let Self { heads, d_heads, by_head, blas, gradients, operations, sizes, start, .. } = self;
        let Scratch { probabilities, d_scores, d_attended, .. } = &mut self.scratch;
        let ([queries, keys, values], [d_queries, d_keys, d_values]) = (heads, d_heads);
        {
            let _op = stage_mark!(marks, Ops, "weighted");
            operations.unmerge_heads(stream, &*d_attended, &mut *by_head, sizes)?;
            blas.multiply_batch([probabilities.all(), by_head.all()], d_values.all_mut(), &naive.gathered())?;
            blas.multiply_batch([by_head.all(), values.all()], d_scores.all_mut(), &naive.scores())?;
        }
        {
            let _op = stage_mark!(marks, Ops, "softmax");
            let keys = sizes.tokens;
            gradients.softmax_causal_backward(stream, &*probabilities, &mut *d_scores, &*start, sizes, keys, scale)?;
        }
        let _op = stage_mark!(marks, Ops, "scores");
        blas.multiply_batch([d_scores.all(), keys.all()], d_queries.all_mut(), &naive.weighted())?;
        Ok(blas.multiply_batch([d_scores.all(), queries.all()], d_keys.all_mut(), &naive.gathered())?)
    }

    fn fused_back(&mut self, layer: usize) -> Done {
        let _op = stage_mark!(self.options.marks, Ops, "fused");
        let (stream, scale, kept) = (self.device.stream(), self.scale(), &self.kept.layers[layer]);
        let [q, k, v] = self.heads.each_ref().map(Buffer::all);
        let attended = Attended {
            q,
            k,
            v,
            out: kept.attended.all(),
            d_out: self.scratch.d_attended.all(),
            lse: self.kept.row_sums[layer].all(),
            start: self.start.all(),
        };
        let (gradients, dots, sizes) = (self.d_heads.each_mut().map(Buffer::all_mut), &mut self.dots, &self.sizes);
        Ok(self.attention_gradients.attend_backward(stream, &attended, gradients, dots, sizes, scale)?)
    }
}

impl<T: Number> TrainOps for GpuTraining<'_, T> {
    fn embed(&mut self, table: &Buffer<T>) -> Done {
        let shape = [size(self.config.vocab)?, size(self.config.hidden)?];
        Ok(self.operations.embed(self.device.stream(), &self.ids, table, self.kept.first(), shape)?)
    }

    fn cross_entropy(&mut self) -> Done {
        let shape = self.shape(self.config.vocab)?;
        let (stream, scale) = (self.device.stream(), 1.0 / shape[0] as f32);
        let Self { kept, targets, gradients, loss, .. } = self;
        gradients.cross_entropy(stream, &mut kept.logits, &*targets, &mut kept.losses, shape, scale)?;
        Ok(gradients.mean(stream, &kept.losses, loss)?)
    }

    fn weights_back(&mut self, at: LinearAt, weight: &mut Buffer<T>, bias: Option<&mut Buffer<T>>) -> Done {
        let [out, width] = at.shape(&self.config);
        let (out, width, rows) = (size(out)?, size(width)?, size(self.rows)?);
        let product = Batch::weight_gradient(rows, out, width);
        let (d_out, x) = self.kept.of_weights(&self.scratch, at);
        self.blas.multiply_batch([d_out.all(), x.all()], weight.all_mut(), &product)?;
        if let Some(bias) = bias {
            self.gradients.column_sums(self.device.stream(), d_out, bias, &mut self.sums, [rows, out])?;
        }
        Ok(())
    }

    fn input_back(&mut self, at: LinearAt, weight: &Buffer<T>) -> Done {
        let [out, width] = at.shape(&self.config);
        let sizes = Sizes { m: size(self.rows)?, n: size(width)?, k: size(out)?, b_is_transposed: false };
        let (d_out, d_in) = self.kept.of_input(&mut self.scratch, at);
        Ok(self.blas.multiply_slices([d_out.all(), weight.all()], d_in.all_mut(), sizes)?)
    }

    fn norm_back(&mut self, at: NormAt, weight: &Buffer<T>, gradient: &mut Buffer<T>) -> Done {
        let (shape, epsilon) = (self.shape(self.config.hidden)?, self.epsilon());
        let Scratch { d_normed, d_hidden, .. } = &mut self.scratch;
        let norm = Normed { x: self.kept.norm_input(at).all(), weight: weight.all(), dy: d_normed.all(), epsilon };
        let (stream, is_added) = (self.device.stream(), at != NormAt::Final);
        Ok(self.gradients.rms_norm_backward(stream, &norm, d_hidden, gradient, &mut self.sums, shape, is_added)?)
    }

    fn swiglu_back(&mut self, layer: usize, weights: &LayerWeights<T>) -> Done {
        let (stream, shape) = (self.device.stream(), self.shape(self.config.ffn)?);
        let bias = weights.gate_up_bias.as_ref().map(Buffer::all);
        let Scratch { activated, d_activated, .. } = &mut self.scratch;
        let d_gate_up = &mut self.kept.layers[layer].gate_up;
        let activated = Some(activated.all_mut());
        Ok(self.gradients.swiglu_backward(stream, d_gate_up, bias, &*d_activated, activated, shape)?)
    }

    fn attend_back(&mut self, layer: usize) -> Done {
        match self.options.attention {
            Attention::Naive => self.naive_back(),
            Attention::Dense => self.fused_back(layer),
        }
    }

    fn rope_back(&mut self, layer: usize, weights: &LayerWeights<T>, gradients: &mut LayerWeights<T>) -> Done {
        let packed = packed(&self.config, &self.rope, &self.start, weights, &self.kept.layers[layer].qkv);
        let (heads, scratch) = (self.d_heads.each_ref().map(Buffer::all), self.sums.all_mut());
        let norms = gradients.query_norm.as_mut().zip(gradients.key_norm.as_mut());
        let norms = norms.map(|(q, k)| HeadNormGradients { q: q.all_mut(), k: k.all_mut(), scratch });
        let (stream, d_qkv) = (self.device.stream(), &mut self.scratch.d_qkv);
        Ok(self.gradients.split_heads_backward(stream, &packed, heads, d_qkv, norms, &self.sizes)?)
    }

    fn embed_back(&mut self, table: &mut Buffer<T>) -> Done {
        let shape = [size(self.config.vocab)?, size(self.config.hidden)?];
        // A tied head has written its gradient there.
        let (stream, is_added) = (self.device.stream(), self.config.tied);
        let Self { gradients, ids, scratch, counts, .. } = self;
        Ok(gradients.embed_backward(stream, &*ids, &scratch.d_hidden, table, counts, shape, is_added)?)
    }
}

impl<T: Number> TrainDevice for GpuTraining<'_, T> {
    fn config(&self) -> &Config {
        &self.config
    }

    fn options(&self) -> &TrainOptions {
        &self.options
    }

    fn start(&mut self, ids: &[u32], targets: &[u32]) -> Done {
        let stream = self.device.stream();
        // SAFETY: slices of pageable memory are staged before the calls return.
        unsafe {
            self.ids.begin_write(ids, stream)?;
            self.targets.begin_write(targets, stream)?;
        }
        Ok(())
    }

    fn loss(&mut self) -> Result<f32, ModelError> {
        Ok(self.loss.read()?.first().copied().unwrap_or(f32::NAN))
    }

    fn update(&mut self, state: &mut TrainState<Buffer<T>, Buffer<T>>, number: u64) -> Done {
        let Some((adamw, rates)) = &mut self.adamw else { return Ok(()) };
        let number = u32::try_from(number).unwrap_or(u32::MAX);
        Ok(adamw.step(self.device.stream(), &mut all_parameters(state), rates, number)?)
    }

    fn read(&self, part: Part<&Buffer<T>, &Buffer<T>>, range: Range<usize>) -> Result<Vec<f32>, ModelError> {
        Ok(part.into_inner().slice(range)?.read()?.into_iter().map(T::widened).collect())
    }
}
