//! The memory of KV caches on the CPU.

use super::number::Number;
use crate::decoder::cache::{CacheMemory, HeadRows, KvCache};
use crate::{Done, ModelError};

pub type Cache<T> = KvCache<Vec<T>>;

#[derive(Debug, Clone, Copy)]
pub struct Heap;

impl<T: Number> CacheMemory<Vec<T>> for Heap {
    fn allocate(&self, numbers: usize) -> Result<Vec<T>, ModelError> {
        zeros(numbers)
    }

    fn copy(&self, from: &Vec<T>, to: &mut Vec<T>, rows: HeadRows) -> Done {
        for row in 0..rows.count {
            to[row * rows.to_stride..][..rows.length].copy_from_slice(&from[row * rows.from_stride..][..rows.length]);
        }
        Ok(())
    }

    fn read(&self, from: &Vec<T>, first: usize, rows: HeadRows) -> Result<Vec<f32>, ModelError> {
        let row = |row: usize| &from[first + row * rows.from_stride..][..rows.length];
        Ok((0..rows.count).flat_map(row).map(|number| number.wide()).collect())
    }

    fn write(&self, to: &mut Vec<T>, first: usize, rows: HeadRows, numbers: &[f32]) -> Done {
        for row in 0..rows.count {
            let from = &numbers[row * rows.from_stride..][..rows.length];
            let to = &mut to[first + row * rows.to_stride..][..rows.length];
            to.iter_mut().zip(from).for_each(|(to, from)| *to = T::narrow(*from));
        }
        Ok(())
    }
}

/// Makes a buffer at least this large. The old one is freed first, so its contents are lost.
pub fn fit<T: Number>(buffer: &mut Vec<T>, size: usize) -> Done {
    if buffer.len() < size {
        *buffer = Vec::new();
        *buffer = zeros(size)?;
    }
    Ok(())
}

/// Zeros, or an error if out of memory.
pub fn zeros<T: Number>(length: usize) -> Result<Vec<T>, ModelError> {
    let mut numbers = Vec::new();
    let refuse = |_| ModelError::OutOfMemory { bytes: (length as u64).saturating_mul(size_of::<T>() as u64) };
    numbers.try_reserve_exact(length).map_err(refuse)?;
    numbers.resize(length, T::default());
    Ok(numbers)
}
