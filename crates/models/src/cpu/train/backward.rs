//! Backward, block by block, in the reverse order of forward.

use super::{
    super::{
        model::{Layer, Model},
        number::Number,
        product::{Factor, Put, share},
        rows::Rows,
    },
    attention::{Fused, Given, HeadGradients, fused_back, naive_back},
    buffers::{Buffers, Kept, LayerKept, Scratch},
    forward::Pass,
    positions::PositionsBack,
    steps::swiglu_back,
};
use crate::{Attention, cpu::attention::Heads, marks::mark};

impl<T: Number> Pass<'_, T> {
    /// Writes the gradients of every parameter, and uses up what forward kept.
    pub fn backward(&self, ids: &[u32], buffers: &mut Buffers<T>, gradients: &mut Model<T>) {
        let Buffers { kept, scratch, ledger } = buffers;
        {
            let _stage = mark!(self.marks(), Layer, "head");
            self.head_back(ids, kept, scratch, gradients);
            ledger.head_backward();
        }
        for at in (0..kept.layers.len()).rev() {
            let _stage = mark!(self.marks(), Layer, "layer", layer = at);
            let (layer, kept, gradients) = (&self.model.layers[at], &mut kept.layers[at], &mut gradients.layers[at]);
            self.ffn_back(layer, kept, scratch, gradients);
            self.attention_back(layer, kept, scratch, gradients);
            ledger.layer_backward();
        }
        {
            let _stage = mark!(self.marks(), Layer, "embed");
            scratch.places.add(self.crew, &scratch.d_stream, &mut gradients.embedding, self.config.hidden);
        }
        ledger.backward_ends();
    }

    /// The gradient of what was multiplied with weights.
    fn input_back(&self, d_out: &[T], weights: &[T], d_in: &mut [T]) {
        let outs = d_out.len() / self.rows();
        let weights = Rows::dense(weights, outs, weights.len() / outs);
        share(self.crew, self.factor(d_out), Factor::Plain(weights), d_in, Put::OVER);
    }

    /// The gradient of weights.
    fn weights_back(&self, d_out: &[T], x: &[T], d_weights: &mut [T]) {
        let rows = Rows::dense(d_out, self.rows(), d_out.len() / self.rows());
        share(self.crew, Factor::Transposed(rows), self.factor(x), d_weights, Put::OVER);
    }

    /// Rows of all tokens.
    fn factor<'n>(&self, numbers: &'n [T]) -> Factor<'n, T> {
        Factor::Plain(Rows::dense(numbers, self.rows(), numbers.len() / self.rows()))
    }

    /// Norms once more what forward did not keep.
    fn norm_again(&self, weight: &[f32], from: &[T], out: &mut [T]) {
        let _stage = mark!(self.marks(), Ops, "norm_again");
        self.norm(weight).rows(self.crew, 1, from, out);
    }

    fn head_back(&self, ids: &[u32], kept: &mut Kept<T>, scratch: &mut Scratch<T>, gradients: &mut Model<T>) {
        // What forward normed for the logits is still there.
        let Scratch { normed, d_normed, d_stream, sums, places, .. } = scratch;
        {
            let _stage = mark!(self.marks(), Ops, "head_weights");
            // A tied head overwrites the gradients of the table; of a table by itself the rows of the last batch go.
            places.renew(ids, &mut gradients.embedding, self.config.hidden);
            let d_head = gradients.own_head.as_mut().unwrap_or(&mut gradients.embedding);
            self.weights_back(&kept.logits, normed, d_head);
        }
        {
            let _stage = mark!(self.marks(), Ops, "head_input");
            self.input_back(&kept.logits, self.model.head(), d_normed);
        }
        let _stage = mark!(self.marks(), Ops, "norm_back");
        let norm = self.norm(&self.model.norm);
        sums.norm_back(self.crew, norm, (&kept.last, d_normed), (d_stream, false), &mut gradients.norm);
    }

    fn ffn_back(&self, layer: &Layer<T>, kept: &mut LayerKept<T>, scratch: &mut Scratch<T>, gradients: &mut Layer<T>) {
        let marks = self.marks();
        let _stage = mark!(marks, Layer, "ffn");
        let Scratch { normed, activated, d_stream, d_normed, sums, .. } = scratch;
        {
            let _stage = mark!(marks, Ops, "down_input");
            self.input_back(d_stream, &layer.down, activated);
        }
        {
            let _stage = mark!(marks, Ops, "swiglu");
            swiglu_back(self.crew, self.config.ffn, &mut kept.gate_up, activated);
        }
        {
            let _stage = mark!(marks, Ops, "down_weights");
            self.weights_back(d_stream, activated, &mut gradients.down);
            if let Some(d_bias) = &mut gradients.down_bias {
                sums.columns(self.crew, d_stream, d_bias);
            }
        }
        self.norm_again(&layer.ffn_norm, &kept.middle, normed);
        {
            let _stage = mark!(marks, Ops, "gate_up_weights");
            self.weights_back(&kept.gate_up, normed, &mut gradients.gate_up);
            if let Some(d_bias) = &mut gradients.gate_up_bias {
                sums.columns(self.crew, &kept.gate_up, d_bias);
            }
        }
        {
            let _stage = mark!(marks, Ops, "gate_up_input");
            self.input_back(&kept.gate_up, &layer.gate_up, d_normed);
        }
        let _stage = mark!(marks, Ops, "norm_back");
        let norm = self.norm(&layer.ffn_norm);
        sums.norm_back(self.crew, norm, (&kept.middle, d_normed), (d_stream, true), &mut gradients.ffn_norm);
    }

    fn attention_back(
        &self,
        layer: &Layer<T>,
        kept: &mut LayerKept<T>,
        scratch: &mut Scratch<T>,
        gradients: &mut Layer<T>,
    ) {
        let marks = self.marks();
        let _stage = mark!(marks, Layer, "attention");
        {
            let _stage = mark!(marks, Ops, "output_weights");
            self.weights_back(&scratch.d_stream, &kept.attended, &mut gradients.output);
        }
        {
            let _stage = mark!(marks, Ops, "output_input");
            self.input_back(&scratch.d_stream, &layer.output, &mut scratch.d_attended);
        }
        {
            let _stage = mark!(marks, Ops, "rope_again");
            self.enter_positions(layer, &kept.qkv, &mut scratch.heads);
        }
        self.attend_back(kept, scratch);
        {
            let _stage = mark!(marks, Ops, "rope_back");
            self.leave_positions(layer, kept, scratch, gradients);
        }
        self.projection_back(layer, kept, scratch, gradients);
    }

    fn attend_back(&self, kept: &LayerKept<T>, scratch: &mut Scratch<T>) {
        let Scratch { heads, d_heads, d_attended, weights, d_scores, .. } = scratch;
        let strides = self.attended_strides();
        let given = Given { inputs: self.inputs(heads), d_out: Heads { numbers: d_attended, strides } };
        let mut d_heads = HeadGradients { numbers: d_heads, strides: self.heads_strides() };
        match self.options.attention {
            Attention::Naive => {
                naive_back(self.crew, self.marks(), &self.span, &given, (weights, d_scores), &mut d_heads);
            }
            Attention::Dense => {
                let out = Heads { numbers: &kept.attended, strides };
                let fused = Fused { out, row_sums: &kept.row_sums };
                fused_back(self.crew, self.marks(), &self.span, &given, &fused, &mut d_heads);
            }
        }
    }

    fn leave_positions(
        &self,
        layer: &Layer<T>,
        kept: &LayerKept<T>,
        scratch: &mut Scratch<T>,
        gradients: &mut Layer<T>,
    ) {
        let norms = layer.query_norm.as_deref().zip(layer.key_norm.as_deref());
        let positions = PositionsBack {
            config: self.config,
            table: self.table,
            norms: norms.map(|(query, key)| (self.norm(query), self.norm(key))),
            tokens: self.span.queries,
        };
        let Scratch { d_heads, d_norms, sums, .. } = scratch;
        positions.leave(self.crew, (&kept.qkv, d_heads), sums, d_norms);
        if let (Some(d_query), Some(d_key)) = (&mut gradients.query_norm, &mut gradients.key_norm) {
            let (query, key) = d_norms.split_at(self.config.head_dim);
            d_query.copy_from_slice(query);
            d_key.copy_from_slice(key);
        }
    }

    fn projection_back(
        &self,
        layer: &Layer<T>,
        kept: &LayerKept<T>,
        scratch: &mut Scratch<T>,
        gradients: &mut Layer<T>,
    ) {
        let marks = self.marks();
        let Scratch { normed, d_stream, d_normed, d_heads, sums, .. } = scratch;
        self.norm_again(&layer.attention_norm, &kept.input, normed);
        {
            let _stage = mark!(marks, Ops, "qkv_weights");
            self.weights_back(d_heads, normed, &mut gradients.qkv);
            if let Some(d_bias) = &mut gradients.qkv_bias {
                sums.columns(self.crew, d_heads, d_bias);
            }
        }
        {
            let _stage = mark!(marks, Ops, "qkv_input");
            self.input_back(d_heads, &layer.qkv, d_normed);
        }
        let _stage = mark!(marks, Ops, "norm_back");
        let norm = self.norm(&layer.attention_norm);
        sums.norm_back(self.crew, norm, (&kept.input, d_normed), (d_stream, true), &mut gradients.attention_norm);
    }
}
