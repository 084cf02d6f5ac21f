//! AdamW over all parameters of a model, in one launch.

use std::marker::PhantomData;

use super::ADAMW;
use crate::launch::*;

const DOING: &str = "updating with AdamW";
/// Elements per block; the kernel has the same constant.
const CHUNK: u64 = 16_384;
const THREADS: u32 = 256;

/// A parameter, its gradient and its two moments, all of one length.
#[derive(Debug)]
pub struct Parameter<'a, T> {
    /// The parameter.
    pub value: SliceMut<'a, T>,
    /// Its gradient.
    pub gradient: Slice<'a, T>,
    /// The first moment, initially zero.
    pub first: SliceMut<'a, T>,
    /// The second moment, initially zero.
    pub second: SliceMut<'a, T>,
}

/// The hyperparameters of AdamW, with the defaults of PyTorch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rates {
    /// The learning rate.
    pub learning_rate: f32,
    /// The decay rates of the moments (betas).
    pub betas: [f32; 2],
    /// Added to the root of the second moment.
    pub epsilon: f32,
    /// The weight decay, relative to the learning rate.
    pub weight_decay: f32,
}

impl Default for Rates {
    fn default() -> Self {
        Self { learning_rate: 1e-3, betas: [0.9, 0.999], epsilon: 1e-8, weight_decay: 1e-2 }
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Factors {
    /// The factor of the weight decay.
    pub decay: f32,
    /// The learning rate with the bias correction of the first moment.
    pub step: f32,
    /// The bias correction of the root of the second moment.
    pub root: f32,
}

impl Rates {
    /// In double precision, which powers of a beta near one need.
    pub(super) fn factors(&self, step: u32) -> Factors {
        let [first, second] = self.betas.map(|beta| 1.0 - f64::from(beta).powf(f64::from(step)));
        let rate = f64::from(self.learning_rate);
        Factors {
            decay: (1.0 - rate * f64::from(self.weight_decay)) as f32,
            step: (rate / first) as f32,
            root: (1.0 / second.sqrt()) as f32,
        }
    }
}

/// AdamW for parameters at fixed addresses. Moments are stored in the dtype of the parameters, as in PyTorch.
#[derive(Debug)]
pub struct AdamW<T> {
    kernel: Kernel,
    /// The kernel's `Parameter`s.
    table: Buffer<u64>,
    /// For each block, the indices of its parameter and of its chunk.
    chunks: Buffer<u32>,
    known: Vec<[u64; 5]>,
    of: PhantomData<T>,
}

impl<T: Element> AdamW<T> {
    /// Uploads the addresses of the parameters.
    pub fn new(device: &Device, cache: &Cache, parameters: &[Parameter<'_, T>]) -> Result<Self, CudaError> {
        let has_one_length = |parameter: &Parameter<'_, T>| {
            let Parameter { value, gradient, first, second } = parameter;
            [gradient.length(), first.length(), second.length()].iter().all(|length| *length == value.length())
        };
        expect(DOING, parameters.iter().all(has_one_length), "a parameter, its gradient and moments differ in length")?;
        let known: Vec<[u64; 5]> = parameters.iter().map(entry).collect();
        let kernel = Request::typed::<T>(ADAMW, &[]).load(device, cache)?.kernel("adamw")?;
        let chunks: Vec<u32> = chunks(&known.iter().map(|entry| entry[4]).collect::<Vec<_>>())?;
        let table: Vec<u64> = known.concat();
        Ok(Self { kernel, table: device.upload(&table)?, chunks: device.upload(&chunks)?, known, of: PhantomData })
    }

    /// Runs step number `step`, counted from 1. The parameters must be those of [`AdamW::new`], in the same order and at the
    /// same addresses.
    ///
    /// The number is an argument of the kernel, so every replay of a captured step uses the same bias correction.
    pub fn step(&self, stream: &Stream, parameters: &mut [Parameter<'_, T>], rates: &Rates, step: u32) -> Done {
        expect(DOING, step > 0, "steps are counted from 1")?;
        let is_known =
            parameters.len() == self.known.len() && parameters.iter().map(entry).eq(self.known.iter().copied());
        expect(DOING, is_known, "these are not the parameters that it was created for")?;
        let (Factors { decay, step, root }, [first, second]) = (rates.factors(step), rates.betas);
        let launch = Launch::new(stream, DOING).read(&self.table, 0_u32).read(&self.chunks, 0_u32);
        let launch = launch.with_all([decay, first, second, step, root, rates.epsilon]);
        launch.run(&self.kernel, Shape::line((self.chunks.length() / 2) as u32, THREADS))
    }

    /// Elements of all parameters.
    pub fn elements(&self) -> u64 {
        self.known.iter().map(|entry| entry[4]).sum()
    }
}

fn entry<T: Element>(parameter: &Parameter<'_, T>) -> [u64; 5] {
    let Parameter { value, gradient, first, second } = parameter;
    [value.pointer(), gradient.pointer(), first.pointer(), second.pointer(), value.length() as u64]
}

/// The chunk of each block, for parameters of these lengths.
fn chunks(lengths: &[u64]) -> Result<Vec<u32>, CudaError> {
    let count = lengths.iter().fold(0_u64, |count, length| count.saturating_add(length.div_ceil(CHUNK)));
    expect(DOING, count < 1 << 31, "too many elements")?;
    let of_one = |(at, length): (usize, &u64)| (0..length.div_ceil(CHUNK) as u32).flat_map(move |i| [at as u32, i]);
    Ok(lengths.iter().enumerate().flat_map(of_one).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_is_in_a_chunk() {
        assert_eq!(chunks(&[0, 1, CHUNK, CHUNK + 1]).unwrap(), [1, 0, 2, 0, 3, 0, 3, 1]);
        assert!(chunks(&[u64::MAX, 1]).is_err());
    }

    #[test]
    fn the_first_step_is_corrected_the_most() {
        let rates = Rates { learning_rate: 0.1, betas: [0.5, 0.75], weight_decay: 0.5, ..Rates::default() };
        assert_eq!(rates.factors(1), Factors { decay: 0.95, step: 0.2, root: 2.0 });
        let late = rates.factors(1000);
        assert_eq!((late.step, late.root), (0.1, 1.0));
    }
}
