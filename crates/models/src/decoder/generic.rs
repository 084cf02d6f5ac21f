//! The decoder of every device: checks requests and runs the passes of the device.

use std::ops::Range;

use super::cache::{CacheMemory, KvCache};
use crate::error::{ensure, fit};
use crate::{Decoder, DecoderBackend, Done, KeysValues, ModelError, Tokens};

/// Logits that are read at a time for inspection: few, since the predicted memory has no space for them.
const LOOKED_AT: usize = 64 << 10;

/// The passes of a decoder on one device, with its weights, cache and buffers. Arguments are checked by the caller.
pub trait Passes: DecoderBackend {
    type Buffer;
    type Memory: CacheMemory<Self::Buffer>;

    fn results(&mut self) -> &mut Results;
    fn cache(&self) -> &KvCache<Self::Buffer>;
    fn cache_mut(&mut self) -> (&mut KvCache<Self::Buffer>, &Self::Memory);
    fn reserve(&mut self, positions: usize) -> Done;

    /// Called after the length of the cache was set from outside.
    fn length_changed(&mut self) -> Done {
        Ok(())
    }

    fn run_forward(&mut self, ids: &[u32]) -> Done;

    /// Runs tokens of all sequences after the cache, with logits of each last position, and samples the most likely tokens.
    fn run_prefill(&mut self, ids: &[u32]) -> Done;

    /// The same with the tokens that were sampled last.
    fn run_next(&mut self) -> Done;

    fn write_next(&mut self, ids: &[u32]) -> Done;

    /// The tokens that were sampled last. Waits for the device.
    fn read_next(&mut self) -> Result<Vec<u32>, ModelError>;

    fn logits_count(&self) -> usize;

    /// Some logits of the last pass. Waits for the device.
    fn read_logits(&self, range: Range<usize>) -> Result<Vec<f32>, ModelError>;
}

/// Which results of the last pass can be read.
#[derive(Default)]
pub struct Results {
    has_token: bool,
    has_logits: bool,
}

/// Reserves cache positions for more tokens of each sequence. Refuses sparse attention after a cache.
fn reserve(passes: &mut impl Passes, tokens: usize, is_step: bool) -> Done {
    let length = passes.length();
    if passes.options().kept.is_some() && (is_step || length > 0) {
        return Err(ModelError::sparse_after_cache());
    }
    passes.reserve(length.saturating_add(tokens))
}

fn run<P: Passes>(passes: &mut P, pass: impl FnOnce(&mut P) -> Done) -> Done {
    passes.results().has_logits = false;
    pass(passes)?;
    passes.results().has_logits = true;
    Ok(())
}

fn logits_count(passes: &mut impl Passes) -> Result<usize, ModelError> {
    if passes.results().has_logits { Ok(passes.logits_count()) } else { Err(ModelError::no_pass()) }
}

fn check_token(passes: &mut impl Passes) -> Done {
    ensure!(passes.results().has_token, "no token was sampled yet: run a prompt first");
    Ok(())
}

impl<P: Passes> Decoder for P {
    fn forward(&mut self, tokens: &Tokens) -> Done {
        tokens.check_batch(self.config(), self.options().batch)?;
        fit(tokens.length(), &self.config().name, self.config().context)?;
        run(self, |passes| passes.run_forward(&tokens.ids))
    }

    fn prefill(&mut self, tokens: &Tokens) -> Done {
        tokens.check_batch(self.config(), self.options().batch)?;
        reserve(self, tokens.length(), false)?;
        run(self, |passes| passes.run_prefill(&tokens.ids))?;
        self.results().has_token = true;
        Ok(())
    }

    fn step(&mut self) -> Done {
        check_token(self)?;
        reserve(self, 1, true)?;
        run(self, P::run_next)
    }

    fn set_next(&mut self, ids: &[u32]) -> Done {
        Tokens { ids: ids.to_vec(), batch: ids.len() }.check_batch(self.config(), self.options().batch)?;
        self.write_next(ids)?;
        self.results().has_token = true;
        Ok(())
    }

    fn sampled(&mut self) -> Result<Vec<u32>, ModelError> {
        check_token(self)?;
        self.read_next()
    }

    fn logits(&mut self) -> Result<Vec<f32>, ModelError> {
        let count = logits_count(self)?;
        self.read_logits(0..count)
    }

    fn inspect_logits(&mut self, row: &mut dyn FnMut(&[f32])) -> Done {
        let (count, vocab) = (logits_count(self)?, self.config().vocab.max(1));
        let block = (LOOKED_AT / vocab).max(1) * vocab;
        for begin in (0..count).step_by(block) {
            self.read_logits(begin..count.min(begin + block))?.chunks(vocab).for_each(&mut *row);
        }
        Ok(())
    }

    fn length(&self) -> usize {
        self.cache().length()
    }

    fn truncate(&mut self, length: usize) -> Done {
        if length < self.length() { self.set_length(length) } else { Ok(()) }
    }

    fn read_positions(&mut self, layer: usize, positions: Range<usize>) -> Result<KeysValues, ModelError> {
        let (cache, memory) = self.cache_mut();
        cache.read(memory, layer, positions)
    }

    fn write_cache(&mut self, layer: usize, start: usize, values: &KeysValues) -> Done {
        self.cache().check_write(layer, start, values)?;
        self.reserve(start.saturating_add(values.length))?;
        let (cache, memory) = self.cache_mut();
        cache.write(memory, layer, start, values)
    }

    fn set_length(&mut self, length: usize) -> Done {
        self.cache_mut().0.set_length(length)?;
        self.length_changed()
    }
}
