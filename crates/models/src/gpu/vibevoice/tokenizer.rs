//! The operations of tokenizers on a GPU.

use laptime_cuda::nn::{Activation, History, Mixer as MixerKernel, Residual, Signal};
use laptime_cuda::{Buffer, CudaError, Device, SliceMut};

use super::super::audio::{ConvWeights, Kit};
use super::super::{size, weights::Number};
use super::backend::Cuda;
use crate::ModelError;
use crate::vibevoice::{Done, List, Mixer, Plan, Rows, TokenizerOps, TokenizerShape};

pub struct Flow<T> {
    lists: Vec<List>,
    kept: History<T>,
    pub x: Buffer<T>,
    normed: Buffer<T>,
    second: Buffer<T>,
    wide: Buffer<T>,
    columns: Buffer<T>,
    pub samples: Buffer<f32>,
}

impl<T: Number> Flow<T> {
    fn new(device: &Device, shape: &TokenizerShape, tokens: usize) -> Result<Self, ModelError> {
        let Plan { lists, hidden, inner, columns, samples, .. } = Plan::new(shape, tokens);
        let sides = |list: &List| Ok([size(list.begin)?, size(list.width)?, size(list.kept)?, size(list.each)?]);
        let sides = lists.iter().map(sides).collect::<Result<Vec<_>, CudaError>>()?;
        Ok(Self {
            kept: History::new(device, &sides, size(tokens)?)?,
            x: device.allocate(tokens * hidden)?,
            normed: device.allocate(tokens * hidden)?,
            second: device.allocate(tokens * hidden)?,
            wide: device.allocate(tokens * inner)?,
            columns: device.allocate(tokens * columns)?,
            samples: device.allocate(tokens * samples)?,
            lists,
        })
    }

    pub fn entrance(&mut self, tokens: usize) -> Result<SliceMut<'_, T>, CudaError> {
        let list = self.lists[0];
        self.kept.rows.slice_mut(list.entering()..list.end(tokens))
    }
}

impl<T: Number> TokenizerOps for Cuda<'_, T> {
    type Flow = Flow<T>;

    const TOGETHER: usize = 16;

    fn flow(&self, shape: &TokenizerShape, tokens: usize) -> Result<Flow<T>, ModelError> {
        Flow::new(self.kit.device, shape, tokens)
    }

    fn forget(&mut self, flow: &mut Flow<T>) -> Done {
        Ok(flow.kept.clear(self.kit.device.stream())?)
    }

    fn enter(&mut self, flow: &mut Flow<T>, numbers: &[f32]) -> Done {
        let tokens = numbers.len() / (flow.lists[0].each * flow.lists[0].width);
        let narrow: Vec<T> = numbers.iter().map(|number| T::narrowed(*number)).collect();
        Ok(flow.entrance(tokens)?.write(&narrow)?)
    }

    fn convolve(&mut self, flow: &mut Flow<T>, at: usize, conv: &ConvWeights<T>, tokens: usize) -> Done {
        let (Kit { device, blas, convolutions, .. }, list) = (&self.kit, flow.lists[at]);
        let length = size(list.kept + list.each * tokens)?;
        let signal = Signal { x: flow.kept.rows.slice(list.begin..list.end(tokens))?, length, snake: None };
        let (ConvWeights { of, weight, bias }, stream) = (conv, device.stream());
        match bias {
            None => {
                let columns = (false, &mut flow.columns);
                Ok(convolutions.convolve(blas, stream, of, &signal, weight, &mut flow.x, columns)?)
            }
            Some(bias) => {
                let weights = (weight.all(), Some(bias.all()));
                Ok(convolutions.to_one(stream, of, &signal, weights, &mut flow.samples, f32::INFINITY)?)
            }
        }
    }

    fn add_norm(
        &mut self,
        flow: &mut Flow<T>,
        to: Rows,
        done: Option<&Mixer<Self>>,
        next: Option<&Mixer<Self>>,
    ) -> Done {
        let list = flow.lists[to.at];
        let input = flow.kept.rows.slice_mut(list.entering()..list.entering() + to.rows * list.width)?;
        let addition = done.map(|block| Residual {
            y: flow.second.all(),
            bias: block.down.bias.all(),
            scale: block.ffn_scale.all(),
        });
        let (norm, shape) = ((next.map(|block| block.norm.all()), to.eps), [size(to.rows)?, size(list.width)?]);
        Ok(self.streams.add_norm(self.kit.device.stream(), &mut flow.x, addition.as_ref(), norm, input, shape)?)
    }

    fn block(&mut self, flow: &mut Flow<T>, to: Rows, block: &Mixer<Self>) -> Done {
        let (kit, list, Mixer { up, down, .. }) = (&self.kit, flow.lists[to.at], block);
        let (rows, width, inner) = (size(to.rows)?, size(list.width)?, size(up.bias.length())?);
        let mixer = MixerKernel {
            history: flow.kept.rows.slice(list.begin..list.entering() + to.rows * list.width)?,
            weight: block.mixer.weight.all(),
            bias: block.mixer.bias.all(),
            scale: block.scale.all(),
            taps: size(to.taps)?,
        };
        let (stream, norm) = (kit.device.stream(), (block.ffn_norm.all(), to.eps));
        self.streams.mix_norm(stream, &mixer, &mut flow.x, norm, &mut flow.normed, [rows, width])?;
        kit.product(&flow.normed, &up.weight, &mut flow.wide, [rows, inner])?;
        kit.rows.bias_activation(stream, &mut flow.wide, Some(up.bias.all()), [rows, inner], Activation::Gelu)?;
        kit.product(&flow.wide, &down.weight, &mut flow.second, [rows, width])
    }

    fn keep(&mut self, flow: &mut Flow<T>, tokens: usize) -> Done {
        Ok(self.streams.keep(self.kit.device.stream(), &mut flow.kept, size(tokens)?)?)
    }

    fn leave(&mut self, flow: &Flow<T>, shape: &TokenizerShape, tokens: usize) -> Result<Vec<f32>, ModelError> {
        if !shape.head.makes_samples {
            let values = flow.x.slice(0..tokens * shape.head.outputs)?.read()?;
            return Ok(values.into_iter().map(T::widened).collect());
        }
        let samples = flow.lists.last().map_or(0, |list| list.each * tokens);
        let values = flow.samples.slice(0..samples)?.read()?;
        // Samples are rounded to the model's dtype.
        Ok(values.into_iter().map(|sample| T::narrowed(sample).widened()).collect())
    }
}
