//! A fuser on a device, and its options.

use super::{CacheShape, FuserConfig, Gates, Section};
use crate::{Decoder, Done, Dtype, Marks, ModelError, error::ensure, words::words};

words! {
    /// A path of a projector, named as in state dicts.
    pub enum Path {
        /// Keys.
        Keys = "key",
        /// Values.
        Values = "value",
    }
}

words! {
    /// How several sharers are fused.
    #[derive(Default)]
    pub enum FuseMode ("way to fuse several sharers") {
        /// One after another, each with the result of the previous one.
        #[default]
        Sequential = "sequential",
        /// Each with the receiver's original cache; the additions are summed.
        Parallel = "parallel",
    }
}

words! {
    /// The order in which paths are computed, with the same results.
    #[derive(Default)]
    pub enum FuseOrder ("order of fusing") {
        /// Together, as far as memory allows: the fast order, in one stage.
        #[default]
        Batched = "batched",
        /// One after another, with a stage each.
        ByLayer = "by-layer",
    }
}

/// How a fuser is loaded.
#[derive(Debug, Clone)]
pub struct FuseOptions {
    /// Dtype of weights and activations.
    pub dtype: Dtype,
    /// The order of paths.
    pub order: FuseOrder,
    /// How several sharers are fused.
    pub mode: FuseMode,
    /// Which stages are marked, and where.
    pub marks: Marks,
}

impl FuseOptions {
    /// Options for a dtype, with defaults for the rest.
    pub fn new(dtype: Dtype) -> Self {
        Self { dtype, order: FuseOrder::default(), mode: FuseMode::default(), marks: Marks::default() }
    }
}

/// What a fuse computes, known without waiting for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Fused {
    /// Fused layers of all sharers: the projector calls of the original.
    pub layers: usize,
    /// Computed paths, at most two per layer.
    pub paths: usize,
    /// Paths that were skipped because their gate is closed.
    pub closed: usize,
}

impl Fused {
    /// The sum of both.
    pub fn plus(self, other: Self) -> Self {
        Self {
            layers: self.layers.saturating_add(other.layers),
            paths: self.paths.saturating_add(other.paths),
            closed: self.closed.saturating_add(other.closed),
        }
    }

    /// A fuse with these gates.
    pub fn of(gates: &Gates) -> Self {
        let layers = gates.0.iter().filter(|open| open.contains(&true)).count();
        let paths = gates.0.as_flattened().iter().filter(|open| **open).count();
        Self { layers, paths, closed: 2 * gates.0.len() - paths }
    }
}

/// The fusers of one receiver on a device, one per sharer.
///
/// [`Fusing::fuse`] enqueues work and does not wait for it. It marks the stage `projector` with `tokens` and `layers`; with
/// [`FuseOrder::ByLayer`] that has `fuse_keys` and `fuse_values` with `layer` and `sharer`.
pub trait Fusing {
    /// The configuration of each fuser.
    fn configs(&self) -> &[FuserConfig];

    /// The options they were loaded with.
    fn options(&self) -> &FuseOptions;

    /// The gates of each fuser.
    fn gates(&self) -> &[Gates];

    /// Fuses a section of the sharers' caches into the receiver's. All caches must already have its positions. Sharers that
    /// the section does not include are ignored.
    fn fuse(
        &mut self,
        receiver: &mut dyn Decoder,
        sharers: &mut [&mut dyn Decoder],
        section: &Section,
    ) -> Result<Fused, ModelError>;
}

/// Refuses models that do not match the fusers, and positions that are not in the caches.
pub(crate) fn check_section(
    configs: &[FuserConfig],
    receiver: &dyn Decoder,
    sharers: &[&mut dyn Decoder],
    section: &Section,
) -> Done {
    let (has, given, starts) = (configs.len(), sharers.len(), section.sharer_starts.len());
    ensure!(has == given && has == starts, "expected {has} sharers, got {given} with {starts} start positions");
    let beyond = section.mask.beyond(has);
    ensure!(beyond.is_none(), "there is no sharer {}: there are {has}", beyond.unwrap_or_default() + 1);
    let length = section.positions.len();
    check_positions(receiver, section.positions.start, length)?;
    let shared = configs.iter().zip(sharers).zip(&section.sharer_starts).enumerate();
    for (_, ((config, sharer), start)) in shared.filter(|(at, _)| section.mask.has(*at)) {
        check_shape(&config.receiver, receiver)?;
        check_shape(&config.sharer, &**sharer)?;
        check_positions(&**sharer, *start, length)?;
        let (theirs, ours) = (sharer.options().batch, receiver.options().batch);
        ensure!(theirs == ours, "a sharer has a batch of {theirs}, but the receiver one of {ours}");
    }
    Ok(())
}

fn check_shape(shape: &CacheShape, decoder: &dyn Decoder) -> Done {
    let found = CacheShape::of(decoder.config());
    let is_same = (shape.layers, shape.kv_heads, shape.head_dim) == (found.layers, found.kv_heads, found.head_dim);
    ensure!(is_same, "the fuser is for `{}`, not for `{}`", shape.model, found.model);
    Ok(())
}

fn check_positions(decoder: &dyn Decoder, start: usize, length: usize) -> Done {
    let (end, cached, name) = (start.saturating_add(length), decoder.length(), &decoder.config().name);
    ensure!(end <= cached, "positions {start} to {end} are not in the cache of `{name}`, which has {cached}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_parsed_in_either_spelling() {
        assert_eq!("Parallel".parse::<FuseMode>().unwrap(), FuseMode::Parallel);
        assert_eq!("by_layer".parse::<FuseOrder>().unwrap(), FuseOrder::ByLayer);
        let error = "fast".parse::<FuseOrder>().unwrap_err().to_string();
        assert_eq!(error, "there is no order of fusing `fast`, expected one of batched, by-layer");
    }

    #[test]
    fn fused_layers_and_paths_are_counted() {
        let gates = Gates(vec![[true, true], [false, true], [false, false]]);
        let fused = Fused::of(&gates);
        assert_eq!(fused, Fused { layers: 2, paths: 3, closed: 3 });
        assert_eq!(fused.plus(fused), Fused { layers: 4, paths: 6, closed: 6 });
    }
}
