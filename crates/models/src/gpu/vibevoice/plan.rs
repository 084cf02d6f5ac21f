//! What the convolutions of a tokenizer see, and how wide everything becomes: known before anything is allocated.

use laptime_cuda::{CudaError, nn::Convolution};

use super::super::size;
use crate::{
    ModelError, TensorSpec,
    vibevoice::{StageTensors, TokenizerConfig, TokenizerTensors, Way},
};

/// Numbers that lists of rows begin at multiples of, so that they can be read by 16 bytes.
const ALIGNED: usize = 8;

/// The convolutions and blocks of a tokenizer.
#[derive(Debug, Clone)]
pub struct TokenizerShape {
    pub stages: Vec<StageShape>,
    pub head: Convolution,
    /// Whether its head makes samples, and not latents.
    pub makes_samples: bool,
    /// Positions that a mixer sees.
    pub taps: usize,
    /// Rows of a token that enter.
    pub entering: usize,
}

/// A stage of a tokenizer.
#[derive(Debug, Clone, Copy)]
pub struct StageShape {
    pub enter: Convolution,
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
    /// Of what blocks add to.
    pub x: usize,
    /// Inside a block.
    pub wide: usize,
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
    tokens: usize,
}

impl TokenizerShape {
    pub fn new(tensors: &TokenizerTensors, config: &TokenizerConfig, way: Way) -> Result<Self, ModelError> {
        let stage = |(at, stage): (usize, &StageTensors)| -> Result<StageShape, ModelError> {
            let ratio = at.checked_sub(1).map(|at| match way {
                Way::Encoder => config.ratios[at],
                Way::Decoder => config.ratios[config.ratios.len() - 1 - at],
            });
            let inner = stage.blocks.first().and_then(|block| block.up.bias.shape.first()).copied();
            let enter = convolution(&stage.enter.weight, way, ratio)?;
            Ok(StageShape { enter, blocks: stage.blocks.len(), inner: inner.unwrap_or(0) })
        };
        Ok(Self {
            stages: tensors.stages.iter().enumerate().map(stage).collect::<Result<_, _>>()?,
            head: convolution(&tensors.head.weight, way, None)?,
            makes_samples: way == Way::Decoder,
            taps: config.kernel,
            entering: if way == Way::Encoder { config.hop() } else { 1 },
        })
    }
}

/// The convolution that a kernel is stored for; one with a ratio shortens or lengthens.
fn convolution(kernel: &TensorSpec, way: Way, ratio: Option<usize>) -> Result<Convolution, CudaError> {
    let side = |at: usize| size(kernel.shape.get(at).copied().unwrap_or(1));
    let [first, second, taps] = [side(0)?, side(1)?, side(2)?];
    let of = match (way, ratio) {
        (Way::Decoder, Some(ratio)) => Convolution::transposed([first, second], taps, size(ratio)?),
        (_, ratio) => {
            let stride = size(ratio.unwrap_or(1))?;
            Convolution { stride, ..Convolution::plain([second, first], taps, 1) }
        }
    };
    Ok(of.going_on())
}

impl List {
    /// Its first number that is new.
    pub fn entering(&self) -> usize {
        self.begin + self.kept * self.width
    }

    pub fn end(&self, tokens: usize) -> usize {
        self.entering() + self.each * tokens * self.width
    }

    pub fn sides(&self) -> Result<[u32; 4], CudaError> {
        Ok([size(self.begin)?, size(self.width)?, size(self.kept)?, size(self.each)?])
    }
}

impl Plan {
    /// For this many tokens at a time.
    pub fn new(shape: &TokenizerShape, tokens: usize) -> Self {
        let mut plan = Self { lists: Vec::new(), widest: Widest::default(), tokens };
        let mut rows = shape.entering;
        for stage in &shape.stages {
            rows = plan.conv(&stage.enter, rows);
            (0..stage.blocks).for_each(|_| plan.list(stage.enter.outputs as usize, shape.taps - 1, rows));
            plan.widest.wide = plan.widest.wide.max(rows * stage.inner);
        }
        match shape.makes_samples {
            true => {
                plan.list(shape.head.inputs as usize, shape.head.kept() as usize, rows);
                plan.widest.samples = rows;
            }
            false => {
                plan.conv(&shape.head, rows);
            }
        }
        plan
    }

    fn list(&mut self, width: usize, kept: usize, each: usize) {
        let begin = self.kept_numbers().next_multiple_of(ALIGNED);
        self.lists.push(List { begin, width, kept, each });
    }

    /// Adds what a convolution sees; says how many rows it makes of a token's.
    fn conv(&mut self, of: &Convolution, rows: usize) -> usize {
        self.list(of.inputs as usize, of.kept() as usize, rows);
        let stride = of.stride.max(1) as usize;
        let made = if of.is_transposed { rows * stride } else { rows / stride };
        let looked = if of.is_transposed { rows } else { made };
        self.widest.columns = self.widest.columns.max(looked * of.width() as usize);
        self.widest.x = self.widest.x.max(made * of.outputs as usize);
        made
    }

    /// Numbers of all lists.
    pub fn kept_numbers(&self) -> usize {
        self.lists.last().map_or(0, |list| list.end(self.tokens))
    }

    /// Numbers of all that a flow of this many tokens has, but for samples.
    pub fn numbers(&self) -> usize {
        let Widest { x, wide, columns, .. } = self.widest;
        self.kept_numbers() + self.tokens * (3 * x + wide + columns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vibevoice::VibeVoiceConfig;

    fn plans(name: &str, tokens: usize) -> [Plan; 2] {
        let config = VibeVoiceConfig::from_preset(name).unwrap();
        let decoder = TokenizerShape::new(&config.acoustic_decoder_tensors(), &config.acoustic, Way::Decoder).unwrap();
        let encoder = TokenizerShape::new(&config.semantic_encoder_tensors(), &config.semantic, Way::Encoder).unwrap();
        [Plan::new(&decoder, tokens), Plan::new(&encoder, tokens)]
    }

    #[test]
    fn a_token_is_one_row_at_one_end_and_its_samples_at_the_other() {
        let [decoder, encoder] = plans("7b", 1);
        // Stages with 3, 3, 3, 3, 3, 3 and 8 blocks, and a head.
        assert_eq!((decoder.lists.len(), encoder.lists.len()), (7 + 26 + 1, 7 + 26 + 1));
        assert_eq!((decoder.lists[0].each, decoder.lists[0].width, decoder.widest.samples), (1, 64, 3200));
        assert_eq!((encoder.lists[0].each, encoder.lists[0].width, encoder.lists[33].each), (3200, 1, 1));
        assert_eq!((decoder.widest.x, decoder.widest.wide), (3200 * 32, 3200 * 128));
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
