//! Causal convolutions over time, with zeros before the first position. Rows are positions, columns are channels.
//!
//! The inputs of each output are gathered into a row (im2col), so a convolution is a GEMM with its kernel. A row of a
//! transposed convolution has all outputs of one position.

use super::product::{Put, project};
use super::steps::{add_bias, rows_of_part};
use super::{crew::Crew, number::Number, rows::Rows, vectors::vectorized};
use crate::tts;

/// A linear layer. The bias is stored in f32, rounded to the dtype of the matrix.
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

/// The largest number of gathered elements at once.
const GATHERED: usize = 1 << 22;

fn rows_at_once(depth: usize) -> usize {
    (GATHERED / depth.max(1)).max(1)
}

/// The size of the gather buffer for this many positions.
pub fn gathered(rows: usize, inputs: usize, taps: usize) -> usize {
    let depth = inputs.saturating_mul(taps);
    if taps <= 1 { 0 } else { rows.min(rows_at_once(depth)).saturating_mul(depth) }
}

pub struct Conv<T> {
    /// `[outputs, taps, inputs]`, oldest position first.
    weight: Vec<T>,
    bias: Vec<f32>,
    pub inputs: usize,
    taps: usize,
    dilation: usize,
    /// The upsampling factor.
    pub stride: usize,
    /// The downsampling factor.
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

    /// A transposed convolution by its kernel `[inputs, outputs, width]`. Outputs beyond the end are dropped.
    pub fn transposed(kernel: &[T], inputs: usize, bias: &[f32], stride: usize) -> Self {
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

    /// Convolves all positions. `gathered` is a scratch buffer.
    pub fn run(&self, crew: &Crew, from: &[T], to: &mut [T], gathered: &mut Vec<T>, put: Put) {
        let (depth, width) = (self.taps * self.inputs, self.bias.len());
        let weights = Rows::dense(&self.weight, width, depth);
        let rows = from.len() / self.inputs;
        let at_once = rows_at_once(depth);
        for first in (0..rows).step_by(at_once) {
            let count = at_once.min(rows - first);
            let to = &mut to[first * width..][..count * width];
            let columns = match self.taps {
                1 => &from[first * self.inputs..],
                _ => self.gather(crew, from, first, count, gathered),
            };
            project(crew, Rows::dense(columns, count, depth), weights, to, put);
            add_bias(crew, &self.bias, to);
        }
    }

    pub fn outputs(&self) -> usize {
        self.bias.len() / self.stride
    }

    /// Convolves the positions after the first `taps - step`, which are context. Their inputs are contiguous, so nothing is
    /// gathered.
    pub fn run_streaming(&self, crew: &Crew, from: &[T], to: &mut [T]) {
        let (depth, width) = (self.taps * self.inputs, self.bias.len());
        let before = self.taps.saturating_sub(self.step);
        let rows = (from.len() / self.inputs).saturating_sub(before) / self.step;
        let columns = Rows::new(from, rows, depth, self.step * self.inputs);
        let to = &mut to[..rows * width];
        project(crew, columns, Rows::dense(&self.weight, width, depth), to, Put::OVER);
        add_bias(crew, &self.bias, to);
    }

    fn gather<'g>(&self, crew: &Crew, from: &[T], first: usize, count: usize, columns: &'g mut Vec<T>) -> &'g [T] {
        let Self { inputs, taps, dilation, .. } = *self;
        let depth = taps * inputs;
        let rows = rows_of_part(depth);
        if columns.len() < count * depth {
            columns.resize(count * depth, T::default());
        }
        let parts = columns[..count * depth].chunks_mut(rows * depth).enumerate();
        crew.each(count * depth, parts, |(part, to)| {
            for (at, to) in to.chunks_mut(depth).enumerate() {
                let position = first + part * rows + at;
                for (tap, to) in to.chunks_mut(inputs).enumerate() {
                    match position.checked_sub((taps - 1 - tap) * dilation) {
                        Some(at) => to.copy_from_slice(&from[at * inputs..][..inputs]),
                        None => to.fill(T::default()),
                    }
                }
            }
        });
        columns
    }
}

pub struct Depthwise {
    /// `[taps, channels]`, oldest position first.
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
            let Some(at) = position.checked_sub(taps - 1 - tap) else { continue };
            let from = &from[at * channels..][..channels];
            sums.iter_mut().zip(weights).zip(from).for_each(|((sum, weight), from)| *sum += weight * from.wide());
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

    /// The definition of a convolution.
    fn expected(kernel: &[f32], bias: &[f32], inputs: usize, dilation: usize, from: &[f32]) -> Vec<f32> {
        let taps = kernel.len() / (bias.len() * inputs);
        let one = |position: usize, output: usize| {
            let mut sum = f64::from(bias[output]);
            for tap in 0..taps {
                let Some(at) = position.checked_sub((taps - 1 - tap) * dilation) else { continue };
                for input in 0..inputs {
                    let weight = kernel[(output * inputs + input) * taps + tap];
                    sum += f64::from(weight) * f64::from(from[at * inputs + input]);
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
    fn a_convolution_equals_its_definition() {
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
    fn positions_beyond_one_gather_are_convolved() {
        let crew = Crew::new(1).unwrap();
        let inputs = 3000;
        let rows = GATHERED / (3 * inputs) + 5;
        let (kernel, bias) = (numbers(2 * inputs * 3, 1), numbers(2, 2));
        let from: Vec<f32> = numbers(rows * inputs, 3).iter().map(|number| number / 64.0).collect();
        let conv = Conv::new(&kernel, inputs, bias.clone(), 1);
        let (mut to, mut columns) = (vec![0.0; rows * 2], Vec::new());
        conv.run(&crew, &from, &mut to, &mut columns, Put::OVER);
        assert_eq!(columns.len(), gathered(rows, inputs, 3));
        let last = &from[(rows - 7) * inputs..];
        let expected = expected(&kernel, &bias, inputs, 1, last);
        for (ours, expected) in to[(rows - 4) * 2..].iter().zip(&expected[3 * 2..]) {
            assert!((ours - expected).abs() < 2e-2, "{ours} is not {expected}");
        }
    }

    #[test]
    fn a_transposed_convolution_equals_its_definition_and_is_cut_at_the_end() {
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
            let conv = Conv::transposed(&kernel, inputs, &bias, stride);
            assert_eq!((conv.inputs, conv.stride), (inputs, stride));
            let mut to = vec![0.0; rows * stride * outputs];
            conv.run(&crew, &from, &mut to, &mut Vec::new(), Put::OVER);
            assert_near(&to, &expected);
        }
    }

    #[test]
    fn a_depthwise_convolution_equals_its_definition() {
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
    fn half_precision_accumulates_in_f32() {
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
