//! What a run of offloaded layers says of itself.

use laptime_trace::run::{AxisValue, Measured};

use super::expected::{Rates, Sizes};

/// What a run says of itself; what it does not say is none.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct OffloadFacts {
    /// How layers are streamed: `sync`, `pinned`, `prefetch`, `wrap` or `batched`.
    pub mode: Option<String>,
    /// Layers.
    pub layers: Option<u64>,
    /// Layers that stay on the device.
    pub gpu_layers: Option<u64>,
    /// The type of the weights.
    pub dtype: Option<String>,
    /// What the link can do at most, in billions of bytes a second, as measured.
    pub link_gbps: Option<f64>,
    /// What the link is: `pinned`, `pageable`, `file` or `emulated`.
    pub link_kind: Option<String>,
    /// Forward passes a token.
    pub streams: Option<u64>,
    /// Steps of the diffusion head.
    pub diffusion_steps: Option<u64>,
    /// The scale of guidance.
    pub cfg: Option<f64>,
    /// The audio of a token, in nanoseconds.
    pub audio_ns: Option<f64>,
    /// A token of the same run without offloading, in nanoseconds.
    pub baseline_ns: Option<f64>,
    /// A token is held against the limit alone, and not against its audio.
    pub is_judged_by_limit: bool,
    /// What a token has to do.
    pub sizes: Option<Sizes>,
    /// What the machine can do.
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

    /// The same, where a token is held against the limit alone.
    pub fn judged_by_limit(self) -> Self {
        Self { is_judged_by_limit: true, ..self }
    }

    /// Whether the link is only made as slow as one.
    pub fn is_emulated(&self) -> bool {
        self.link_kind.as_deref() == Some("emulated")
    }

    /// Whether the end of a forward pass prefetches for the next.
    pub fn wraps(&self) -> bool {
        matches!(self.mode.as_deref(), Some("wrap" | "batched"))
    }

    /// Whether copies are asked for ahead; a run that does not say is taken to.
    pub fn prefetches(&self) -> bool {
        !matches!(self.mode.as_deref(), Some("sync" | "pinned"))
    }
}
