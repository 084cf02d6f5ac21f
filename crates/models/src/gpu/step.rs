//! The kernels of a decode step on a GPU, and their buffers.

use laptime_cuda::decode::{Linear, Norm, State, Step, StepSizes};
use laptime_cuda::{Buffer, Cache, Device, Stream};

use super::pass::{Buffers, Context, Pass, PassRows, Sequences, is_fused};
use super::weights::{Fp8Weights, Number};
use super::{memory::PassSizes, size};
use crate::marks::{mark_embedding, stage_mark};
use crate::{Config, Done, Dtype, ModelError, decoder::layers::run_head};

pub fn step_sizes(config: &Config, batch: usize, capacity: usize) -> Result<StepSizes, ModelError> {
    Ok(StepSizes {
        batch: size(batch)?,
        hidden: size(config.hidden)?,
        heads: size(config.heads)?,
        kv_heads: size(config.kv_heads)?,
        head_dim: size(config.head_dim)?,
        ffn: size(config.ffn)?,
        vocab: size(config.vocab)?,
        capacity: size(capacity)?,
    })
}

#[derive(Debug)]
pub struct Stepper<T> {
    step: Step<T>,
    pub buffers: Buffers<T>,
}

impl<T: Number> Stepper<T> {
    pub fn new(device: &Device, config: &Config, batch: usize, capacity: usize) -> Result<Self, ModelError> {
        let cache = Cache::of_user();
        let mut step = Step::load(device, &cache, step_sizes(config, batch, capacity)?)?;
        if let Some(window) = config.window {
            step = step.with_window(device, &cache, size(window.size)?)?;
        }
        Ok(Self { step, buffers: Buffers::new(device, PassSizes::of_step(config, batch))? })
    }

    /// Adds the kernels or buffers for FP8 weights, if they are given.
    pub fn with_fp8(
        mut self,
        device: &Device,
        config: &Config,
        fp8: Option<&Fp8Weights<T>>,
    ) -> Result<Self, ModelError> {
        let (Some(fp8), batch) = (fp8, self.buffers.sizes.rows) else { return Ok(self) };
        if is_fused(config, batch) {
            self.step = self.step.with_fp8(device, &Cache::of_user(), fp8.scales())?;
        } else {
            let sizes = PassSizes::of_step(config, batch).with_dequantised(config, Dtype::Fp8);
            self.buffers = Buffers::new(device, sizes)?;
        }
        Ok(self)
    }

    /// A pass over the hidden states of the next token of each sequence.
    ///
    /// The kernel that writes the hidden states must wait for the writer of the cache before it lets the pass begin, as
    /// [`Step::embed`] does.
    pub fn pass<'a>(&'a mut self, context: Context<'a, T>, sequences: Sequences<'a, T>) -> Pass<'a, T> {
        Pass { context, buffers: &mut self.buffers, rows: PassRows::Token(&self.step, sequences) }
    }

    pub fn embed(&mut self, context: &Context<'_, T>, embedding: &Buffer<T>, state: &State) -> Done {
        let _stage = mark_embedding!(context.marks, 1);
        self.step.embed(context.stream, state, embedding, &mut self.buffers.parts.x)?;
        context.scale_embedding(&mut self.buffers.parts.x, self.buffers.sizes.rows)
    }

    pub fn head(&mut self, context: Context<'_, T>, norm: &Buffer<T>, head: &Buffer<T>) -> Done {
        run_head(&mut self.pass(context, Sequences::Separate(Vec::new())), norm, Some(head))
    }

    pub fn sample(&mut self, context: &Context<'_, T>, state: &mut State) -> Done {
        let _stage = stage_mark!(context.marks, Layer, "sampling");
        Ok(self.step.argmax(context.stream, &self.buffers.parts.logits, state)?)
    }

    pub fn enter(
        &mut self,
        stream: &Stream,
        from: &Buffer<T>,
        norm: &Norm<'_, T>,
        linear: &Linear<'_, T>,
        width: usize,
    ) -> Done {
        let shape = [self.step.sizes().hidden, size(width)?];
        Ok(self.step.norm_linear(stream, from, norm, linear, &mut self.buffers.parts.x, shape)?)
    }
}
