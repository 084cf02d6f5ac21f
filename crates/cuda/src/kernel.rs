//! Compiled kernels on a device, and launching them.
#![allow(unsafe_code)]

use std::{
    ffi::{CString, c_void},
    ptr,
    sync::Arc,
};

use bytemuck::Pod;
use cudarc::driver::sys;
use laptime_probe::stage;

use crate::{
    context::{Context, driver},
    device::Device,
    error::CudaError,
    memory::Buffer,
    slice::{Slice, SliceMut},
    stream::Stream,
};

mod early;
mod maps;

pub use self::maps::{MappedRows, TensorMap};

/// Kernels that were compiled together, on a device.
#[derive(Debug)]
pub struct Module {
    context: Arc<Context>,
    raw: sys::CUmodule,
}

// SAFETY: modules may be used from any thread; the driver locks.
unsafe impl Send for Module {}
// SAFETY: as above.
unsafe impl Sync for Module {}

/// One kernel of a module.
#[derive(Debug, Clone)]
pub struct Kernel {
    module: Arc<Module>,
    raw: sys::CUfunction,
    name: String,
}

// SAFETY: as for modules.
unsafe impl Send for Kernel {}
// SAFETY: as above.
unsafe impl Sync for Kernel {}

/// The launch size of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads per block.
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory per block.
    pub shared_bytes: u32,
}

impl Shape {
    /// One thread.
    pub const ONE: Self = Self::line(1, 1);

    /// Blocks of this number of threads for `count` elements.
    pub const fn line(blocks: u32, threads: u32) -> Self {
        Self { grid: [blocks, 1, 1], block: [threads, 1, 1], shared_bytes: 0 }
    }
}

/// An argument of a kernel, as the bits that are passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Argument(u64);

impl Argument {
    /// The address for the driver. It reads the size of the kernel's parameter; little-endian order puts those bytes
    /// first.
    fn place(&self) -> *mut c_void {
        (&raw const self.0).cast_mut().cast()
    }
}

impl From<u32> for Argument {
    fn from(value: u32) -> Self {
        Self(value.into())
    }
}

impl From<u64> for Argument {
    fn from(value: u64) -> Self {
        Self(value)
    }
}

impl From<f32> for Argument {
    fn from(value: f32) -> Self {
        Self(value.to_bits().into())
    }
}

impl<T: Pod> From<&Buffer<T>> for Argument {
    fn from(buffer: &Buffer<T>) -> Self {
        Self(buffer.pointer())
    }
}

impl<T: Pod> From<&mut Buffer<T>> for Argument {
    fn from(buffer: &mut Buffer<T>) -> Self {
        Self(buffer.pointer())
    }
}

impl<T: Pod> From<Slice<'_, T>> for Argument {
    fn from(slice: Slice<'_, T>) -> Self {
        Self(slice.pointer())
    }
}

impl<T: Pod> From<&SliceMut<'_, T>> for Argument {
    fn from(slice: &SliceMut<'_, T>) -> Self {
        Self(slice.pointer())
    }
}

/// A null address for an absent buffer.
impl<T: Pod> From<Option<Slice<'_, T>>> for Argument {
    fn from(slice: Option<Slice<'_, T>>) -> Self {
        Self(slice.map_or(0, |slice| slice.pointer()))
    }
}

impl Module {
    /// Loads a compiled module (a cubin, or PTX with a zero at its end) on a device.
    pub fn load(device: &Device, image: &[u8]) -> Result<Arc<Self>, CudaError> {
        let context = Arc::clone(device.context());
        context.bind()?;
        let _stage = stage!("load", bytes = image.len());
        let mut raw = ptr::null_mut();
        driver!("loading a module", cuModuleLoadData(&mut raw, image.as_ptr().cast()))?;
        Ok(Arc::new(Self { context, raw }))
    }

    /// Finds a kernel by its name.
    pub fn kernel(self: &Arc<Self>, name: &str) -> Result<Kernel, CudaError> {
        self.context.bind()?;
        let _stage = stage!("load_kernel", kernel = name);
        let doing = format!("finding kernel `{name}`");
        let text = CString::new(name).map_err(|_| CudaError::refused(&doing, 0, "the name holds a zero"))?;
        let mut raw = ptr::null_mut();
        driver!(&doing, cuModuleGetFunction(&mut raw, self.raw, text.as_ptr()))?;
        // Otherwise the first launch loads it, which would be timed and cannot be captured.
        driver!(&doing, cuFuncLoad(raw))?;
        Ok(Kernel { module: Arc::clone(self), raw, name: name.to_owned() })
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        if self.context.bind().is_ok() {
            let _ = driver!("unloading a module", cuModuleUnload(self.raw));
        }
    }
}

impl Kernel {
    /// Puts the kernel on a stream without waiting for it.
    ///
    /// # Safety
    ///
    /// The arguments are of the number and types that the kernel takes, and it stays within the buffers among them,
    /// which live until it is done.
    pub unsafe fn launch(&self, stream: &Stream, shape: Shape, arguments: &[Argument]) -> Result<(), CudaError> {
        let mut places: Vec<_> = arguments.iter().map(Argument::place).collect();
        // SAFETY: the caller answers for the arguments.
        unsafe { self.launch_at(stream, shape, &mut places) }
    }

    /// Puts the kernel on a stream with the arguments at these addresses.
    unsafe fn launch_at(&self, stream: &Stream, shape: Shape, places: &mut [*mut c_void]) -> Result<(), CudaError> {
        self.module.context.bind()?;
        let ([gx, gy, gz], [bx, by, bz]) = (shape.grid, shape.block);
        // SAFETY: the caller answers for the arguments; the driver copies them before it returns.
        let result = unsafe {
            let (parameters, extra) = (places.as_mut_ptr(), ptr::null_mut());
            sys::cuLaunchKernel(self.raw, gx, gy, gz, bx, by, bz, shape.shared_bytes, stream.raw(), parameters, extra)
        };
        // The message is built only on failure: a launch is on the measured path.
        if result == sys::CUresult::CUDA_SUCCESS {
            return Ok(());
        }
        crate::error::check(&format!("launching `{}`", self.name), result)
    }

    /// Allows a block to use this amount of shared memory: the default limit is 48 KiB.
    pub fn allow_shared_bytes(&self, bytes: u32) -> Result<(), CudaError> {
        self.module.context.bind()?;
        let most = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        driver!(&format!("allowing `{}` shared memory", self.name), cuFuncSetAttribute(self.raw, most, bytes as i32))
    }

    /// The kernel's name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_argument_keeps_its_bits_where_the_driver_reads_them() {
        let bytes = |argument: Argument| argument.0.to_ne_bytes();
        assert_eq!(bytes(Argument::from(1.5_f32))[..4], 1.5_f32.to_ne_bytes());
        assert_eq!(bytes(Argument::from(7_u32))[..4], 7_u32.to_ne_bytes());
        assert_eq!(bytes(Argument::from(7_u64 << 40)), (7_u64 << 40).to_ne_bytes());
    }
}
