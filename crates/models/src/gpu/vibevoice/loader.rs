//! The weights of VibeVoice on a GPU, packed as its kernels read them.

use laptime_cuda::{Buffer, nn::Convolution};

use super::super::{
    size,
    weights::{Loader, Number},
};
use super::backend::{Cuda, On};
use crate::vibevoice::{ConvShape, Kinds, VibeVoiceWeights, VoiceLoad};
use crate::{ModelError, TensorSpec, decoder::weights::LoadAlike, tts::ConvTensors};

pub struct Stored<T> {
    pub weight: Buffer<T>,
    pub bias: Buffer<T>,
}

/// A convolution that continues from what came before.
pub enum ConvWeights<T> {
    Packed(Convolution, Buffer<T>),
    /// To one channel: the weights as they are stored.
    ToSamples(Convolution, Stored<T>),
}

impl<T: Number> Kinds for Cuda<'_, T> {
    type Matrix = Buffer<T>;
    type Vector = Buffer<T>;
    type Conv = ConvWeights<T>;
    /// `[taps, channels]`.
    type Depthwise = Stored<T>;
}

pub struct Put<'p, 'a, T> {
    on: &'p On<'a, T>,
    loader: Loader<'p, T>,
}

impl<'p, 'a, T: Number> Put<'p, 'a, T> {
    pub fn new(on: &'p On<'a, T>, weights: &'p VibeVoiceWeights) -> Self {
        Self { on, loader: Loader { device: on.device, operations: &on.kernels.operations, weights, fp8: None } }
    }

    fn stored(&self, ConvTensors { weight, bias }: &ConvTensors) -> Result<Stored<T>, ModelError> {
        let one = |tensor| self.loader.packed(std::slice::from_ref(tensor));
        Ok(Stored { weight: one(weight)?, bias: one(bias)? })
    }
}

impl<T: Number> LoadAlike for Put<'_, '_, T> {
    type Part = Buffer<T>;
    type Error = ModelError;

    fn part(&mut self, tensors: &[TensorSpec]) -> Result<Buffer<T>, ModelError> {
        self.loader.packed(tensors)
    }
}

impl<'a, T: Number> VoiceLoad<Cuda<'a, T>> for Put<'_, 'a, T> {
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

    fn depthwise(&mut self, tensors: &ConvTensors) -> Result<Stored<T>, ModelError> {
        let Stored { weight: stored, bias } = self.stored(tensors)?;
        let channels = size(bias.length())?;
        let taps = size(stored.length())? / channels.max(1);
        let On { device, kernels, .. } = self.on;
        let mut weight = device.allocate(stored.length())?;
        kernels.streams.turn_taps(device.stream(), &stored, &mut weight, [channels, taps])?;
        Ok(Stored { weight, bias })
    }
}
