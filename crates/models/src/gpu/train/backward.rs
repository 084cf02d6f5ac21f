//! Backward, block by block.

use laptime_cuda::{
    Batch, Buffer, CudaError, Matrices,
    nn::{Attended, HeadNormGradients, Normed},
};

use super::{GpuTrainer, buffers::Scratch};
use crate::{
    Attention, Marks,
    gpu::{
        pass::packed,
        room::qkv_width,
        size,
        weights::{Number, Parameters},
    },
    marks::stage_mark,
};

impl<T: Number> GpuTrainer<'_, T> {
    /// From the gradient of the logits to those of all parameters.
    pub(super) fn run_backward(&mut self) -> Result<(), CudaError> {
        let marks = self.options.marks.clone();
        {
            let _stage = stage_mark!(marks, Layer, "head");
            self.backward_head()?;
        }
        self.ledger.head_backward();
        for index in (0..self.config.layers).rev() {
            let _layer = stage_mark!(marks, Layer, "layer", layer = index);
            {
                let _part = stage_mark!(marks, Layer, "ffn");
                self.backward_ffn(index)?;
            }
            let _part = stage_mark!(marks, Layer, "attention");
            self.backward_attention(index)?;
            self.ledger.layer_backward();
        }
        let _stage = stage_mark!(marks, Layer, "embed");
        self.backward_embed()
    }

    fn backward_head(&mut self) -> Result<(), CudaError> {
        let (hidden, vocab, stream) = (self.config.hidden, self.config.vocab, self.device.stream());
        let (shape, epsilon) = (self.rows_by(hidden)?, self.config.norm_eps as f32);
        let parameters = &self.weights.parameters;
        let Scratch { normed, dx, d_normed, sums, .. } = &mut self.scratch;
        let of_weights = weights_product(self.sizes.rows, vocab, hidden)?;
        let of_rows = rows_product(self.sizes.rows, vocab, hidden)?;
        let marks = &self.options.marks;
        {
            let _op = stage_mark!(marks, Ops, "head_weights");
            // What forward normed for the logits is still there.
            let d_head = head_mut(&mut self.gradients);
            self.blas.multiply_batch([self.kept.logits.all(), normed.all()], d_head.all_mut(), &of_weights)?;
        }
        {
            let _op = stage_mark!(marks, Ops, "head_input");
            self.blas.multiply_batch(
                [self.kept.logits.all(), parameters.head().all()],
                d_normed.all_mut(),
                &of_rows,
            )?;
        }
        let _op = stage_mark!(marks, Ops, "norm_back");
        let (weight, d_weight) = (&parameters.norm, &mut self.gradients.norm);
        let norm = Normed { x: self.kept.x.all(), weight: weight.all(), dy: d_normed.all(), epsilon };
        self.operations.rms_norm_backward(stream, &norm, dx, d_weight, sums, shape, false)
    }

    fn backward_ffn(&mut self, index: usize) -> Result<(), CudaError> {
        let (marks, stream, rows) = (self.options.marks.clone(), self.device.stream(), self.sizes.rows);
        let (hidden, ffn, epsilon) = (self.config.hidden, self.config.ffn, self.config.norm_eps as f32);
        let (by_hidden, by_ffn, by_two) = (self.rows_by(hidden)?, self.rows_by(ffn)?, self.rows_by(2 * ffn)?);
        let weights = &self.weights.parameters.layers[index];
        let gradients = &mut self.gradients.layers[index];
        let kept = &mut self.kept.layers[index];
        let Scratch { normed, dx, d_normed, activated, d_activated, sums, .. } = &mut self.scratch;
        {
            let _op = stage_mark!(marks, Ops, "down_input");
            let product = rows_product(rows, hidden, ffn)?;
            self.blas.multiply_batch([dx.all(), weights.down.all()], d_activated.all_mut(), &product)?;
        }
        {
            let _op = stage_mark!(marks, Ops, "swiglu");
            let bias = weights.gate_up_bias.as_ref().map(Buffer::all);
            let d_gate_up = &mut kept.gate_up;
            self.operations.swiglu_backward(
                stream,
                d_gate_up,
                bias,
                &*d_activated,
                Some(activated.all_mut()),
                by_ffn,
            )?;
        }
        {
            let _op = stage_mark!(marks, Ops, "down_weights");
            let product = weights_product(rows, hidden, ffn)?;
            self.blas.multiply_batch([dx.all(), activated.all()], gradients.down.all_mut(), &product)?;
            if let Some(bias) = &mut gradients.down_bias {
                self.operations.column_sums(stream, &*dx, bias, &mut *sums, by_hidden)?;
            }
        }
        {
            let _op = stage_mark!(marks, Ops, "norm_again");
            let operations = &self.weights.operations;
            operations.rms_norm(stream, &kept.middle, &weights.ffn_norm, &mut *normed, by_hidden, epsilon)?;
        }
        {
            let _op = stage_mark!(marks, Ops, "gate_up_weights");
            let product = weights_product(rows, 2 * ffn, hidden)?;
            self.blas.multiply_batch([kept.gate_up.all(), normed.all()], gradients.gate_up.all_mut(), &product)?;
            if let Some(bias) = &mut gradients.gate_up_bias {
                self.operations.column_sums(stream, &kept.gate_up, bias, &mut *sums, by_two)?;
            }
        }
        {
            let _op = stage_mark!(marks, Ops, "gate_up_input");
            let product = rows_product(rows, 2 * ffn, hidden)?;
            self.blas.multiply_batch([kept.gate_up.all(), weights.gate_up.all()], d_normed.all_mut(), &product)?;
        }
        let _op = stage_mark!(marks, Ops, "norm_back");
        let norm = Normed { x: kept.middle.all(), weight: weights.ffn_norm.all(), dy: d_normed.all(), epsilon };
        let d_weight = &mut gradients.ffn_norm;
        self.operations.rms_norm_backward(stream, &norm, dx, d_weight, sums, by_hidden, true)
    }

    fn backward_attention(&mut self, index: usize) -> Result<(), CudaError> {
        let (marks, rows) = (self.options.marks.clone(), self.sizes.rows);
        let (hidden, width) = (self.config.hidden, self.config.heads * self.config.head_dim);
        {
            let weights = &self.weights.parameters.layers[index];
            let gradients = &mut self.gradients.layers[index];
            let Scratch { dx, d_attended, .. } = &mut self.scratch;
            {
                let _op = stage_mark!(marks, Ops, "output_weights");
                let product = weights_product(rows, hidden, width)?;
                let attended = &self.kept.layers[index].attended;
                self.blas.multiply_batch([dx.all(), attended.all()], gradients.output.all_mut(), &product)?;
            }
            let _op = stage_mark!(marks, Ops, "output_input");
            let product = rows_product(rows, hidden, width)?;
            self.blas.multiply_batch([dx.all(), weights.output.all()], d_attended.all_mut(), &product)?;
        }
        {
            let _op = stage_mark!(marks, Ops, "rope_again");
            let weights = &self.weights.parameters.layers[index];
            let qkv = &self.kept.layers[index].qkv;
            let packed = packed(&self.config, &self.turns, &self.start, weights, qkv);
            let Scratch { queries, keys, values, .. } = &mut self.scratch;
            let operations = &self.weights.operations;
            operations.split_heads(self.device.stream(), &packed, queries, keys, values, &self.heads)?;
        }
        match self.options.attention {
            Attention::Naive => self.backward_naive()?,
            Attention::Dense => self.backward_fused(index)?,
        }
        self.backward_qkv(index)
    }

    fn backward_naive(&mut self) -> Result<(), CudaError> {
        let (marks, stream, naive) = (self.options.marks.clone(), self.device.stream(), self.naive());
        let scale = 1.0 / (self.config.head_dim as f32).sqrt();
        {
            let _op = stage_mark!(marks, Ops, "weights_again");
            self.forward_ops().0.naive_weights(&Marks::default())?;
        }
        let Scratch {
            queries,
            keys,
            values,
            probabilities,
            by_head,
            d_queries,
            d_keys,
            d_values,
            d_scores,
            d_attended,
            ..
        } = &mut self.scratch;
        {
            let _op = stage_mark!(marks, Ops, "weighted");
            self.operations.split_rows_to_heads(stream, &*d_attended, &mut *by_head, &self.heads)?;
            self.blas.multiply_batch([probabilities.all(), by_head.all()], d_values.all_mut(), &naive.gathered())?;
            self.blas.multiply_batch([by_head.all(), values.all()], d_scores.all_mut(), &naive.scores())?;
        }
        {
            let _op = stage_mark!(marks, Ops, "softmax");
            let keys = self.heads.tokens;
            let (operations, start) = (&self.operations, &self.start);
            operations.softmax_causal_backward(
                stream,
                &*probabilities,
                &mut *d_scores,
                start,
                &self.heads,
                keys,
                scale,
            )?;
        }
        let _op = stage_mark!(marks, Ops, "scores");
        self.blas.multiply_batch([d_scores.all(), keys.all()], d_queries.all_mut(), &naive.weighted())?;
        self.blas.multiply_batch([d_scores.all(), queries.all()], d_keys.all_mut(), &naive.gathered())
    }

    fn backward_fused(&mut self, index: usize) -> Result<(), CudaError> {
        let _op = stage_mark!(self.options.marks, Ops, "fused");
        let kept = &self.kept.layers[index];
        let Scratch { queries, keys, values, d_queries, d_keys, d_values, d_attended, dots, .. } = &mut self.scratch;
        let attended = Attended {
            q: queries.all(),
            k: keys.all(),
            v: values.all(),
            out: kept.attended.all(),
            d_out: d_attended.all(),
            logarithms: kept.logarithms.all(),
            start: self.start.all(),
        };
        let gradients = [d_queries.all_mut(), d_keys.all_mut(), d_values.all_mut()];
        let (stream, scale) = (self.device.stream(), 1.0 / (self.config.head_dim as f32).sqrt());
        self.attention_gradients.attend_backward(stream, &attended, gradients, dots, &self.heads, scale)
    }

    fn backward_qkv(&mut self, index: usize) -> Result<(), CudaError> {
        let (marks, stream, rows) = (self.options.marks.clone(), self.device.stream(), self.sizes.rows);
        let (hidden, width) = (self.config.hidden, qkv_width(&self.config));
        let (shape, by_width) = (self.rows_by(hidden)?, self.rows_by(width)?);
        let epsilon = self.config.norm_eps as f32;
        let weights = &self.weights.parameters.layers[index];
        let gradients = &mut self.gradients.layers[index];
        let kept = &self.kept.layers[index];
        let Scratch { normed, dx, d_normed, d_queries, d_keys, d_values, d_qkv, sums, .. } = &mut self.scratch;
        {
            let _op = stage_mark!(marks, Ops, "rope_back");
            let packed = packed(&self.config, &self.turns, &self.start, weights, &kept.qkv);
            let heads = [d_queries.all(), d_keys.all(), d_values.all()];
            let norms = gradients.query_norm.as_mut().zip(gradients.key_norm.as_mut());
            let norms =
                norms.map(|(q, k)| HeadNormGradients { q: q.all_mut(), k: k.all_mut(), scratch: sums.all_mut() });
            self.operations.split_heads_backward(stream, &packed, heads, &mut *d_qkv, norms, &self.heads)?;
        }
        {
            let _op = stage_mark!(marks, Ops, "norm_again");
            let norm = &weights.attention_norm;
            self.weights.operations.rms_norm(stream, &kept.x, norm, &mut *normed, shape, epsilon)?;
        }
        {
            let _op = stage_mark!(marks, Ops, "qkv_weights");
            let product = weights_product(rows, width, hidden)?;
            self.blas.multiply_batch([d_qkv.all(), normed.all()], gradients.qkv.all_mut(), &product)?;
            if let Some(bias) = &mut gradients.qkv_bias {
                self.operations.column_sums(stream, &*d_qkv, bias, &mut *sums, by_width)?;
            }
        }
        {
            let _op = stage_mark!(marks, Ops, "qkv_input");
            let product = rows_product(rows, width, hidden)?;
            self.blas.multiply_batch([d_qkv.all(), weights.qkv.all()], d_normed.all_mut(), &product)?;
        }
        let _op = stage_mark!(marks, Ops, "norm_back");
        let norm = Normed { x: kept.x.all(), weight: weights.attention_norm.all(), dy: d_normed.all(), epsilon };
        let d_weight = &mut gradients.attention_norm;
        self.operations.rms_norm_backward(stream, &norm, dx, d_weight, sums, shape, true)
    }

    fn backward_embed(&mut self) -> Result<(), CudaError> {
        let shape = [size(self.config.vocab)?, size(self.config.hidden)?];
        let Scratch { dx, counts, .. } = &mut self.scratch;
        let table = &mut self.gradients.embedding;
        // A tied head has left its gradient there.
        let is_added = self.config.tied;
        self.operations.embed_backward(self.device.stream(), &self.ids, &*dx, table, counts, shape, is_added)
    }
}

fn head_mut<T>(gradients: &mut Parameters<T>) -> &mut Buffer<T> {
    gradients.own_head.as_mut().unwrap_or(&mut gradients.embedding)
}

/// The gradient of weights, `[out, width]`: the transposed gradient of rows of `out` numbers by rows of `width`.
fn weights_product(rows: usize, out: usize, width: usize) -> Result<Batch, CudaError> {
    let (m, n, k) = (size(out)?, size(width)?, size(rows)?);
    let (a, b, c) = (Matrices::transposed(m, k), Matrices::plain(k, n), Matrices::plain(m, n));
    Ok(Batch { count: 1, m, n, k, a, b, c, scale: 1.0, is_added: false })
}

/// The gradient of rows of `width` numbers: that of rows of `out` numbers by the weights.
fn rows_product(rows: usize, out: usize, width: usize) -> Result<Batch, CudaError> {
    let (m, n, k) = (size(rows)?, size(width)?, size(out)?);
    let (a, b, c) = (Matrices::plain(m, k), Matrices::plain(k, n), Matrices::plain(m, n));
    Ok(Batch { count: 1, m, n, k, a, b, c, scale: 1.0, is_added: false })
}
