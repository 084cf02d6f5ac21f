//! Slices of buffers, for kernels and products.
#![allow(unsafe_code)]

use std::{marker::PhantomData, ops::Range, sync::Arc};

use bytemuck::Pod;
use cudarc::driver::sys;

use crate::error::{CudaError, Done};
use crate::{context::bound, memory::Buffer, stream::Stream};

/// An immutable slice of a buffer.
#[derive(Debug, Clone, Copy)]
pub struct Slice<'a, T> {
    stream: &'a Arc<Stream>,
    pointer: sys::CUdeviceptr,
    length: usize,
    of: PhantomData<&'a [T]>,
}

/// A mutable slice of a buffer.
#[derive(Debug)]
pub struct SliceMut<'a, T> {
    stream: &'a Arc<Stream>,
    pointer: sys::CUdeviceptr,
    length: usize,
    of: PhantomData<&'a mut [T]>,
}

/// A strided (2D) copy of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rows {
    /// The number of rows.
    pub count: usize,
    /// Elements per row.
    pub length: usize,
    /// The stride of the source in elements.
    pub from_stride: usize,
    /// The stride of the target in elements.
    pub to_stride: usize,
}

impl Rows {
    fn fit(&self, from: usize, to: usize) -> bool {
        let end = |stride: usize| {
            let last = self.count.checked_sub(1).map_or(Some(0), |rows| rows.checked_mul(stride));
            last.and_then(|last| last.checked_add(self.length))
        };
        let fits =
            |stride: usize, capacity: usize| stride >= self.length && end(stride).is_some_and(|end| end <= capacity);
        self.count == 0 || (fits(self.from_stride, from) && fits(self.to_stride, to))
    }
}

impl<T: Pod> Buffer<T> {
    /// The whole buffer.
    pub fn all(&self) -> Slice<'_, T> {
        Slice { stream: self.stream(), pointer: self.pointer(), length: self.length(), of: PhantomData }
    }

    /// The whole buffer, mutable.
    pub fn all_mut(&mut self) -> SliceMut<'_, T> {
        SliceMut { pointer: self.pointer(), length: self.length(), stream: self.stream(), of: PhantomData }
    }

    /// A subslice.
    pub fn slice(&self, range: Range<usize>) -> Result<Slice<'_, T>, CudaError> {
        self.all().slice(range)
    }

    /// A mutable subslice.
    pub fn slice_mut(&mut self, range: Range<usize>) -> Result<SliceMut<'_, T>, CudaError> {
        self.all_mut().slice(range)
    }
}

macro_rules! extent {
    ($slice:ident) => {
        impl<T: Pod> $slice<'_, T> {
            /// The number of elements.
            pub fn length(&self) -> usize {
                self.length
            }

            /// The address on the device.
            pub fn pointer(&self) -> sys::CUdeviceptr {
                self.pointer
            }

            /// A subslice.
            pub fn slice(self, range: Range<usize>) -> Result<Self, CudaError> {
                within(&range, self.length)?;
                Ok(Self { pointer: self.pointer + byte_offset::<T>(range.start), length: range.len(), ..self })
            }
        }
    };
}

extent!(Slice);
extent!(SliceMut);

impl<T: Pod> Slice<'_, T> {
    /// Copies it to the host. Waits for the copy.
    pub fn read(&self) -> Result<Vec<T>, CudaError> {
        let mut values = vec![T::zeroed(); self.length];
        self.stream.copy_out(self.pointer, &mut values)?;
        self.stream.synchronise()?;
        Ok(values)
    }
}

