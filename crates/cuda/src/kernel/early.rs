//! Launches a kernel that overlaps with the previous one.
#![allow(unsafe_code)]

use std::ptr;

use cudarc::driver::sys;

use super::{Argument, Kernel, Shape};
use crate::{context::driver, error::CudaError, stream::Stream};

impl Kernel {
    /// Lets multiprocessors that run it use the maximum shared memory. Kernels with different settings cannot run
    /// concurrently.
    pub fn prefer_shared_memory(&self) -> Result<(), CudaError> {
        self.module.context.bind()?;
        let share = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT;
        driver!(&format!("dividing the memory of `{}`", self.name), cuFuncSetAttribute(self.raw, share, 100))
    }

    /// Puts the kernel on a stream, where it may begin as soon as every block of the previous kernel allows it
    /// (`griddepcontrol.launch_dependents`) or is done.
    ///
    /// Not supported before compute capability 9.0.
    ///
    /// # Safety
    ///
    /// As for [`Kernel::launch`]; and the kernel itself waits (`griddepcontrol.wait`) before it touches what earlier
    /// ones write or read.
    pub unsafe fn launch_early(&self, stream: &Stream, shape: Shape, arguments: &[Argument]) -> Result<(), CudaError> {
        self.module.context.bind()?;
        let mut places: Vec<_> = arguments.iter().map(|argument| (&raw const argument.0).cast_mut().cast()).collect();
        let mut attribute = may_begin_early();
        let config = sys::CUlaunchConfig {
            gridDimX: shape.grid[0],
            gridDimY: shape.grid[1],
            gridDimZ: shape.grid[2],
            blockDimX: shape.block[0],
            blockDimY: shape.block[1],
            blockDimZ: shape.block[2],
            sharedMemBytes: shape.shared_bytes,
            hStream: stream.raw(),
            attrs: &raw mut attribute,
            numAttrs: 1,
        };
        // SAFETY: the caller answers for the arguments; the driver copies them and the attribute before it returns.
        let result = unsafe { sys::cuLaunchKernelEx(&config, self.raw, places.as_mut_ptr(), ptr::null_mut()) };
        if result == sys::CUresult::CUDA_SUCCESS {
            return Ok(());
        }
        crate::error::check(&format!("launching `{}`", self.name), result)
    }
}

fn may_begin_early() -> sys::CUlaunchAttribute {
    sys::CUlaunchAttribute {
        id: sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
        pad: [0; 4],
        value: sys::CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 },
    }
}
