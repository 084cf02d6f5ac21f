//! What paths are computed in on a GPU, and how much memory fusers need there.

use laptime_cuda::{Buffer, CudaError, Device};

use super::super::weights::Number;
use crate::fuser::{FuseMode, FuseOptions, FuserConfig};

/// Bytes that paths are computed in at most, unless one alone takes more: enough for 28 layers of 4096 tokens at once.
const MOST_BYTES: u64 = 4 << 30;

/// What cuBLAS has for itself.
const WORKSPACE_BYTES: u64 = 32 << 20;

/// What paths compute in, kept from one fuse to the next.
pub struct Buffers<T> {
    /// What was heard and what is there, side by side: a row for each token.
    pub joined: Buffer<T>,
    pub stream: Buffer<T>,
    /// The stream of the value path.
    pub second: Buffer<T>,
    pub normed: Buffer<T>,
    pub inner: Buffer<T>,
    /// What is to be added, before it is weighted.
    pub value: Buffer<T>,
    /// A weight for each head of each token.
    pub weights: Buffer<T>,
    sizes: BufferSizes,
}

/// How many numbers the buffers have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BufferSizes {
    joined: usize,
    hidden: usize,
    inner: usize,
    value: usize,
    weights: usize,
}

impl BufferSizes {
    /// Those of one path over this many tokens.
    pub fn of_path(config: &FuserConfig, rows: usize) -> Self {
        let by_rows = |width: usize| rows.saturating_mul(width);
        Self {
            joined: by_rows(config.sharer.width().saturating_add(config.receiver.width())),
            hidden: by_rows(config.hidden),
            inner: by_rows(config.hidden.max(config.intermediate)),
            value: by_rows(config.receiver.width()),
            weights: by_rows(config.receiver.kv_heads),
        }
    }

    /// Those of this many paths.
    pub fn times(self, paths: usize) -> Self {
        let Self { joined, hidden, inner, value, weights } = self;
        let [joined, hidden, inner, value, weights] =
            [joined, hidden, inner, value, weights].map(|numbers| numbers.saturating_mul(paths));
        Self { joined, hidden, inner, value, weights }
    }

    /// The larger of each.
    pub fn max(self, other: Self) -> Self {
        Self {
            joined: self.joined.max(other.joined),
            hidden: self.hidden.max(other.hidden),
            inner: self.inner.max(other.inner),
            value: self.value.max(other.value),
            weights: self.weights.max(other.weights),
        }
    }

    /// All of them; there are three of the stream's width.
    fn numbers(&self) -> u64 {
        let all = [self.joined, self.hidden, self.hidden, self.hidden, self.inner, self.value, self.weights];
        all.into_iter().fold(0, |sum, numbers| sum.saturating_add(numbers as u64))
    }

    /// How many paths of this size are computed together, of numbers of this many bytes.
    pub fn paths_at_once(&self, number_bytes: u64) -> usize {
        let a_path = self.numbers().saturating_mul(number_bytes).max(1);
        usize::try_from(MOST_BYTES / a_path).unwrap_or(usize::MAX).max(1)
    }
}

impl<T: Number> Buffers<T> {
    pub fn new(device: &Device, sizes: BufferSizes) -> Result<Self, CudaError> {
        Ok(Self {
            joined: device.allocate(sizes.joined)?,
            stream: device.allocate(sizes.hidden)?,
            second: device.allocate(sizes.hidden)?,
            normed: device.allocate(sizes.hidden)?,
            inner: device.allocate(sizes.inner)?,
            value: device.allocate(sizes.value)?,
            weights: device.allocate(sizes.weights)?,
            sizes,
        })
    }

    /// Makes every buffer at least as large as is needed.
    pub fn fit(&mut self, device: &Device, sizes: BufferSizes) -> Result<(), CudaError> {
        let wanted = self.sizes.max(sizes);
        if wanted != self.sizes {
            // The old ones go first, so that both are never there at once.
            *self = Self::new(device, BufferSizes::default())?;
            *self = Self::new(device, wanted)?;
        }
        Ok(())
    }
}

/// Bytes that fusers need at most on a GPU, all gates open, to fuse this many tokens of this many sequences at a time.
pub fn needed_fuser_bytes(configs: &[FuserConfig], options: &FuseOptions, [batch, tokens]: [usize; 2]) -> u64 {
    let (rows, number) = (batch.saturating_mul(tokens), options.dtype.bytes());
    // A projector that several layers share is there for each.
    let numbers = |config: &FuserConfig| config.projector_parameters().saturating_mul(config.pairs.len() as u64);
    let weights = configs.iter().map(numbers).fold(0, u64::saturating_add).saturating_mul(number);
    let together = |config: &FuserConfig| {
        let sizes = BufferSizes::of_path(config, rows);
        sizes.times(sizes.paths_at_once(number).min(2 * config.pairs.len()))
    };
    let buffers = configs.iter().map(together).fold(BufferSizes::default(), BufferSizes::max);
    let of_receiver = |config: &FuserConfig| config.receiver.width().saturating_mul(2 * config.pairs.len());
    let clean = configs.first().map_or(0, of_receiver) as u64;
    let is_kept = options.mode == FuseMode::Parallel && configs.len() > 1;
    let clean = if is_kept { clean.saturating_mul(rows as u64).saturating_mul(number) } else { 0 };
    let parts = [weights, buffers.numbers().saturating_mul(number), clean, WORKSPACE_BYTES];
    parts.into_iter().fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, Dtype, fuser::Alignment};

    fn config() -> FuserConfig {
        let preset = |name| Config::from_preset(name).unwrap();
        FuserConfig::new(&preset("Qwen3-0.6B"), &preset("Qwen3-4B"), Alignment::LastAligned)
    }

    #[test]
    fn all_paths_are_computed_together_up_to_4096_tokens() {
        let at_once = |rows| BufferSizes::of_path(&config(), rows).paths_at_once(2);
        assert!(at_once(4096) >= 56);
        assert!((1..56).contains(&at_once(8192)));
        assert_eq!(at_once(usize::MAX), 1);
    }

    #[test]
    fn a_fuser_needs_its_weights_and_what_it_computes_in() {
        let need = |tokens| needed_fuser_bytes(&[config()], &FuseOptions::new(Dtype::Bf16), [1, tokens]);
        let weights = config().weight_bytes(Dtype::Bf16) + WORKSPACE_BYTES;
        // Seven rows of 1024, one of which is of both models, and eight weights for each token of 56 paths.
        assert_eq!(need(512) - weights, 56 * 512 * 2 * (7 * 1024 + 8));
        assert!(need(1 << 20) >= weights + 2 * (1 << 20) * 7 * 1024);
        assert_eq!(need(usize::MAX), u64::MAX);
    }

    #[test]
    fn what_parallel_sharers_read_is_kept_beside() {
        let options = FuseOptions { mode: FuseMode::Parallel, ..FuseOptions::new(Dtype::Bf16) };
        let two = [config(), config()];
        let beside = needed_fuser_bytes(&two, &options, [1, 512])
            - needed_fuser_bytes(&two, &FuseOptions::new(Dtype::Bf16), [1, 512]);
        assert_eq!(beside, 56 * 512 * 1024 * 2);
    }
}
