//! The steps of text to speech between its products, row by row.

use super::super::vectors::{self, sine_squared};
use super::super::{crew::Crew, number::Number, steps::each_row};

pub fn silu<T: Number>(crew: &Crew, width: usize, numbers: &mut [T]) {
    each_row!(crew, numbers.len() * 4, (numbers, width), |row| row
        .iter_mut()
        .for_each(|number| *number = T::narrow(vectors::silu(number.wide()))));
}

pub fn add_row<T: Number>(to: &mut [T], row: &[T]) {
    to.iter_mut().zip(row).for_each(|(to, number)| *to = T::narrow(to.wide() + number.wide()));
}

/// An activation that swings: `x + sin(x a)^2 / (b + 1e-9)` for each channel.
pub struct Snake {
    /// `a`: how fast it swings.
    rates: Vec<f32>,
    /// `1 / (b + 1e-9)`.
    shares: Vec<f32>,
}

/// What keeps a division from one by 0, as in the official package.
const NOT_ZERO: f32 = 1e-9;

impl Snake {
    pub fn new(alpha: &[f32], beta: &[f32]) -> Self {
        Self {
            rates: alpha.iter().map(|number| number.exp()).collect(),
            shares: beta.iter().map(|number| 1.0 / (number.exp() + NOT_ZERO)).collect(),
        }
    }

    pub fn run<T: Number>(&self, crew: &Crew, from: &[T], to: &mut [T]) {
        let (width, to) = (self.rates.len(), &mut to[..from.len()]);
        each_row!(crew, from.len() * 4, (from, width), (to, width), |from, to| {
            let channels = self.rates.iter().zip(&self.shares);
            for ((from, to), (rate, share)) in from.iter().zip(to).zip(channels) {
                let number = from.wide();
                *to = T::narrow(number + share * sine_squared(number * rate));
            }
        });
    }
}

pub fn layer_norm<T: Number>(crew: &Crew, [weight, bias]: &[Vec<f32>; 2], eps: f32, numbers: &mut [T]) {
    each_row!(crew, numbers.len() * 2, (numbers, weight.len()), |row| {
        let count = row.len() as f32;
        let mean = row.iter().map(|number| number.wide()).sum::<f32>() / count;
        let squares = row.iter().map(|number| (number.wide() - mean) * (number.wide() - mean));
        let factor = 1.0 / (squares.sum::<f32>() / count + eps).sqrt();
        for ((number, weight), bias) in row.iter_mut().zip(weight).zip(bias) {
            *number = T::narrow((number.wide() - mean) * factor * weight + bias);
        }
    });
}

pub fn add_scaled<T: Number>(crew: &Crew, scale: &[f32], from: &[T], to: &mut [T]) {
    each_row!(crew, from.len(), (from, scale.len()), (&mut to[..from.len()], scale.len()), |from, to| {
        for ((to, from), scale) in to.iter_mut().zip(from).zip(scale) {
            *to = T::narrow(to.wide() + scale * from.wide());
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snake_swings_as_fast_and_as_far_as_it_is_told() {
        let snake = Snake::new(&[0.0, 2.0_f32.ln()], &[0.0, 4.0_f32.ln()]);
        let mut out = [0.0_f32; 4];
        snake.run(&Crew::new(1).unwrap(), &[0.5, 0.5, -1.0, 3.0], &mut out);
        let expected: [(f64, f64, f64); 4] = [(0.5, 1.0, 1.0), (0.5, 2.0, 0.25), (-1.0, 1.0, 1.0), (3.0, 2.0, 0.25)];
        for (ours, (x, rate, share)) in out.into_iter().zip(expected) {
            let expected = x + share * (x * rate).sin().powi(2);
            assert!((f64::from(ours) - expected).abs() < 1e-6, "{ours} is not {expected}");
        }
    }

    #[test]
    fn a_layer_norm_subtracts_the_mean() {
        let mut rows = [1.0_f32, 2.0, 3.0];
        layer_norm(&Crew::new(1).unwrap(), &[vec![1.0, 1.0, 2.0], vec![0.0, 1.0, 0.0]], 0.0, &mut rows);
        let deviation = (2.0_f32 / 3.0).sqrt();
        for (ours, expected) in rows.into_iter().zip([-1.0 / deviation, 1.0, 2.0 / deviation]) {
            assert!((ours - expected).abs() < 1e-6, "{ours} is not {expected}");
        }
    }

    #[test]
    fn what_is_added_is_scaled_by_channel() {
        let mut to = [1.0_f32, 1.0, 1.0, 1.0];
        add_scaled(&Crew::new(1).unwrap(), &[0.5, 2.0], &[1.0, 2.0, 3.0, 4.0], &mut to);
        assert_eq!(to, [1.5, 5.0, 2.5, 9.0]);
    }
}
