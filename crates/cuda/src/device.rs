//! Opens a GPU, or reports why there is none.
#![allow(unsafe_code)]

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{env, ffi::c_char};

use cudarc::driver::sys;
use laptime_probe::stage;
use laptime_trace::GraphReplays;

use crate::context::{Context, bound, driver};
use crate::error::{CudaError, Done, Failure, Unavailable};
use crate::{library, nvrtc::Compiling, stream::Stream};

/// The CUDA version of the bindings: 13000 is 13.0.
pub const CUDA_NEEDED: u32 = 13_000;

/// An open GPU: its context and a stream.
#[derive(Debug)]
pub struct Device {
    facts: DeviceFacts,
    context: Arc<Context>,
    stream: Arc<Stream>,
    /// Replays of stamped graphs that no trace has taken yet.
    replays: Arc<Mutex<GraphReplays>>,
    compiling: Arc<Mutex<Compiling>>,
}

/// The properties of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceFacts {
    /// The index.
    pub index: u32,
    /// The name: `NVIDIA H200`.
    pub name: String,
    /// The PCI address, which NVML uses too.
    pub bus: String,
    /// The compute capability: 9 and 0.
    pub capability: (u32, u32),
    /// The number of multiprocessors.
    pub multiprocessors: u32,
    /// The size of the L2 cache in bytes.
    pub l2_bytes: u64,
    /// The size of the memory in bytes.
    pub memory_bytes: u64,
    /// The CUDA version of the driver: 13000 is 13.0.
    pub driver_cuda: u32,
}

impl DeviceFacts {
    /// The architecture for compilers: `sm_90`.
    pub fn architecture(&self) -> String {
        format!("sm_{}{}", self.capability.0, self.capability.1)
    }
}

fn driver_version() -> Result<u32, CudaError> {
    let mut version = 0;
    driver!("querying the driver version", cuDriverGetVersion(&mut version))?;
    Ok(version.unsigned_abs())
}

/// The number of GPUs, or why none can be used.
pub fn device_count() -> Result<u32, Unavailable> {
    let count = || {
        let mut count = 0;
        driver!("counting devices", cuDeviceGetCount(&mut count))?;
        Ok(count.unsigned_abs())
    };
    count_devices(library::has_driver(), driver_version, || driver!("initialising the driver", cuInit(0)), count)
}

fn count_devices(
    has_driver: bool,
    version: impl FnOnce() -> Result<u32, CudaError>,
    start: impl FnOnce() -> Done,
    count: impl FnOnce() -> Result<u32, CudaError>,
) -> Result<u32, Unavailable> {
    if !has_driver {
        return Err(Unavailable::NoDriver);
    }
    // The version is available before initialisation, and an old driver may not initialise at all.
    let found = version().map_err(broken)?;
    if found < CUDA_NEEDED {
        return Err(Unavailable::DriverTooOld { found, needed: CUDA_NEEDED });
    }
    start().map_err(broken)?;
    match count().map_err(broken)? {
        0 => Err(no_gpu()),
        count => Ok(count),
    }
}

fn no_gpu() -> Unavailable {
    Unavailable::NoGpu { visible: env::var("CUDA_VISIBLE_DEVICES").ok() }
}

fn broken(error: CudaError) -> Unavailable {
    match error {
        CudaError::Refused(failure) if failure.code == sys::CUresult::CUDA_ERROR_NO_DEVICE as i64 => no_gpu(),
        CudaError::Refused(failure) if failure.code == sys::CUresult::CUDA_ERROR_STUB_LIBRARY as i64 => {
            Unavailable::StubDriver
        }
        CudaError::Refused(failure) | CudaError::Sticky(failure) => Unavailable::Broken(failure),
        other => {
            let reason = other.to_string();
            Unavailable::Broken(Failure { doing: "initialising the driver".to_owned(), code: 0, reason })
        }
    }
}

fn check_index(index: u32, count: u32) -> Result<(), Unavailable> {
    if index < count { Ok(()) } else { Err(Unavailable::NoSuchDevice { index, count }) }
}

impl Device {
    /// Opens the device with this index.
    pub fn open(index: u32) -> Result<Self, CudaError> {
        let _stage = stage!("context", gpu = index);
        check_index(index, device_count()?)?;
        let mut device = 0;
        driver!("finding the device", cuDeviceGet(&mut device, index as i32))?;
        let facts = facts(index, device)?;
        let context = Arc::new(Context::retain(device)?);
        let stream = Arc::new(Stream::new(Arc::clone(&context))?);
        Ok(Self { facts, context, stream, replays: Arc::default(), compiling: Arc::default() })
    }

    /// The properties of the device.
    pub fn facts(&self) -> &DeviceFacts {
        &self.facts
    }

    /// Whether kernels can overlap with the previous one and form clusters: compute capability 9.0 and above.
    pub(crate) fn is_hopper_or_later(&self) -> bool {
        self.facts.capability.0 >= 9
    }

    /// The compute stream.
    pub fn stream(&self) -> &Arc<Stream> {
        &self.stream
    }

    /// Creates another stream.
    pub fn new_stream(&self) -> Result<Stream, CudaError> {
        Stream::new(Arc::clone(&self.context))
    }

