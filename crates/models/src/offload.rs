//! Offloaded layers: their weights are copied over a link, one layer at a time, whenever a pass reaches them.
//!
//! The first layers are streamed and the last ones stay. Each streamed layer has a *home* on the slow side: pinned or pageable
//! memory of the host where there is a GPU, a file where there is none. Two *buffers* on the fast side take turns.

mod auto;
pub(crate) mod order;
pub(crate) mod schedule;

use std::path::PathBuf;

use laptime_probe::Lane;

pub use self::auto::most_resident;
use crate::{Config, Dtype, ModelError, words::words};

/// How offloaded layers are streamed.
#[derive(Debug, Clone)]
pub struct Offload {
    /// In which way.
    pub mode: StreamMode,
    /// Layers that stay: the last ones.
    pub resident: usize,
    /// The folder that the file of the layers is written to where there is no GPU.
    pub home: PathBuf,
    /// The bandwidth of copies in GB/s, without a GPU; as fast as the file is read if none.
    pub link_gbps: Option<f64>,
    /// Copies between two times that unused memory is given back; never if none.
    pub clear_every: Option<usize>,
    /// The lane of the copies, if the device has one.
    pub lane: Option<Lane>,
}

impl Offload {
    /// The number of offloaded layers of a model. Refuses more resident layers than the model has.
    pub(crate) fn streamed_layers(&self, config: &Config) -> Result<usize, ModelError> {
        let (layers, resident) = (config.layers, self.resident);
        let refused = || format!("{resident} layers cannot stay on the device: `{}` has {layers}", config.name);
        layers.checked_sub(resident).ok_or_else(|| ModelError::Refused(refused()))
    }

    /// Bytes of the weights of a model that has `all` of them without offloading: offloaded layers are replaced by the
    /// buffers that they are copied to.
    pub(crate) fn weight_bytes(&self, config: &Config, dtype: Dtype, all: u64, buffer: u64) -> u64 {
        let offloaded = config.layers.saturating_sub(self.resident) as u64;
        if offloaded == 0 {
            return all;
        }
        let buffers = buffer.saturating_mul(self.mode.buffers() as u64);
        all.saturating_sub(config.layer_bytes(dtype).saturating_mul(offloaded)).saturating_add(buffers)
    }

    /// Layers streamed in a mode, but for those that stay, at full speed and without giving memory back.
    pub fn new(mode: StreamMode, resident: usize, home: impl Into<PathBuf>) -> Self {
        Self { mode, resident, home: home.into(), link_gbps: None, clear_every: None, lane: None }
    }
}

words! {
    /// The ways that layers were streamed in, from the first to the best.
    #[derive(PartialOrd, Ord, Default)]
    pub enum StreamMode ("mode") {
        /// From pageable memory into a new buffer when the layer's turn comes, and back when it has computed.
        Sync = "sync",
        /// From pinned memory into a buffer that is kept, when the layer's turn comes.
        Pinned = "pinned",
        /// On a stream of its own, while the layer before computes, into the other buffer.
        Prefetch = "prefetch",
        /// And the last streamed layer asks for the first of the next pass.
        #[default]
        Wrap = "wrap",
        /// And all streams run as one batch, so that a layer is copied once a token.
        Batched = "batched",
    }
}

impl StreamMode {
    /// Whether copies are asked for before a layer's turn.
    pub fn is_ahead(self) -> bool {
        self >= Self::Prefetch
    }

    /// Buffers of the layers' size: one that computes, and one that is copied into ahead.
    pub(crate) fn buffers(self) -> usize {
        if self.is_ahead() { 2 } else { 1 }
    }

    /// Whether the end of a pass asks for the first layer of the next.
    pub fn wraps(self) -> bool {
        self >= Self::Wrap
    }
}

/// What came of [`Offload`].
#[derive(Debug, Clone, PartialEq)]
pub struct Offloading {
    /// Layers of the model.
    pub layers: usize,
    /// Those that are streamed: the first ones.
    pub streamed: usize,
    /// Bytes of a layer that go over the link.
    pub layer_bytes: u64,
    /// What they come from.
    pub home: Home,
}

/// Where the weights of streamed layers are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Home {
    /// In pinned memory of the host.
    Pinned,
    /// In pageable memory of the host, as asked.
    Pageable,
    /// In pageable memory, since pinned memory was refused, for this reason.
    Refused(String),
    /// In a file, which stands for the host's memory.
    File,
}

/// One copy of a layer that is done and was used.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LayerVisit {
    /// The layer.
    pub layer: usize,
    /// The pass, counted from the first since the decoder was made.
    pub pass: u64,
    /// Whether its copy was asked for before its turn.
    pub is_ahead: bool,
    /// What compute waited for it, in nanoseconds: on a GPU by events of its stream.
    pub wait_ns: f64,
    /// What its release took, in nanoseconds.
    pub release_ns: f64,
    /// What its copy took, in nanoseconds.
    pub copy_ns: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_read_by_their_names() {
        for mode in StreamMode::ALL {
            assert_eq!(mode.word().parse::<StreamMode>().unwrap(), mode);
        }
        let error = "async".parse::<StreamMode>().unwrap_err().to_string();
        assert_eq!(error, "there is no mode `async`, expected one of sync, pinned, prefetch, wrap, batched");
    }

    #[test]
    fn each_mode_has_what_the_ones_before_it_have() {
        let ahead = StreamMode::ALL.map(StreamMode::is_ahead);
        assert_eq!(ahead, [false, false, true, true, true]);
        assert_eq!(StreamMode::ALL.map(StreamMode::wraps), [false, false, false, true, true]);
    }
}
