//! Convolutions and the rows between them, with channels last.

use laptime_cuda::nn::Convolution;

/// `x + sin(exp(alpha) x)² / exp(beta)`, with parameters for each channel.
pub fn snake(x: &[f32], [alpha, beta]: [&[f32]; 2]) -> Vec<f32> {
    let parameters = alpha.iter().zip(beta).map(|(a, b)| (f64::from(*a).exp(), 1.0 / (f64::from(*b).exp() + 1e-9)));
    let parameters: Vec<(f64, f64)> = parameters.collect();
    let of = |value: f32, (rate, reach): (f64, f64)| {
        let value = f64::from(value);
        (value + reach * (value * rate).sin().powi(2)) as f32
    };
    x.iter().enumerate().map(|(at, value)| of(*value, parameters[at % parameters.len()])).collect()
}

/// A convolution of `x`, `[length, inputs]`, with weights as they are stored: `[outputs, inputs, kernel]`, or
/// `[inputs, outputs, kernel]` if it is transposed. The result is `[length, outputs]`.
pub fn convolve(of: &Convolution, x: &[f32], weight: &[f32], bias: &[f32]) -> Vec<f32> {
    let [inputs, outputs, kernel] = [of.inputs, of.outputs, of.kernel].map(|size| size as usize);
    let (stride, dilation, length) = (of.stride as usize, of.dilation as usize, x.len() / inputs);
    let mut sums = vec![0_f64; of.length(length as u32) as usize * outputs];
    let mut add = |moment: usize, row: usize, tap: usize| {
        for output in 0..outputs {
            let place =
                |input: usize| if of.is_transposed { input * outputs + output } else { output * inputs + input };
            let product =
                |input: usize| f64::from(x[row * inputs + input]) * f64::from(weight[place(input) * kernel + tap]);
            sums[moment * outputs + output] += (0..inputs).map(product).sum::<f64>();
        }
    };
    let made = of.length(length as u32) as usize;
    for tap in 0..kernel {
        if of.is_transposed {
            let reached = (0..length).map(|row| (row * stride + tap, row)).filter(|(moment, _)| *moment < made);
            reached.for_each(|(moment, row)| add(moment, row, tap));
        } else {
            let before = (kernel - 1) * dilation + 1 - stride;
            let looked =
                (0..made).filter_map(|moment| Some((moment, (moment * stride + tap * dilation).checked_sub(before)?)));
            looked.filter(|(_, row)| *row < length).for_each(|(moment, row)| add(moment, row, tap));
        }
    }
    sums.iter().enumerate().map(|(at, sum)| (sum + f64::from(bias[at % outputs])) as f32).collect()
}

/// A convolution of each channel by itself, with weights `[channels, kernel]`.
pub fn depthwise(of: &Convolution, x: &[f32], weight: &[f32], bias: &[f32]) -> Vec<f32> {
    let (channels, kernel) = (of.inputs as usize, of.kernel as usize);
    let one = Convolution { inputs: 1, outputs: 1, ..*of };
    let mut out = vec![0.0; of.length((x.len() / channels) as u32) as usize * channels];
    for channel in 0..channels {
        let signal: Vec<f32> = x.iter().skip(channel).step_by(channels).copied().collect();
        let weights = &weight[channel * kernel..(channel + 1) * kernel];
        for (moment, value) in convolve(&one, &signal, weights, &bias[channel..=channel]).into_iter().enumerate() {
            out[moment * channels + channel] = value;
        }
    }
    out
}

/// Each row less its mean, divided by the root of its variance plus `epsilon`, times `weight`, plus `bias`.
pub fn layer_norm(x: &[f32], [weight, bias]: [&[f32]; 2], epsilon: f32) -> Vec<f32> {
    let width = weight.len().max(1);
    x.chunks_exact(width)
        .flat_map(|row| {
            let mean = row.iter().map(|value| f64::from(*value)).sum::<f64>() / width as f64;
            let variance = row.iter().map(|value| (f64::from(*value) - mean).powi(2)).sum::<f64>() / width as f64;
            let root = (variance + f64::from(epsilon)).sqrt();
            let of = move |(value, (weight, bias)): (&f32, (&f32, &f32))| {
                ((f64::from(*value) - mean) / root * f64::from(*weight) + f64::from(*bias)) as f32
            };
            row.iter().zip(weight.iter().zip(bias)).map(of).collect::<Vec<f32>>()
        })
        .collect()
}

