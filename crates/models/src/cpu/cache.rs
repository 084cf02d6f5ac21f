//! Keys and values of the positions that were run, layer by layer.

use std::ops::Range;

use super::number::Number;
use crate::{Config, KeysValues, ModelError, Options, Room, cache_rules::CacheRules};

/// Positions that a growing cache begins with.
const FIRST_ROOM: usize = 64;

/// Keys and values of every layer, `[batch, kv_heads, room, head_dim]` each.
pub struct Cache<T> {
    layers: Vec<Layer<T>>,
    batch: usize,
    kv_heads: usize,
    head_dim: usize,
    /// Positions that there is memory for.
    room: usize,
    rules: CacheRules,
    /// Positions that are in it.
    length: usize,
}

/// Keys and values of one layer.
struct Layer<T> {
    keys: Vec<T>,
    values: Vec<T>,
    /// Positions that were written.
    written: usize,
}

impl<T: Number> Cache<T> {
    /// A cache that holds nothing.
    pub fn new(config: &Config, options: &Options) -> Result<Self, ModelError> {
        let layers = (0..config.layers).map(|_| Layer { keys: Vec::new(), values: Vec::new(), written: 0 }).collect();
        let rules = CacheRules::new(config, options);
        let most = rules.most;
        let (kv_heads, head_dim, batch) = (config.kv_heads, config.head_dim, options.batch);
        let mut cache = Self { layers, batch, kv_heads, head_dim, room: 0, rules, length: 0 };
        if options.room != Room::Growing {
            cache.make_room(most)?;
        }
        Ok(cache)
    }

    /// Positions that are in it.
    pub fn length(&self) -> usize {
        self.length
    }

    /// Positions that there is memory for.
    pub fn room(&self) -> usize {
        self.room
    }

    /// Makes sure that there is memory for this many positions.
    pub fn reserve(&mut self, positions: usize) -> Result<(), ModelError> {
        self.rules.check_room(positions)?;
        match positions > self.room {
            true => self.make_room(grown_room(positions, self.rules.most)),
            false => Ok(()),
        }
    }

    /// Gives every layer memory for this many positions, and keeps what is in it.
    fn make_room(&mut self, room: usize) -> Result<(), ModelError> {
        let heads = self.batch.saturating_mul(self.kv_heads);
        let (old, new) = (self.room * self.head_dim, room * self.head_dim);
        for layer in &mut self.layers {
            let kept = layer.written * self.head_dim;
            for numbers in [&mut layer.keys, &mut layer.values] {
                let mut larger = zeros(heads.saturating_mul(new))?;
                for head in 0..heads {
                    larger[head * new..][..kept].copy_from_slice(&numbers[head * old..][..kept]);
                }
                *numbers = larger;
            }
        }
        self.room = room;
        Ok(())
    }

    /// Keys and values of a layer.
    pub fn layer(&self, layer: usize) -> (&[T], &[T]) {
        (&self.layers[layer].keys, &self.layers[layer].values)
    }

    /// Keys and values of a layer to write, and how many positions are written when that is done.
    pub fn layer_mut(&mut self, layer: usize, written: usize) -> (&mut [T], &mut [T]) {
        let layer = &mut self.layers[layer];
        layer.written = layer.written.max(written);
        (&mut layer.keys, &mut layer.values)
    }

    /// Says how many positions it holds: no more than every layer has.
    pub fn set_length(&mut self, length: usize) -> Result<(), ModelError> {
        self.rules.check_length(length, self.layers.iter().map(|layer| layer.written))?;
        self.length = length;
        Ok(())
    }

    /// Lets it hold only its first positions.
    pub fn truncate(&mut self, length: usize) {
        self.length = self.length.min(length);
        self.layers.iter_mut().for_each(|layer| layer.written = layer.written.min(self.length));
    }

    /// What a layer holds, as numbers.
    pub fn read(&self, layer: usize) -> Result<KeysValues, ModelError> {
        self.read_positions(layer, 0..self.length)
    }

    /// What some positions of a layer hold, as numbers.
    pub fn read_positions(&self, layer: usize, positions: Range<usize>) -> Result<KeysValues, ModelError> {
        self.rules.check_layer(layer)?;
        let (start, end, held) = (positions.start, positions.end, self.length);
        if start > end || end > held {
            return Err(ModelError::Refused(format!("positions {start} to {end} are not in a cache of {held}")));
        }
        let (heads, length) = (self.batch * self.kv_heads, (end - start) * self.head_dim);
        let read = |numbers: &[T]| {
            let mut wide = Vec::with_capacity(heads * length);
            for head in 0..heads {
                let first = (head * self.room + start) * self.head_dim;
                wide.extend(numbers[first..][..length].iter().map(|number| number.wide()));
            }
            wide
        };
        let (keys, values) = self.layer(layer);
        Ok(KeysValues { length: end - start, keys: read(keys), values: read(values) })
    }

    /// Overwrites positions of a layer.
    pub fn write(&mut self, layer: usize, start: usize, from: &KeysValues) -> Result<(), ModelError> {
        self.rules.check_layer(layer)?;
        self.rules.check_write(layer, self.layers[layer].written, start, from)?;
        self.reserve(start.saturating_add(from.length))?;
        let (room, width, length) = (self.room, self.head_dim, from.length);
        let (keys, values) = self.layer_mut(layer, start + length);
        for (to, from) in [(keys, &from.keys), (values, &from.values)] {
            if length == 0 {
                continue;
            }
            for (to, from) in to.chunks_mut(room * width).zip(from.chunks(length * width)) {
                let to = &mut to[start * width..][..length * width];
                to.iter_mut().zip(from).for_each(|(to, from)| *to = T::narrow(*from));
            }
        }
        Ok(())
    }
}

/// The room of a growing cache that has to hold this many positions: twice as much each time.
pub fn grown_room(positions: usize, most: usize) -> usize {
    positions.max(FIRST_ROOM).checked_next_power_of_two().unwrap_or(positions).min(most)
}

/// Zeros, or an error where there is no memory for them.
pub fn zeros<T: Number>(length: usize) -> Result<Vec<T>, ModelError> {
    let mut numbers = Vec::new();
    let refuse = |_| ModelError::OutOfMemory { bytes: (length as u64).saturating_mul(size_of::<T>() as u64) };
    numbers.try_reserve_exact(length).map_err(refuse)?;
    numbers.resize(length, T::default());
    Ok(numbers)
}
