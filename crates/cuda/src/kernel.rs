//! Compiled kernels on a device, and launching them.
#![allow(unsafe_code)]

use std::ffi::{CString, c_void};
use std::{ptr, sync::Arc};

use cudarc::driver::sys;
use laptime_probe::stage;

use crate::context::{Context, bound, driver};
use crate::error::{CudaError, Done};
use crate::{device::Device, launch::groups, stream::Stream};

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

/// A kernel that goes by groups of 16 bytes, and the same for what cannot be divided so.
#[derive(Debug)]
pub(crate) struct Pair {
    pub by_16_bytes: Kernel,
    pub any: Kernel,
}

/// Declares kernels of some sources for one dtype, `field: Type = method of the module(...)`, and how they are loaded;
/// then what else is known of the device.
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
            /// What [`Self::load`] loads.
            pub fn requests() -> impl Iterator<Item = nvrtc::Request> {
                [$($source),*].into_iter().map(|source| nvrtc::Request::typed::<T>(source, &[]))
            }

            /// Loads them all, from the cache where they are there.
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

/// The launch size of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub shared_bytes: u32,
}

impl Shape {
    pub const ONE: Self = Self::line(1, 1);

    /// Blocks of this number of threads for `count` elements.
    pub const fn line(blocks: u32, threads: u32) -> Self {
        Self { grid: [blocks, 1, 1], block: [threads, 1, 1], shared_bytes: 0 }
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

/// An argument of a kernel, as the bits that are passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Argument(u64);

impl Argument {
    /// The address of an absent buffer.
    pub const NULL: Self = Self(0);

    /// The address for the driver. It reads the size of the kernel's parameter; little-endian order puts those bytes
    /// first.
    fn place(&self) -> *mut c_void {
        (&raw const self.0).cast_mut().cast()
    }
}

/// Values that are passed as these bits.
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
    /// Loads a compiled module (a cubin, or PTX with a zero at its end) on a device.
    pub fn load(device: &Device, image: &[u8]) -> Result<Arc<Self>, CudaError> {
        let context = Arc::clone(device.context());
        let _stage = stage!("load", bytes = image.len());
        let mut raw = ptr::null_mut();
        bound!(context, "loading a module", cuModuleLoadData(&mut raw, image.as_ptr().cast()))?;
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

    /// Finds a kernel that may use this amount of shared memory.
    pub(crate) fn kernel_with(self: &Arc<Self>, name: &str, shared_bytes: u32) -> Result<Kernel, CudaError> {
        let kernel = self.kernel(name)?;
        kernel.allow_shared_bytes(shared_bytes).map(|()| kernel)
    }

    /// Finds several kernels.
    pub(crate) fn kernels<const N: usize>(self: &Arc<Self>, names: [&str; N]) -> Result<[Kernel; N], CudaError> {
        all(names, |name| self.kernel(name))
    }

    /// Finds several kernels, each of which may use an amount of shared memory.
    pub(crate) fn kernels_with<const N: usize>(
        self: &Arc<Self>,
        kernels: [(&str, u32); N],
    ) -> Result<[Kernel; N], CudaError> {
        all(kernels, |(name, shared_bytes)| self.kernel_with(name, shared_bytes))
    }

    /// Finds several kernels of a decode step.
    pub(crate) fn step_kernels<const N: usize>(self: &Arc<Self>, names: [&str; N]) -> Result<[Kernel; N], CudaError> {
        all(names, |name| self.step_kernel(name))
    }

    /// Finds a kernel that moves rows by groups of 16 bytes, and the same for any rows, whose name ends in `_any`.
    pub(crate) fn pair(self: &Arc<Self>, name: &str) -> Result<Pair, CudaError> {
        Ok(Pair { by_16_bytes: self.kernel(name)?, any: self.kernel(&format!("{name}_any"))? })
    }

    /// Finds a kernel of a decode step. Its multiprocessors use the maximum shared memory: kernels with different
    /// settings cannot run concurrently.
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
    /// Which of the two, and the groups or single numbers of a row that it goes by.
    pub fn chosen<T>(&self, width: u32, is_aligned: bool) -> (&Kernel, u32) {
        if is_aligned { (&self.by_16_bytes, groups::<T>(width)) } else { (&self.any, width) }
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        let _ = bound!(self.context, "unloading a module", cuModuleUnload(self.raw));
    }
}

impl Kernel {
    /// Puts the kernel on a stream without waiting for it. Its parameters are tensor maps and then other arguments.
    ///
    /// If `is_early`, it may begin as soon as every block of the previous kernel allows it
    /// (`griddepcontrol.launch_dependents`) or is done. Not supported before compute capability 9.0.
    ///
    /// # Safety
    ///
    /// The arguments are of the number and types that the kernel takes, and it stays within the buffers among them,
    /// which live until it is done. A kernel that begins early waits (`griddepcontrol.wait`) before it touches what
    /// earlier ones write or read.
    pub unsafe fn launch(
        &self,
        stream: &Stream,
        shape: Shape,
        (maps, arguments): (&[TensorMap], &[Argument]),
        is_early: bool,
    ) -> Done {
        self.module.context.bind()?;
        let mut places: Vec<_> =
            maps.iter().map(TensorMap::place).chain(arguments.iter().map(Argument::place)).collect();
        let ([gx, gy, gz], [bx, by, bz]) = (shape.grid, shape.block);
        let (parameters, extra) = (places.as_mut_ptr(), ptr::null_mut());
        let mut attributes = [may_begin_early()];
        let config = shape.config(stream.raw(), &mut attributes);
        // SAFETY: the caller answers for the arguments; the driver copies them and the attribute before it returns.
        let result = unsafe {
            match is_early {
                true => sys::cuLaunchKernelEx(&config, self.raw, parameters, extra),
                false => {
                    let (bytes, stream) = (shape.shared_bytes, stream.raw());
                    sys::cuLaunchKernel(self.raw, gx, gy, gz, bx, by, bz, bytes, stream, parameters, extra)
                }
            }
        };
        // The message is built only on failure: a launch is on the measured path.
        if result == sys::CUresult::CUDA_SUCCESS {
            return Ok(());
        }
        crate::error::check(&format!("launching `{}`", self.name), result)
    }

    /// Allows a block to use this amount of shared memory: the default limit is 48 KiB.
    pub fn allow_shared_bytes(&self, bytes: u32) -> Done {
        let most = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        bound!(
            self.module.context,
            &format!("allowing `{}` shared memory", self.name),
            cuFuncSetAttribute(self.raw, most, bytes as i32)
        )
    }

    /// Allows clusters of more than 8 blocks, which not every GPU can run.
    pub fn allow_large_clusters(&self) -> Done {
        let allowed = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED;
        bound!(
            self.module.context,
            &format!("allowing `{}` large clusters", self.name),
            cuFuncSetAttribute(self.raw, allowed, 1)
        )
    }

    /// The number of its clusters that the device can run at once, launched like this.
    pub fn clusters_at_once(&self, shape: Shape) -> Result<u32, CudaError> {
        let mut clusters = 0;
        let config = shape.config(ptr::null_mut(), &mut []);
        bound!(
            self.module.context,
            "counting clusters",
            cuOccupancyMaxActiveClusters(&mut clusters, self.raw, &config)
        )?;
        Ok(clusters.unsigned_abs())
    }

    /// Lets multiprocessors that run it use the maximum shared memory.
    pub fn prefer_shared_memory(&self) -> Done {
        let share = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT;
        bound!(
            self.module.context,
            &format!("dividing the memory of `{}`", self.name),
            cuFuncSetAttribute(self.raw, share, 100)
        )
    }
}

fn may_begin_early() -> sys::CUlaunchAttribute {
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
    fn an_argument_keeps_its_bits_where_the_driver_reads_them() {
        let bytes = |argument: Argument| argument.0.to_ne_bytes();
        assert_eq!(bytes(Argument::from(1.5_f32))[..4], 1.5_f32.to_ne_bytes());
        assert_eq!(bytes(Argument::from(7_u32))[..4], 7_u32.to_ne_bytes());
        assert_eq!(bytes(Argument::from(7_u64 << 40)), (7_u64 << 40).to_ne_bytes());
    }
}
