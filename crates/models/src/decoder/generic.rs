//! The decoder of every device: what may be asked when, and what is refused.

use std::ops::Range;

use super::cache::{CacheMemory, KvCache};
use crate::{
    Config, Decoder, Done, KeysValues, LayerVisit, ModelError, Offloading, Options, Replay, Tokens, error::fit,
};

/// Logits that are read at a time when they are looked at: few, because a case uses no more memory than was predicted.
const LOOKED_AT: usize = 64 << 10;

/// The passes of a decoder on one device, over weights, a cache and buffers of its own. What it is handed was checked.
pub trait Passes {
    type Buffer;
    type Memory: CacheMemory<Self::Buffer>;

    fn config(&self) -> &Config;
    fn options(&self) -> &Options;
    fn cache(&self) -> &KvCache<Self::Buffer>;
    fn cache_mut(&mut self) -> (&mut KvCache<Self::Buffer>, &Self::Memory);
    fn reserve(&mut self, positions: usize) -> Done;

    /// Takes note of a length of the cache that no pass made.
    fn length_changed(&mut self) -> Done;

    fn forward(&mut self, ids: &[u32]) -> Done;

    /// Runs ids of all sequences behind the cache, with logits of the last position of each, and chooses the most likely
    /// tokens.
    fn prefill(&mut self, ids: &[u32]) -> Done;

    /// The same with the tokens that were chosen last.
    fn step(&mut self) -> Done;

    /// The number of the replay that the next step is, if it is one with stages.
    fn next_replay(&mut self) -> Result<Option<u64>, ModelError> {
        Ok(None)
    }

    /// The same of a prefill of this many tokens per sequence.
    fn next_prefill_replay(&mut self, tokens: usize) -> Result<Option<u64>, ModelError> {
        let _ = tokens;
        Ok(None)
    }

    fn set_next(&mut self, ids: &[u32]) -> Done;

    /// The tokens that were chosen last. Waits for the device.
    fn sampled(&mut self) -> Result<Vec<u32>, ModelError>;

    fn logits_count(&self) -> usize;

    /// Some logits of the last pass. Waits for the device.
    fn read_logits(&self, range: Range<usize>) -> Result<Vec<f32>, ModelError>;

    fn replay(&self) -> Replay {
        Replay::Launches
    }

    fn offloading(&self) -> Option<Offloading>;
    fn layer_visits(&mut self) -> Result<Vec<LayerVisit>, ModelError>;

    #[cfg(feature = "cuda")]
    fn device_cache(&mut self) -> Option<crate::gpu::DeviceCache<'_>> {
        None
    }
}

pub struct GenericDecoder<P> {
    pub passes: P,
    has_token: bool,
    has_logits: bool,
}

impl<P: Passes> GenericDecoder<P> {
    pub fn new(passes: P) -> Self {
        Self { passes, has_token: false, has_logits: false }
    }

    /// Makes sure that the cache has room for more positions of each sequence. Refuses sparse attention behind others.
    fn make_room(&mut self, tokens: usize, is_step: bool) -> Done {
        let length = self.length();
        if self.options().kept.is_some() && (is_step || length > 0) {
            return Err(ModelError::sparse_behind_cache());
        }
        self.passes.reserve(length.saturating_add(tokens))
    }

    fn run(&mut self, pass: impl FnOnce(&mut P) -> Done) -> Done {
        self.has_logits = false;
        pass(&mut self.passes)?;
        self.has_logits = true;
        Ok(())
    }

    fn logits_count(&self) -> Result<usize, ModelError> {
        if self.has_logits { Ok(self.passes.logits_count()) } else { Err(ModelError::no_pass()) }
    }

    fn check_token(&self) -> Done {
        if self.has_token { Ok(()) } else { Err(ModelError::no_token()) }
    }
}

impl<P: Passes> Decoder for GenericDecoder<P> {
    fn config(&self) -> &Config {
        self.passes.config()
    }

    fn options(&self) -> &Options {
        self.passes.options()
    }

    fn forward(&mut self, tokens: &Tokens) -> Done {
        tokens.check_batch(self.config(), self.options().batch)?;
        fit(tokens.length(), &self.config().name, self.config().context)?;
        self.run(|passes| passes.forward(&tokens.ids))
    }

    fn prefill(&mut self, tokens: &Tokens) -> Done {
        tokens.check_batch(self.config(), self.options().batch)?;
        self.make_room(tokens.length(), false)?;
        self.run(|passes| passes.prefill(&tokens.ids))?;
        self.has_token = true;
        Ok(())
    }

    fn step(&mut self) -> Done {
        self.check_token()?;
        self.make_room(1, true)?;
        self.run(P::step)
    }

    fn next_replay(&mut self) -> Result<Option<u64>, ModelError> {
        self.passes.next_replay()
    }

    fn next_prefill_replay(&mut self, tokens: usize) -> Result<Option<u64>, ModelError> {
        self.passes.next_prefill_replay(tokens)
    }

    fn set_next(&mut self, ids: &[u32]) -> Done {
        Tokens { ids: ids.to_vec(), batch: ids.len() }.check_batch(self.config(), self.options().batch)?;
        self.passes.set_next(ids)?;
        self.has_token = true;
        Ok(())
    }

    fn sampled(&mut self) -> Result<Vec<u32>, ModelError> {
        self.check_token()?;
        self.passes.sampled()
    }

    fn logits(&mut self) -> Result<Vec<f32>, ModelError> {
        self.passes.read_logits(0..self.logits_count()?)
    }

    fn inspect_logits(&mut self, row: &mut dyn FnMut(&[f32])) -> Done {
        let (count, vocab) = (self.logits_count()?, self.config().vocab.max(1));
        let block = (LOOKED_AT / vocab).max(1) * vocab;
        for begin in (0..count).step_by(block) {
            self.passes.read_logits(begin..count.min(begin + block))?.chunks(vocab).for_each(&mut *row);
        }
        Ok(())
    }

    fn length(&self) -> usize {
        self.passes.cache().length()
    }

    fn truncate(&mut self, length: usize) -> Done {
        if length < self.length() { self.set_length(length) } else { Ok(()) }
    }

    fn read_positions(&mut self, layer: usize, positions: Range<usize>) -> Result<KeysValues, ModelError> {
        let (cache, memory) = self.passes.cache_mut();
        cache.read(memory, layer, positions)
    }

    fn write_cache(&mut self, layer: usize, start: usize, values: &KeysValues) -> Done {
        self.passes.cache().check_write(layer, start, values)?;
        self.passes.reserve(start.saturating_add(values.length))?;
        let (cache, memory) = self.passes.cache_mut();
        cache.write(memory, layer, start, values)
    }

    fn set_length(&mut self, length: usize) -> Done {
        self.passes.cache_mut().0.set_length(length)?;
        self.passes.length_changed()
    }

    fn replay(&self) -> Replay {
        self.passes.replay()
    }

    fn offloading(&self) -> Option<Offloading> {
        self.passes.offloading()
    }

    fn layer_visits(&mut self) -> Result<Vec<LayerVisit>, ModelError> {
        self.passes.layer_visits()
    }

    #[cfg(feature = "cuda")]
    fn device_cache(&mut self) -> Option<crate::gpu::DeviceCache<'_>> {
        self.passes.device_cache()
    }
}
