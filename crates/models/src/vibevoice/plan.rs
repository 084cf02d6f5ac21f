//! The convolutions of a tokenizer, the rows that each of them sees, and how wide everything becomes: known before anything
//! is allocated.

use super::{TokenizerConfig, VibeVoiceConfig};

/// Numbers that lists of rows begin at multiples of, so that they can be read by 16 bytes.
const ALIGNED: usize = 8;

/// Numbers behind each packed row of a convolution on a GPU.
pub const BEHIND: usize = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coder {
    Encoder,
    Decoder,
}

/// A causal convolution over time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConvShape {
    pub inputs: usize,
    pub outputs: usize,
    /// Positions that its kernel has.
    pub kernel: usize,
    /// Positions that become one, or that one becomes if it is transposed.
    pub stride: usize,
    pub is_transposed: bool,
    /// Whether it is the last one of a decoder.
    pub makes_samples: bool,
}

#[derive(Debug, Clone)]
pub struct TokenizerShape {
    pub stages: Vec<StageShape>,
    pub head: ConvShape,
    /// Positions that a mixer sees.
    pub taps: usize,
    /// Rows of a token that enter.
    pub entering: usize,
    pub eps: f32,
}

#[derive(Debug, Clone, Copy)]
pub struct StageShape {
    pub enter: ConvShape,
    pub blocks: usize,
    /// Numbers of a row inside the feed-forward part of a block.
    pub inner: usize,
}

/// The rows that a convolution sees: those it keeps of the run before, then those of each token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct List {
    pub begin: usize,
    pub width: usize,
    pub kept: usize,
    pub each: usize,
}

/// What convolutions see, in the order in which they run, and how many numbers of a token are elsewhere at most.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    pub lists: Vec<List>,
    pub hidden: usize,
    pub inner: usize,
    pub columns: usize,
    pub samples: usize,
    /// Rows of a token that each product has, and the numbers of such a row.
    pub products: Vec<[usize; 2]>,
    tokens: usize,
}

impl ConvShape {
    /// Positions of the input that one row of columns has.
    fn taps(&self) -> usize {
        if self.is_transposed { self.kernel.div_ceil(self.stride.max(1)) } else { self.kernel }
    }

    /// Positions before the first that it sees.
    fn kept(&self) -> usize {
        self.taps().saturating_sub(if self.is_transposed { 1 } else { self.stride })
    }

    /// Rows that it makes of these.
    pub fn rows(&self, rows: usize) -> usize {
        if self.is_transposed { rows.saturating_mul(self.stride) } else { rows / self.stride.max(1) }
    }

    /// Products of a row with the kernel that these rows take.
    pub fn looks(&self, rows: usize) -> usize {
        if self.is_transposed { rows } else { self.rows(rows) }
    }

    /// Rows of the kernel as a product reads it.
    pub fn packed_rows(&self) -> usize {
        if self.is_transposed { self.outputs.saturating_mul(self.stride) } else { self.outputs }
    }
}

impl TokenizerShape {
    pub fn new(config: &TokenizerConfig, coder: Coder) -> Self {
        let (is_decoder, last) = (coder == Coder::Decoder, config.ratios.len());
        // Stages are counted in the order in which they run: from the audio, or from latents.
        let place = |stage: usize| if is_decoder { last - stage } else { stage };
        let plain = |[inputs, outputs]: [usize; 2], kernel| ConvShape {
            inputs,
            outputs,
            kernel,
            stride: 1,
            is_transposed: false,
            makes_samples: false,
        };
        let stage = |at: usize| {
            let channels = config.channels(place(at));
            let enter = match at.checked_sub(1).map(place) {
                None => plain([if is_decoder { config.latent } else { 1 }, channels], config.kernel),
                Some(before) => {
                    // The ratio between two stages is that of the lower one.
                    let stride = config.ratios[before.min(place(at))];
                    let shape = plain([config.channels(before), channels], stride.saturating_mul(2));
                    ConvShape { stride, is_transposed: is_decoder, ..shape }
                }
            };
            let blocks = config.depths.get(place(at)).copied().unwrap_or_default();
            StageShape { enter, blocks, inner: channels.saturating_mul(config.widening) }
        };
        let ends = if is_decoder { [config.filters, 1] } else { [config.channels(last), config.latent] };
        Self {
            stages: (0..=last).map(stage).collect(),
            head: ConvShape { makes_samples: is_decoder, ..plain(ends, config.kernel) },
            taps: config.kernel,
            entering: if is_decoder { 1 } else { config.hop() },
            eps: config.norm_eps as f32,
        }
    }

