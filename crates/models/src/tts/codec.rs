//! The configuration of the 12 Hz codec decoder: codes in, audio out.

use std::ops::Range;

use crate::attention::{Kept, Pattern, Random};
use crate::check::{Fault, check_sizes};
use crate::{Config, error::require};

/// The largest number of frames decoded at once, as in the official package.
pub(crate) const CHUNK_FRAMES: usize = 300;

/// Frames decoded before a chunk as context. Their samples are dropped.
pub const CONTEXT_FRAMES: usize = 25;

pub(crate) const NEXT_WIDENING: usize = 4;

/// Far more blocks and factors than any codec has.
const MOST_STEPS: usize = 8;

/// The configuration of the codec decoder.
#[derive(Debug, Clone, PartialEq)]
pub struct CodecConfig {
    /// Codes per frame. The first has its own quantiser, the others a residual one.
    pub groups: usize,
    /// Vectors per codebook.
    pub codebook: usize,
    /// Width of a decoded frame. The vectors of codebooks are half as wide.
    pub code_width: usize,
    /// Width before and after the transformer.
    pub latent: usize,
    /// The transformer. Its vocabulary is not used.
    pub transformer: Config,
    /// Positions that a position attends to, itself included.
    pub window: usize,
    /// Upsampling factors of the ConvNeXt blocks after the transformer.
    pub ratios: Vec<usize>,
    /// Upsampling factors of the last blocks, each of which halves the channels.
    pub rates: Vec<usize>,
    /// Channels before the last blocks.
    pub channels: usize,
    /// Samples per second.
    pub sample_rate: u32,
}

impl CodecConfig {
    /// Samples per frame.
    pub fn frame_samples(&self) -> usize {
        self.ratios.iter().chain(&self.rates).fold(1, |all, factor| all.saturating_mul(*factor))
    }

    /// Frames per second.
    pub fn frame_rate(&self) -> f64 {
        f64::from(self.sample_rate) / self.frame_samples() as f64
    }

    pub(crate) fn vector_width(&self) -> usize {
        self.code_width / 2
    }

    /// Channels after this many of the last blocks.
    pub(crate) fn channels_after(&self, blocks: usize) -> usize {
        self.channels.checked_shr(blocks as u32).unwrap_or_default()
    }

    /// Causal attention within the window.
    pub(crate) fn kept(&self) -> Kept {
        let window = 2 * (self.window - self.window.min(1));
        Kept::Pattern(Pattern { window, global: 0, random: 0, is_causal: true, shared: Random::PerBlock, seed: 0 })
    }

    pub(super) fn check(&self) -> Fault {
        let sizes = [
            ("codebook", self.codebook),
            ("code_width", self.code_width),
            ("latent", self.latent),
            ("window", self.window),
            ("channels", self.channels),
            ("sample_rate", self.sample_rate as usize),
        ];
        check_sizes(" of the codec", sizes)?;
        let (width, channels, halvings) = (self.code_width, self.channels, self.rates.len());
        require!(width.is_multiple_of(2), "`code_width` of the codec is {width}, expected an even number");
        for (field, steps) in [("ratios", &self.ratios), ("rates", &self.rates)] {
            let is_fine = (1..=MOST_STEPS).contains(&steps.len()) && steps.iter().all(|step| (1..=64).contains(step));
            require!(is_fine, "`{field}` of the codec are {steps:?}, expected 1 to {MOST_STEPS} factors up to 64");
        }
        let is_halved = self.channels_after(halvings) << halvings == channels;
        require!(is_halved, "`channels` of the codec is {channels}, which cannot be halved {halvings} times");
        Ok(())
    }
}

/// Frames that are decoded at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Chunk {
    pub frames: Range<usize>,
    /// How many of the first frames are context only.
    pub context: usize,
}

/// Splits frames into chunks of at most [`CHUNK_FRAMES`], each with up to [`CONTEXT_FRAMES`] before it.
pub(crate) fn chunks(frames: Range<usize>) -> impl Iterator<Item = Chunk> {
    let end = frames.end;
    frames.step_by(CHUNK_FRAMES).map(move |start| {
        let context = start.min(CONTEXT_FRAMES);
        Chunk { frames: start - context..end.min(start.saturating_add(CHUNK_FRAMES)), context }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tts::TtsConfig;

    #[test]
    fn a_frame_is_80_milliseconds() {
        let codec = TtsConfig::from_preset("0.6b").unwrap().codec;
        assert_eq!((codec.frame_samples(), codec.sample_rate), (1920, 24_000));
        assert_eq!((codec.frame_rate(), codec.vector_width(), codec.channels_after(4)), (12.5, 256, 96));
    }

    #[test]
    fn a_position_attends_to_its_window() {
        let codec = TtsConfig::from_preset("0.6b").unwrap().codec;
        let row = codec.kept().row(200, 150);
        let kept: Vec<usize> = (0..200).filter(|column| row[*column]).collect();
        assert_eq!(kept, (79..=150).collect::<Vec<_>>());
        let alone = CodecConfig { window: 1, ..codec };
        assert_eq!(alone.kept().row(5, 3), [false, false, false, true, false]);
    }

    #[test]
    fn chunks_have_the_frames_before_them_as_context() {
        let split = |frames| chunks(frames).map(|chunk| (chunk.frames, chunk.context)).collect::<Vec<_>>();
        assert_eq!(split(0..700), [(0..300, 0), (275..600, 25), (575..700, 25)]);
        assert_eq!(split(10..14), [(0..14, 10)]);
        assert_eq!(split(30..34), [(5..34, 25)]);
        assert!(split(4..4).is_empty());
    }
}
