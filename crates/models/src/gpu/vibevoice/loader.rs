//! The weights of VibeVoice on a GPU, packed as its kernels read them.

use laptime_cuda::{Buffer, nn::Convolution};

use super::{
    super::{
        size,
        weights::{Loader, Number},
    },
    backend::{Cuda, On},
};
use crate::{
    LinearTensors, ModelError, TensorSpec,
    tts::ConvTensors,
    vibevoice::{ConvShape, Kinds, Load, VibeVoiceWeights},
};

/// A matrix, `[outputs, inputs]`, and a bias.
pub struct LinearWeights<T> {
    pub weight: Buffer<T>,
    pub bias: Buffer<T>,
}

/// A convolution that continues from what came before.
pub enum ConvWeights<T> {
    Packed(Convolution, Buffer<T>),
    /// To one channel: the weights as they are stored.
    ToSamples(Convolution, LinearWeights<T>),
}

impl<T: Number> Kinds for Cuda<'_, T> {
    type Matrix = Buffer<T>;
    type Vector = Buffer<T>;
    type Linear = LinearWeights<T>;
    type Conv = ConvWeights<T>;
    /// `[taps, channels]`.
    type Depthwise = LinearWeights<T>;
    type Number = f32;
}

/// Puts the tensors of VibeVoice on a device.
pub struct Put<'p, 'a, T> {
    on: &'p On<'a, T>,
    weights: &'p VibeVoiceWeights,
}

impl<'p, 'a, T: Number> Put<'p, 'a, T> {
    pub fn new(on: &'p On<'a, T>, weights: &'p VibeVoiceWeights) -> Self {
        Self { on, weights }
    }

    fn stored(&mut self, tensors: &ConvTensors) -> Result<LinearWeights<T>, ModelError> {
        Ok(LinearWeights { weight: self.vector(&tensors.weight)?, bias: self.vector(&tensors.bias)? })
    }
}

impl<'a, T: Number> Load for Put<'_, 'a, T> {
    type On = Cuda<'a, T>;

    fn matrix(&mut self, tensors: &[TensorSpec]) -> Result<Buffer<T>, ModelError> {
        let On { device, kernels, .. } = self.on;
        Loader { device, operations: &kernels.operations, weights: self.weights }.packed(tensors)
    }

    fn vector(&mut self, tensor: &TensorSpec) -> Result<Buffer<T>, ModelError> {
        self.matrix(std::slice::from_ref(tensor))
    }

    fn linear(&mut self, tensors: &LinearTensors) -> Result<LinearWeights<T>, ModelError> {
        Ok(LinearWeights { weight: self.vector(&tensors.weight)?, bias: self.vector(&tensors.bias)? })
    }

    fn conv(&mut self, tensors: &ConvTensors, shape: ConvShape) -> Result<ConvWeights<T>, ModelError> {
        let [inputs, outputs, kernel, stride] = [shape.inputs, shape.outputs, shape.kernel, shape.stride].map(size);
        let (channels, kernel, stride) = ([inputs?, outputs?], kernel?, stride?);
        let of = match shape.is_transposed {
            true => Convolution::transposed(channels, kernel, stride),
            false => Convolution { stride, ..Convolution::plain(channels, kernel, 1) },
        };
        let (of, stored) = (of.going_on(), self.stored(tensors)?);
        if shape.makes_samples {
            return Ok(ConvWeights::ToSamples(of, stored));
        }
        let On { device, kernels, .. } = self.on;
        let mut packed = device.allocate(of.packed_numbers() as usize)?;
        kernels.convolutions.pack(device.stream(), &of, &stored.weight, Some(stored.bias.all()), &mut packed)?;
        Ok(ConvWeights::Packed(of, packed))
    }

    fn depthwise(&mut self, tensors: &ConvTensors) -> Result<LinearWeights<T>, ModelError> {
        let LinearWeights { weight: stored, bias } = self.stored(tensors)?;
        let channels = size(bias.length())?;
        let taps = size(stored.length())? / channels.max(1);
        let On { device, kernels, .. } = self.on;
        let mut weight = device.allocate(stored.length())?;
        kernels.streams.turn_taps(device.stream(), &stored, &mut weight, [channels, taps])?;
        Ok(LinearWeights { weight, bias })
    }

    fn number(&mut self, tensor: &TensorSpec) -> Result<f32, ModelError> {
        let number = self.weights.tensor(tensor)?.to_f32().first().copied().unwrap_or_default();
        Ok(T::narrowed(number).widened())
    }
}
