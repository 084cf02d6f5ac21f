//! The weights of Qwen3-TTS on a GPU, packed as its kernels read them.

use std::marker::PhantomData;

use laptime_cuda::nn::{Convolution, Snake};
use laptime_cuda::{Blas, Buffer, CudaError, Rows, Sizes};

use super::super::audio::{ConvWeights, KitLoader};
use super::super::{size, weights::Number};
use crate::tts::{ConvTensors, Linear, Parts, TtsLoad, codebook};
use crate::{ModelError, Role, TensorSpec};

pub struct GpuParts<T>(PhantomData<T>);

pub struct Bridge<T> {
    pub linear: Linear<Buffer<T>>,
    pub first: Buffer<T>,
    pub others: Buffer<T>,
}

impl<T> Parts for GpuParts<T> {
    type Matrix = Buffer<T>;
    type Vector = Buffer<T>;
    type Conv = ConvWeights<T>;
    type Depthwise = ConvWeights<T>;
    type Snake = Snake;
    type Codebooks = Buffer<T>;
    type Bridge = Bridge<T>;
}

impl<T: Number> KitLoader<'_, T> {
    fn crossed(&self, linear: &Linear<Buffer<T>>, rows: &Buffer<T>) -> Result<Buffer<T>, ModelError> {
        let n = size(linear.bias.length())?;
        let k = size(linear.weight.length())? / n;
        let m = size(rows.length())? / k;
        let mut out = self.kit.device.allocate(m as usize * n as usize)?;
        let blas = Blas::new(self.kit.device)?;
        blas.multiply([rows, &linear.weight], &mut out, Sizes { m, n, k, b_is_transposed: true })?;
        self.kit.operations.add_bias(self.kit.device.stream(), &mut out, &linear.bias, [m, n])?;
        Ok(out)
    }
}

impl<T: Number> TtsLoad for KitLoader<'_, T> {
    type Parts = GpuParts<T>;

    fn conv(&mut self, tensors: &ConvTensors, step: usize) -> Result<ConvWeights<T>, ModelError> {
        let ([first, second, kernel], step) = (sizes(&tensors.weight)?, size(step)?);
        let of = match tensors.weight.role {
            Role::Lengthen => Convolution::transposed([first, second], kernel, step),
            _ => Convolution::plain([second, first], kernel, step),
        };
        self.packed(of, tensors)
    }

    fn to_one(&mut self, tensors: &ConvTensors) -> Result<ConvWeights<T>, ModelError> {
        let [outputs, inputs, kernel] = sizes(&tensors.weight)?;
        let of = Convolution::plain([if outputs > 1 { outputs } else { inputs }, outputs], kernel, 1);
        self.as_stored(of, tensors)
    }

    fn depthwise(&mut self, tensors: &ConvTensors) -> Result<ConvWeights<T>, ModelError> {
        self.to_one(tensors)
    }

    fn snake(&mut self, [alpha, beta]: &[TensorSpec; 2]) -> Result<Snake, ModelError> {
        let (alpha, beta, device) = (self.one(alpha)?, self.one(beta)?, self.kit.device);
        Ok(self.kit.convolutions.snake(device, device.stream(), [alpha.all(), beta.all()])?)
    }

    fn codebooks(&mut self, tensors: &[[TensorSpec; 2]]) -> Result<Buffer<T>, ModelError> {
        let mut all: Vec<T> = Vec::new();
        for tensors in tensors {
            all.extend(codebook(self.loader.weights, tensors)?.into_iter().map(T::narrowed));
        }
        Ok(self.kit.device.upload(&all)?)
    }

    fn side_by_side(&mut self, tensors: &[TensorSpec; 2]) -> Result<Buffer<T>, ModelError> {
        let [count, length, _] = sizes(&tensors[0])?.map(|side| side as usize);
        let mut both = self.kit.device.allocate(count * 2 * length)?;
        for (at, spec) in tensors.iter().enumerate() {
            let (one, end) = (self.one(spec)?, both.length());
            let rows = Rows { count, length, from_stride: length, to_stride: 2 * length };
            both.slice_mut(at * length..end)?.copy_rows_from(self.kit.device.stream(), one.all(), rows)?;
        }
        Ok(both)
    }

    fn scale_rows(&mut self, matrix: &mut Buffer<T>, scale: &TensorSpec) -> Result<(), ModelError> {
        let scale = self.one(scale)?;
        let rows = size(scale.length())?;
        let shape = [rows, size(matrix.length())? / rows];
        Ok(self.kit.rows.scale_rows(self.kit.device.stream(), matrix, scale.all(), shape)?)
    }

    fn bridge(&mut self, linear: Linear<Buffer<T>>, tables: [&Buffer<T>; 2]) -> Result<Bridge<T>, ModelError> {
        let [first, others] = [self.crossed(&linear, tables[0])?, self.crossed(&linear, tables[1])?];
        Ok(Bridge { linear, first, others })
    }
}

/// The sides of a tensor; those that it does not have are 1.
fn sizes(spec: &TensorSpec) -> Result<[u32; 3], CudaError> {
    let side = |at: usize| size(spec.shape.get(at).copied().unwrap_or(1));
    Ok([side(0)?, side(1)?, side(2)?])
}
