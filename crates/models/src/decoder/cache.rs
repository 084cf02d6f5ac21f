//! The KV cache of a decoder, generic over its memory.

use std::ops::Range;

use crate::error::{ensure, fit};
use crate::{CacheCapacity, Config, Done, KeysValues, ModelError, Options};

/// The first capacity of a growing cache.
const FIRST_CAPACITY: usize = 64;

pub trait CacheMemory<B> {
    fn allocate(&self, numbers: usize) -> Result<B, ModelError>;
    fn copy(&self, from: &B, to: &mut B, rows: HeadRows) -> Done;

    /// Reads rows from an offset on. Waits for the device.
    fn read(&self, from: &B, first: usize, rows: HeadRows) -> Result<Vec<f32>, ModelError>;

    /// Writes rows from an offset on.
    fn write(&self, to: &mut B, first: usize, rows: HeadRows, numbers: &[f32]) -> Done;
}

/// Some positions of every head: strided rows of `length` elements.
#[derive(Debug, Clone, Copy)]
pub struct HeadRows {
    pub count: usize,
    pub length: usize,
    pub from_stride: usize,
    pub to_stride: usize,
}

/// Keys and values of every layer, `[batch, kv_heads, capacity, head_dim]` each.
#[derive(Debug)]
pub struct KvCache<B> {
    pub layers: Vec<[B; 2]>,
    pub capacity: usize,
    heads: usize,
    head_dim: usize,
    /// The largest capacity, and what sets it.
    most: usize,
    limit: String,
    length: usize,
    /// The length of each layer after writes outside of passes.
    written: Vec<usize>,
}

impl<B> KvCache<B> {
    pub fn allocate(memory: &impl CacheMemory<B>, config: &Config, options: &Options) -> Result<Self, ModelError> {
        let (most, limit) = match options.capacity {
            CacheCapacity::Static(positions) if positions < config.context => (positions, "the cache"),
            _ => (config.context, config.name.as_str()),
        };
        let capacity = if options.capacity == CacheCapacity::Growing { 0 } else { most };
        let cache = Self::with_capacity(config, options.batch, capacity, |numbers| memory.allocate(numbers))?;
        Ok(Self { most, limit: limit.to_owned(), ..cache })
    }

    pub fn with_capacity<E>(
        config: &Config,
        batch: usize,
        capacity: usize,
        allocate: impl Fn(usize) -> Result<B, E>,
    ) -> Result<Self, E> {
        let (heads, head_dim) = (batch.saturating_mul(config.kv_heads), config.head_dim);
        let numbers = heads.saturating_mul(capacity).saturating_mul(head_dim);
        let layer = |_| Ok([allocate(numbers)?, allocate(numbers)?]);
        let layers = (0..config.layers).map(layer).collect::<Result<_, E>>()?;
        let (written, limit) = (vec![0; config.layers], "the cache".to_owned());
        Ok(Self { layers, capacity, heads, head_dim, most: capacity, limit, length: 0, written })
    }

    pub fn length(&self) -> usize {
        self.length
    }

    pub fn section_numbers(&self, positions: usize) -> usize {
        self.heads.saturating_mul(self.head_dim).saturating_mul(positions)
    }

    /// The offset of some positions in a buffer, and their rows for copies to packed memory.
    pub fn section(&self, positions: &Range<usize>) -> (usize, HeadRows) {
        let (length, from_stride) = (positions.len() * self.head_dim, self.capacity * self.head_dim);
        let rows = HeadRows { count: self.heads, length, from_stride, to_stride: length };
        (positions.start * self.head_dim, rows)
    }

    pub fn check(&self, positions: usize) -> Done {
        fit(positions, &self.limit, self.most)
    }

    pub fn reserve(&mut self, memory: &impl CacheMemory<B>, positions: usize) -> Done {
        self.check(positions)?;
        if positions <= self.capacity {
            return Ok(());
        }
        let grown = self.grow(memory, grown_capacity(positions, self.most));
        if grown.is_err() {
            // Only some layers have grown, so the cache is emptied.
            for layer in &mut self.layers {
                *layer = [memory.allocate(0)?, memory.allocate(0)?];
            }
            (self.capacity, self.length) = (0, 0);
            self.written.fill(0);
        }
        grown
    }

