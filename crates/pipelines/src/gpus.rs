//! The GPUs of this machine that this build can use.

use laptime_bench::DeviceState;

/// A GPU that was found, or why it cannot be used.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct GpuFound {
    /// Its name: `cuda:0`.
    pub device: String,
    /// Its model.
    pub name: String,
    /// The version of its driver.
    pub driver: Option<String>,
    /// The CUDA version that the driver supports: 13.0.
    pub cuda: Option<String>,
    /// Its memory, in bytes.
    pub memory_bytes: Option<u64>,
    /// Its free memory, in bytes.
    pub free_bytes: Option<u64>,
    /// The highest clock of its processors, in MHz.
    pub clock_limit_mhz: Option<f64>,
    /// Its power limit, in watts.
    pub power_limit_watts: Option<f64>,
    /// Its state.
    pub state: DeviceState,
    /// Why kernels cannot be recorded, if they cannot: `--timing kernels` needs CUPTI.
    pub no_kernels: Option<String>,
}

/// The identity of a GPU and whatever else decides its peaks; none for a CPU.
#[cfg_attr(not(feature = "cuda"), allow(unused_variables, reason = "without CUDA no device is a GPU"))]
pub fn peak_gpu(device: &dyn laptime_bench::Device) -> Option<laptime_trace::run::PeakGpu> {
    #[cfg(feature = "cuda")]
    return crate::gpu::gpu(device)?.peak_gpu();
    #[cfg(not(feature = "cuda"))]
    None
}

/// The GPUs that can be used, or why there are none.
#[cfg(not(feature = "cuda"))]
pub fn gpus() -> Result<Vec<GpuFound>, laptime_bench::NoDevice> {
    use laptime_bench::Devices;
    let refused = crate::BuiltInDevices.open("cuda").err();
    let refused = refused.and_then(|error| error.downcast::<laptime_bench::NoDevice>().ok());
    refused.map_or(Ok(Vec::new()), Err)
}

/// The GPUs that can be used, or why there are none.
#[cfg(feature = "cuda")]
pub fn gpus() -> Result<Vec<GpuFound>, laptime_bench::NoDevice> {
    crate::gpu::found()
}
