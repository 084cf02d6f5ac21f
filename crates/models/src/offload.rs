//! Offloaded layers: their weights are copied to the device one layer at a time, when a pass reaches them.
//!
//! The first layers are offloaded, the last ones are resident. The *home* of offloaded layers is pinned or pageable host
//! memory, or a file if there is no GPU. Two *buffers* on the device alternate.

pub(crate) mod order;
pub(crate) mod schedule;

use std::path::PathBuf;

use laptime_probe::Lane;

use crate::{Config, Dtype, ModelError, words::words};

/// Options of offloading.
#[derive(Debug, Clone)]
pub struct Offload {
    /// How layers are copied.
    pub mode: StreamMode,
    /// The number of resident layers: the last ones.
    pub resident: usize,
    /// The folder for the file of offloaded layers, without a GPU.
    pub home: PathBuf,
    /// A limit on the bandwidth of copies in GB/s, without a GPU.
    pub link_gbps: Option<f64>,
    /// Frees unused memory every this many copies.
    pub clear_every: Option<usize>,
    /// The lane of the copies, if the device has one.
    pub lane: Option<Lane>,
}

impl Offload {
    /// The number of offloaded layers of a model. Refuses more resident layers than the model has.
    pub(crate) fn streamed_layers(&self, config: &Config) -> Result<usize, ModelError> {
        let (layers, resident) = (config.layers, self.resident);
        let refused = || format!("{resident} resident layers are more than the {layers} of `{}`", config.name);
        layers.checked_sub(resident).ok_or_else(|| ModelError::Refused(refused()))
    }

    /// Bytes of the weights of a model on the device, given `all` without offloading: buffers replace the offloaded layers.
    pub(crate) fn weight_bytes(&self, config: &Config, dtype: Dtype, all: u64, buffer: u64) -> u64 {
        let offloaded = config.layers.saturating_sub(self.resident) as u64;
        if offloaded == 0 {
            return all;
        }
        let buffers = buffer.saturating_mul(self.mode.buffers() as u64);
        all.saturating_sub(config.layer_bytes(dtype).saturating_mul(offloaded)).saturating_add(buffers)
    }

    /// Offloading in a mode, at full speed, without freeing memory.
    pub fn new(mode: StreamMode, resident: usize, home: impl Into<PathBuf>) -> Self {
        Self { mode, resident, home: home.into(), link_gbps: None, clear_every: None, lane: None }
    }
}

words! {
    /// How offloaded layers are copied, from the simplest to the fastest.
    #[derive(PartialOrd, Ord, Default)]
    pub enum StreamMode ("mode") {
        /// From pageable memory into a new buffer when the layer is needed, and back afterwards.
        Sync = "sync",
        /// From pinned memory into a reused buffer when the layer is needed.
        Pinned = "pinned",
        /// On a separate stream, while the previous layer computes, into the other buffer.
        Prefetch = "prefetch",
        /// As `prefetch`, and the end of a pass requests the first layer of the next.
        #[default]
        Wrap = "wrap",
        /// As `wrap`, and all streams run as one batch, so each layer is copied once per token.
        Batched = "batched",
    }
}

impl StreamMode {
    /// Whether copies are requested before the layer is needed.
    pub fn is_ahead(self) -> bool {
        self >= Self::Prefetch
    }

    /// The number of layer buffers: one that computes, and one for copies ahead.
    pub(crate) fn buffers(self) -> usize {
        if self.is_ahead() { 2 } else { 1 }
    }

    /// Whether the end of a pass requests the first layer of the next.
    pub fn wraps(self) -> bool {
        self >= Self::Wrap
    }
}

/// The offloading of a decoder.
#[derive(Debug, Clone, PartialEq)]
pub struct Offloading {
    /// The number of layers of the model.
    pub layers: usize,
    /// The number of offloaded layers: the first ones.
    pub streamed: usize,
    /// Bytes of an offloaded layer.
    pub layer_bytes: u64,
    /// Where they are copied from.
    pub home: Home,
}

