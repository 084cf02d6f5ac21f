//! Offloaded layers: their weights are copied over a link, one layer at a time, whenever a pass reaches them.
//!
//! The first layers are streamed and the last ones stay. Each streamed layer has a *home* on the slow side: pinned or pageable
//! memory of the host where there is a GPU, a file where there is none. Two *buffers* on the fast side take turns.

pub(crate) mod order;
pub(crate) mod schedule;

use std::path::PathBuf;

use laptime_probe::Lane;

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

/// The largest number of resident layers that fits, where `needed` gives the bytes for a number of resident layers.
/// What cannot be run even with all layers streamed is refused, with the smallest budget that works.
///
/// All are asked for, one by one: a single streamed layer may need more than none, since its buffers are two.
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

    const MIB: u64 = 1 << 20;

    /// A model of four layers of 10 MiB, 5 MiB beside them, and two buffers where a layer is streamed.
    fn needed(resident: usize) -> u64 {
        let buffers = if resident < 4 { 2 } else { 0 };
        (5 + 10 * (resident as u64 + buffers)) * MIB
    }

    #[test]
    fn as_many_layers_stay_as_fit() {
        let most = |budget: u64| most_resident(4, budget * MIB, needed).unwrap();
        assert_eq!((most(25), most(34), most(35), most(44), most(1000)), (0, 0, 1, 1, 4));
        // With one streamed layer it would be 55.
        assert_eq!(most(45), 4);
    }

    #[test]
    fn a_budget_that_is_too_small_is_told_the_smallest_that_works() {
        let error = most_resident(4, 25 * MIB - 1, needed).unwrap_err();
        assert_eq!(error.to_string(), "24 MiB are not enough: at least 25 MiB are needed, with layers streamed");
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