impl<T: Pod> SliceMut<'_, T> {
    /// A reborrow.
    pub fn borrowed(&mut self) -> SliceMut<'_, T> {
        SliceMut { stream: self.stream, pointer: self.pointer, length: self.length, of: PhantomData }
    }

    /// An immutable slice of the same elements.
    pub fn shared(&self) -> Slice<'_, T> {
        Slice { stream: self.stream, pointer: self.pointer, length: self.length, of: PhantomData }
    }

    /// Copies values from the host to its beginning. Waits for the copy.
    pub fn write(&mut self, values: &[T]) -> Done {
        within(&(0..values.len()), self.length)?;
        self.stream.copy_in(self.pointer, values)?;
        self.stream.synchronise()
    }

    /// Copies `source` to its beginning, in the order of a stream. Does not wait.
    pub fn copy_from(&mut self, stream: &Stream, source: Slice<'_, T>) -> Done {
        within(&(0..source.length), self.length)?;
        let bytes = source.length * size_of::<T>();
        let (to, from, context) = (self.pointer, source.pointer, &stream.context);
        bound!(context, "copying on the device", cuMemcpyDtoDAsync_v2(to, from, bytes, stream.raw()))
    }

    /// Copies rows, in the order of a stream: for example, a part of every head of a cache. Does not wait.
    pub fn copy_rows_from(&mut self, stream: &Stream, source: Slice<'_, T>, rows: Rows) -> Done {
        if !rows.fit(source.length, self.length) {
            return Err(CudaError::refused("copying rows", 0, "the rows do not fit the slices"));
        }
        if rows.count == 0 || rows.length == 0 {
            return Ok(());
        }
        let copy = two_dimensional(source.pointer, self.pointer, rows, size_of::<T>());
        bound!(stream.context, "copying rows on the device", cuMemcpy2DAsync_v2(&copy, stream.raw()))
    }

    /// Zeroes it, in the order of a stream. Does not wait.
    pub fn zero_on(&mut self, stream: &Stream) -> Done {
        let bytes = self.length * size_of::<T>();
        bound!(stream.context, "zeroing memory", cuMemsetD8Async(self.pointer, 0, bytes, stream.raw()))
    }
}

fn two_dimensional(from: sys::CUdeviceptr, to: sys::CUdeviceptr, rows: Rows, size: usize) -> sys::CUDA_MEMCPY2D {
    let device = sys::CUmemorytype::CU_MEMORYTYPE_DEVICE;
    sys::CUDA_MEMCPY2D {
        srcXInBytes: 0,
        srcY: 0,
        srcMemoryType: device,
        srcHost: std::ptr::null(),
        srcDevice: from,
        srcArray: std::ptr::null_mut(),
        srcPitch: rows.from_stride * size,
        dstXInBytes: 0,
        dstY: 0,
        dstMemoryType: device,
        dstHost: std::ptr::null_mut(),
        dstDevice: to,
        dstArray: std::ptr::null_mut(),
        dstPitch: rows.to_stride * size,
        WidthInBytes: rows.length * size,
        Height: rows.count,
    }
}

fn byte_offset<T>(values: usize) -> u64 {
    (values * size_of::<T>()) as u64
}

fn within(range: &Range<usize>, length: usize) -> Done {
    if range.start <= range.end && range.end <= length {
        return Ok(());
    }
    let reason = format!("elements {} to {} are beyond the length of {length}", range.start, range.end);
    Err(CudaError::refused("slicing a buffer", 0, reason))
}

impl<'a, T: Pod> From<&'a Buffer<T>> for Slice<'a, T> {
    fn from(buffer: &'a Buffer<T>) -> Self {
        buffer.all()
    }
}

impl<'a, T: Pod> From<&'a mut Buffer<T>> for SliceMut<'a, T> {
    fn from(buffer: &'a mut Buffer<T>) -> Self {
        buffer.all_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: Rows = Rows { count: 3, length: 4, from_stride: 10, to_stride: 4 };

    #[test]
    fn rows_fit_if_the_last_one_ends_within_the_slice() {
        assert!(ROWS.fit(24, 12));
        assert!(!ROWS.fit(23, 12) && !ROWS.fit(24, 11));
        assert!(Rows { count: 0, ..ROWS }.fit(0, 0));
    }

    #[test]
    fn rows_that_overlap_or_overflow_do_not_fit() {
        assert!(!Rows { to_stride: 3, ..ROWS }.fit(24, 12));
        assert!(!Rows { from_stride: usize::MAX, ..ROWS }.fit(24, 12));
    }

    #[test]
    fn a_subslice_must_be_within_the_slice() {
        assert!(within(&(2..5), 5).is_ok());
        assert!(within(&(2..6), 5).is_err());
        #[allow(clippy::reversed_empty_ranges)]
        let backwards = 4..2;
        assert!(within(&backwards, 5).is_err());
    }
}
