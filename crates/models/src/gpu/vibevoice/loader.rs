//! The weights of VibeVoice on a GPU, packed as its kernels read them.

use laptime_cuda::Buffer;
use laptime_cuda::nn::{Convolution, StreamRows};

use super::super::audio::{ConvWeights, Kit, KitLoader};
use super::super::{size, weights::Number};
use super::backend::Cuda;
use crate::ModelError;
use crate::tts::{ConvTensors, Linear};
use crate::vibevoice::{ConvShape, Kinds, VoiceLoad};

impl<T: Number> Kinds for Cuda<'_, T> {
    type Matrix = Buffer<T>;
    type Vector = Buffer<T>;
    type Conv = ConvWeights<T>;
    /// `[taps, channels]`, and a bias.
    type Depthwise = Linear<Buffer<T>>;
}

impl<'a, T: Number> VoiceLoad<Cuda<'a, T>> for KitLoader<'_, T, &StreamRows<T>> {
    fn conv(&mut self, tensors: &ConvTensors, shape: ConvShape) -> Result<ConvWeights<T>, ModelError> {
        let [inputs, outputs, kernel, stride] = [shape.inputs, shape.outputs, shape.kernel, shape.stride].map(size);
        let (channels, kernel, stride) = ([inputs?, outputs?], kernel?, stride?);
        let of = match shape.is_transposed {
            true => Convolution::transposed(channels, kernel, stride),
            false => Convolution { stride, ..Convolution::plain(channels, kernel, 1) },
        };
        // It continues from what came before.
        let of = of.going_on();
        if shape.makes_samples { self.as_stored(of, tensors) } else { self.packed(of, tensors) }
    }

    fn depthwise(&mut self, tensors: &ConvTensors) -> Result<Linear<Buffer<T>>, ModelError> {
        let (Linear { weight: stored, bias }, Kit { device, .. }) = (self.stored(tensors)?, self.kit);
        let channels = size(bias.length())?;
        let taps = size(stored.length())? / channels.max(1);
        let mut weight = device.allocate(stored.length())?;
        self.kernels.turn_taps(device.stream(), &stored, &mut weight, [channels, taps])?;
        Ok(Linear { weight, bias })
    }
}
