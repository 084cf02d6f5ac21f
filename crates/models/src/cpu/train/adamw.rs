//! AdamW over all parameters.

use super::super::{crew::Crew, number::Number, vectors::vectorized};
use crate::{AdamW, decoder::weights::Part, train::ops::TrainState};

const PART: usize = 1 << 15;

#[derive(Clone, Copy)]
struct Factors {
    /// The decay of a parameter.
    shrink: f32,
    /// The weights of a gradient in the moments.
    first: f32,
    second: f32,
    /// The decay of the second moment.
    keep_second: f32,
    /// The learning rate over the bias correction of the first moment.
    rate: f32,
    /// The inverse root of the bias correction of the second moment.
    root: f32,
    eps: f32,
}

impl Factors {
    fn new(adamw: &AdamW, number: u64) -> Self {
        let AdamW { lr, betas: (first, second), eps, weight_decay } = *adamw;
        let correction = |beta: f64| 1.0 - beta.powf(number as f64);
        Self {
            shrink: (1.0 - lr * weight_decay) as f32,
            first: (1.0 - first) as f32,
            second: (1.0 - second) as f32,
            keep_second: second as f32,
            rate: (lr / correction(first)) as f32,
            root: correction(second).sqrt().recip() as f32,
            eps: eps as f32,
        }
    }

    #[inline(always)]
    fn update(self, parameter: f32, gradient: f32, first: f32, second: f32) -> (f32, f32, f32) {
        let first = first + (gradient - first) * self.first;
        let second = second * self.keep_second + gradient * gradient * self.second;
        let step = self.rate * first / (second.sqrt() * self.root + self.eps);
        (parameter * self.shrink - step, first, second)
    }
}

/// Updates every parameter in f32 and rounds it to its dtype once. The first update is number 1.
pub fn update<T: Number>(crew: &Crew, adamw: &AdamW, number: u64, state: &mut TrainState<Vec<T>, Vec<f32>>) {
    let factors = Factors::new(adamw, number);
    let TrainState { parameters, gradients, moments: Some([first, second]) } = state else { return };
    let all = parameters.parts_mut().zip(gradients.parts()).zip(first.parts_mut().zip(second.parts_mut()));
    for ((parameters, gradients), moments) in all {
        match (parameters, gradients, moments) {
            (Part::Matrix(p), Part::Matrix(g), (Part::Matrix(m), Part::Matrix(v))) => {
                let parts = p.chunks_mut(PART).zip(g.chunks(PART)).zip(m.chunks_mut(PART)).zip(v.chunks_mut(PART));
                crew.each(g.len() * 4, parts, |(((p, g), m), v)| update_part::<T, T>(factors, p, g, m, v));
            }
            (Part::Vector(p), Part::Vector(g), (Part::Vector(m), Part::Vector(v))) => {
                update_part::<T, f32>(factors, p, g, m, v);
            }
            _ => {}
        }
    }
}

fn update_part<T: Number, S: Number>(
    factors: Factors,
    parameters: &mut [S],
    gradients: &[S],
    first: &mut [S],
    second: &mut [S],
) {
    let rounded = |number: f32| S::narrow(T::narrow(number).wide());
    vectorized!({
        for (((p, g), m), v) in parameters.iter_mut().zip(gradients).zip(first).zip(second) {
            let updated = factors.update(p.wide(), g.wide(), m.wide(), v.wide());
            (*p, *m, *v) = (rounded(updated.0), rounded(updated.1), rounded(updated.2));
        }
    });
}
