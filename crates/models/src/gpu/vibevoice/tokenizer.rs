//! Tokenizers on a GPU: audio to latents, or latents to audio, a few tokens at a time, going on from what came before.

use laptime_cuda::{
    Blas, Buffer, CudaError, Device, Sizes, SliceMut,
    nn::{Addition, Gate, Kept, Mixer, Signal},
};

use super::{
    super::{size, weights::Number},
    plan::{List, Plan},
    tokenizer_weights::{ConvWeights, LastWeights, MixerWeights, TokenizerWeights},
    weights::{Kernels, LinearWeights},
};
use crate::ModelError;

/// What goes through a tokenizer: what each of its convolutions sees, and what it computes in.
pub struct Flow<T> {
    lists: Vec<List>,
    kept: Kept<T>,
    /// What blocks add to, and at the end latents.
    pub x: Buffer<T>,
    normed: Buffer<T>,
    second: Buffer<T>,
    wide: Buffer<T>,
    columns: Buffer<T>,
    /// At the end of a decoder.
    pub samples: Buffer<f32>,
    /// Tokens that there is room for.
    tokens: usize,
}

/// What a flow is run with.
pub struct Run<'a, T> {
    pub device: &'a Device,
    pub blas: &'a Blas,
    pub kernels: &'a Kernels<T>,
}

