//! The configuration of a fuser: the two caches, its widths, and the pairs of layers.

use std::collections::BTreeSet;

use crate::check::{Fault, LARGEST};
use crate::{Config, Done, HasTensors, ModelError, error::require, tensors::checked_count, words::words};

/// The width of published fusers, and the inner width of their feed-forward blocks.
const PUBLISHED_WIDTH: usize = 1024;

/// Narrower receivers are test models, whose fusers have their width.
const NARROW: usize = 512;

/// Blocks of published fusers, and the minimum.
const LEAST_BLOCKS: usize = 3;

/// Far more blocks than any fuser has.
const MOST_BLOCKS: usize = 64;

/// The shape of a model's KV cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheShape {
    /// The model's name.
    pub model: String,
    /// Number of layers.
    pub layers: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
}

impl CacheShape {
    /// The cache shape of a model.
    pub fn of(config: &Config) -> Self {
        let Config { name, layers, kv_heads, head_dim, .. } = config;
        Self { model: name.clone(), layers: *layers, kv_heads: *kv_heads, head_dim: *head_dim }
    }

    /// Width of the keys, or of the values, of one token in one layer.
    pub fn width(&self) -> usize {
        self.kv_heads.saturating_mul(self.head_dim)
    }
}

/// The sharer's layer for a layer of the receiver, and the projector between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pair {
    /// The sharer's layer.
    pub sharer_layer: usize,
    /// The index of the projector.
    pub projector: usize,
}

/// The configuration of a fuser.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FuserConfig {
    /// The model that answers.
    pub receiver: CacheShape,
    /// The model that shares its cache.
    pub sharer: CacheShape,
    /// Width of the hidden states (`hidden_dim`).
    pub hidden: usize,
    /// Inner width of the blocks, except that of the weight branch, which has `hidden` (`intermediate_dim`).
    pub intermediate: usize,
    /// Blocks from the input to the value, including the one before both branches (`num_layers`); at least 3.
    pub blocks: usize,
    /// The pair of each layer of the receiver.
    pub pairs: Vec<Pair>,
}

impl FuserConfig {
    /// A fuser with one projector per layer of the receiver. It has the published width, or that of a receiver narrower
    /// than 512.
    pub fn new(receiver: &Config, sharer: &Config, alignment: Alignment) -> Self {
        let width = if receiver.hidden < NARROW { receiver.hidden } else { PUBLISHED_WIDTH };
        let layers = alignment.layers(receiver.layers, sharer.layers).into_iter().enumerate();
        Self {
            receiver: CacheShape::of(receiver),
            sharer: CacheShape::of(sharer),
            hidden: width,
            intermediate: width,
            blocks: LEAST_BLOCKS,
            pairs: layers.map(|(projector, sharer_layer)| Pair { sharer_layer, projector }).collect(),
        }
    }

    /// Refuses an invalid configuration.
    pub fn check(&self) -> Done {
        self.fault().map_err(|reason| {
            let (sharer, receiver) = (&self.sharer.model, &self.receiver.model);
            ModelError::Refused(format!("fuser of `{sharer}` to `{receiver}`: {reason}"))
        })
    }

    fn fault(&self) -> Fault {
        let (blocks, pairs, layers, model) =
            (self.blocks, self.pairs.len(), self.receiver.layers, &self.receiver.model);
        let is_fine = (LEAST_BLOCKS..=MOST_BLOCKS).contains(&blocks);
        require!(is_fine, "`num_layers` is {blocks}, expected {LEAST_BLOCKS} to {MOST_BLOCKS}");
        let widths = [self.hidden, self.intermediate, self.receiver.width(), self.sharer.width()];
        let are_fine = widths.iter().all(|width| (1..=LARGEST).contains(width)) && self.checked_parameters().is_some();
        require!(are_fine, "its widths {widths:?} are 0 or too large");
        require!(pairs == layers, "it has {pairs} layers, but `{model}` has {layers}");
        let (layers, model) = (self.sharer.layers, &self.sharer.model);
        let last = self.pairs.iter().map(|pair| pair.sharer_layer).max().unwrap_or_default();
        require!(last < layers, "it uses layer {last} of the sharer, but `{model}` has {layers} layers");
        Ok(())
    }

