//! Device and host memory: stream-ordered buffers, pinned buffers, and peak use.
#![allow(unsafe_code)]

use std::{ffi::c_void, marker::PhantomData, ops, ops::Range, ptr, slice, sync::Arc};

use bytemuck::Pod;
use cudarc::driver::sys;
use laptime_probe::stage;
use sys::{CUgraphMem_attribute as GraphAttribute, CUmemPool_attribute as PoolAttribute};

use crate::context::{Context, bound, driver};
use crate::error::{CudaError, Done};
use crate::{device::Device, stream::Stream};

/// Free and total bytes of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Free {
    /// Free bytes, after all processes.
    pub free: u64,
    /// Total bytes of the device.
    pub total: u64,
}

/// Peak memory since [`Device::reset_peak`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peak {
    /// The high-water mark of the stream-ordered pool.
    pub pool_bytes: u64,
    /// The high-water mark of the memory that graphs allocate.
    pub graph_bytes: u64,
}

impl Peak {
    /// The sum of both peaks, which is an upper bound: they may have occurred at different times.
    pub fn bytes(&self) -> u64 {
        self.pool_bytes.saturating_add(self.graph_bytes)
    }
}

impl Device {
    /// Queries the free memory. Memory cached in the pool does not count as free.
    pub fn free_memory(&self) -> Result<Free, CudaError> {
        let (mut free, mut total) = (0, 0);
        bound!(self.context(), "querying free memory", cuMemGetInfo_v2(&mut free, &mut total))?;
        Ok(Free { free: free as u64, total: total as u64 })
    }

    /// The peak memory since the last reset.
    pub fn peak_memory(&self) -> Result<Peak, CudaError> {
        self.context().bind()?;
        let pool_bytes = self.pool_bytes(PoolAttribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH)?;
        Ok(Peak { pool_bytes, graph_bytes: self.graph_bytes(GraphAttribute::CU_GRAPH_MEM_ATTR_USED_MEM_HIGH)? })
    }

    /// Bytes in use now, in the pool and in graphs.
    pub fn used_memory(&self) -> Result<u64, CudaError> {
        self.context().bind()?;
        let pool = self.pool_bytes(PoolAttribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT)?;
        Ok(pool.saturating_add(self.graph_bytes(GraphAttribute::CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT)?))
    }

    /// Resets the peak to what is in use now.
    pub fn reset_peak(&self) -> Done {
        let mut zero = 0_u64;
        let high = PoolAttribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH;
        bound!(
            self.context(),
            "resetting the peak",
            cuMemPoolSetAttribute(self.context().pool, high, (&raw mut zero).cast::<c_void>())
        )?;
        let high = GraphAttribute::CU_GRAPH_MEM_ATTR_USED_MEM_HIGH;
        driver!(
            "resetting the peak of graphs",
            cuDeviceSetGraphMemAttribute(self.context().device, high, (&raw mut zero).cast::<c_void>())
        )
    }

    /// Releases cached memory to the driver. Waits for the device.
    pub fn give_back_memory(&self) -> Done {
        self.synchronise()?;
        driver!("trimming the pool", cuMemPoolTrimTo(self.context().pool, 0))?;
        driver!("trimming the memory of graphs", cuDeviceGraphMemTrim(self.context().device))
    }

    /// Releases cached memory that is no longer in use. Does not wait.
    pub fn trim_memory(&self) -> Done {
        bound!(self.context(), "trimming the pool", cuMemPoolTrimTo(self.context().pool, 0))
    }

    /// Allocates uninitialised memory, in the order of the compute stream.
    ///
    /// If it does not fit, all cached memory is released and the allocation is retried once.
    pub fn allocate<T: Pod>(&self, length: usize) -> Result<Buffer<T>, CudaError> {
        self.allocate_on(self.stream(), length)
    }

    /// Allocates in the order of a stream. See [`Device::allocate`].
    pub fn allocate_on<T: Pod>(&self, stream: &Arc<Stream>, length: usize) -> Result<Buffer<T>, CudaError> {
        let too_large = || CudaError::OutOfMemory { wanted: None, free: None, total: None };
        let bytes = length.checked_mul(size_of::<T>()).ok_or_else(too_large)?;
        let _stage = stage!("allocate", bytes = bytes);
        match Buffer::new(stream, length, bytes) {
            Err(error) if error.is_out_of_memory() => self.allocate_again(stream, length, bytes),
            answered => answered,
        }
    }

