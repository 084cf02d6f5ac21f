//! A linear part with a bias.

use super::product::{Put, project};
use super::{crew::Crew, number::Number, rows::Rows, steps::add_bias};
use crate::tts;

/// A linear layer with a bias. The bias is kept in f32, after it was rounded to the dtype of the matrix.
pub type Linear<T> = tts::Linear<Vec<T>, Vec<f32>>;

impl<T: Number> Linear<T> {
    pub fn outputs(&self) -> usize {
        self.bias.len()
    }

    pub fn run(&self, crew: &Crew, rows: usize, from: &[T], to: &mut [T]) {
        let outputs = self.outputs();
        let inputs = self.weight.len() / outputs;
        let weights = Rows::dense(&self.weight, outputs, inputs);
        project(crew, Rows::dense(from, rows, inputs), weights, to, Put::OVER);
        add_bias(crew, &self.bias, &mut to[..rows * outputs]);
    }
}
