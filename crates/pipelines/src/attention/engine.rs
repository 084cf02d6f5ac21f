//! Attention on a device.

use laptime_bench::Device;
use laptime_models::Marks;
use laptime_models::attention::{self, CPU_TILING, CpuAttention, Kept, Kind, Layout, Sampled};

use super::plan::Spec;
use crate::backend::{if_gpu, marks};

/// Prepared attention on a device.
pub trait Engine {
    /// Rebuilds the pattern.
    fn build(&mut self, kept: &Kept) -> anyhow::Result<Built>;

    /// Runs attention once, without waiting for the device.
    fn attend(&mut self) -> anyhow::Result<()>;

    /// Waits for the device and returns a lookup of rows of the result.
    fn result(&mut self) -> anyhow::Result<Box<dyn Fn(Sampled) -> Vec<f32> + Sync + '_>>;

    fn kernel(&self) -> String;
}

/// The size of a built pattern.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Built {
    /// Pairs of a head that are kept.
    pub connections: u64,
    /// Pairs of a head that are computed.
    pub executed: u64,
    pub bytes: u64,
}

impl Built {
    /// Naive attention has no pattern to build.
    pub fn naive(kept: &Kept, length: usize) -> Self {
        let executed = (length as u64).saturating_mul(length as u64);
        Self { connections: kept.allowed(length), executed, bytes: 0 }
    }
}

pub fn make<'a>(spec: &Spec, device: &'a dyn Device) -> anyhow::Result<Box<dyn Engine + 'a>> {
    if_gpu!(device, gpu => crate::gpu::attention::make(spec, gpu, marks(device)));
    Ok(Box::new(OnCpu::new(spec, marks(device))?))
}

/// Why a device cannot run a case, if it cannot.
pub fn refusal(spec: &Spec, device: &dyn Device) -> Option<String> {
    if_gpu!(device, _gpu => crate::gpu::attention::refusal(spec));
    let _ = spec;
    None
}

/// Rows whose kept pairs are checked, one byte each.
const CHECKED_ROWS: u64 = 128;

struct OnCpu {
    attention: Box<dyn CpuAttention>,
    kind: Kind,
    length: usize,
    is_causal: bool,
    layout: Option<Layout>,
    marks: Marks,
}

impl OnCpu {
    fn new(spec: &Spec, marks: Marks) -> anyhow::Result<Self> {
        let Spec { kind, inputs, kept, threads } = spec;
        let attention = attention::cpu_attention(inputs, *threads, *kind == Kind::Naive)?;
        let (length, is_causal) = (inputs.sizes.length, kept.rule().is_causal);
        Ok(Self { attention, kind: *kind, length, is_causal, layout: None, marks })
    }
}

impl Engine for OnCpu {
    fn build(&mut self, kept: &Kept) -> anyhow::Result<Built> {
        if self.kind == Kind::Naive {
            return Ok(Built::naive(kept, self.length));
        }
        // Frees the old layout first.
        self.layout = None;
        let layout = self.layout.insert(Layout::build(kept, self.length, CPU_TILING));
        let executed = attention::executed(layout);
        Ok(Built { connections: layout.connections(), executed, bytes: layout.bytes() })
    }

    fn attend(&mut self) -> anyhow::Result<()> {
        match &self.layout {
            Some(layout) => self.attention.attend(&self.marks, layout),
            None => self.attention.attend_naive(&self.marks, self.is_causal),
        }
        Ok(())
    }

    fn result(&mut self) -> anyhow::Result<Box<dyn Fn(Sampled) -> Vec<f32> + Sync + '_>> {
        Ok(Box::new(|at| self.attention.row(at)))
    }

    fn kernel(&self) -> String {
        match self.kind {
            Kind::Naive => "gemm, scores stored".to_owned(),
            _ => format!("tiles of {} x {}", CPU_TILING.rows, CPU_TILING.keys),
        }
    }
}

pub fn needed_bytes(spec: &Spec, device: &dyn Device) -> u64 {
    if_gpu!(device, _gpu => crate::gpu::attention::needed_bytes(spec));
    let Spec { kind, inputs, kept, threads } = spec;
    let (length, is_naive) = (inputs.sizes.length, *kind == Kind::Naive);
    let layout = if is_naive { 0 } else { Layout::most_bytes(kept, length, CPU_TILING) };
    let checked = CHECKED_ROWS.saturating_mul(length as u64);
    let parts = [attention::needed_bytes(&inputs.sizes, inputs.dtype, *threads, is_naive), layout, checked];
    parts.into_iter().fold(0, u64::saturating_add)
}
