//! Facts about a run with offloaded layers.

use laptime_trace::run::{AxisValue, Measured};

use super::expected::{Rates, Sizes};

/// Facts about a run; unknown values are none.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct OffloadFacts {
    /// The mode: `sync`, `pinned`, `prefetch`, `wrap` or `batched`.
    pub mode: Option<String>,
    /// Layers.
    pub layers: Option<u64>,
    /// Layers on the device.
    pub gpu_layers: Option<u64>,
    /// The dtype of the weights.
    pub dtype: Option<String>,
    /// The measured rate of the link, in GB/s.
    pub link_gbps: Option<f64>,
    /// The kind of link: `pinned`, `pageable`, `file` or `emulated`.
    pub link_kind: Option<String>,
    /// Forward passes per token.
    pub streams: Option<u64>,
    /// Steps of the diffusion head.
    pub diffusion_steps: Option<u64>,
    /// The guidance scale.
    pub cfg: Option<f64>,
    /// The audio per token, in nanoseconds.
    pub audio_ns: Option<f64>,
    /// The time of a token without offloading, in nanoseconds.
    pub baseline_ns: Option<f64>,
    /// Whether a token is compared with the limit only, not with its audio.
    pub is_judged_by_limit: bool,
    /// The work of a token.
    pub sizes: Option<Sizes>,
    /// The rates of the hardware.
    pub rates: Option<Rates>,
}

impl OffloadFacts {
    /// Reads the facts of a measured case.
    pub fn of(measured: &Measured) -> Self {
        let text = |name: &str| measured.fact(name).map(AxisValue::to_string);
        let number = |name: &str| match measured.fact(name)? {
            AxisValue::Int(whole) => Some(*whole as f64),
            AxisValue::Float(number) => Some(*number),
            AxisValue::Bool(_) | AxisValue::Text(_) => None,
        };
        let count = |name: &str| number(name).filter(|&number| number >= 0.0).map(|number| number as u64);
        let facts = Self {
            mode: text("mode"),
            layers: count("layers"),
            gpu_layers: count("gpu_layers"),
            dtype: text("dtype"),
            link_gbps: number("link_gbps").filter(|&rate| rate > 0.0),
            link_kind: text("link_kind"),
            streams: count("streams"),
            diffusion_steps: count("diffusion_steps"),
            cfg: number("cfg"),
            audio_ns: number("audio_ms").map(|audio| 1e6 * audio),
            baseline_ns: number("baseline_ms").map(|baseline| 1e6 * baseline),
            ..Self::default()
        };
        let rates = || {
            let (memory, flops) = (1e9 * number("memory_gbps")?, 1e9 * number("peak_gflops")?);
            Some(Rates { link: 1e9 * facts.link_gbps?, memory, flops })
        };
        Self { rates: rates(), sizes: facts.sizes(&count), ..facts }
    }

    fn sizes(&self, count: &dyn Fn(&str) -> Option<u64>) -> Option<Sizes> {
        Some(Sizes {
            layers: self.layers?,
            gpu_layers: self.gpu_layers?,
            layer_bytes: count("layer_bytes")?,
            layer_flops: count("layer_flops")?,
            forwards: self.streams?,
            wraps: self.wraps(),
            prefetches: self.prefetches(),
            copies_back: self.mode.as_deref() == Some("sync"),
            diffusion_bytes: count("diffusion_bytes").unwrap_or(0),
            diffusion_flops: count("diffusion_flops").unwrap_or(0),
            other_bytes: count("other_bytes").unwrap_or(0),
            other_flops: count("other_flops").unwrap_or(0),
        })
    }

    /// The same, with a token compared with the limit only.
    pub fn judged_by_limit(self) -> Self {
        Self { is_judged_by_limit: true, ..self }
    }

    /// Whether the link is emulated.
    pub fn is_emulated(&self) -> bool {
        self.link_kind.as_deref() == Some("emulated")
    }

    /// Whether the end of a forward pass prefetches for the next.
    pub fn wraps(&self) -> bool {
        matches!(self.mode.as_deref(), Some("wrap" | "batched"))
    }

    /// Whether layers are prefetched; assumed if unknown.
    pub fn prefetches(&self) -> bool {
        !matches!(self.mode.as_deref(), Some("sync" | "pinned"))
    }
}