    /// The projectors in use, each once, in order.
    pub fn projectors(&self) -> Vec<usize> {
        self.pairs.iter().map(|pair| pair.projector).collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Parameters of one projector.
    pub(crate) fn projector_parameters(&self) -> u64 {
        checked_count(&self.projector_tensors(0)).unwrap_or(u64::MAX)
    }
}

words! {
    /// How layers of two models are paired.
    #[derive(Default)]
    pub enum Alignment ("alignment") {
        /// From the last layers backwards. If the sharer has fewer layers, its first one serves the rest.
        #[default]
        LastAligned = "last_aligned",
        /// By nearest relative depth.
        KNearest = "k_nearest",
    }
}

impl Alignment {
    /// The sharer's layer for every layer of the receiver; empty if the sharer has no layers.
    pub fn layers(self, receiver: usize, sharer: usize) -> Vec<usize> {
        let Some(last) = sharer.checked_sub(1) else { return Vec::new() };
        let one = |layer: usize| match self {
            Self::LastAligned => layer.saturating_add(sharer).saturating_sub(receiver).min(last),
            Self::KNearest => nearest(depth(layer, receiver), sharer),
        };
        (0..receiver).map(one).collect()
    }
}

fn depth(layer: usize, layers: usize) -> f64 {
    if layers > 1 { layer as f64 / (layers - 1) as f64 } else { 0.0 }
}

/// The sharer's layer nearest to a relative depth; ties go to the lower one. In f64 like the original, so that near-ties
/// round as there.
fn nearest(depth: f64, sharer: usize) -> usize {
    let distance = |layer: usize| (self::depth(layer, sharer) - depth).abs();
    (0..sharer).min_by(|a, b| distance(*a).total_cmp(&distance(*b))).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Dtype;

    fn preset(name: &str) -> Config {
        Config::from_preset(name).unwrap()
    }

    fn fuser(sharer: &str, receiver: &str) -> FuserConfig {
        FuserConfig::new(&preset(receiver), &preset(sharer), Alignment::LastAligned)
    }

    /// Sharer, receiver, parameters a layer, layers.
    const TABLE: [(&str, &str, u64, usize); 6] = [
        ("Qwen3-4B-Base", "Qwen3-0.6B", 18_901_010, 28),
        ("Qwen2.5-0.5B", "Qwen3-0.6B", 17_066_002, 28),
        ("Llama-3.2-1B", "Qwen3-0.6B", 17_852_434, 28),
        ("Qwen2.5-1.5B", "Qwen3-0.6B", 17_328_146, 28),
        ("Qwen2.5-1.5B", "Qwen3-1.7B", 17_328_146, 28),
        ("Qwen2.5-7B", "Qwen3-8B", 17_852_434, 36),
    ];

    #[test]
    fn parameters_are_those_of_the_published_pairs() {
        for (sharer, receiver, a_layer, layers) in TABLE {
            let config = fuser(sharer, receiver);
            config.check().unwrap();
            assert_eq!(config.projector_parameters(), a_layer, "{sharer} to {receiver}");
            assert_eq!(config.parameters(), a_layer * layers as u64, "{sharer} to {receiver}");
            assert_eq!(config.pairs.len(), layers);
        }
        assert_eq!(fuser("Qwen2.5-0.5B", "Qwen3-0.6B").weight_bytes(Dtype::Bf16) / 1_000_000, 955);
        assert_eq!(fuser("Qwen3-4B", "Qwen3-0.6B").weight_bytes(Dtype::Bf16) / 1_000_000, 1058);
    }

    #[test]
    fn a_projector_that_several_layers_share_is_counted_once() {
        let mut config = fuser("Qwen3-4B", "Qwen3-0.6B");
        config.pairs.iter_mut().for_each(|pair| pair.projector /= 2);
        assert_eq!(config.projectors(), (0..14).collect::<Vec<_>>());
        assert_eq!(config.parameters(), 14 * 18_901_010);
    }

    #[test]
    fn fusers_of_tiny_receivers_have_their_width() {
        let config = fuser("tiny-qwen2", "tiny");
        assert_eq!((config.hidden, config.intermediate, config.blocks), (64, 64, 3));
        assert_eq!(fuser("tiny", "Qwen3-0.6B").hidden, 1024);
    }

    #[test]
    fn an_invalid_configuration_is_refused_by_field() {
        let refused = |change: fn(&mut FuserConfig)| {
            let mut config = fuser("Qwen3-4B", "Qwen3-0.6B");
            change(&mut config);
            config.check().unwrap_err().to_string()
        };
        let named = "fuser of `Qwen3-4B` to `Qwen3-0.6B`: ";
        assert_eq!(refused(|config| config.blocks = 2), format!("{named}`num_layers` is 2, expected 3 to 64"));
        assert!(refused(|config| config.hidden = 0).starts_with(&format!("{named}its widths [0, ")));
        let fewer = refused(|config| config.pairs.truncate(20));
        assert_eq!(fewer, format!("{named}it has 20 layers, but `Qwen3-0.6B` has 28"));
        let beyond = refused(|config| config.pairs[3].sharer_layer = 36);
        assert_eq!(beyond, format!("{named}it uses layer 36 of the sharer, but `Qwen3-4B` has 36 layers"));
    }

    proptest! {
        #[test]
        fn any_sizes_are_accepted_or_refused_without_a_panic(
            sizes in proptest::array::uniform5(prop_oneof![0_usize..100, Just(usize::MAX), Just(LARGEST)]),
        ) {
            let [hidden, intermediate, blocks, kv_heads, head_dim] = sizes;
            let mut config = FuserConfig { hidden, intermediate, blocks, ..fuser("tiny", "tiny") };
            config.receiver.kv_heads = kv_heads;
            config.sharer.head_dim = head_dim;
            if config.check().is_ok() {
                prop_assert_eq!(config.weight_bytes(Dtype::F32), config.parameters() * 4);
            }
        }
    }

    #[test]
    fn the_last_layers_are_paired_and_the_first_clamped() {
        let larger = Alignment::LastAligned.layers(28, 36);
        assert!(larger.iter().enumerate().all(|(layer, sharer)| *sharer == layer + 8));
        let smaller = Alignment::LastAligned.layers(28, 24);
        assert_eq!(smaller[..6], [0, 0, 0, 0, 0, 1]);
        assert_eq!(smaller[27], 23);
    }

    #[test]
    fn nearest_layers_have_the_same_relative_depth() {
        assert_eq!(Alignment::KNearest.layers(3, 5), [0, 2, 4]);
        assert_eq!(Alignment::KNearest.layers(3, 3), [0, 1, 2]);
        assert_eq!(Alignment::KNearest.layers(4, 2), [0, 0, 1, 1]);
        // The middle one is equally near to two, and rounding decides.
        assert_eq!(Alignment::KNearest.layers(3, 4), [0, 2, 3]);
        // The middle one is equally near to two: the lower one wins.
        assert_eq!(Alignment::KNearest.layers(3, 2), [0, 0, 1]);
        assert_eq!(Alignment::KNearest.layers(1, 9), [0]);
        let known = Alignment::KNearest.layers(28, 36);
        assert_eq!((known[1], known[13], known[14], known[27]), (1, 17, 18, 35));
    }

    #[test]
    fn words_are_parsed_in_either_spelling() {
        assert_eq!("k-nearest".parse::<Alignment>().unwrap(), Alignment::KNearest);
        assert_eq!("last_aligned".parse::<Alignment>().unwrap(), Alignment::LastAligned);
        assert!("first".parse::<Alignment>().is_err());
    }

    proptest! {
        #[test]
        fn layers_increase_up_to_the_last(receiver in 2_usize..100, sharer in 1_usize..100) {
            for alignment in [Alignment::LastAligned, Alignment::KNearest] {
                let layers = alignment.layers(receiver, sharer);
                prop_assert_eq!(layers.len(), receiver);
                prop_assert!(layers.is_sorted());
                prop_assert_eq!(layers.last(), Some(&(sharer - 1)));
            }
        }

        #[test]
        fn the_nearest_is_as_near_as_any(receiver in 2_usize..60, sharer in 2_usize..60) {
            let distance = |layer: usize, other: usize| (layer * (sharer - 1)).abs_diff(other * (receiver - 1));
            for (layer, chosen) in Alignment::KNearest.layers(receiver, sharer).into_iter().enumerate() {
                let least = (0..sharer).map(|other| distance(layer, other)).min().unwrap();
                prop_assert_eq!(distance(layer, chosen), least);
            }
        }
    }
}
