//! The primary context of a device, shared with all other CUDA libraries in the process.
#![allow(unsafe_code)]

use std::ptr;

use cudarc::driver::sys;

use crate::error::{CudaError, Done};

/// Calls a driver function and converts its status to a result.
macro_rules! driver {
    ($doing:expr, $function:ident($($argument:expr),* $(,)?)) => {
        // SAFETY: arguments are valid at the call sites; the library was loaded before any context was created.
        $crate::error::check($doing, unsafe { cudarc::driver::sys::$function($($argument),*) })
    };
}
pub(crate) use driver;

/// Calls a driver function in a context.
macro_rules! bound {
    ($context:expr, $($call:tt)+) => {
        $context.bind().and_then(|()| $crate::context::driver!($($call)+))
    };
}
pub(crate) use bound;

#[derive(Debug)]
pub struct Context {
    pub(crate) device: sys::CUdevice,
    raw: sys::CUcontext,
    pub(crate) pool: sys::CUmemoryPool,
}

// SAFETY: contexts and pools may be used from any thread; the driver locks.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    /// Retains the primary context of a device, and keeps freed memory in its pool.
    pub(crate) fn retain(device: sys::CUdevice) -> Result<Self, CudaError> {
        let mut raw = ptr::null_mut();
        driver!("creating a context", cuDevicePrimaryCtxRetain(&mut raw, device))?;
        let mut context = Self { device, raw, pool: ptr::null_mut() };
        context.bind()?;
        driver!("finding the memory pool", cuDeviceGetDefaultMemPool(&mut context.pool, device))?;
        context.keep_freed_memory()?;
        Ok(context)
    }

    /// By default the pool releases memory at every synchronisation, and every iteration would allocate it again.
    fn keep_freed_memory(&self) -> Done {
        let mut threshold = u64::MAX;
        driver!(
            "setting the pool's release threshold",
            cuMemPoolSetAttribute(
                self.pool,
                sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD,
                (&raw mut threshold).cast()
            )
        )
    }

    /// Makes this the context of the calling thread, if it is not already.
    pub(crate) fn bind(&self) -> Done {
        let mut current = ptr::null_mut();
        driver!("querying the context of the thread", cuCtxGetCurrent(&mut current))?;
        if current == self.raw {
            return Ok(());
        }
        driver!("setting the context of the thread", cuCtxSetCurrent(self.raw))
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // Fails for a lost context, but then the process is about to exit.
        let _ = driver!("releasing the context", cuDevicePrimaryCtxRelease_v2(self.device));
    }
}
