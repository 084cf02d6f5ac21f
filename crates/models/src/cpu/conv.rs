//! Convolutions over time, all of them causal: a position sees itself and what comes before it, and before the first there
//! are zeros. Rows are positions, and the numbers of a row are its channels.
//!
//! What a position sees is gathered into one row, so that a convolution is one product with its kernel. A transposed
//! convolution is the same with all positions that one becomes side by side in a row.

use super::product::{Put, project};
use super::steps::{add_bias, rows_of_part};
use super::{crew::Crew, number::Number, rows::Rows, vectors::vectorized};
use crate::tts;

/// A linear layer with a bias. The bias is kept in f32, after it was rounded to the dtype of the matrix.
pub type Linear<T> = tts::Linear<Vec<T>, Vec<f32>>;

impl<T: Number> Linear<T> {
    pub fn outputs(&self) -> usize {
        self.bias.len()
    }

    pub fn run(&self, crew: &Crew, from: &[T], to: &mut [T]) {
        let outputs = self.outputs();
        let inputs = self.weight.len() / outputs;
        let rows = from.len() / inputs;
        let weights = Rows::dense(&self.weight, outputs, inputs);
        project(crew, Rows::dense(from, rows, inputs), weights, to, Put::OVER);
        add_bias(crew, &self.bias, &mut to[..rows * outputs]);
    }
}

const GATHERED: usize = 1 << 22;

fn rows_at_once(depth: usize) -> usize {
    (GATHERED / depth.max(1)).max(1)
}

/// Numbers that are gathered at most for this many positions that see this many others, themselves among them.
pub fn gathered(rows: usize, inputs: usize, taps: usize) -> usize {
    let depth = inputs.saturating_mul(taps);
    if taps <= 1 { 0 } else { rows.min(rows_at_once(depth)).saturating_mul(depth) }
}

pub struct Conv<T> {
    /// `[outputs, taps, inputs]`, the oldest position first.
    weight: Vec<T>,
    bias: Vec<f32>,
    pub inputs: usize,
    taps: usize,
    /// How far apart the positions are that one sees.
    dilation: usize,
    /// Positions that one becomes.
    pub stride: usize,
    /// Positions that it moves on by for each that comes out.
    pub step: usize,
}

impl<T: Number> Conv<T> {
    pub fn new(kernel: &[T], inputs: usize, bias: Vec<f32>, dilation: usize) -> Self {
        let taps = kernel.len() / (bias.len() * inputs);
        let mut weight = Vec::with_capacity(kernel.len());
        for output in kernel.chunks(inputs * taps) {
            for tap in 0..taps {
                weight.extend((0..inputs).map(|input| output[input * taps + tap]));
            }
        }
        Self { weight, bias, inputs, taps, dilation, stride: 1, step: 1 }
    }

    /// A transposed convolution by its kernel `[inputs, outputs, width]`: one position becomes `stride`, and of what would
    /// reach beyond the end nothing is kept.
    pub fn lengthening(kernel: &[T], inputs: usize, bias: &[f32], stride: usize) -> Self {
        let outputs = bias.len();
        let width = kernel.len() / (inputs * outputs);
        let taps = width.div_ceil(stride);
        let mut weight = Vec::with_capacity(stride * outputs * taps * inputs);
        for place in 0..stride {
            for output in 0..outputs {
                for tap in 0..taps {
                    let at = place + (taps - 1 - tap) * stride;
                    let number = |input: usize| kernel[(input * outputs + output) * width + at];
                    weight.extend((0..inputs).map(|input| if at < width { number(input) } else { T::default() }));
                }
            }
        }
        Self { weight, bias: bias.repeat(stride), inputs, taps, dilation: 1, stride, step: 1 }
    }

    /// Convolves all positions, in `gathered` as far as that is needed. What comes out is put over or onto what is there.
    pub fn run(&self, crew: &Crew, from: &[T], to: &mut [T], gathered: &mut Vec<T>, put: Put) {
        let (depth, width) = (self.taps * self.inputs, self.bias.len());
        let weights = Rows::dense(&self.weight, width, depth);
        let rows = from.len() / self.inputs;
        let at_once = rows_at_once(depth);
        for first in (0..rows).step_by(at_once) {
            let count = at_once.min(rows - first);
            let to = &mut to[first * width..][..count * width];
            let seen = match self.taps {
                1 => &from[first * self.inputs..],
                _ => self.gather(crew, from, first, count, gathered),
            };
            project(crew, Rows::dense(seen, count, depth), weights, to, put);
            add_bias(crew, &self.bias, to);
        }
    }

    pub fn outputs(&self) -> usize {
        self.bias.len() / self.stride
    }

