//! The backward operations of training.

use std::ops::Range;

use super::super::attention::{self, Heads, Inputs};
use super::super::model::{Layer, numbers};
use super::super::product::{Factor, Put, share};
use super::super::{number::Number, rows::Rows, steps::embed};
use super::steps::{cross_entropy, swiglu_back};
use super::{CpuTraining, adamw, forward::Setup};
use crate::decoder::layers::{LinearAt, NormAt};
use crate::decoder::weights::Part;
use crate::train::buffers::Scratch;
use crate::train::ops::{TrainDevice, TrainOps, TrainState};
use crate::{Attention, Config, Done, ModelError, TrainOptions};

impl<T: Number> TrainOps for CpuTraining<T> {
    fn embed(&mut self, table: &Vec<T>) -> Done {
        embed(&self.setup.crew, &self.ids, table, self.setup.config.hidden, self.kept.first());
        Ok(())
    }

    fn cross_entropy(&mut self) -> Done {
        cross_entropy(&self.setup.crew, &self.targets, &mut self.kept.logits, &mut self.kept.losses);
        Ok(())
    }

    fn weights_back(&mut self, at: LinearAt, weight: &mut Vec<T>, bias: Option<&mut Vec<f32>>) -> Done {
        let (setup, (d_out, x)) = (&self.setup, self.kept.of_weights(&self.scratch, at));
        let (d_rows, x) = (Factor::transposed(setup.all(d_out)), Factor::plain(setup.all(x)));
        share(&setup.crew, d_rows, x, weight, Put::OVER);
        if let Some(bias) = bias {
            self.sums.columns(&setup.crew, d_out, bias);
        }
        Ok(())
    }

    fn input_back(&mut self, at: LinearAt, weight: &Vec<T>) -> Done {
        let (setup, (d_out, d_in)) = (&self.setup, self.kept.of_input(&mut self.scratch, at));
        let d_out = setup.all(d_out);
        let weights = Rows::dense(weight, d_out.width, weight.len() / d_out.width);
        share(&setup.crew, Factor::plain(d_out), Factor::plain(weights), d_in, Put::OVER);
        Ok(())
    }

    fn norm_back(&mut self, at: NormAt, weight: &Vec<f32>, gradient: &mut Vec<f32>) -> Done {
        let Scratch { d_normed, d_hidden, .. } = &mut self.scratch;
        let (norm, from) = (self.setup.norm(weight), (self.kept.norm_input(at).as_slice(), d_normed.as_slice()));
        self.sums.norm_back(&self.setup.crew, norm, from, (d_hidden, at != NormAt::Final), gradient);
        Ok(())
    }

    fn swiglu_back(&mut self, layer: usize, _: &Layer<T>) -> Done {
        let Scratch { activated, d_activated, .. } = &mut self.scratch;
        let gate_up = &mut self.kept.layers[layer].gate_up;
        swiglu_back(&self.setup.crew, self.setup.config.ffn, gate_up, d_activated, activated);
        Ok(())
    }

    fn attend_back(&mut self, layer: usize) -> Done {
        let (setup, span) = (&self.setup, self.setup.span);
        let (Setup { crew, options, .. }, strides) = (setup, setup.strides(span.heads));
        let Scratch { d_qkv, d_attended, probabilities, d_scores, .. } = &mut self.scratch;
        let inputs = Inputs::packed(&span, &self.heads);
        let attention = attention::Attention { crew, marks: &options.marks, span, inputs };
        let d_out = Heads { numbers: d_attended, strides };
        let d_heads = (d_qkv.as_mut_slice(), setup.strides(span.heads + 2 * span.kv_heads));
        match options.attention {
            Attention::Naive => attention.naive_back(d_out, (probabilities, d_scores), d_heads),
            Attention::Dense => {
                let out = Heads { numbers: &self.kept.layers[layer].attended, strides };
                attention.fused_back(d_out, out, &self.kept.row_sums[layer], d_heads);
            }
        }
        Ok(())
    }

    fn rope_back(&mut self, layer: usize, weights: &Layer<T>, gradients: &mut Layer<T>) -> Done {
        let setup = &self.setup;
        let heads = (self.kept.layers[layer].qkv.as_slice(), self.scratch.d_qkv.as_mut_slice());
        setup.positions(weights).leave(&setup.crew, heads, &mut self.sums, &mut self.d_norms);
        if let (Some(d_query), Some(d_key)) = (&mut gradients.query_norm, &mut gradients.key_norm) {
            let (query, key) = self.d_norms.split_at(setup.config.head_dim);
            d_query.copy_from_slice(query);
            d_key.copy_from_slice(key);
        }
        Ok(())
    }

    fn embed_back(&mut self, table: &mut Vec<T>) -> Done {
        let Setup { config, crew, .. } = &self.setup;
        self.places.renew(&self.ids, table, config.hidden, config.tied);
        self.places.add(crew, &self.scratch.d_hidden, table, config.hidden);
        Ok(())
    }
}

impl<T: Number> TrainDevice for CpuTraining<T> {
    fn config(&self) -> &Config {
        &self.setup.config
    }

    fn options(&self) -> &TrainOptions {
        &self.setup.options
    }

    fn start(&mut self, ids: &[u32], targets: &[u32]) -> Done {
        ids.clone_into(&mut self.ids);
        targets.clone_into(&mut self.targets);
        Ok(())
    }

    fn loss(&mut self) -> Result<f32, ModelError> {
        let losses = &self.kept.losses;
        let sum: f64 = losses.iter().map(|loss| f64::from(*loss)).sum();
        Ok((sum / losses.len() as f64) as f32)
    }

    fn update(&mut self, state: &mut TrainState<Vec<T>, Vec<f32>>, number: u64) -> Done {
        let Setup { crew, options, .. } = &self.setup;
        options.adamw.iter().for_each(|adamw| adamw::update(crew, adamw, number, state));
        Ok(())
    }

    fn read(&self, part: Part<&Vec<T>, &Vec<f32>>, range: Range<usize>) -> Result<Vec<f32>, ModelError> {
        Ok(numbers(part, range))
    }
}
