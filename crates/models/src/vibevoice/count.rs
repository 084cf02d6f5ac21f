//! The counting twin: it computes nothing and adds up what the operations of tokenizers and of the diffusion head have to do.

use super::tensors::{Connector, HeadLayer, Kinds, Mixer, Tokenizer, VoiceLoad};
use super::{ConvShape, DiffusionOps, Done, Rows, STREAMS, TokenizerOps, TokenizerShape, tokenizer};
use crate::decoder::count::{Counted, Specs};
use crate::tts::{ConvTensors, Loaded, TtsLoad};
use crate::{Dtype, ModelError, StageWork, TensorSpec};

/// Counts work; its weights are their own descriptions.
pub struct Count {
    counted: Counted,
    steps: usize,
}

impl Kinds for Count {
    type Matrix = Vec<TensorSpec>;
    type Vector = Vec<TensorSpec>;
    type Conv = (ConvTensors, ConvShape);
    type Depthwise = ConvTensors;
}

impl VoiceLoad<Count> for Specs {
    fn conv(&mut self, tensors: &ConvTensors, shape: ConvShape) -> Loaded<(ConvTensors, ConvShape), Self> {
        Ok((TtsLoad::depthwise(self, tensors)?, shape))
    }

    fn depthwise(&mut self, tensors: &ConvTensors) -> Loaded<ConvTensors, Self> {
        TtsLoad::depthwise(self, tensors)
    }
}

impl Count {
    /// The work of what this runs, with a diffusion of this number of steps.
    pub fn of(dtype: Dtype, steps: usize, run: impl FnOnce(&mut Self) -> Done) -> StageWork {
        let mut count = Self { counted: Counted::new(dtype), steps };
        // A count refuses nothing.
        let _ = run(&mut count);
        count.counted.work
    }

    pub fn tokenizer(&mut self, of: &Tokenizer<Self>, tokens: usize) -> Done {
        let mut rows = self.flow(&of.shape, tokens)?;
        tokenizer::run(self, of, &mut rows, tokens)
    }

    pub fn connector(&mut self, of: &Connector<Self>, rows: usize) -> Done {
        self.counted.layer(&of.enter, rows);
        self.counted.read(&of.norm);
        self.counted.layer(&of.leave, rows);
        Ok(())
    }

    fn product(&mut self, weight: &[TensorSpec], rows: usize) -> Done {
        self.counted.product(weight, rows as u64);
        Ok(())
    }
}

impl TokenizerOps for Count {
    /// The rows that the next convolution takes.
    type Flow = usize;

    const TOGETHER: usize = usize::MAX;

    fn flow(&self, shape: &TokenizerShape, tokens: usize) -> Result<usize, ModelError> {
        Ok(tokens.saturating_mul(shape.entering))
    }

    fn forget(&mut self, _: &mut usize) -> Done {
        Ok(())
    }

    fn enter(&mut self, _: &mut usize, _: &[f32]) -> Done {
        Ok(())
    }

    fn convolve(&mut self, rows: &mut usize, _: usize, (conv, shape): &(ConvTensors, ConvShape), _: usize) -> Done {
        self.counted.conv(conv, shape.looks(*rows) as u64);
        *rows = shape.rows(*rows);
        Ok(())
    }

    fn add_norm(&mut self, _: &mut usize, _: Rows, made: Option<&Mixer<Self>>, next: Option<&Mixer<Self>>) -> Done {
        self.counted.read(made.iter().flat_map(|block| &block.ffn_scale));
        self.counted.read(next.iter().flat_map(|block| &block.norm));
        Ok(())
    }

    fn block(&mut self, _: &mut usize, Rows { rows, .. }: Rows, block: &Mixer<Self>) -> Done {
        self.counted.conv(&block.mixer, rows as u64);
        self.counted.read([&block.scale, &block.ffn_norm].into_iter().flatten());
        self.counted.layer(&block.up, rows);
        self.counted.layer(&block.down, rows);
        Ok(())
    }

    fn leave(&mut self, _: &usize, _: &TokenizerShape, _: usize) -> Result<Vec<f32>, ModelError> {
        Ok(Vec::new())
    }
}

impl DiffusionOps for Count {
    fn steps(&self) -> usize {
        self.steps
    }

    fn condition(&mut self, weight: &Vec<TensorSpec>) -> Done {
        self.product(weight, STREAMS)
    }

    fn adapt(&mut self, _: usize, weight: &Vec<TensorSpec>) -> Done {
        self.product(weight, STREAMS.saturating_mul(self.steps))
    }

    /// Both streams begin a step with the same row.
    fn begin_step(&mut self, _: usize, enter: &Vec<TensorSpec>) -> Done {
        self.product(enter, 1)
    }

    fn gate_up(&mut self, _: usize, _: usize, weights: &HeadLayer<Self>) -> Done {
        self.counted.read(&weights.norm);
        self.product(&weights.gate_up, STREAMS)
    }

    fn add_gated(&mut self, _: usize, _: usize, weights: &HeadLayer<Self>) -> Done {
        self.product(&weights.down, STREAMS)
    }

    fn velocity(&mut self, _: usize, leave: &Vec<TensorSpec>) -> Done {
        self.product(leave, STREAMS)
    }

    fn end_steps(&mut self, _: &mut usize, _: [f32; 2]) -> Done {
        Ok(())
    }
}
