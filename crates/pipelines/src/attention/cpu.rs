//! Attention on the CPU.

use laptime_models::{
    Marks,
    attention::{self, CPU_TILING, CpuAttention, Kept, Kind, Layout, Sampled},
};

use super::{built::Built, engine::Engine, spec::Spec};
use crate::model::into_error;

/// Rows whose kept pairs are checked, one byte each.
const CHECKED_ROWS: u64 = 128;

/// Attention on the CPU.
pub struct OnCpu {
    attention: CpuAttention,
    kind: Kind,
    length: usize,
    is_causal: bool,
    layout: Option<Layout>,
    marks: Marks,
}

impl OnCpu {
    /// Creates the inputs.
    pub fn new(spec: &Spec, marks: Marks) -> anyhow::Result<Self> {
        let Spec { kind, inputs, kept, threads } = spec;
        let attention = CpuAttention::new(inputs, *threads, *kind == Kind::Naive).map_err(into_error)?;
        let (length, is_causal) = (inputs.sizes.length, kept.rule().is_causal);
        Ok(Self { attention, kind: *kind, length, is_causal, layout: None, marks })
    }
}

impl Engine for OnCpu {
    fn build(&mut self, kept: &Kept) -> anyhow::Result<Built> {
        if self.kind == Kind::Naive {
            return Ok(Built::naive(kept, self.length));
        }
        // The calls never overlap.
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

/// Bytes of the heap that a case needs at most.
pub fn needed_bytes(spec: &Spec) -> u64 {
    let Spec { kind, inputs, kept, threads } = spec;
    let (length, is_naive) = (inputs.sizes.length, *kind == Kind::Naive);
    let layout = if is_naive { 0 } else { Layout::most_bytes(kept, length, CPU_TILING) };
    let checked = CHECKED_ROWS.saturating_mul(length as u64);
    let parts = [attention::needed_bytes(&inputs.sizes, inputs.dtype, *threads, is_naive), layout, checked];
    parts.into_iter().fold(0, u64::saturating_add)
}