/// Each row of `x` plus that of `y` with `bias`, times `scale`.
pub fn add_scaled(x: &[f32], y: &[f32], [bias, scale]: [&[f32]; 2]) -> Vec<f32> {
    let width = scale.len();
    let of = |at: usize, x: f32| x + scale[at % width] * (y[at] + bias[at % width]);
    x.iter().enumerate().map(|(at, x)| of(at, *x)).collect()
}

/// For each row of codes the row of the first book, and behind it the sum of those of the others; books are
/// `[groups, size, width]`.
pub fn code_rows(codes: &[u32], books: &[f32], [groups, size, width]: [usize; 3]) -> Vec<f32> {
    let row = |group: usize, code: u32| {
        let at = (group * size + code as usize) * width;
        if (code as usize) < size { books[at..at + width].to_vec() } else { vec![f32::NAN; width] }
    };
    codes
        .chunks_exact(groups)
        .flat_map(|codes| {
            let mut rest = vec![0_f64; width];
            for (group, code) in codes.iter().enumerate().skip(1) {
                rest.iter_mut().zip(row(group, *code)).for_each(|(sum, value)| *sum += f64::from(value));
            }
            let mut both = row(0, codes[0]);
            both.extend(rest.into_iter().map(|sum| sum as f32));
            both
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_causal_convolution_looks_back_alone() {
        let of = Convolution::plain([1, 1], 3, 2);
        // Taps at 4 and 2 moments before and at the moment itself.
        assert_eq!(
            convolve(&of, &[1.0, 2.0, 3.0, 4.0, 5.0], &[100.0, 10.0, 1.0], &[0.5]),
            [1.5, 2.5, 13.5, 24.5, 135.5]
        );
    }

    #[test]
    fn a_strided_convolution_begins_with_the_first_stride() {
        let of = Convolution { stride: 2, ..Convolution::plain([1, 1], 3, 1) };
        // One row of nothing before the first: a kernel of 3 is one longer than the stride.
        assert_eq!(convolve(&of, &[1.0, 2.0, 3.0], &[100.0, 10.0, 1.0], &[0.0]), [12.0, 230.0]);
    }

    #[test]
    fn a_transposed_convolution_spreads_each_moment_and_loses_its_end() {
        let of = Convolution::transposed([1, 1], 4, 2);
        assert_eq!(convolve(&of, &[1.0, 10.0], &[1.0, 2.0, 3.0, 4.0], &[0.0]), [1.0, 2.0, 13.0, 24.0]);
    }

    #[test]
    fn channels_last_are_distinguished() {
        let of = Convolution::plain([2, 1], 2, 1);
        // Weights [1, 2, 2]: those of the first channel, then those of the second.
        assert_eq!(convolve(&of, &[1.0, 2.0, 3.0, 4.0], &[1.0, 10.0, 100.0, 1000.0], &[0.0]), [2010.0, 4231.0]);
        let alone = Convolution::plain([2, 2], 2, 1);
        let found = depthwise(&alone, &[1.0, 2.0, 3.0, 4.0], &[1.0, 10.0, 100.0, 1000.0], &[0.0, 0.5]);
        assert_eq!(found, [10.0, 2000.5, 31.0, 4200.5]);
    }

    #[test]
    fn a_snake_of_small_reach_changes_little() {
        assert_eq!(snake(&[0.0, 1.0], [&[0.0], &[40.0]]), [0.0, 1.0]);
        let half_pi = std::f32::consts::FRAC_PI_2;
        assert!((snake(&[half_pi], [&[0.0], &[0.0]])[0] - half_pi - 1.0).abs() < 1e-6);
    }

    #[test]
    fn rows_are_normed_scaled_and_looked_up() {
        assert_eq!(layer_norm(&[1.0, 3.0], [&[1.0, 2.0], &[0.0, 1.0]], 0.0), [-1.0, 3.0]);
        assert_eq!(add_scaled(&[1.0, 2.0], &[3.0, 4.0], [&[1.0, 0.0], &[2.0, 0.5]]), [9.0, 4.0]);
        let books = [1.0, 2.0, 10.0, 20.0, 100.0, 200.0];
        assert_eq!(code_rows(&[1, 0, 1], &books, [3, 2, 1]), [2.0, 210.0]);
    }
}
