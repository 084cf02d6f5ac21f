//! A fuser with its weights on a device: what can be asked of it, whatever the device.

use super::{FuserConfig, Gates, Section};
use crate::{Decoder, Done, Dtype, Marks, ModelError, error::ensure, words::words};

words! {
    /// A path of a projector, by the word of state dicts.
    pub enum Path {
        /// That of keys.
        Keys = "key",
        /// That of values.
        Values = "value",
    }
}

words! {
    /// How several sharers are heard.
    #[derive(Default)]
    pub enum FuseMode ("way to hear several sharers") {
        /// One after another: each sees the cache as the one before left it.
        #[default]
        Sequential = "sequential",
        /// Each sees the receiver's own cache, and what all of them add is added up.
        Parallel = "parallel",
    }
}

words! {
    /// In which order the paths of layers are computed. The numbers are the same.
    #[derive(Default)]
    pub enum FuseOrder ("order of fusing") {
        /// All of them together, as far as the device can: the fast one. It is one stage.
        #[default]
        Batched = "batched",
        /// One after another, each a stage of its own.
        ByLayer = "by-layer",
    }
}

/// How a fuser is made ready.
#[derive(Debug, Clone)]
pub struct FuseOptions {
    /// Number type of weights and activations.
    pub dtype: Dtype,
    /// The order of paths.
    pub order: FuseOrder,
    /// How several sharers are heard.
    pub mode: FuseMode,
    /// Which stages are marked, and where.
    pub marks: Marks,
}

impl FuseOptions {
    /// Options for a dtype, with defaults for the rest: batched, one sharer after another, no marks.
    pub fn new(dtype: Dtype) -> Self {
        Self { dtype, order: FuseOrder::default(), mode: FuseMode::default(), marks: Marks::default() }
    }
}

/// What a fuse did, known without waiting for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Fused {
    /// Layers that were fused, for each sharer that was heard: what the original calls projector calls.
    pub layers: usize,
    /// Paths that were computed: at most two a layer.
    pub paths: usize,
    /// Paths that were skipped because their gate is closed.
    pub closed: usize,
}

impl Fused {
    /// What two of them did together.
    pub fn plus(self, other: Self) -> Self {
        Self {
            layers: self.layers.saturating_add(other.layers),
            paths: self.paths.saturating_add(other.paths),
            closed: self.closed.saturating_add(other.closed),
        }
    }

    /// What fusing with these gates does.
    pub fn of(gates: &Gates) -> Self {
        Self { layers: gates.open_layers(), paths: gates.open_paths(), closed: gates.closed_paths() }
    }
}

/// Fusers of one receiver, one for each sharer, with their weights on a device.
///
/// [`Fusing::fuse`] puts work on the device and does not wait for it. It marks one stage `projector`, with `tokens` and
/// `layers`; by [`FuseOrder::ByLayer`] there are `fuse_keys` and `fuse_values` in it, with `layer = i` and `sharer = j`.
pub trait Fusing {
    /// What the fusers are, one for each sharer.
    fn configs(&self) -> &[FuserConfig];

    /// How they were made ready.
    fn options(&self) -> &FuseOptions;

    /// Which gates are open, for each sharer.
    fn gates(&self) -> &[Gates];

    /// Overwrites positions of the receiver's cache with what is fused of them and of the sharers' caches. All of them
    /// hold the positions already. Sharers that the section does not name are not looked at.
    fn fuse(
        &mut self,
        receiver: &mut dyn Decoder,
        sharers: &mut [&mut dyn Decoder],
        section: &Section,
    ) -> Result<Fused, ModelError>;
}

/// Refuses a section that cannot be fused: models that are not those of the fusers, or positions that are not there.
pub(crate) fn check_section(
    fusing: &dyn Fusing,
    receiver: &dyn Decoder,
    sharers: &[&mut dyn Decoder],
    section: &Section,
) -> Done {
    let refuse = |reason: String| Err(ModelError::Refused(reason));
    let configs = fusing.configs();
    if sharers.len() != configs.len() || section.sharer_starts.len() != configs.len() {
        let (given, places, has) = (sharers.len(), section.sharer_starts.len(), configs.len());
        return refuse(format!(
            "there are fusers for {has} sharers, and not for {given} with {places} places in a section"
        ));
    }
    if let Some(beyond) = section.mask.beyond(configs.len()) {
        return refuse(format!("sharer {} is asked for, and there are {}", beyond + 1, configs.len()));
    }
    let length = section.positions.len();
    holds(receiver, section.positions.start, length)?;
    let heard = configs.iter().zip(sharers).zip(&section.sharer_starts).enumerate();
    for (_, ((config, sharer), start)) in heard.filter(|(at, _)| section.mask.has(*at)) {
        is_that_of(&config.receiver, receiver)?;
        is_that_of(&config.sharer, &**sharer)?;
        holds(&**sharer, *start, length)?;
        let (theirs, ours) = (sharer.options().batch, receiver.options().batch);
        if theirs != ours {
            return refuse(format!("a sharer runs {theirs} sequences together, and the receiver {ours}"));
        }
    }
    Ok(())
}

fn is_that_of(shape: &super::CacheShape, decoder: &dyn Decoder) -> Done {
    let found = super::CacheShape::of(decoder.config());
    let same = (shape.layers, shape.kv_heads, shape.head_dim) == (found.layers, found.kv_heads, found.head_dim);
    ensure!(same, "the fuser is for `{}`, and not for `{}`", shape.model, found.model);
    Ok(())
}

fn holds(decoder: &dyn Decoder, start: usize, length: usize) -> Done {
    let (end, held, name) = (start.saturating_add(length), decoder.length(), &decoder.config().name);
    ensure!(end <= held, "positions {start} to {end} are not in the cache of `{name}`, of {held}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_as_users_give_them() {
        assert_eq!("Parallel".parse::<FuseMode>().unwrap(), FuseMode::Parallel);
        assert_eq!("by_layer".parse::<FuseOrder>().unwrap(), FuseOrder::ByLayer);
        let error = "fast".parse::<FuseOrder>().unwrap_err().to_string();
        assert_eq!(error, "there is no order of fusing `fast`, expected one of batched, by-layer");
    }

    #[test]
    fn what_was_fused_is_counted_by_layer_and_by_path() {
        let gates = Gates::new(vec![[true, true], [false, true], [false, false]]);
        let fused = Fused::of(&gates);
        assert_eq!(fused, Fused { layers: 2, paths: 3, closed: 3 });
        assert_eq!(fused.plus(fused), Fused { layers: 4, paths: 6, closed: 6 });
    }
}