    /// The same device with another compute stream.
    pub fn with_new_stream(&self) -> Result<Self, CudaError> {
        let (facts, context) = (self.facts.clone(), Arc::clone(&self.context));
        let (replays, compiling) = (Arc::clone(&self.replays), Arc::clone(&self.compiling));
        Ok(Self { facts, context, stream: Arc::new(self.new_stream()?), replays, compiling })
    }

    pub(crate) fn compiling(&self) -> MutexGuard<'_, Compiling> {
        self.compiling.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores the replays of stamped graphs for [`Device::take_replays`].
    pub fn keep_replays(&self, read: GraphReplays) {
        let mut kept = self.replays.lock().unwrap_or_else(PoisonError::into_inner);
        kept.replays.extend(read.replays);
        kept.lost = kept.lost.saturating_add(read.lost);
    }

    /// Takes the stored replays of stamped graphs, on whichever stream they ran.
    pub fn take_replays(&self) -> GraphReplays {
        std::mem::take(&mut self.replays.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits until all work on every stream is done.
    pub fn synchronise(&self) -> Done {
        bound!(self.context, "synchronising the device", cuCtxSynchronize())
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.context
    }
}

fn facts(index: u32, device: sys::CUdevice) -> Result<DeviceFacts, CudaError> {
    use sys::CUdevice_attribute as Attribute;
    let attribute = |wanted| attribute(device, wanted);
    let mut memory_bytes = 0;
    driver!("querying the memory size", cuDeviceTotalMem_v2(&mut memory_bytes, device))?;
    Ok(DeviceFacts {
        index,
        name: text(|at, size| driver!("querying the name", cuDeviceGetName(at, size, device)))?,
        bus: text(|at, size| driver!("querying the PCI address", cuDeviceGetPCIBusId(at, size, device)))?,
        capability: (
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        ),
        multiprocessors: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
        l2_bytes: attribute(Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?.into(),
        memory_bytes: memory_bytes as u64,
        driver_cuda: driver_version()?,
    })
}

fn attribute(device: sys::CUdevice, wanted: sys::CUdevice_attribute) -> Result<u32, CudaError> {
    let mut value = 0;
    driver!("querying a device attribute", cuDeviceGetAttribute(&mut value, wanted, device))?;
    Ok(value.unsigned_abs())
}

/// Reads a text of at most 255 bytes from the driver.
fn text(write: impl Fn(*mut c_char, i32) -> Done) -> Result<String, CudaError> {
    let mut bytes = [0_u8; 256];
    write(bytes.as_mut_ptr().cast(), bytes.len() as i32 - 1)?;
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    Ok(String::from_utf8_lossy(&bytes[..end]).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::classify;

    /// A driver with fixed answers.
    struct Answers {
        there: bool,
        version: u32,
        start: u32,
        count: u32,
    }

    const WORKING: Answers = Answers { there: true, version: 13_000, start: 0, count: 2 };

    fn count(Answers { there, version, start, count }: Answers) -> Result<u32, Unavailable> {
        let start = || if start == 0 { Ok(()) } else { Err(classify("starting", start, "CODE")) };
        count_devices(there, || Ok(version), start, || Ok(count))
    }

    #[test]
    fn a_working_driver_counts_its_devices() {
        assert_eq!(count(WORKING), Ok(2));
    }

    #[test]
    fn a_missing_driver_is_reported() {
        assert_eq!(count(Answers { there: false, ..WORKING }), Err(Unavailable::NoDriver));
    }

    #[test]
    fn an_old_driver_is_reported_before_it_is_started() {
        let old = Answers { version: 12_040, start: 999, ..WORKING };
        assert_eq!(count(old), Err(Unavailable::DriverTooOld { found: 12_040, needed: 13_000 }));
    }

    #[test]
    fn a_driver_without_a_device_is_not_a_broken_driver() {
        for none in [Answers { start: 100, ..WORKING }, Answers { count: 0, ..WORKING }] {
            assert!(matches!(count(none), Err(Unavailable::NoGpu { .. })));
        }
        assert!(matches!(count(Answers { start: 803, ..WORKING }), Err(Unavailable::Broken(_))));
        assert!(matches!(count(Answers { start: 999, ..WORKING }), Err(Unavailable::Broken(_))));
        assert_eq!(count(Answers { start: 34, ..WORKING }), Err(Unavailable::StubDriver));
    }

    #[test]
    fn an_index_beyond_the_last_device_is_refused() {
        assert_eq!(check_index(1, 2), Ok(()));
        assert_eq!(check_index(2, 2), Err(Unavailable::NoSuchDevice { index: 2, count: 2 }));
    }

    #[test]
    fn the_architecture_is_named_for_compilers() {
        let facts = DeviceFacts {
            index: 0,
            name: "NVIDIA H200".to_owned(),
            bus: "0000:00:00.0".to_owned(),
            capability: (9, 0),
            multiprocessors: 132,
            l2_bytes: 0,
            memory_bytes: 0,
            driver_cuda: 13_000,
        };
        assert_eq!(facts.architecture(), "sm_90");
    }
}