/// Where the weights of offloaded layers are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Home {
    /// In pinned host memory.
    Pinned,
    /// In pageable host memory, as requested.
    Pageable,
    /// In pageable host memory, because pinning failed for this reason.
    Refused(String),
    /// In a file that stands for host memory.
    File,
}

/// A finished copy of an offloaded layer, which a pass has used.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LayerVisit {
    /// The layer.
    pub layer: usize,
    /// The number of the pass of this decoder.
    pub pass: u64,
    /// Whether its copy was requested ahead.
    pub is_ahead: bool,
    /// The time that compute waited for it, in nanoseconds. On a GPU measured with events.
    pub wait_ns: f64,
    /// The time of its release in nanoseconds.
    pub release_ns: f64,
    /// The time of its copy in nanoseconds.
    pub copy_ns: f64,
}

/// The largest number of resident layers that fits, where `needed` gives the bytes for a number of resident layers. If none
/// fits, the error has the smallest budget that works.
///
/// Tries every number: one offloaded layer may need more than none, since it has two buffers.
pub fn most_resident(layers: usize, budget: u64, needed: impl Fn(usize) -> u64) -> Result<usize, ModelError> {
    let mut least = u64::MAX;
    for resident in (0..=layers).rev() {
        let bytes = needed(resident);
        if bytes <= budget {
            return Ok(resident);
        }
        least = least.min(bytes);
    }
    Err(ModelError::SmallBudget { budget, least })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn modes_parse_by_their_names() {
        for mode in StreamMode::ALL {
            assert_eq!(mode.word().parse::<StreamMode>().unwrap(), mode);
        }
        let error = "async".parse::<StreamMode>().unwrap_err().to_string();
        assert_eq!(error, "there is no mode `async`, expected one of sync, pinned, prefetch, wrap, batched");
    }

    #[test]
    fn each_mode_includes_the_previous_ones() {
        let ahead = StreamMode::ALL.map(StreamMode::is_ahead);
        assert_eq!(ahead, [false, false, true, true, true]);
        assert_eq!(StreamMode::ALL.map(StreamMode::wraps), [false, false, false, true, true]);
    }

    const MIB: u64 = 1 << 20;

    /// Four layers of 10 MiB, 5 MiB of other weights, and two buffers if a layer is offloaded.
    fn needed(resident: usize) -> u64 {
        let buffers = if resident < 4 { 2 } else { 0 };
        (5 + 10 * (resident as u64 + buffers)) * MIB
    }

    #[test]
    fn as_many_layers_are_resident_as_fit() {
        let most = |budget: u64| most_resident(4, budget * MIB, needed).unwrap();
        assert_eq!((most(25), most(34), most(35), most(44), most(1000)), (0, 0, 1, 1, 4));
        // With one streamed layer it would be 55.
        assert_eq!(most(45), 4);
    }

    #[test]
    fn a_too_small_budget_gives_the_smallest_that_works() {
        let error = most_resident(4, 25 * MIB - 1, needed).unwrap_err();
        assert_eq!(
            error.to_string(),
            "24 MiB are not enough: the model needs at least 25 MiB with all layers offloaded"
        );
        assert!(error.hint().is_some());
    }

    proptest! {
        #[test]
        fn what_is_chosen_fits_and_nothing_larger_does(sizes in prop::collection::vec(0_u64..100, 1..20), budget in 0_u64..120) {
            let layers = sizes.len() - 1;
            match most_resident(layers, budget, |resident| sizes[resident]) {
                Ok(most) => {
                    prop_assert!(sizes[most] <= budget);
                    prop_assert!(sizes[most + 1..].iter().all(|size| *size > budget));
                }
                Err(ModelError::SmallBudget { least, .. }) => {
                    prop_assert!(sizes.iter().all(|size| *size > budget));
                    prop_assert_eq!(Some(&least), sizes.iter().min());
                }
                Err(other) => prop_assert!(false, "{other}"),
            }
        }
    }
}