    /// Convolves positions that lie behind others, which `from` has first: as many as one sees before itself. What a position
    /// sees lies side by side already, so nothing is gathered.
    pub fn run_behind(&self, crew: &Crew, from: &[T], to: &mut [T]) {
        let (depth, width) = (self.taps * self.inputs, self.bias.len());
        let before = self.taps.saturating_sub(self.step);
        let rows = (from.len() / self.inputs).saturating_sub(before) / self.step;
        let seen = Rows::new(from, rows, depth, self.step * self.inputs);
        let to = &mut to[..rows * width];
        project(crew, seen, Rows::dense(&self.weight, width, depth), to, Put::OVER);
        add_bias(crew, &self.bias, to);
    }

    fn gather<'g>(&self, crew: &Crew, from: &[T], first: usize, count: usize, seen: &'g mut Vec<T>) -> &'g [T] {
        let Self { inputs, taps, dilation, .. } = *self;
        let depth = taps * inputs;
        let rows = rows_of_part(depth);
        if seen.len() < count * depth {
            seen.resize(count * depth, T::default());
        }
        let parts = seen[..count * depth].chunks_mut(rows * depth).enumerate();
        crew.each(count * depth, parts, |(part, to)| {
            for (at, to) in to.chunks_mut(depth).enumerate() {
                let position = first + part * rows + at;
                for (tap, to) in to.chunks_mut(inputs).enumerate() {
                    match position.checked_sub((taps - 1 - tap) * dilation) {
                        Some(seen) => to.copy_from_slice(&from[seen * inputs..][..inputs]),
                        None => to.fill(T::default()),
                    }
                }
            }
        });
        seen
    }
}

pub struct Depthwise {
    /// `[taps, channels]`, the oldest position first.
    weight: Vec<f32>,
    bias: Vec<f32>,
}

impl Depthwise {
    pub fn new(kernel: &[f32], bias: Vec<f32>) -> Self {
        let channels = bias.len();
        let taps = kernel.len() / channels;
        let weight = (0..taps).flat_map(|tap| (0..channels).map(move |channel| kernel[channel * taps + tap])).collect();
        Self { weight, bias }
    }

    pub fn run<T: Number>(&self, crew: &Crew, from: &[T], to: &mut [T]) {
        let channels = self.bias.len();
        let rows = rows_of_part(channels);
        crew.each(from.len() * 4, to[..from.len()].chunks_mut(rows * channels).enumerate(), |(part, to)| {
            vectorized!({
                let mut sums = vec![0.0; channels];
                for (at, to) in to.chunks_mut(channels).enumerate() {
                    self.row(from, part * rows + at, &mut sums);
                    to.iter_mut().zip(&sums).for_each(|(to, sum)| *to = T::narrow(*sum));
                }
            });
        });
    }

    #[inline(always)]
    fn row<T: Number>(&self, from: &[T], position: usize, sums: &mut [f32]) {
        let channels = self.bias.len();
        let taps = self.weight.len() / channels;
        sums.copy_from_slice(&self.bias);
        for (tap, weights) in self.weight.chunks(channels).enumerate() {
            let Some(seen) = position.checked_sub(taps - 1 - tap) else { continue };
            let seen = &from[seen * channels..][..channels];
            sums.iter_mut().zip(weights).zip(seen).for_each(|((sum, weight), seen)| *sum += weight * seen.wide());
        }
    }
}

#[cfg(test)]
mod tests {
    use half::bf16;

    use super::*;

    fn numbers(count: usize, seed: usize) -> Vec<f32> {
        (0..count).map(|at| ((at * 7919 + seed * 104_729) % 61) as f32 / 16.0 - 1.9).collect()
    }

    /// A convolution as it is defined.
    fn expected(kernel: &[f32], bias: &[f32], inputs: usize, dilation: usize, from: &[f32]) -> Vec<f32> {
        let taps = kernel.len() / (bias.len() * inputs);
        let one = |position: usize, output: usize| {
            let mut sum = f64::from(bias[output]);
            for tap in 0..taps {
                let Some(seen) = position.checked_sub((taps - 1 - tap) * dilation) else { continue };
                for input in 0..inputs {
                    let weight = kernel[(output * inputs + input) * taps + tap];
                    sum += f64::from(weight) * f64::from(from[seen * inputs + input]);
                }
            }
            sum as f32
        };
        let rows = from.len() / inputs;
        (0..rows).flat_map(|position| (0..bias.len()).map(move |output| one(position, output))).collect()
    }

    fn assert_near(ours: &[f32], expected: &[f32]) {
        assert_eq!(ours.len(), expected.len());
        for (at, (ours, expected)) in ours.iter().zip(expected).enumerate() {
            assert!((ours - expected).abs() < 1e-4 * (1.0 + expected.abs()), "{at}: {ours} is not {expected}");
        }
    }