    fn grow(&mut self, memory: &impl CacheMemory<B>, capacity: usize) -> Done {
        for at in 0..self.layers.len() {
            let length = self.held(at) * self.head_dim;
            let (from_stride, to_stride) = (self.capacity * self.head_dim, capacity * self.head_dim);
            let rows = HeadRows { count: self.heads, length, from_stride, to_stride };
            for buffer in &mut self.layers[at] {
                let mut larger = memory.allocate(self.heads.saturating_mul(to_stride))?;
                memory.copy(buffer, &mut larger, rows)?;
                *buffer = larger;
            }
        }
        self.capacity = capacity;
        Ok(())
    }

    /// The length of a layer.
    fn held(&self, layer: usize) -> usize {
        self.written[layer].max(self.length)
    }

    pub fn advance(&mut self, length: usize) {
        self.length = length;
        self.written.fill(length);
    }

    pub fn set_length(&mut self, length: usize) -> Done {
        for at in 0..self.layers.len() {
            let held = self.held(at);
            ensure!(held >= length, "layer {at} of the cache has {held} positions, not {length}");
        }
        self.advance(length);
        Ok(())
    }

    pub fn truncate(&mut self, length: usize) {
        self.advance(self.length.min(length));
    }

    /// Reads some positions of a layer. Waits for the device.
    pub fn read(
        &self,
        memory: &impl CacheMemory<B>,
        layer: usize,
        positions: Range<usize>,
    ) -> Result<KeysValues, ModelError> {
        self.check_layer(layer)?;
        let ([keys, values], Range { start, end }, held) = (&self.layers[layer], positions.clone(), self.length);
        ensure!(start <= end && end <= held, "positions {start} to {end} are not in a cache of {held}");
        let (first, rows) = self.section(&positions);
        let read = |buffer| memory.read(buffer, first, rows);
        Ok(KeysValues { length: end - start, keys: read(keys)?, values: read(values)? })
    }

    /// Refuses keys and values of another shape, and those that start after the end of a layer.
    pub fn check_write(&self, layer: usize, start: usize, from: &KeysValues) -> Done {
        self.check_layer(layer)?;
        let (expected, held, length) = (self.section_numbers(from.length), self.held(layer), from.length);
        let (keys, values) = (from.keys.len(), from.values.len());
        ensure!(
            keys == expected && values == expected,
            "expected {expected} elements for {length} positions, got {keys} of keys and {values} of values"
        );
        ensure!(start <= held, "position {start} is after the end of layer {layer} ({held})");
        self.check(start.saturating_add(length))
    }

    pub fn write(&mut self, memory: &impl CacheMemory<B>, layer: usize, start: usize, from: &KeysValues) -> Done {
        self.check_write(layer, start, from)?;
        let end = start.saturating_add(from.length);
        self.reserve(memory, end)?;
        let (length, to_stride) = (from.length * self.head_dim, self.capacity * self.head_dim);
        let rows = HeadRows { count: self.heads, length, from_stride: length, to_stride };
        for (buffer, numbers) in self.layers[layer].iter_mut().zip([&from.keys, &from.values]) {
            memory.write(buffer, start * self.head_dim, rows, numbers)?;
        }
        self.written[layer] = self.held(layer).max(end);
        Ok(())
    }

    fn check_layer(&self, layer: usize) -> Done {
        let layers = self.layers.len();
        ensure!(layer < layers, "layer {layer} is out of range: there are {layers}");
        Ok(())
    }
}

