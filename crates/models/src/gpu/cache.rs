//! The KV cache on a GPU: one buffer of keys and one of values a layer, `[batch, kv_heads, capacity, head_dim]`.

use std::ops::Range;

use laptime_cuda::{Buffer, CudaError, Device, Rows, SliceMut, Stream};

use super::weights::Number;
use crate::{Config, KeysValues};

/// Positions by which a growing cache grows at least.
const GROWTH: usize = 256;

/// The cache of all layers.
#[derive(Debug)]
pub struct GpuCache<T> {
    pub layers: Vec<[Buffer<T>; 2]>,
    pub capacity: usize,
    /// Sequences times heads: rows that lie `capacity * head_dim` apart.
    heads: usize,
    head_dim: usize,
}

impl<T: Number> GpuCache<T> {
    pub fn new(device: &Device, config: &Config, batch: usize, capacity: usize) -> Result<Self, CudaError> {
        let (heads, head_dim) = (batch * config.kv_heads, config.head_dim);
        let layer =
            |_| Ok([device.allocate(heads * capacity * head_dim)?, device.allocate(heads * capacity * head_dim)?]);
        let layers = (0..config.layers).map(layer).collect::<Result<_, CudaError>>()?;
        Ok(Self { layers, capacity, heads, head_dim })
    }

    /// Makes room for this many positions, and keeps the first `length`.
    pub fn grow(&mut self, device: &Device, positions: usize, length: usize, most: usize) -> Result<(), CudaError> {
        let capacity = positions.max(2 * self.capacity).max(GROWTH).min(most).max(positions);
        let rows = Rows {
            count: self.heads,
            length: length * self.head_dim,
            from_stride: self.capacity * self.head_dim,
            to_stride: capacity * self.head_dim,
        };
        let larger = |buffer: &Buffer<T>| -> Result<Buffer<T>, CudaError> {
            let mut larger = device.allocate::<T>(self.heads * capacity * self.head_dim)?;
            larger.all_mut().copy_rows_from(device.stream(), buffer.all(), rows)?;
            Ok(larger)
        };
        // All are made before one is taken: a lack of memory leaves the cache as it was.
        let layers = self.layers.iter().map(|[keys, values]| Ok([larger(keys)?, larger(values)?]));
        self.layers = layers.collect::<Result<_, CudaError>>()?;
        self.capacity = capacity;
        Ok(())
    }

    pub fn read(&self, device: &Device, layer: usize, length: usize) -> Result<KeysValues, CudaError> {
        let [keys, values] = &self.layers[layer];
        let read = |buffer| self.read_rows(device, buffer, length);
        Ok(KeysValues { length, keys: read(keys)?, values: read(values)? })
    }

    fn read_rows(&self, device: &Device, from: &Buffer<T>, length: usize) -> Result<Vec<f32>, CudaError> {
        let numbers = length * self.head_dim;
        let mut gathered = device.allocate::<T>(self.heads * numbers)?;
        let (from_stride, to_stride) = (self.capacity * self.head_dim, numbers);
        let rows = Rows { count: self.heads, length: numbers, from_stride, to_stride };
        gathered.all_mut().copy_rows_from(device.stream(), from.all(), rows)?;
        Ok(gathered.read()?.into_iter().map(T::widened).collect())
    }

    pub fn write(&mut self, device: &Device, layer: usize, start: usize, from: &KeysValues) -> Result<(), CudaError> {
        let numbers = from.length * self.head_dim;
        let (from_stride, to_stride) = (numbers, self.capacity * self.head_dim);
        let rows = Rows { count: self.heads, length: numbers, from_stride, to_stride };
        for (buffer, source) in self.layers[layer].iter_mut().zip([&from.keys, &from.values]) {
            let source: Vec<T> = source.iter().map(|value| T::narrowed(*value)).collect();
            let source = device.upload(&source)?;
            let end = buffer.length();
            buffer.slice_mut(start * self.head_dim..end)?.copy_rows_from(device.stream(), source.all(), rows)?;
        }
        Ok(())
    }

    /// The number of keys, or of values, in this many positions of a layer.
    pub fn section_numbers(&self, positions: usize) -> usize {
        self.heads * positions * self.head_dim
    }

    /// Puts a copy of some positions of one of its buffers on a stream, head by head, and does not wait for it.
    pub fn copy_section(
        &self,
        stream: &Stream,
        from: &Buffer<T>,
        positions: Range<usize>,
        mut to: SliceMut<'_, T>,
    ) -> Result<(), CudaError> {
        let numbers = positions.len() * self.head_dim;
        let from_stride = self.capacity * self.head_dim;
        let rows = Rows { count: self.heads, length: numbers, from_stride, to_stride: numbers };
        to.copy_rows_from(stream, from.slice(positions.start * self.head_dim..from.length())?, rows)
    }
}