impl<T: Number> Flow<T> {
    /// Room for this many tokens at a time, and silence before them.
    pub fn new(device: &Device, weights: &TokenizerWeights<T>, tokens: usize) -> Result<Self, ModelError> {
        let Plan { lists, widest, .. } = Plan::new(&weights.shape, tokens);
        let sides = lists.iter().map(List::sides).collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            kept: Kept::new(device, &sides, size(tokens)?)?,
            x: device.allocate(tokens * widest.x)?,
            normed: device.allocate(tokens * widest.x)?,
            second: device.allocate(tokens * widest.x)?,
            wide: device.allocate(tokens * widest.wide)?,
            columns: device.allocate(tokens * widest.columns)?,
            samples: device.allocate(tokens * widest.samples)?,
            tokens,
            lists,
        })
    }

    /// Lets silence be before what comes next.
    pub fn forget(&mut self, device: &Device) -> Result<(), CudaError> {
        self.kept.forget(device.stream())
    }

    /// Where the rows of this many tokens enter.
    pub fn entrance(&mut self, tokens: usize) -> Result<SliceMut<'_, T>, CudaError> {
        let list = self.lists[0];
        self.kept.rows.slice_mut(list.entering()..list.end(tokens))
    }

    /// Puts this many tokens on the stream, whose rows have entered: what comes out is in `x`, or in `samples`.
    pub fn run(&mut self, run: &Run<'_, T>, weights: &TokenizerWeights<T>, tokens: usize) -> Result<(), CudaError> {
        let tokens = tokens.min(self.tokens);
        let mut at = 0;
        for stage in &weights.stages {
            let rows = self.conv(run, &stage.enter, at, tokens)?;
            at += 1;
            self.go_on(run, weights, (None, stage.blocks.first()), at, rows)?;
            for (index, block) in stage.blocks.iter().enumerate() {
                self.block(run, weights, block, at, rows)?;
                at += 1;
                self.go_on(run, weights, (Some(block), stage.blocks.get(index + 1)), at, rows)?;
            }
        }
        self.last(run, &weights.head, at, tokens)?;
        run.kernels.streams.keep(run.device.stream(), &mut self.kept, size(tokens)?)
    }

    /// Convolves what is seen into `x`; says how many rows that makes.
    fn conv(&mut self, run: &Run<'_, T>, conv: &ConvWeights<T>, at: usize, tokens: usize) -> Result<usize, CudaError> {
        let list = self.lists[at];
        let length = size(list.kept + list.each * tokens)?;
        let signal = Signal { x: self.kept.rows.slice(list.begin..list.end(tokens))?, length, snake: None };
        let (kernels, room) = (&run.kernels.convolutions, (false, &mut self.columns));
        kernels.convolve(run.blas, run.device.stream(), &conv.of, &signal, &conv.packed, &mut self.x, room)?;
        Ok(conv.of.length(length) as usize)
    }

    /// Adds what a block made, if there was one, and lets what is next see the rows: a block normed ones, a convolution
    /// those that they are.
    fn go_on(
        &mut self,
        run: &Run<'_, T>,
        weights: &TokenizerWeights<T>,
        (made, next): (Option<&MixerWeights<T>>, Option<&MixerWeights<T>>),
        at: usize,
        rows: usize,
    ) -> Result<(), CudaError> {
        let list = self.lists[at];
        let end = list.entering() + rows * list.width;
        let to = self.kept.rows.slice_mut(list.entering()..end)?;
        let addition = made.map(|block| Addition {
            y: self.second.all(),
            bias: block.down.bias.all(),
            scale: block.ffn_scale.all(),
        });
        let norm = (next.map(|block| block.norm.all()), weights.eps);
        let shape = [size(rows)?, size(list.width)?];
        run.kernels.streams.add_norm(run.device.stream(), &mut self.x, addition.as_ref(), norm, to, shape)
    }

    /// A block, up to what it adds at the end, which is left in `second`.
    fn block(
        &mut self,
        run: &Run<'_, T>,
        weights: &TokenizerWeights<T>,
        block: &MixerWeights<T>,
        at: usize,
        rows: usize,
    ) -> Result<(), CudaError> {
        let (list, stream) = (self.lists[at], run.device.stream());
        let (length, width, inner) = (size(rows)?, size(list.width)?, size(block.up.bias.length())?);
        let mixer = Mixer {
            seen: self.kept.rows.slice(list.begin..list.entering() + rows * list.width)?,
            weight: block.mixer.weight.all(),
            bias: block.mixer.bias.all(),
            scale: block.scale.all(),
            taps: size(weights.shape.taps)?,
        };
        let norm = (block.ffn_norm.all(), weights.eps);
        run.kernels.streams.mix_norm(stream, &mixer, &mut self.x, norm, &mut self.normed, [length, width])?;
        multiply(run, &block.up, &self.normed, &mut self.wide, [length, inner, width])?;
        let bias = Some(block.up.bias.all());
        run.kernels.rows.bias_gate(stream, &mut self.wide, bias, [length, inner], Gate::Gelu)?;
        multiply(run, &block.down, &self.wide, &mut self.second, [length, width, inner])
    }

    fn last(&mut self, run: &Run<'_, T>, head: &LastWeights<T>, at: usize, tokens: usize) -> Result<(), CudaError> {
        let (of, linear) = match head {
            LastWeights::Latents(conv) => return self.conv(run, conv, at, tokens).map(drop),
            LastWeights::Samples(of, linear) => (of, linear),
        };
        let list = self.lists[at];
        let length = size(list.kept + list.each * tokens)?;
        let signal = Signal { x: self.kept.rows.slice(list.begin..list.end(tokens))?, length, snake: None };
        let weights = (linear.weight.all(), Some(linear.bias.all()));
        let kernels = &run.kernels.convolutions;
        kernels.to_one(run.device.stream(), of, &signal, weights, &mut self.samples, f32::INFINITY)
    }

    /// Runs numbers from silence on, as many tokens at a time as there is room for, each of which has this many. Waits for
    /// the device.
    pub fn run_all(
        &mut self,
        run: &Run<'_, T>,
        weights: &TokenizerWeights<T>,
        numbers: &[f32],
        each: usize,
    ) -> Result<Vec<f32>, CudaError> {
        self.forget(run.device)?;
        let mut all = Vec::new();
        for part in numbers.chunks(self.tokens * each) {
            let (tokens, narrow) = (part.len() / each, part.iter().map(|number| T::narrowed(*number)));
            self.entrance(tokens)?.write(&narrow.collect::<Vec<T>>())?;
            self.run(run, weights, tokens)?;
            match &weights.head {
                LastWeights::Latents(conv) => {
                    let made = self.x.slice(0..tokens * conv.of.outputs as usize)?.read()?;
                    all.extend(made.into_iter().map(T::widened));
                }
                // Samples are numbers of this type too.
                LastWeights::Samples(..) => {
                    let samples = self.lists.last().map_or(0, |list| list.each * tokens);
                    let made = self.samples.slice(0..samples)?.read()?;
                    all.extend(made.into_iter().map(|sample| T::narrowed(sample).widened()));
                }
            }
        }
        Ok(all)
    }
}

/// The product of rows with a matrix, without what is added.
fn multiply<T: Number>(
    run: &Run<'_, T>,
    linear: &LinearWeights<T>,
    from: &Buffer<T>,
    to: &mut Buffer<T>,
    [m, n, k]: [u32; 3],
) -> Result<(), CudaError> {
    run.blas.multiply([from, &linear.weight], to, Sizes { m, n, k, b_is_transposed: true })
}
