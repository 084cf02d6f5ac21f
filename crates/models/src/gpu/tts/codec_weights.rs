//! The weights of the codec decoder on a GPU, packed as its products take them.

use laptime_cuda::{
    Buffer, Rows,
    nn::{AudioRows, Convolution, Convolutions, Snake},
};

use super::{
    super::{
        size,
        weights::{LayerWeights, Number},
    },
    weights::{LinearWeights, Load},
};
use crate::{
    LinearTensors, ModelError, TensorSpec,
    tts::{BlockTensors, CodecTensors, ConvTensors, KERNELS, NextTensors, Part, SnakeTensors, TtsConfig, UnitTensors},
};

/// What a vector's use is at least, as in the official package.
const LEAST_USE: f32 = 1e-5;

/// The weights of the codec decoder.
pub struct CodecWeights<T> {
    /// The vectors of all groups, one behind the other.
    pub books: Buffer<T>,
    /// What brings them to the width of codes: the first group's, and beside it the sum of all others.
    pub projection: Buffer<T>,
    pub input: ConvWeights<T>,
    pub enter: ConvWeights<T>,
    /// Layers that have their scales in what they add.
    pub layers: Vec<LayerWeights<T>>,
    pub norm: Buffer<T>,
    pub leave: ConvWeights<T>,
    pub next: Vec<NextWeights<T>>,
    pub first: ConvWeights<T>,
    pub blocks: Vec<BlockWeights<T>>,
    pub snake: Snake,
    pub last: PlainConv<T>,
}

/// A convolution, packed.
pub struct ConvWeights<T> {
    pub of: Convolution,
    pub packed: Buffer<T>,
}

/// A convolution as it is stored.
pub struct PlainConv<T> {
    pub of: Convolution,
    pub weight: Buffer<T>,
    pub bias: Buffer<T>,
}

/// A block that lengthens, and a ConvNeXt block behind it.
pub struct NextWeights<T> {
    pub lengthen: ConvWeights<T>,
    pub depthwise: PlainConv<T>,
    pub norm: LinearWeights<T>,
    pub up: LinearWeights<T>,
    pub down: LinearWeights<T>,
    pub scale: Buffer<T>,
}

/// A block that lengthens, and residual units behind it.
pub struct BlockWeights<T> {
    pub snake: Snake,
    pub lengthen: ConvWeights<T>,
    pub units: Vec<UnitWeights<T>>,
}

/// A residual unit.
pub struct UnitWeights<T> {
    pub snake: Snake,
    pub wide: ConvWeights<T>,
    pub snake_between: Snake,
    pub narrow: ConvWeights<T>,
}

impl<T: Number> CodecWeights<T> {
    /// Puts them on the device.
    pub fn load(load: &Load<'_, T>, rows: &AudioRows<T>, kernels: &Convolutions<T>) -> Result<Self, ModelError> {
        let tensors = load.config.codec_tensors();
        let pack = Pack { load, kernels };
        let codec = &load.config.codec;
        let next = tensors.next.iter().zip(&codec.ratios).map(|(next, ratio)| pack.next(next, *ratio));
        let blocks = tensors.blocks.iter().zip(&codec.rates).map(|(block, rate)| pack.block(block, *rate));
        let (layers, norm) = pack.transformer(&tensors, rows)?;
        Ok(Self {
            books: pack.books(&tensors)?,
            projection: pack.projection(load.config, &tensors)?,
            input: pack.conv(&tensors.input, 1)?,
            enter: pack.linear(&tensors.enter)?,
            layers,
            norm,
            leave: pack.linear(&tensors.leave)?,
            next: next.collect::<Result<_, _>>()?,
            first: pack.conv(&tensors.first, 1)?,
            blocks: blocks.collect::<Result<_, _>>()?,
            snake: pack.snake(&tensors.snake)?,
            last: pack.plain(&tensors.last)?,
        })
    }
}

struct Pack<'a, T> {
    load: &'a Load<'a, T>,
    kernels: &'a Convolutions<T>,
}

