//! A decoder on candle and its gradients by autograd: what our decoder and our backward pass are compared with.

#![allow(dead_code, reason = "each test uses what it needs")]

pub mod adamw;
pub mod gradients;
mod model;
mod pass;

use candle_core::{DType, Result};
use laptime_models::{Config, Tokens, Weights};

use self::{
    model::{Model, Parameters},
    pass::Pass,
};

/// The logits of every position, row by row, in f32.
pub fn logits(config: &Config, weights: &Weights, tokens: &Tokens) -> Result<Vec<f32>> {
    let model = Model::new(config, &Parameters::load(config, weights, DType::F32)?);
    Pass { config, model: &model, tokens }.run()?.flatten_all()?.to_vec1()
}
