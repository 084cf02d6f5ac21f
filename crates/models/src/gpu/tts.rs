//! Qwen3-TTS on a GPU.

mod codec;
mod ops;

use std::{marker::PhantomData, sync::Arc};

use laptime_cuda::nn::{Convolution, Snake};
use laptime_cuda::{Buffer, CudaError, Device, Rows};
use laptime_probe::stage;

use self::codec::COLUMN_BYTES;
use self::ops::{GpuOps, TEXT_CAPACITY};
use super::audio::{ConvWeights, Kit, KitLoader};
use super::memory::{Head, PassSizes, WORKSPACE_BYTES};
use super::{size, sparse::GPU_TILING, weights::Number};
use crate::tensors::{product, sum};
use crate::tts::{
    CHUNK_FRAMES, CONTEXT_FRAMES, CodecSizes, ConvTensors, DeviceNeeds, Linear, LoadedWeights, Parts, QwenTts,
    TtsConfig, TtsLoad, TtsOps, TtsOptions, TtsWeights, codebook, needed_bytes, together,
};
use crate::{CacheCapacity, Config, ModelError, Role, TensorSpec, dtype::typed};

/// Loads Qwen3-TTS on a device. Synthetic weights are generated there.
pub fn qwen_tts<'a>(
    device: &'a Device,
    config: TtsConfig,
    weights: &TtsWeights,
    options: TtsOptions,
) -> Result<QwenTts<'a>, ModelError> {
    options.check(&config)?;
    let config = Arc::new(config);
    let ops: Box<dyn TtsOps + 'a> = typed!(options.dtype, |T| {
        let kit = Kit::<T>::load(device)?;
        let weights = {
            let _stage = stage!("weights");
            let loaded = LoadedWeights::load(&config, &mut KitLoader::new(&kit, (), weights))?;
            device.stream().synchronise()?;
            loaded
        };
        Box::new(GpuOps::new(kit, &config, &options, weights)?)
    });
    Ok(QwenTts::new(config, options, ops))
}

/// Codes, states, sampling tables and the rounding of allocations.
const SMALL_BYTES: u64 = 4 << 20;

/// Padding after each row of a convolution's packed weights.
const PADDING: usize = 8;

/// Peak GPU bytes for prompts of this many text tokens, including the positions before the first frame, and this many
/// frames.
pub fn needed_tts_bytes(config: &TtsConfig, options: &TtsOptions, [text, frames]: [usize; 2]) -> u64 {
    let (decoded, sizes) = (together(frames), CodecSizes::new(config));
    let (talker, transformer, tensors) = (&config.talker, &config.codec.transformer, config.codec_file_tensors());
    let numbers = |numbers: u64| numbers.saturating_mul(options.dtype.bytes());
    let pass = |config: &Config, rows: usize| {
        PassSizes::new(config, &options.decoder(CacheCapacity::Static(rows), None), rows, rows, Head::Last)
            .parts
            .numbers()
    };
    let bridged = talker.vocab.saturating_add(config.predicted().saturating_mul(config.predictor.vocab));
    let tables = if config.has_bridge() { product(&[bridged, config.predictor.hidden]) } else { 0 };
    let kept = [
        // The embeddings of all codes after the bridge.
        tables,
        sum(tensors.iter().map(|spec| product(&[spec.shape.first().copied().unwrap_or(0), PADDING]))),
        product(&[text.max(TEXT_CAPACITY).next_power_of_two(), talker.hidden]),
    ];
    let device = DeviceNeeds {
        kept: sum([numbers(sum(kept)), WORKSPACE_BYTES, SMALL_BYTES]),
        loading: 0,
        codec: sum([
            numbers(product(&[decoded, sizes.inner])),
            product(&[config.codec.frame_samples(), decoded, 4]),
            COLUMN_BYTES as u64,
        ]),
        prefill: numbers(pass(talker, text)),
        chunk: numbers(pass(transformer, decoded).saturating_add(product(&[
            2,
            decoded,
            transformer.kv_heads,
            transformer.head_dim,
        ]))),
        positions: [options.capacity, CHUNK_FRAMES + CONTEXT_FRAMES],
        tiling: GPU_TILING,
    };
    needed_bytes(config, options, [text, frames], &sizes, device)
}

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
    type Bridge = Bridge<T>;
}

impl<T: Number> KitLoader<'_, T> {
    fn crossed(&self, linear: &Linear<Buffer<T>>, rows: &Buffer<T>) -> Result<Buffer<T>, ModelError> {
        let n = size(linear.bias.length())?;
        let k = size(linear.weight.length())? / n;
        let m = size(rows.length())? / k;
        let mut out = self.kit.device.allocate(m as usize * n as usize)?;
        self.kit.product(rows, &linear.weight, &mut out, [m, n])?;
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

/// The shape of a tensor, padded with 1.
fn sizes(spec: &TensorSpec) -> Result<[u32; 3], CudaError> {
    let side = |at: usize| size(spec.shape.get(at).copied().unwrap_or(1));
    Ok([side(0)?, side(1)?, side(2)?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Dtype, HasTensors};

    #[test]
    fn most_of_the_memory_is_weights() {
        let config = TtsConfig::from_preset("1.7b").unwrap();
        let options = TtsOptions::new(Dtype::Bf16, 2048);
        let (needed, weights) = (needed_tts_bytes(&config, &options, [300, 300]), config.weight_bytes(Dtype::Bf16));
        assert!(needed > weights && needed < weights + weights / 3, "{needed} bytes, {weights} of weights");
    }

    #[test]
    fn memory_grows_only_up_to_the_frames_decoded_at_once() {
        let config = TtsConfig::from_preset("tiny").unwrap();
        let options = TtsOptions::new(Dtype::F32, 4096);
        let needed = |frames| needed_tts_bytes(&config, &options, [100, frames]);
        assert!(needed(325) > needed(100));
        assert_eq!(needed(325), needed(1000));
        assert!(needed(usize::MAX) == u64::MAX || needed(usize::MAX) > needed(1000));
    }
}
