//! The attention engine of a device.

use laptime_bench::Device;
use laptime_models::{
    Marks,
    attention::{Kept, Sampled},
};

use super::{built::Built, cpu::OnCpu, spec::Spec};

/// Prepared attention on a device.
pub trait Engine {
    /// Builds the pattern again and drops the old one.
    fn build(&mut self, kept: &Kept) -> anyhow::Result<Built>;

    /// Runs attention once. The device may still be working when it returns.
    fn attend(&mut self) -> anyhow::Result<()>;

    /// The result, by its rows. Waits for the device.
    fn result(&mut self) -> anyhow::Result<Box<dyn Fn(Sampled) -> Vec<f32> + Sync + '_>>;

    /// The name of the kernel.
    fn kernel(&self) -> String;
}

/// Prepares attention on a device.
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