    fn allocate_again<T: Pod>(
        &self,
        stream: &Arc<Stream>,
        length: usize,
        bytes: usize,
    ) -> Result<Buffer<T>, CudaError> {
        // Trimming waits for the device, which a capture forbids.
        if !stream.is_capturing() {
            self.give_back_memory()?;
        }
        Buffer::new(stream, length, bytes).map_err(|error| match error {
            CudaError::OutOfMemory { .. } => {
                let memory = self.free_memory().ok();
                let wanted = Some(bytes as u64);
                CudaError::OutOfMemory { wanted, free: memory.map(|m| m.free), total: memory.map(|m| m.total) }
            }
            other => other,
        })
    }

    /// Allocates a buffer with these values. Waits for the copy.
    pub fn upload<T: Pod>(&self, values: &[T]) -> Result<Buffer<T>, CudaError> {
        let mut buffer = self.allocate(values.len())?;
        buffer.write(values)?;
        Ok(buffer)
    }

    /// Allocates zeroed pinned host memory.
    pub fn allocate_pinned<T: Pod>(&self, length: usize) -> Result<Pinned<T>, CudaError> {
        Pinned::new(Arc::clone(self.context()), length)
    }

    fn pool_bytes(&self, wanted: PoolAttribute) -> Result<u64, CudaError> {
        let mut value = 0_u64;
        let to = (&raw mut value).cast::<c_void>();
        driver!("querying the memory pool", cuMemPoolGetAttribute(self.context().pool, wanted, to))?;
        Ok(value)
    }

    fn graph_bytes(&self, wanted: GraphAttribute) -> Result<u64, CudaError> {
        let mut value = 0_u64;
        let to = (&raw mut value).cast::<c_void>();
        driver!("querying the memory of graphs", cuDeviceGetGraphMemAttribute(self.context().device, wanted, to))?;
        Ok(value)
    }
}

/// Device memory. It is freed in the order of the stream it was allocated on.
#[derive(Debug)]
pub struct Buffer<T> {
    stream: Arc<Stream>,
    pointer: sys::CUdeviceptr,
    length: usize,
    /// The parent buffer of a slice; none if it owns the memory.
    whole: Option<Arc<Self>>,
    of: PhantomData<T>,
}

impl<T: Pod> Buffer<T> {
    fn new(stream: &Arc<Stream>, length: usize, bytes: usize) -> Result<Self, CudaError> {
        stream.context.bind()?;
        let mut pointer = 0;
        // The driver rejects an empty allocation.
        let bytes = bytes.max(1);
        let pool = stream.context.pool;
        driver!("allocating memory", cuMemAllocFromPoolAsync(&mut pointer, bytes, pool, stream.raw()))?;
        Ok(Self { stream: Arc::clone(stream), pointer, length, whole: None, of: PhantomData })
    }

    /// A part of a buffer as a separate buffer that shares its memory.
    pub fn part(whole: &Arc<Self>, range: Range<usize>) -> Result<Self, CudaError> {
        let length = range.len();
        let pointer = whole.slice(range)?.pointer();
        let (stream, whole) = (Arc::clone(&whole.stream), Some(Arc::clone(whole)));
        Ok(Self { stream, pointer, length, whole, of: PhantomData })
    }

    /// The number of elements.
    pub fn length(&self) -> usize {
        self.length
    }

    /// The size in bytes.
    pub fn bytes(&self) -> usize {
        self.length * size_of::<T>()
    }

    /// The address on the device.
    pub fn pointer(&self) -> sys::CUdeviceptr {
        self.pointer
    }

    pub(crate) fn stream(&self) -> &Arc<Stream> {
        &self.stream
    }

    /// Copies values from the host to its beginning. Waits for the copy.
    pub fn write(&mut self, values: &[T]) -> Done {
        self.all_mut().write(values)
    }

    /// Copies it to the host. Waits for the copy.
    pub fn read(&self) -> Result<Vec<T>, CudaError> {
        self.all().read()
    }

