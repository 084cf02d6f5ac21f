//! Compiled kernels on a device, and launching them.
#![allow(unsafe_code)]

use std::ffi::{CString, c_void};
use std::{ptr, sync::Arc};

use cudarc::driver::sys::{self, CUfunction_attribute as Attribute};
use laptime_probe::stage;

use crate::context::{Context, bound, driver};
use crate::error::{CudaError, Done};
use crate::{device::Device, launch::vectors, stream::Stream};

mod maps;

pub use self::maps::{MappedRows, TensorMap};

/// A compiled module, loaded on a device.
#[derive(Debug)]
pub struct Module {
    context: Arc<Context>,
    raw: sys::CUmodule,
}

// SAFETY: modules may be used from any thread; the driver locks.
unsafe impl Send for Module {}
// SAFETY: as above.
unsafe impl Sync for Module {}

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

/// A kernel that works on 16-byte vectors, and one for other widths and alignments.
#[derive(Debug)]
pub(crate) struct Pair {
    pub vectorised: Kernel,
    pub any: Kernel,
}

/// Declares a set of kernels for one dtype, by source: `field: Type = method of the module(...)`. Further fields may be
/// computed from the device.
macro_rules! kernels {
    (
        $(#[$doc:meta])*
        $name:ident
        $($source:ident { $($field:ident: $kind:ty = $find:ident($($argument:expr),*),)* })*
        $(|$device:ident| { $($(#[$note:meta])* $more:ident: $type:ty = $value:expr,)* })?
    ) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name<T> {
            $($(pub(crate) $field: $kind,)*)*
            $($($(#[$note])* pub(crate) $more: $type,)*)?
            of: std::marker::PhantomData<T>,
        }

        impl<T: Element> $name<T> {
            /// The requests of [`Self::load`], to compile ahead.
            pub fn requests() -> impl Iterator<Item = nvrtc::Request> {
                [$($source),*].into_iter().map(|source| nvrtc::Request::typed::<T>(source, &[]))
            }

            /// Loads all kernels, from the cache if possible.
            pub fn load(device: &Device, cache: &Cache) -> Result<Self, CudaError> {
                $(
                    let module = nvrtc::Request::typed::<T>($source, &[]).load(device, cache)?;
                    $(let $field = module.$find($($argument),*)?;)*
                )*
                $(let $device = device;)?
                Ok(Self { $($($field,)*)* $($($more: $value,)*)? of: std::marker::PhantomData })
            }
        }
    };
}

pub(crate) use kernels;

/// The launch configuration of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub shared_bytes: u32,
}

impl Shape {
    pub const ONE: Self = Self::line(1, 1);

    pub const fn new(grid: [u32; 3], block: [u32; 3]) -> Self {
        Self { grid, block, shared_bytes: 0 }
    }

    /// A one-dimensional grid.
    pub const fn line(blocks: u32, threads: u32) -> Self {
        Self::new([blocks, 1, 1], [threads, 1, 1])
    }

    pub const fn with_shared(self, shared_bytes: u32) -> Self {
        Self { shared_bytes, ..self }
    }

    fn config(self, stream: sys::CUstream, attributes: &mut [sys::CUlaunchAttribute]) -> sys::CUlaunchConfig {
        let ([gx, gy, gz], [bx, by, bz]) = (self.grid, self.block);
        sys::CUlaunchConfig {
            gridDimX: gx,
            gridDimY: gy,
            gridDimZ: gz,
            blockDimX: bx,
            blockDimY: by,
            blockDimZ: bz,
            sharedMemBytes: self.shared_bytes,
            hStream: stream,
            numAttrs: attributes.len() as u32,
            attrs: attributes.as_mut_ptr(),
        }
    }
}

/// The bits of a kernel argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Argument(u64);

impl Argument {
    /// The address of an absent buffer.
    pub const NULL: Self = Self(0);

    /// The address for the driver, which reads as many bytes as the parameter has. In little-endian order those come first.
    fn address(&self) -> *mut c_void {
        (&raw const self.0).cast_mut().cast()
    }
}

macro_rules! arguments {
    ($($type:ty: |$value:ident| $bits:expr;)*) => {
        $(impl From<$type> for Argument {
            fn from($value: $type) -> Self {
                Self($bits.into())
            }
        })*
    };
}

arguments! {
    bool: |value| value;
    u32: |value| value;
    u64: |value| value;
    f32: |value| value.to_bits();
}

impl Module {
    /// Loads a compiled module: a cubin, or null-terminated PTX.
    pub fn load(device: &Device, image: &[u8]) -> Result<Arc<Self>, CudaError> {
        let context = Arc::clone(device.context());
        let _stage = stage!("load", bytes = image.len());
        let mut raw = ptr::null_mut();
        bound!(context, "loading a module", cuModuleLoadData(&mut raw, image.as_ptr().cast()))?;
        Ok(Arc::new(Self { context, raw }))
    }

    /// Gets a kernel by name.
    pub fn kernel(self: &Arc<Self>, name: &str) -> Result<Kernel, CudaError> {
        self.context.bind()?;
        let _stage = stage!("load_kernel", kernel = name);
        let doing = format!("finding kernel `{name}`");
        let text = CString::new(name).map_err(|_| CudaError::refused(&doing, 0, "the name contains a NUL"))?;
        let mut raw = ptr::null_mut();
        driver!(&doing, cuModuleGetFunction(&mut raw, self.raw, text.as_ptr()))?;
        // Otherwise the first launch loads it, which would be timed and cannot be captured.
        driver!(&doing, cuFuncLoad(raw))?;
        Ok(Kernel { module: Arc::clone(self), raw, name: name.to_owned() })
    }

    /// Gets a kernel that may use this amount of shared memory.
    pub(crate) fn kernel_with(self: &Arc<Self>, name: &str, shared_bytes: u32) -> Result<Kernel, CudaError> {
        let kernel = self.kernel(name)?;
        kernel.allow_shared_bytes(shared_bytes).map(|()| kernel)
    }

    pub(crate) fn kernels<const N: usize>(self: &Arc<Self>, names: [&str; N]) -> Result<[Kernel; N], CudaError> {
        all(names, |name| self.kernel(name))
    }

    /// Gets several kernels, each with an amount of shared memory.
    pub(crate) fn kernels_with<const N: usize>(
        self: &Arc<Self>,
        kernels: [(&str, u32); N],
    ) -> Result<[Kernel; N], CudaError> {
        all(kernels, |(name, shared_bytes)| self.kernel_with(name, shared_bytes))
    }

    pub(crate) fn step_kernels<const N: usize>(self: &Arc<Self>, names: [&str; N]) -> Result<[Kernel; N], CudaError> {
        all(names, |name| self.step_kernel(name))
    }

    /// Gets a pair of kernels; the name of the second ends in `_any`.
    pub(crate) fn pair(self: &Arc<Self>, name: &str) -> Result<Pair, CudaError> {
        Ok(Pair { vectorised: self.kernel(name)?, any: self.kernel(&format!("{name}_any"))? })
    }

    /// Gets a kernel of a decode step. It runs with the maximum shared memory: kernels with different settings cannot
    /// overlap.
    pub(crate) fn step_kernel(self: &Arc<Self>, name: &str) -> Result<Kernel, CudaError> {
        let kernel = self.kernel(name)?;
        kernel.prefer_shared_memory().map(|()| kernel)
    }
}

fn all<K, const N: usize>(
    kernels: [K; N],
    find: impl Fn(K) -> Result<Kernel, CudaError>,
) -> Result<[Kernel; N], CudaError> {
    let found = kernels.into_iter().map(find).collect::<Result<Vec<_>, _>>()?;
    found.try_into().map_err(|_| CudaError::refused("finding kernels", 0, "some are missing"))
}

impl Pair {
    /// The kernel for rows of this width, and the number of its vectors or elements per row.
    pub fn chosen<T>(&self, width: u32, is_aligned: bool) -> (&Kernel, u32) {
        if is_aligned { (&self.vectorised, vectors::<T>(width)) } else { (&self.any, width) }
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        let _ = bound!(self.context, "unloading a module", cuModuleUnload(self.raw));
    }
}

impl Kernel {
    /// Launches the kernel asynchronously. Its parameters are tensor maps and then other arguments.
    ///
    /// With `is_early`, it may start as soon as every block of the previous kernel allows it
    /// (`griddepcontrol.launch_dependents`) or is done. Not supported before compute capability 9.0.
    ///
    /// # Safety
    ///
    /// The arguments match the kernel's parameters, and it stays within the buffers among them, which live until it is
    /// done. A kernel that starts early waits (`griddepcontrol.wait`) before it accesses what earlier kernels access.
    pub unsafe fn launch(
        &self,
        stream: &Stream,
        shape: Shape,
        (maps, arguments): (&[TensorMap], &[Argument]),
        is_early: bool,
    ) -> Done {
        self.module.context.bind()?;
        let mut addresses: Vec<_> =
            maps.iter().map(TensorMap::address).chain(arguments.iter().map(Argument::address)).collect();
        let ([gx, gy, gz], [bx, by, bz]) = (shape.grid, shape.block);
        let (parameters, extra) = (addresses.as_mut_ptr(), ptr::null_mut());
        let mut attributes = [early_start()];
        let config = shape.config(stream.raw(), &mut attributes);
        // SAFETY: the caller vouches for the arguments; the driver copies them and the attribute before it returns.
        let result = unsafe {
            match is_early {
                true => sys::cuLaunchKernelEx(&config, self.raw, parameters, extra),
                false => {
                    let (bytes, stream) = (shape.shared_bytes, stream.raw());
                    sys::cuLaunchKernel(self.raw, gx, gy, gz, bx, by, bz, bytes, stream, parameters, extra)
                }
            }
        };
        // The message is only built on failure, because launches are measured.
        if result == sys::CUresult::CUDA_SUCCESS {
            return Ok(());
        }
        crate::error::check(&format!("launching `{}`", self.name), result)
    }

    fn set(&self, attribute: Attribute, value: i32) -> Done {
        let doing = format!("setting {attribute:?} of `{}`", self.name);
        bound!(self.module.context, &doing, cuFuncSetAttribute(self.raw, attribute, value))
    }

    /// Allows a block to use this amount of shared memory: the default limit is 48 KiB.
    pub fn allow_shared_bytes(&self, bytes: u32) -> Done {
        self.set(Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, bytes as i32)
    }

    /// Allows clusters of more than 8 blocks, which not every GPU can run.
    pub fn allow_large_clusters(&self) -> Done {
        self.set(Attribute::CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1)
    }

    /// The number of clusters that the device can run at once in this configuration.
    pub fn clusters_at_once(&self, shape: Shape) -> Result<u32, CudaError> {
        let mut clusters = 0;
        let config = shape.config(ptr::null_mut(), &mut []);
        let context = &self.module.context;
        bound!(context, "counting clusters", cuOccupancyMaxActiveClusters(&mut clusters, self.raw, &config))?;
        Ok(clusters.unsigned_abs())
    }

    /// Runs with the maximum shared memory.
    pub fn prefer_shared_memory(&self) -> Done {
        self.set(Attribute::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 100)
    }
}

fn early_start() -> sys::CUlaunchAttribute {
    sys::CUlaunchAttribute {
        id: sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
        pad: [0; 4],
        value: sys::CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_driver_reads_an_arguments_first_bytes() {
        let bytes = |argument: Argument| argument.0.to_ne_bytes();
        assert_eq!(bytes(Argument::from(1.5_f32))[..4], 1.5_f32.to_ne_bytes());
        assert_eq!(bytes(Argument::from(7_u32))[..4], 7_u32.to_ne_bytes());
        assert_eq!(bytes(Argument::from(7_u64 << 40)), (7_u64 << 40).to_ne_bytes());
    }
}