/// The capacity of a growing cache for this many positions: a power of two.
pub fn grown_capacity(positions: usize, most: usize) -> usize {
    positions.max(FIRST_CAPACITY).checked_next_power_of_two().unwrap_or(positions).min(most)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::{Dtype, cpu::cache::Heap};

    fn cache(capacity: CacheCapacity) -> KvCache<Vec<f32>> {
        let config = Config::from_preset("tiny").unwrap();
        KvCache::allocate(&Heap, &config, &Options::new(Dtype::F32, capacity)).unwrap()
    }

    fn some(cache: &KvCache<Vec<f32>>, length: usize) -> KeysValues {
        let numbers = vec![0.5; cache.section_numbers(length)];
        KeysValues { length, keys: numbers.clone(), values: numbers }
    }

    #[test]
    fn a_cache_is_limited_by_context_and_capacity() {
        assert_eq!((cache(CacheCapacity::Growing).most, cache(CacheCapacity::Static(7)).most), (512, 7));
        assert!(cache(CacheCapacity::Static(7)).check(7).is_ok());
        let error = cache(CacheCapacity::Static(7)).check(8).unwrap_err().to_string();
        assert!(error.contains("the cache"), "{error}");
        assert!(cache(CacheCapacity::Static(9999)).check(513).unwrap_err().to_string().contains("tiny"));
    }

    #[test]
    fn writes_must_fit_and_leave_no_gap() {
        let mut cache = cache(CacheCapacity::Growing);
        let two = some(&cache, 2);
        cache.write(&Heap, 0, 0, &some(&cache, 4)).unwrap();
        assert!(cache.check_write(0, 4, &two).is_ok());
        assert!(cache.check_write(0, 5, &two).unwrap_err().to_string().contains("position 5 is after the end"));
        assert!(cache.check_write(0, 0, &KeysValues { length: 3, ..two.clone() }).is_err());
        assert!(cache.check_write(1, 0, &two).is_ok() && cache.check_write(2, 0, &two).is_err());
        cache.advance(512);
        assert!(cache.check_write(0, 512, &two).is_err(), "it does not fit");
    }

    #[test]
    fn the_length_is_one_that_every_layer_has() {
        let mut cache = cache(CacheCapacity::Growing);
        cache.write(&Heap, 0, 0, &some(&cache, 4)).unwrap();
        cache.write(&Heap, 1, 0, &some(&cache, 3)).unwrap();
        let error = cache.set_length(4).unwrap_err().to_string();
        assert_eq!(error, "layer 1 of the cache has 3 positions, not 4");
        assert!(cache.set_length(3).is_ok() && cache.length() == 3);
    }

    #[test]
    fn some_positions_are_read_from_every_head() {
        let mut cache = cache(CacheCapacity::Growing);
        let numbers: Vec<f32> = (0..cache.section_numbers(3) as u16).map(f32::from).collect();
        cache.write(&Heap, 0, 0, &KeysValues { length: 3, keys: numbers.clone(), values: numbers }).unwrap();
        cache.advance(3);
        let (width, part) = (cache.head_dim, cache.read(&Heap, 0, 1..3).unwrap());
        let first = |at: usize| part.keys[at * width];
        let expected = [width, 2 * width, 4 * width, 5 * width].map(|number| number as f32);
        assert_eq!((part.length, [first(0), first(1), first(2), first(3)]), (2, expected));
        assert!(part.values == part.keys && cache.read(&Heap, 0, 3..3).unwrap().keys.is_empty());
        let error = cache.read(&Heap, 0, 1..4).unwrap_err().to_string();
        assert_eq!(error, "positions 1 to 4 are not in a cache of 3");
    }

    /// Memory that allows only so many allocations.
    struct Few(Cell<usize>);

    impl CacheMemory<Vec<f32>> for Few {
        fn allocate(&self, numbers: usize) -> Result<Vec<f32>, ModelError> {
            let left = self.0.get();
            if numbers > 0 && left == 0 {
                return Err(ModelError::OutOfMemory { bytes: numbers as u64 * 4 });
            }
            self.0.set(left.saturating_sub(1));
            Heap.allocate(numbers)
        }

        fn copy(&self, from: &Vec<f32>, to: &mut Vec<f32>, rows: HeadRows) -> Result<(), ModelError> {
            Heap.copy(from, to, rows)
        }

        fn read(&self, from: &Vec<f32>, first: usize, rows: HeadRows) -> Result<Vec<f32>, ModelError> {
            Heap.read(from, first, rows)
        }

        fn write(&self, to: &mut Vec<f32>, first: usize, rows: HeadRows, from: &[f32]) -> Result<(), ModelError> {
            Heap.write(to, first, rows, from)
        }
    }

    #[test]
    fn a_cache_that_failed_to_grow_is_empty_and_usable() {
        let mut cache = cache(CacheCapacity::Growing);
        let values = some(&cache, 3);
        cache.write(&Heap, 0, 0, &values).unwrap();
        cache.write(&Heap, 1, 0, &values).unwrap();
        cache.set_length(3).unwrap();
        assert!(cache.reserve(&Few(Cell::new(3)), 65).is_err(), "two layers need four buffers");
        assert_eq!((cache.length(), cache.capacity), (0, 0));
        cache.write(&Heap, 1, 0, &values).unwrap();
        assert_eq!(cache.layers[0][0].len(), cache.layers[1][1].len());
    }
}