impl<T: Number> Pack<'_, T> {
    /// Vectors are the sums of what they stand for over how often they were used, divided in 32 bits.
    fn books(&self, tensors: &CodecTensors) -> Result<Buffer<T>, ModelError> {
        let mut all: Vec<T> = Vec::new();
        for [sums, uses] in &tensors.codebooks {
            let width = sums.shape.get(1).copied().unwrap_or(1).max(1);
            let numbers = |spec: &TensorSpec| Ok::<_, ModelError>(self.load.weights.tensor(spec)?.to_f32());
            for (row, used) in numbers(sums)?.chunks(width).zip(numbers(uses)?) {
                all.extend(row.iter().map(|sum| T::narrowed(sum / used.max(LEAST_USE))));
            }
        }
        Ok(self.load.device.upload(&all)?)
    }

    /// The two projections side by side.
    fn projection(&self, config: &TtsConfig, tensors: &CodecTensors) -> Result<Buffer<T>, ModelError> {
        let (rows, width) = (config.codec.code_width, config.codec.vector_width());
        let mut both = self.load.device.allocate(rows * 2 * width)?;
        for (at, spec) in tensors.projections.iter().enumerate() {
            let one = self.load.one(spec)?;
            let rows = Rows { count: rows, length: width, from_stride: width, to_stride: 2 * width };
            let end = both.length();
            both.slice_mut(at * width..end)?.copy_rows_from(self.load.device.stream(), one.all(), rows)?;
        }
        Ok(both)
    }

    /// The layers, with what they multiply what they add with in the matrices that make it.
    fn transformer(
        &self,
        tensors: &CodecTensors,
        rows: &AudioRows<T>,
    ) -> Result<(Vec<LayerWeights<T>>, Buffer<T>), ModelError> {
        let config = &self.load.config.codec.transformer;
        let (mut layers, norm) = self.load.body(Part::Codec)?;
        let (hidden, stream) = (size(config.hidden)?, self.load.device.stream());
        for (layer, [attention, ffn]) in layers.iter_mut().zip(&tensors.scales) {
            let (attention, ffn) = (self.load.one(attention)?, self.load.one(ffn)?);
            let width = size(config.heads * config.head_dim)?;
            rows.scale_rows(stream, &mut layer.output, attention.all(), [hidden, width])?;
            rows.scale_rows(stream, &mut layer.down, ffn.all(), [hidden, size(config.ffn)?])?;
        }
        Ok((layers, norm))
    }

    fn next(&self, tensors: &NextTensors, ratio: usize) -> Result<NextWeights<T>, ModelError> {
        Ok(NextWeights {
            lengthen: self.lengthening(&tensors.lengthen, ratio)?,
            depthwise: self.plain(&tensors.depthwise)?,
            norm: self.load.linear(&tensors.norm)?,
            up: self.load.linear(&tensors.up)?,
            down: self.load.linear(&tensors.down)?,
            scale: self.load.one(&tensors.scale)?,
        })
    }

    fn block(&self, tensors: &BlockTensors, rate: usize) -> Result<BlockWeights<T>, ModelError> {
        let units = tensors.units.iter().zip(KERNELS.dilations);
        Ok(BlockWeights {
            snake: self.snake(&tensors.snake)?,
            lengthen: self.lengthening(&tensors.lengthen, rate)?,
            units: units.map(|(unit, dilation)| self.unit(unit, dilation)).collect::<Result<_, _>>()?,
        })
    }

    fn unit(&self, tensors: &UnitTensors, dilation: usize) -> Result<UnitWeights<T>, ModelError> {
        Ok(UnitWeights {
            snake: self.snake(&tensors.snake)?,
            wide: self.conv(&tensors.wide, dilation)?,
            snake_between: self.snake(&tensors.snake_between)?,
            narrow: self.conv(&tensors.narrow, 1)?,
        })
    }

    fn snake(&self, tensors: &SnakeTensors) -> Result<Snake, ModelError> {
        let (alpha, beta) = (self.load.one(&tensors.alpha)?, self.load.one(&tensors.beta)?);
        let device = self.load.device;
        Ok(self.kernels.snake(device, device.stream(), [alpha.all(), beta.all()])?)
    }

    fn conv(&self, tensors: &ConvTensors, dilation: usize) -> Result<ConvWeights<T>, ModelError> {
        let [outputs, inputs, kernel] = sizes(&tensors.weight)?;
        self.pack(Convolution::plain([inputs, outputs], kernel, size(dilation)?), &tensors.weight, &tensors.bias)
    }

    fn lengthening(&self, tensors: &ConvTensors, stride: usize) -> Result<ConvWeights<T>, ModelError> {
        let [inputs, outputs, kernel] = sizes(&tensors.weight)?;
        self.pack(Convolution::transposed([inputs, outputs], kernel, size(stride)?), &tensors.weight, &tensors.bias)
    }

    /// A linear part is a convolution that sees one position.
    fn linear(&self, tensors: &LinearTensors) -> Result<ConvWeights<T>, ModelError> {
        let [outputs, inputs, _] = sizes(&tensors.weight)?;
        self.pack(Convolution::plain([inputs, outputs], 1, 1), &tensors.weight, &tensors.bias)
    }

    fn pack(&self, of: Convolution, weight: &TensorSpec, bias: &TensorSpec) -> Result<ConvWeights<T>, ModelError> {
        let (stored, bias) = (self.load.one(weight)?, self.load.one(bias)?);
        let mut packed = self.load.device.allocate(of.packed_numbers() as usize)?;
        self.kernels.pack(self.load.device.stream(), &of, &stored, Some(bias.all()), &mut packed)?;
        Ok(ConvWeights { of, packed })
    }

    /// A convolution of each channel by itself, or one that makes a single channel.
    fn plain(&self, tensors: &ConvTensors) -> Result<PlainConv<T>, ModelError> {
        let [outputs, inputs, kernel] = sizes(&tensors.weight)?;
        let inputs = if outputs > 1 { outputs } else { inputs };
        let of = Convolution::plain([inputs, outputs], kernel, 1);
        Ok(PlainConv { of, weight: self.load.one(&tensors.weight)?, bias: self.load.one(&tensors.bias)? })
    }
}

/// The sides of a tensor; what it does not have is 1.
fn sizes(spec: &TensorSpec) -> Result<[u32; 3], ModelError> {
    let side = |at: usize| size(spec.shape.get(at).copied().unwrap_or(1));
    Ok([side(0)?, side(1)?, side(2)?])
}