    pub fn convolutions(&self) -> impl Iterator<Item = ConvShape> {
        self.stages.iter().map(|stage| stage.enter).chain([self.head])
    }
}

impl VibeVoiceConfig {
    pub(crate) fn tokenizer_shapes(&self) -> [TokenizerShape; 3] {
        let ways =
            [(&self.acoustic, Coder::Encoder), (&self.acoustic, Coder::Decoder), (&self.semantic, Coder::Encoder)];
        ways.map(|(config, coder)| TokenizerShape::new(config, coder))
    }
}

impl List {
    /// Its first number that is new.
    pub fn entering(&self) -> usize {
        self.begin.saturating_add(self.kept.saturating_mul(self.width))
    }

    pub fn end(&self, tokens: usize) -> usize {
        self.entering().saturating_add(self.each.saturating_mul(tokens).saturating_mul(self.width))
    }
}

impl Plan {
    pub fn new(shape: &TokenizerShape, tokens: usize) -> Self {
        let mut plan = Self { tokens, ..Self::default() };
        let mut rows = shape.entering;
        for stage in &shape.stages {
            rows = plan.conv(&stage.enter, rows);
            (0..stage.blocks).for_each(|_| plan.list(stage.enter.outputs, shape.taps.saturating_sub(1), rows));
            plan.inner = plan.inner.max(rows.saturating_mul(stage.inner));
            plan.products.push([rows, stage.inner]);
        }
        plan.conv(&shape.head, rows);
        plan
    }

    fn list(&mut self, width: usize, kept: usize, each: usize) {
        let begin = self.kept_numbers().checked_next_multiple_of(ALIGNED).unwrap_or(usize::MAX);
        self.lists.push(List { begin, width, kept, each });
    }

    /// Adds what a convolution sees; returns how many rows it makes of a token's.
    fn conv(&mut self, of: &ConvShape, rows: usize) -> usize {
        self.list(of.inputs, of.kept(), rows);
        let (made, looks, width) = (of.rows(rows), of.looks(rows), of.taps().saturating_mul(of.inputs));
        self.products.push([looks, width]);
        if of.makes_samples {
            self.samples = made;
            return made;
        }
        self.columns = self.columns.max(looks.saturating_mul(width.saturating_add(BEHIND)));
        self.hidden = self.hidden.max(made.saturating_mul(of.outputs));
        made
    }

    pub fn kept_numbers(&self) -> usize {
        self.lists.last().map_or(0, |list| list.end(self.tokens))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plans(name: &str, tokens: usize) -> [Plan; 2] {
        let config = VibeVoiceConfig::from_preset(name).unwrap();
        let [_, decoder, encoder] = config.tokenizer_shapes();
        [decoder, encoder].map(|shape| Plan::new(&shape, tokens))
    }

    #[test]
    fn a_token_is_one_row_at_one_end_and_its_samples_at_the_other() {
        let [decoder, encoder] = plans("7b", 1);
        // Stages with 3, 3, 3, 3, 3, 3 and 8 blocks, and a head.
        assert_eq!((decoder.lists.len(), encoder.lists.len()), (7 + 26 + 1, 7 + 26 + 1));
        assert_eq!((decoder.lists[0].each, decoder.lists[0].width, decoder.samples), (1, 64, 3200));
        assert_eq!((encoder.lists[0].each, encoder.lists[0].width, encoder.lists[33].each), (3200, 1, 1));
        assert_eq!((decoder.hidden, decoder.inner), (3200 * 32, 3200 * 128));
        // A transposed kernel is as long as two strides: one position before is seen.
        assert_eq!((decoder.lists[9].kept, encoder.lists[4].kept), (1, 2));
    }

    #[test]
    fn lists_lie_one_behind_the_other() {
        for plan in plans("tiny", 3) {
            for pair in plan.lists.windows(2) {
                assert!(pair[0].end(3) <= pair[1].begin && pair[1].begin.is_multiple_of(ALIGNED), "{pair:?}");
            }
            assert_eq!(plan.kept_numbers(), plan.lists.last().unwrap().end(3));
        }
    }
}
