//! The devices of this build, by the names that users give, and the GPUs of this machine.

use std::sync::Arc;

use anyhow::bail;
use laptime_analyze::GpuHealth;
use laptime_bench::{Device, Devices, NoDevice};
use laptime_trace::run::PeakGpu;

use crate::backend::if_gpu;
use crate::cpu::{CPU, CpuDevice};

/// The devices that this build has: the CPU, and GPUs if it was built with CUDA.
#[derive(Debug, Clone, Copy, Default)]
pub struct BuiltInDevices;

impl Devices for BuiltInDevices {
    fn open(&self, name: &str) -> anyhow::Result<Arc<dyn Device>> {
        match (name, cuda_index(name)) {
            (CPU, _) => Ok(Arc::new(CpuDevice::new())),
            ("auto", _) => Ok(open_gpu(name, 0).unwrap_or_else(|_| Arc::new(CpuDevice::new()))),
            (_, Some(index)) => Ok(open_gpu(name, index)?),
            _ => bail!("there is no device `{name}`, expected `auto`, `cpu`, `cuda` or `cuda:N`"),
        }
    }
}

/// The number of a GPU by the name that a user gives: `cuda` is the first.
fn cuda_index(name: &str) -> Option<u32> {
    if name == "cuda" { Some(0) } else { name.strip_prefix("cuda:")?.parse().ok() }
}

#[cfg(feature = "cuda")]
fn open_gpu(_: &str, index: u32) -> Result<Arc<dyn Device>, NoDevice> {
    Ok(Arc::new(crate::gpu::CudaDevice::open(index)?))
}

/// The GPUs that can be used, or why there are none.
#[cfg(feature = "cuda")]
pub fn gpus() -> Result<Vec<GpuFound>, NoDevice> {
    crate::gpu::found()
}

#[cfg(not(feature = "cuda"))]
fn open_gpu(name: &str, _: u32) -> Result<Arc<dyn Device>, NoDevice> {
    Err(NoDevice {
        device: name.to_owned(),
        reason: "this build has no CUDA".to_owned(),
        hint: "build with `cargo build --release --features cuda`, or use `--device cpu`".to_owned(),
    })
}

/// The GPUs that can be used, or why there are none.
#[cfg(not(feature = "cuda"))]
pub fn gpus() -> Result<Vec<GpuFound>, NoDevice> {
    open_gpu("cuda", 0).map(|_| Vec::new())
}

/// The identity and power limit of a GPU, which determine its peaks; none for a CPU.
pub fn peak_gpu(device: &dyn Device) -> Option<PeakGpu> {
    if_gpu!(device, gpu => gpu.peak_gpu());
    None
}

/// A GPU that was found.
#[derive(Debug, Clone, PartialEq)]
pub struct GpuFound {
    /// Its name, its limits and its state.
    pub health: GpuHealth,
    /// The version of its driver.
    pub driver: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(name: &str) -> String {
        BuiltInDevices.open(name).err().expect("there is no such device").to_string()
    }

    #[test]
    fn the_cpu_and_auto_can_be_opened() {
        assert_eq!(BuiltInDevices.open("cpu").unwrap().name(), "cpu");
        assert!(["cpu", "cuda:0"].contains(&BuiltInDevices.open("auto").unwrap().name()));
    }

    #[test]
    fn cuda_without_a_number_is_the_first_gpu() {
        let names = ["cuda", "cuda:1", "cuda:", "cuda:x", "cpu"];
        assert_eq!(names.map(cuda_index), [Some(0), Some(1), None, None, None]);
    }

    #[cfg(not(feature = "cuda"))]
    #[test]
    fn without_cuda_a_gpu_is_refused_with_the_reason() {
        let text = "device `cuda:1` is not available: this build has no CUDA";
        assert_eq!(refusal("cuda:1"), text);
        assert!(refusal("cuda").starts_with("device `cuda` is not available"));
    }

    #[test]
    fn an_unknown_device_is_refused_with_the_known_ones() {
        for name in ["gpu", "cuda:", "cuda:x", "CPU", ""] {
            let text = format!("there is no device `{name}`, expected `auto`, `cpu`, `cuda` or `cuda:N`");
            assert_eq!(refusal(name), text);
        }
    }
}