    #[test]
    fn a_convolution_is_that_of_its_definition() {
        let crew = Crew::new(2).unwrap();
        for (rows, inputs, outputs, taps, dilation) in
            [(1, 3, 4, 7, 1), (20, 5, 2, 3, 1), (40, 4, 6, 7, 3), (90, 8, 1, 7, 9), (9, 6, 5, 1, 1)]
        {
            let (kernel, bias) = (numbers(outputs * inputs * taps, 1), numbers(outputs, 2));
            let from = numbers(rows * inputs, 3);
            let expected = expected(&kernel, &bias, inputs, dilation, &from);
            let conv = Conv::new(&kernel, inputs, bias, dilation);
            let mut to = vec![0.0; rows * outputs];
            conv.run(&crew, &from, &mut to, &mut Vec::new(), Put::OVER);
            assert_near(&to, &expected);
            conv.run(&crew, &from, &mut to, &mut Vec::new(), Put::ONTO);
            assert_near(&to, &expected.iter().map(|number| 2.0 * number).collect::<Vec<_>>());
        }
    }

    #[test]
    fn more_positions_than_are_gathered_at_once_are_all_convolved() {
        let crew = Crew::new(1).unwrap();
        let inputs = 3000;
        let rows = GATHERED / (3 * inputs) + 5;
        let (kernel, bias) = (numbers(2 * inputs * 3, 1), numbers(2, 2));
        let from: Vec<f32> = numbers(rows * inputs, 3).iter().map(|number| number / 64.0).collect();
        let conv = Conv::new(&kernel, inputs, bias.clone(), 1);
        let (mut to, mut seen) = (vec![0.0; rows * 2], Vec::new());
        conv.run(&crew, &from, &mut to, &mut seen, Put::OVER);
        assert_eq!(seen.len(), gathered(rows, inputs, 3));
        let last = &from[(rows - 7) * inputs..];
        let expected = expected(&kernel, &bias, inputs, 1, last);
        for (ours, expected) in to[(rows - 4) * 2..].iter().zip(&expected[3 * 2..]) {
            assert!((ours - expected).abs() < 2e-2, "{ours} is not {expected}");
        }
    }

    #[test]
    fn a_transposed_convolution_spreads_every_position_and_is_cut_at_the_end() {
        let crew = Crew::new(1).unwrap();
        for (rows, inputs, outputs, width, stride) in
            [(5, 3, 2, 4, 2), (7, 2, 3, 2, 2), (4, 2, 2, 10, 5), (3, 1, 1, 5, 3)]
        {
            let (kernel, bias) = (numbers(inputs * outputs * width, 1), numbers(outputs, 2));
            let from = numbers(rows * inputs, 3);
            let mut expected: Vec<f32> = bias.repeat(rows * stride);
            for (position, input, output, at) in (0..rows)
                .flat_map(|position| (0..inputs).map(move |input| (position, input)))
                .flat_map(|(position, input)| (0..outputs).map(move |output| (position, input, output)))
                .flat_map(|(position, input, output)| (0..width).map(move |at| (position, input, output, at)))
            {
                if let Some(sum) = expected.get_mut((position * stride + at) * outputs + output) {
                    *sum += from[position * inputs + input] * kernel[(input * outputs + output) * width + at];
                }
            }
            let conv = Conv::lengthening(&kernel, inputs, &bias, stride);
            assert_eq!((conv.inputs, conv.stride), (inputs, stride));
            let mut to = vec![0.0; rows * stride * outputs];
            conv.run(&crew, &from, &mut to, &mut Vec::new(), Put::OVER);
            assert_near(&to, &expected);
        }
    }

    #[test]
    fn a_convolution_by_channel_is_that_of_its_definition() {
        let crew = Crew::new(2).unwrap();
        let (rows, channels) = (30, 5);
        let (kernel, bias) = (numbers(channels * 7, 1), numbers(channels, 2));
        let from = numbers(rows * channels, 3);
        let mut to = vec![0.0; rows * channels];
        Depthwise::new(&kernel, bias.clone()).run(&crew, &from, &mut to);
        for channel in 0..channels {
            let of = |numbers: &[f32]| numbers.iter().skip(channel).step_by(channels).copied().collect::<Vec<f32>>();
            let expected = expected(&kernel[channel * 7..][..7], &bias[channel..=channel], 1, 1, &of(&from));
            assert_near(&of(&to), &expected);
        }
    }

    #[test]
    fn halves_are_added_up_in_32_bits() {
        let crew = Crew::new(1).unwrap();
        let wide = numbers(40 * 16, 4);
        let from: Vec<bf16> = wide.iter().map(|number| bf16::from_f32(*number)).collect();
        let kernel: Vec<bf16> = numbers(8 * 16 * 7, 5).iter().map(|number| bf16::from_f32(*number)).collect();
        let (plain, plain_from): (Vec<f32>, Vec<f32>) =
            (kernel.iter().map(|n| n.to_f32()).collect(), from.iter().map(|n| n.to_f32()).collect());
        let expected = expected(&plain, &[0.0; 8], 16, 1, &plain_from);
        let mut to = vec![bf16::ZERO; 40 * 8];
        Conv::new(&kernel, 16, vec![0.0; 8], 1).run(&crew, &from, &mut to, &mut Vec::new(), Put::OVER);
        for (ours, expected) in to.iter().zip(expected) {
            assert!((ours.to_f32() - expected).abs() <= 0.005 * expected.abs() + 1e-3, "{ours} is not {expected}");
        }
    }
}
