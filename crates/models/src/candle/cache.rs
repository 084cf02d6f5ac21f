//! Keys and values of the positions that were run, layer by layer, as users of candle keep them: a growing cache is
//! concatenated anew each time, a static one is written in place.

use candle_core::{DType, Device, Tensor};

use super::{memory::check_free, parameters::type_of};
use crate::{Config, KeysValues, ModelError, Options, Room, cache_rules::CacheRules};

/// The dimension of positions.
const POSITIONS: usize = 2;

/// Keys and values of every layer, `[batch, kv_heads, positions, head_dim]` each.
pub struct Cache {
    layers: Vec<Layer>,
    is_static: bool,
    dtype: DType,
    batch: usize,
    kv_heads: usize,
    head_dim: usize,
    rules: CacheRules,
    /// Positions that are in it.
    length: usize,
}

/// Keys and values of one layer.
#[derive(Default)]
struct Layer {
    both: Option<(Tensor, Tensor)>,
    /// Positions that were written.
    written: usize,
}

impl Cache {
    /// A cache that holds nothing.
    pub fn new(config: &Config, options: &Options) -> Result<Self, ModelError> {
        let mut cache = Self {
            layers: (0..config.layers).map(|_| Layer::default()).collect(),
            is_static: options.room != Room::Growing,
            dtype: type_of(options.dtype),
            batch: options.batch,
            kv_heads: config.kv_heads,
            head_dim: config.head_dim,
            rules: CacheRules::new(config, options),
            length: 0,
        };
        if cache.is_static {
            cache.allocate()?;
        }
        Ok(cache)
    }

    /// Gives every layer memory for all positions.
    fn allocate(&mut self) -> Result<(), ModelError> {
        let shape = self.shape(self.rules.most);
        let count = shape.into_iter().fold(1, usize::saturating_mul);
        for layer in &mut self.layers {
            check_free(count.saturating_mul(2 * self.dtype.size_in_bytes()))?;
            let zeros = || Tensor::zeros(&shape, self.dtype, &Device::Cpu);
            layer.both = Some((zeros()?, zeros()?));
        }
        Ok(())
    }

    fn shape(&self, positions: usize) -> [usize; 4] {
        [self.batch, self.kv_heads, positions, self.head_dim]
    }

    /// Positions that are in it.
    pub fn length(&self) -> usize {
        self.length
    }

    /// Refuses more positions than there can be.
    pub fn check_room(&self, positions: usize) -> Result<(), ModelError> {
        self.rules.check_room(positions)
    }

    /// Puts keys and values behind those that a layer holds, and gives all of them.
    pub fn append(&mut self, layer: usize, keys: Tensor, values: Tensor) -> candle_core::Result<(Tensor, Tensor)> {
        let end = self.length + keys.dim(POSITIONS)?;
        self.put(layer, self.length, keys, values)?;
        match &self.layers[layer].both {
            Some((keys, values)) => Ok((keys.narrow(POSITIONS, 0, end)?, values.narrow(POSITIONS, 0, end)?)),
            None => candle_core::bail!("layer {layer} of the cache has nothing in it"),
        }
    }

    /// Puts keys and values into a layer, from a position on.
    fn put(&mut self, layer: usize, start: usize, keys: Tensor, values: Tensor) -> candle_core::Result<()> {
        let layer = &mut self.layers[layer];
        let end = start + keys.dim(POSITIONS)?;
        match &layer.both {
            None => layer.both = Some((keys, values)),
            Some((all_keys, all_values)) if self.is_static => {
                all_keys.slice_set(&keys, POSITIONS, start)?;
                all_values.slice_set(&values, POSITIONS, start)?;
            }
            Some((old_keys, old_values)) => {
                let between = |old: &Tensor, new: Tensor| spliced(old, layer.written, new, start..end);
                layer.both = Some((between(old_keys, keys)?, between(old_values, values)?));
            }
        }
        layer.written = layer.written.max(end);
        Ok(())
    }

    /// Says how many positions it holds: no more than every layer has.
    pub fn set_length(&mut self, length: usize) -> Result<(), ModelError> {
        self.rules.check_length(length, self.layers.iter().map(|layer| layer.written))?;
        self.length = length;
        Ok(())
    }

    /// Lets it hold only its first positions.
    pub fn truncate(&mut self, length: usize) -> Result<(), ModelError> {
        self.length = self.length.min(length);
        for layer in &mut self.layers {
            layer.written = layer.written.min(self.length);
            if !self.is_static {
                layer.cut()?;
            }
        }
        Ok(())
    }

    /// What a layer holds, as numbers.
    pub fn read(&self, layer: usize) -> Result<KeysValues, ModelError> {
        self.rules.check_layer(layer)?;
        let read = |all: &Tensor| all.narrow(POSITIONS, 0, self.length)?.to_dtype(DType::F32)?.flatten_all()?.to_vec1();
        match &self.layers[layer].both {
            Some((keys, values)) if self.length > 0 => {
                Ok(KeysValues { length: self.length, keys: read(keys)?, values: read(values)? })
            }
            _ => Ok(KeysValues { length: 0, keys: Vec::new(), values: Vec::new() }),
        }
    }

    /// Overwrites positions of a layer.
    pub fn write(&mut self, layer: usize, start: usize, from: &KeysValues) -> Result<(), ModelError> {
        self.rules.check_layer(layer)?;
        self.rules.check_write(layer, self.layers[layer].written, start, from)?;
        if from.length == 0 {
            return Ok(());
        }
        let shape = self.shape(from.length);
        let new = |numbers: &[f32]| Tensor::from_slice(numbers, &shape, &Device::Cpu)?.to_dtype(self.dtype);
        let (keys, values) = (new(&from.keys)?, new(&from.values)?);
        Ok(self.put(layer, start, keys, values)?)
    }
}

impl Layer {
    /// Gives up the memory of positions that are not held any more. What stays is copied now and not when it is used.
    fn cut(&mut self) -> candle_core::Result<()> {
        let cut = |all: &Tensor| all.narrow(POSITIONS, 0, self.written)?.force_contiguous();
        self.both = match &self.both {
            Some((keys, values)) if self.written > 0 && keys.dim(POSITIONS)? > self.written => {
                Some((cut(keys)?, cut(values)?))
            }
            Some(both) if self.written > 0 => Some(both.clone()),
            _ => None,
        };
        Ok(())
    }
}

/// Positions of an old tensor with new ones in place of some, or behind them.
fn spliced(old: &Tensor, written: usize, new: Tensor, range: std::ops::Range<usize>) -> candle_core::Result<Tensor> {
    let mut parts = Vec::with_capacity(3);
    if range.start > 0 {
        parts.push(old.narrow(POSITIONS, 0, range.start)?);
    }
    parts.push(new);
    if range.end < written {
        parts.push(old.narrow(POSITIONS, range.end, written - range.end)?);
    }
    Tensor::cat(&parts, POSITIONS)
}
