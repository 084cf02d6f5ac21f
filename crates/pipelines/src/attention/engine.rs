//! What computes attention on a device.

use laptime_bench::Device;
use laptime_models::{
    Marks,
    attention::{Kept, Sampled},
};

use super::{built::Built, cpu::OnCpu, spec::Spec};

/// Attention that is ready on a device.
pub trait Engine {
    /// Builds the pattern anew; what was built before is gone.
    fn build(&mut self, kept: &Kept) -> anyhow::Result<Built>;

    /// Attends once. The device may still be at it.
    fn attend(&mut self) -> anyhow::Result<()>;

    /// The result, by its rows. Waits for the device.
    fn result(&mut self) -> anyhow::Result<Box<dyn Fn(Sampled) -> Vec<f32> + Sync + '_>>;

    /// The kernel that it is computed by.
    fn kernel(&self) -> String;
}

/// Makes attention ready on a device.
pub fn make<'a>(spec: &Spec, device: &'a dyn Device) -> anyhow::Result<Box<dyn Engine + 'a>> {
    let marks = Marks { depth: device.depth(), lane: device.lane().cloned(), ..Marks::default() };
    #[cfg(feature = "cuda")]
    if let Some(gpu) = crate::gpu::gpu(device) {
        return super::gpu::make(spec, gpu, marks);
    }
    Ok(Box::new(OnCpu::new(spec, marks)?))
}

/// Bytes of the device that a case needs at most.
pub fn needed_bytes(spec: &Spec, device: &dyn Device) -> u64 {
    #[cfg(feature = "cuda")]
    if crate::gpu::gpu(device).is_some() {
        return super::gpu::needed_bytes(spec);
    }
    let _ = device;
    super::cpu::needed_bytes(spec)
}

/// Why a device cannot run a case, if it cannot.
pub fn refusal(spec: &Spec, device: &dyn Device) -> Option<String> {
    #[cfg(feature = "cuda")]
    if crate::gpu::gpu(device).is_some() {
        return super::gpu::refusal(spec);
    }
    let _ = (spec, device);
    None
}