    /// Starts to copy host memory to its beginning. The call only waits if that memory is pageable.
    ///
    /// # Safety
    ///
    /// Until the copy is done, nothing else accesses the buffer, and pinned memory lives and is not written.
    pub unsafe fn begin_write<V: Pod>(&self, from: &[V], stream: &Stream) -> Done {
        self.check_fit(size_of_val(from))?;
        stream.copy_in(self.pointer, from)
    }

    /// Starts to copy its beginning to host memory. The call only waits if that memory is pageable.
    ///
    /// # Safety
    ///
    /// Until the copy is done, nothing else writes the buffer, and pinned memory lives and is not read.
    pub unsafe fn begin_read<V: Pod>(&self, to: &mut [V], stream: &Stream) -> Done {
        self.check_fit(size_of_val(to))?;
        stream.copy_out(self.pointer, to)
    }

    /// Zeroes it, in the order of its stream.
    pub fn zero(&mut self) -> Done {
        let stream = Arc::clone(&self.stream);
        self.all_mut().zero_on(&stream)
    }

    fn check_fit(&self, bytes: usize) -> Done {
        let reason = || format!("{bytes} bytes do not fit in a buffer of {} bytes", self.bytes());
        if bytes <= self.bytes() { Ok(()) } else { Err(CudaError::refused("copying", 0, reason())) }
    }
}

impl Buffer<u32> {
    /// Fills it with one value, in the order of a stream. Does not wait.
    pub fn set_all(&mut self, stream: &Stream, value: u32) -> Done {
        bound!(stream.context, "setting memory", cuMemsetD32Async(self.pointer, value, self.length, stream.raw()))
    }
}

impl<T> Drop for Buffer<T> {
    fn drop(&mut self) {
        if self.whole.is_none() && self.stream.context.bind().is_ok() {
            let _ = driver!("freeing memory", cuMemFreeAsync(self.pointer, self.stream.raw()));
        }
    }
}

/// Pinned host memory.
#[derive(Debug)]
pub struct Pinned<T> {
    context: Arc<Context>,
    pointer: *mut T,
    length: usize,
}

// SAFETY: it owns its memory, like a `Vec`.
unsafe impl<T: Send> Send for Pinned<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Pinned<T> {}

impl<T: Pod> Pinned<T> {
    fn new(context: Arc<Context>, length: usize) -> Result<Self, CudaError> {
        context.bind()?;
        let refused = || CudaError::refused("allocating pinned memory", 0, "the size overflows the address space");
        let bytes = length.checked_mul(size_of::<T>()).ok_or_else(refused)?.max(1);
        let mut pointer = ptr::null_mut();
        // This is host memory, so the error must not be mistaken for out of device memory.
        driver!("allocating pinned memory", cuMemHostAlloc(&mut pointer, bytes, 0)).map_err(|error| match error {
            CudaError::OutOfMemory { .. } => CudaError::refused("allocating pinned memory", 2, "out of host memory"),
            other => other,
        })?;
        // SAFETY: this number of bytes was allocated, and zeros are valid for `Pod` types.
        unsafe { ptr::write_bytes(pointer.cast::<u8>(), 0, bytes) };
        Ok(Self { context, pointer: pointer.cast(), length })
    }
}

impl<T> ops::Deref for Pinned<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: this number of elements was allocated and initialised, and pages are aligned for any `Pod` type.
        unsafe { slice::from_raw_parts(self.pointer, self.length) }
    }
}

impl<T> ops::DerefMut for Pinned<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above, and mutably borrowed.
        unsafe { slice::from_raw_parts_mut(self.pointer, self.length) }
    }
}

impl<T> Drop for Pinned<T> {
    fn drop(&mut self) {
        let _ = bound!(self.context, "freeing pinned memory", cuMemFreeHost(self.pointer.cast()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peak_is_the_sum_of_pool_and_graphs() {
        assert_eq!(Peak { pool_bytes: 40, graph_bytes: 2 }.bytes(), 42);
        assert_eq!(Peak { pool_bytes: u64::MAX, graph_bytes: 2 }.bytes(), u64::MAX);
    }
}
