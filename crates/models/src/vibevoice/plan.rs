//! The sizes of a tokenizer's convolutions and of the buffers of a run.

use super::{TokenizerConfig, VibeVoiceConfig};

/// Alignment of lists in numbers, for 16-byte loads.
const ALIGNED: usize = 8;

/// Padding after each packed row of a convolution on a GPU.
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
    /// Kernel width.
    pub kernel: usize,
    /// The downsampling factor, or the upsampling factor if transposed.
    pub stride: usize,
    pub is_transposed: bool,
    /// Whether it is the last convolution of a decoder.
    pub makes_samples: bool,
}

#[derive(Debug, Clone)]
pub struct TokenizerShape {
    pub stages: Vec<StageShape>,
    pub head: ConvShape,
    /// Kernel width of a mixer.
    pub taps: usize,
    /// Input rows per token.
    pub entering: usize,
    pub eps: f32,
}

#[derive(Debug, Clone, Copy)]
pub struct StageShape {
    pub enter: ConvShape,
    pub blocks: usize,
    /// Inner width of the feed-forward parts.
    pub inner: usize,
}

/// The input of a convolution: rows kept from the previous run, then the rows of each token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct List {
    pub begin: usize,
    pub width: usize,
    pub kept: usize,
    pub each: usize,
}

/// The inputs of all convolutions in order, and the sizes of the other buffers per token.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    pub lists: Vec<List>,
    pub hidden: usize,
    pub inner: usize,
    pub columns: usize,
    pub samples: usize,
    /// Rows per token and inner width of each matrix product.
    pub products: Vec<[usize; 2]>,
    tokens: usize,
}

impl ConvShape {
    /// Input positions per matrix product row.
    fn taps(&self) -> usize {
        if self.is_transposed { self.kernel.div_ceil(self.stride.max(1)) } else { self.kernel }
    }

    /// Earlier positions that the first output needs.
    fn kept(&self) -> usize {
        self.taps().saturating_sub(if self.is_transposed { 1 } else { self.stride })
    }

    /// Output rows for this many input rows.
    pub fn rows(&self, rows: usize) -> usize {
        if self.is_transposed { rows.saturating_mul(self.stride) } else { rows / self.stride.max(1) }
    }

    /// Rows of its matrix product for this many input rows.
    pub fn product_rows(&self, rows: usize) -> usize {
        if self.is_transposed { rows } else { self.rows(rows) }
    }

    /// Rows of the packed kernel.
    pub fn packed_rows(&self) -> usize {
        if self.is_transposed { self.outputs.saturating_mul(self.stride) } else { self.outputs }
    }
}

impl TokenizerShape {
    pub fn new(config: &TokenizerConfig, coder: Coder) -> Self {
        let (is_decoder, last) = (coder == Coder::Decoder, config.ratios.len());
        // `at` counts stages in the order in which they run, `place` from the audio.
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
                    // The ratio between two stages is that of the one nearer to the audio.
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
    /// Where the rows of the first token begin.
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

    /// Adds a convolution. Returns its output rows per token.
    fn conv(&mut self, of: &ConvShape, rows: usize) -> usize {
        self.list(of.inputs, of.kept(), rows);
        let (output, product_rows, width) = (of.rows(rows), of.product_rows(rows), of.taps().saturating_mul(of.inputs));
        self.products.push([product_rows, width]);
        if of.makes_samples {
            self.samples = output;
            return output;
        }
        self.columns = self.columns.max(product_rows.saturating_mul(width.saturating_add(BEHIND)));
        self.hidden = self.hidden.max(output.saturating_mul(of.outputs));
        output
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
    fn a_token_is_one_latent_and_its_samples() {
        let [decoder, encoder] = plans("7b", 1);
        // Stages with 3, 3, 3, 3, 3, 3 and 8 blocks, and a head.
        assert_eq!((decoder.lists.len(), encoder.lists.len()), (7 + 26 + 1, 7 + 26 + 1));
        assert_eq!((decoder.lists[0].each, decoder.lists[0].width, decoder.samples), (1, 64, 3200));
        assert_eq!((encoder.lists[0].each, encoder.lists[0].width, encoder.lists[33].each), (3200, 1, 1));
        assert_eq!((decoder.hidden, decoder.inner), (3200 * 32, 3200 * 128));
        // A transposed kernel has two strides, so it needs one earlier position.
        assert_eq!((decoder.lists[9].kept, encoder.lists[4].kept), (1, 2));
    }

    #[test]
    fn lists_are_aligned_and_do_not_overlap() {
        for plan in plans("tiny", 3) {
            for pair in plan.lists.windows(2) {
                assert!(pair[0].end(3) <= pair[1].begin && pair[1].begin.is_multiple_of(ALIGNED), "{pair:?}");
            }
            assert_eq!(plan.kept_numbers(), plan.lists.last().unwrap().end(3));
        }
    }
}
