//! AdamW over all parameters of a model, in one launch.

use std::marker::PhantomData;

use super::ADAMW;
use crate::launch::*;

const DOING: &str = "stepping by AdamW";
/// Numbers per block; the kernel has the same constant.
const CHUNK: u64 = 16_384;
const THREADS: u32 = 256;

/// A parameter, its gradient, and the two moments that are kept from step to step, all of one length.
#[derive(Debug)]
pub struct Parameter<'a, T> {
    /// The parameter itself.
    pub value: SliceMut<'a, T>,
    /// Its gradient.
    pub gradient: Slice<'a, T>,
    /// The mean of its gradients, zero at first.
    pub first: SliceMut<'a, T>,
    /// The mean of their squares, zero at first.
    pub second: SliceMut<'a, T>,
}

/// The rates of AdamW. The defaults are those of PyTorch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rates {
    /// The learning rate.
    pub learning_rate: f32,
    /// The decay rates of the moments (betas).
    pub betas: [f32; 2],
    /// Added to the root of the second moment.
    pub epsilon: f32,
    /// The weight decay, as a share of the learning rate.
    pub weight_decay: f32,
}

impl Default for Rates {
    fn default() -> Self {
        Self { learning_rate: 1e-3, betas: [0.9, 0.999], epsilon: 1e-8, weight_decay: 1e-2 }
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Factors {
    /// The factor that the weight decay applies to a parameter.
    pub kept: f32,
    /// The learning rate with the bias correction of the first moment.
    pub step: f32,
    /// The bias correction of the root of the second moment.
    pub root: f32,
}

impl Rates {
    /// Computed in double precision, as the powers of a beta near one need.
    pub(super) fn factors(&self, step: u32) -> Factors {
        let [first, second] = self.betas.map(|beta| 1.0 - f64::from(beta).powf(f64::from(step)));
        let rate = f64::from(self.learning_rate);
        Factors {
            kept: (1.0 - rate * f64::from(self.weight_decay)) as f32,
            step: (rate / first) as f32,
            root: (1.0 / second.sqrt()) as f32,
        }
    }
}

/// AdamW for parameters at fixed addresses. Moments are stored in the dtype of the parameters, as in PyTorch.
#[derive(Debug)]
pub struct AdamW<T> {
    kernel: Kernel,
    /// Addresses and lengths, as the kernel reads them.
    table: Buffer<u64>,
    /// Which parameter, and which of its chunks.
    chunks: Buffer<u32>,
    known: Vec<[u64; 5]>,
    of: PhantomData<T>,
}

impl<T: Element> AdamW<T> {
    /// Notes on the device where the parameters lie.
    pub fn new(device: &Device, cache: &Cache, parameters: &[Parameter<'_, T>]) -> Result<Self, CudaError> {
        let of_one_length = |parameter: &Parameter<'_, T>| {
            let length = parameter.value.length();
            let others = [parameter.gradient.length(), parameter.first.length(), parameter.second.length()];
            others.iter().all(|other| *other == length)
        };
        expect(DOING, parameters.iter().all(of_one_length), "a parameter, its gradient and moments are of one length")?;
        let known: Vec<[u64; 5]> = parameters.iter().map(place).collect();
        let kernel = Request::typed::<T>(ADAMW, &[]).load(device, cache)?.kernel("adamw")?;
        let chunks: Vec<u32> = chunks(&known.iter().map(|place| place[4]).collect::<Vec<_>>())?;
        let table: Vec<u64> = known.concat();
        Ok(Self { kernel, table: device.upload(&table)?, chunks: device.upload(&chunks)?, known, of: PhantomData })
    }

    /// Puts step number `step`, counted from 1, on a stream. The parameters are those it was made for, in the same order
    /// and at the same places.
    ///
    /// The number is not read on the device: a step that is captured into a graph corrects the moments as that step.
    pub fn step(&self, stream: &Stream, parameters: &mut [Parameter<'_, T>], rates: &Rates, step: u32) -> Done {
        expect(DOING, step > 0, "steps are counted from 1")?;
        let is_known =
            parameters.len() == self.known.len() && parameters.iter().map(place).eq(self.known.iter().copied());
        expect(DOING, is_known, "the parameters are not those it was made for")?;
        let (Factors { kept, step, root }, [first, second]) = (rates.factors(step), rates.betas);
        let launch = Launch::new(stream, DOING).read(&self.table, 0_u32).read(&self.chunks, 0_u32).with_all([
            kept,
            first,
            second,
            step,
            root,
            rates.epsilon,
        ]);
        launch.run(&self.kernel, Shape::line((self.chunks.length() / 2) as u32, THREADS))
    }

    /// Numbers of all parameters.
    pub fn numbers(&self) -> u64 {
        self.known.iter().map(|place| place[4]).sum()
    }
}

fn place<T: Element>(parameter: &Parameter<'_, T>) -> [u64; 5] {
    let Parameter { value, gradient, first, second } = parameter;
    [value.pointer(), gradient.pointer(), first.pointer(), second.pointer(), value.length() as u64]
}

/// Which parameter and which of its chunks each block has, for parameters of these lengths.
fn chunks(lengths: &[u64]) -> Result<Vec<u32>, CudaError> {
    let count = lengths.iter().fold(0_u64, |count, length| count.saturating_add(length.div_ceil(CHUNK)));
    expect(DOING, count < 1 << 31, "too many numbers")?;
    let of_one = |(at, length): (usize, &u64)| (0..length.div_ceil(CHUNK) as u32).flat_map(move |i| [at as u32, i]);
    Ok(lengths.iter().enumerate().flat_map(of_one).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_in_a_chunk() {
        assert_eq!(chunks(&[0, 1, CHUNK, CHUNK + 1]).unwrap(), [1, 0, 2, 0, 3, 0, 3, 1]);
        assert!(chunks(&[u64::MAX, 1]).is_err());
    }

    #[test]
    fn the_first_step_is_corrected_the_most() {
        let rates = Rates { learning_rate: 0.1, betas: [0.5, 0.75], weight_decay: 0.5, ..Rates::default() };
        assert_eq!(rates.factors(1), Factors { kept: 0.95, step: 0.2, root: 2.0 });
        let late = rates.factors(1000);
        assert_eq!((late.step, late.root), (0.1, 1.0));
    }
}
