//! The convolutions of a tokenizer, the rows that each of them sees, and how wide everything becomes: known before anything
//! is allocated.

use super::{TokenizerConfig, tensors::Way};

/// Numbers that lists of rows begin at multiples of, so that they can be read by 16 bytes.
const ALIGNED: usize = 8;

/// Numbers behind each packed row of a convolution on a GPU.
pub const BEHIND: usize = 8;

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

/// The convolutions and blocks of a tokenizer.
#[derive(Debug, Clone)]
pub struct TokenizerShape {
    pub way: Way,
    pub stages: Vec<StageShape>,
    pub head: ConvShape,
    /// Positions that a mixer sees.
    pub taps: usize,
    /// Rows of a token that enter.
    pub entering: usize,
}

/// A stage of a tokenizer.
#[derive(Debug, Clone, Copy)]
pub struct StageShape {
    pub enter: ConvShape,
    pub blocks: usize,
    /// Numbers of a row inside the feed-forward part of a block.
    pub inner: usize,
}

/// The rows that a convolution sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct List {
    pub begin: usize,
    pub width: usize,
    /// Rows of the run before.
    pub kept: usize,
    /// Rows of a token.
    pub each: usize,
}

/// Numbers of one token where it is widest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Widest {
    /// Of the hidden states that blocks add to.
    pub hidden: usize,
    /// Inside a block.
    pub inner: usize,
    /// Of what a convolution looks at.
    pub columns: usize,
    /// Of samples.
    pub samples: usize,
}

/// What convolutions see, in the order in which they run, and how wide the rest becomes.
#[derive(Debug, Clone)]
pub struct Plan {
    pub lists: Vec<List>,
    pub widest: Widest,
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
    pub fn kept(&self) -> usize {
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

    /// Numbers of a row of columns.
    fn width(&self) -> usize {
        self.taps().saturating_mul(self.inputs)
    }

    /// Rows of the kernel as a product reads it.
    pub fn packed_rows(&self) -> usize {
        if self.is_transposed { self.outputs.saturating_mul(self.stride) } else { self.outputs }
    }
}

impl TokenizerShape {
    /// The shape before its stages are added.
    pub fn new(config: &TokenizerConfig, way: Way) -> Self {
        let is_encoder = way == Way::Encoder;
        let (inputs, outputs) = match is_encoder {
            true => (config.channels(config.ratios.len()), config.latent),
            false => (config.filters, 1),
        };
        let head = ConvShape { makes_samples: !is_encoder, ..Self::plain([inputs, outputs], config.kernel) };
        let entering = if is_encoder { config.hop() } else { 1 };
        Self { way, stages: Vec::new(), head, taps: config.kernel, entering }
    }

    fn plain([inputs, outputs]: [usize; 2], kernel: usize) -> ConvShape {
        ConvShape { inputs, outputs, kernel, stride: 1, is_transposed: false, makes_samples: false }
    }

    /// The first convolution.
    pub fn stem(&self, config: &TokenizerConfig, channels: usize) -> ConvShape {
        let inputs = if self.way == Way::Encoder { 1 } else { config.latent };
        Self::plain([inputs, channels], config.kernel)
    }

    /// A convolution that shortens or lengthens by a ratio.
    pub fn changing(&self, channels: [usize; 2], ratio: usize) -> ConvShape {
        let is_transposed = self.way == Way::Decoder;
        ConvShape { stride: ratio, is_transposed, ..Self::plain(channels, ratio.saturating_mul(2)) }
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
    /// For this many tokens at a time.
    pub fn new(shape: &TokenizerShape, tokens: usize) -> Self {
        let mut plan = Self { lists: Vec::new(), widest: Widest::default(), products: Vec::new(), tokens };
        let mut rows = shape.entering;
        for stage in &shape.stages {
            rows = plan.conv(&stage.enter, rows);
            (0..stage.blocks).for_each(|_| plan.list(stage.enter.outputs, shape.taps.saturating_sub(1), rows));
            plan.widest.inner = plan.widest.inner.max(rows.saturating_mul(stage.inner));
            plan.products.push([rows, stage.inner]);
        }
        match shape.head.makes_samples {
            true => {
                plan.list(shape.head.inputs, shape.head.kept(), rows);
                plan.products.push([rows, shape.head.width()]);
                plan.widest.samples = rows;
            }
            false => {
                plan.conv(&shape.head, rows);
            }
        }
        plan
    }

    fn list(&mut self, width: usize, kept: usize, each: usize) {
        let begin = self.kept_numbers().checked_next_multiple_of(ALIGNED).unwrap_or(usize::MAX);
        self.lists.push(List { begin, width, kept, each });
    }

    /// Adds what a convolution sees; returns how many rows it makes of a token's.
    fn conv(&mut self, of: &ConvShape, rows: usize) -> usize {
        self.list(of.inputs, of.kept(), rows);
        let (made, looks) = (of.rows(rows), of.looks(rows));
        self.products.push([looks, of.width()]);
        self.widest.columns = self.widest.columns.max(looks.saturating_mul(of.width().saturating_add(BEHIND)));
        self.widest.hidden = self.widest.hidden.max(made.saturating_mul(of.outputs));
        made
    }

    /// Numbers of all lists.
    pub fn kept_numbers(&self) -> usize {
        self.lists.last().map_or(0, |list| list.end(self.tokens))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vibevoice::VibeVoiceConfig;

    fn plans(name: &str, tokens: usize) -> [Plan; 2] {
        let config = VibeVoiceConfig::from_preset(name).unwrap();
        [config.acoustic_decoder(), config.semantic_encoder()].map(|tokenizer| Plan::new(&tokenizer.shape, tokens))
    }

    #[test]
    fn a_token_is_one_row_at_one_end_and_its_samples_at_the_other() {
        let [decoder, encoder] = plans("7b", 1);
        // Stages with 3, 3, 3, 3, 3, 3 and 8 blocks, and a head.
        assert_eq!((decoder.lists.len(), encoder.lists.len()), (7 + 26 + 1, 7 + 26 + 1));
        assert_eq!((decoder.lists[0].each, decoder.lists[0].width, decoder.widest.samples), (1, 64, 3200));
        assert_eq!((encoder.lists[0].each, encoder.lists[0].width, encoder.lists[33].each), (3200, 1, 1));
        assert_eq!((decoder.widest.hidden, decoder.widest.inner), (3200 * 32, 3200 * 128));
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
