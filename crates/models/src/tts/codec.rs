//! What makes audio of codes: the decoder of the 12 Hz codec.

use std::ops::Range;

use crate::attention::{Kept, Pattern, Random};
use crate::check::{Fault, check_sizes};
use crate::{Config, error::require};

/// Frames that are decoded together at most, as the official package does.
pub const CHUNK_FRAMES: usize = 300;

/// Frames before a chunk that are decoded with it and whose samples are dropped.
pub const CONTEXT_FRAMES: usize = 25;

pub(crate) const NEXT_WIDENING: usize = 4;

/// Blocks and factors at most, far more than any codec has.
const MOST_STEPS: usize = 8;

/// What makes audio of codes.
#[derive(Debug, Clone, PartialEq)]
pub struct CodecConfig {
    /// Codes of a frame: the first of a quantiser of its own, the others of a residual one.
    pub groups: usize,
    /// Vectors of each codebook.
    pub codebook: usize,
    /// Width of what all codes of a frame make together; a vector is half as wide.
    pub code_width: usize,
    /// Width around the transformer.
    pub latent: usize,
    /// The transformer: its vocabulary means nothing.
    pub transformer: Config,
    /// Positions that one sees, itself among them.
    pub window: usize,
    /// Factors by which the blocks behind the transformer lengthen.
    pub ratios: Vec<usize>,
    /// Factors by which the last blocks lengthen; each halves the channels.
    pub rates: Vec<usize>,
    /// Channels before the last blocks.
    pub channels: usize,
    /// Samples a second.
    pub sample_rate: u32,
}

impl CodecConfig {
    /// Samples of a frame.
    pub fn frame_samples(&self) -> usize {
        self.ratios.iter().chain(&self.rates).fold(1, |all, factor| all.saturating_mul(*factor))
    }

    /// Width of a vector of a codebook.
    pub fn vector_width(&self) -> usize {
        self.code_width / 2
    }

    /// Channels behind this many of the last blocks.
    pub fn channels_behind(&self, blocks: usize) -> usize {
        self.channels.checked_shr(blocks as u32).unwrap_or_default()
    }

    /// Frames of a second.
    pub fn frame_rate(&self) -> f64 {
        f64::from(self.sample_rate) / self.frame_samples() as f64
    }

    /// The pairs that the transformer's attention keeps: causal, and as far back as the window.
    pub fn kept(&self) -> Kept {
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
        require!(width.is_multiple_of(2), "`code_width` of the codec is {width}, and vectors are half as wide");
        for (field, steps) in [("ratios", &self.ratios), ("rates", &self.rates)] {
            let is_fine = (1..=MOST_STEPS).contains(&steps.len()) && steps.iter().all(|step| (1..=64).contains(step));
            require!(is_fine, "`{field}` of the codec are {steps:?}, and they are 1 to {MOST_STEPS} factors");
        }
        let is_halved = self.channels_behind(halvings) << halvings == channels;
        require!(is_halved, "`channels` of the codec is {channels}, which {halvings} blocks do not halve");
        Ok(())
    }
}

/// Frames that are decoded together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// All of them.
    pub frames: Range<usize>,
    /// How many at the beginning are there for what follows them; their samples are dropped.
    pub context: usize,
}

/// How a range of frames is decoded: at most [`CHUNK_FRAMES`] together, each with up to [`CONTEXT_FRAMES`] before it.
pub fn chunks(frames: Range<usize>) -> impl Iterator<Item = Chunk> {
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
        assert_eq!((codec.frame_rate(), codec.vector_width(), codec.channels_behind(4)), (12.5, 256, 96));
    }

    #[test]
    fn a_position_sees_as_many_as_the_window_has() {
        let codec = TtsConfig::from_preset("0.6b").unwrap().codec;
        let row = codec.kept().row(200, 150);
        let seen: Vec<usize> = (0..200).filter(|column| row[*column]).collect();
        assert_eq!(seen, (79..=150).collect::<Vec<_>>());
        let alone = CodecConfig { window: 1, ..codec };
        assert_eq!(alone.kept().row(5, 3), [false, false, false, true, false]);
    }

    #[test]
    fn chunks_have_what_comes_before_them_as_context() {
        let told = |frames| chunks(frames).map(|chunk| (chunk.frames, chunk.context)).collect::<Vec<_>>();
        assert_eq!(told(0..700), [(0..300, 0), (275..600, 25), (575..700, 25)]);
        assert_eq!(told(10..14), [(0..14, 10)]);
        assert_eq!(told(30..34), [(5..34, 25)]);
        assert!(told(4..4).is_empty());
    }
}
