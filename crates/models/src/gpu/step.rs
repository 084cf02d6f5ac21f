//! One token of each sequence: a few fused kernels a layer, or cuBLAS where many sequences run together.

use laptime_cuda::{
    Blas, Buffer, Cache, CudaError, Device, Sizes, Stream,
    decode::{Activations, Attention, Linear, Norm, Rotation, State, Step, StepSizes},
    nn::Operations,
};

use super::{
    cache::GpuCache,
    pass::Turns,
    size,
    streamed::Streamed,
    weights::{LayerWeights, Number, Parameters},
};
use crate::{Config, Marks, RopeLayout, marks::stage_mark};

/// Sequences up to which the fused kernels read the weights once for all of them.
const MOST_FUSED: usize = 8;

/// The kernels of a step with what goes between them.
#[derive(Debug)]
pub struct Stepper<T> {
    step: Step<T>,
    pub activations: Activations<T>,
    /// What is normed, where products are cuBLAS's.
    wide: Option<Wide<T>>,
    sizes: StepSizes,
}

#[derive(Debug)]
struct Wide<T> {
    normed: Buffer<T>,
    gate_up: Buffer<T>,
}

/// What a step needs of its decoder.
pub struct Context<'a, T> {
    pub stream: &'a Stream,
    pub blas: &'a Blas,
    pub config: &'a Config,
    pub marks: &'a Marks,
    pub operations: &'a Operations<T>,
    pub layers: &'a [LayerWeights<T>],
    pub turns: &'a Turns,
}

/// The sequences that take a step: where they are, and their caches.
pub enum Sequences<'a, T> {
    /// All at one position, in one cache.
    Together(&'a State, &'a mut GpuCache<T>),
    /// Each at a position and in a cache of its own, row by row. Weights are read once for all of them.
    Apart(Vec<Apart<'a, T>>),
}

/// One of several sequences that are at different positions. Its cache has the room that the stepper was made for.
pub struct Apart<'a, T> {
    pub position: &'a Buffer<u32>,
    pub cache: &'a mut GpuCache<T>,
}

impl<T: Number> Stepper<T> {
    pub fn new(device: &Device, config: &Config, batch: usize, capacity: usize) -> Result<Self, CudaError> {
        let sizes = StepSizes {
            batch: size(batch)?,
            hidden: size(config.hidden)?,
            heads: size(config.heads)?,
            kv_heads: size(config.kv_heads)?,
            head_dim: size(config.head_dim)?,
            ffn: size(config.ffn)?,
            vocab: size(config.vocab)?,
            capacity: size(capacity)?,
        };
        let wide = || -> Result<Wide<T>, CudaError> {
            let normed = device.allocate(batch * config.hidden)?;
            Ok(Wide { normed, gate_up: device.allocate(batch * 2 * config.ffn)? })
        };
        Ok(Self {
            step: Step::load(device, &Cache::of_user(), sizes)?,
            activations: Activations::new(device, &sizes)?,
            wide: if batch > MOST_FUSED { Some(wide()?) } else { None },
            sizes,
        })
    }

    /// Puts the rows of the state's tokens into `x`: the beginning of a step.
    pub fn embed(
        &mut self,
        context: &Context<'_, T>,
        parameters: &Parameters<T>,
        state: &State,
    ) -> Result<(), CudaError> {
        let _stage = stage_mark!(context.marks, Layer, "embed");
        self.step.embed(context.stream, state, &parameters.embedding, &mut self.activations.x)
    }

    /// Puts the layers that stay on the stream, the first of which is the model's `first`, and all that follows them: the
    /// next token is chosen and the position advanced.
    pub fn finish(
        &mut self,
        context: &Context<'_, T>,
        first: usize,
        parameters: &Parameters<T>,
        state: &mut State,
        cache: &mut GpuCache<T>,
    ) -> Result<(), CudaError> {
        self.layers_from(context, first, &mut Sequences::Together(state, cache))?;
        self.head(context, &parameters.norm, parameters.head())?;
        self.choose(context, state)
    }

    /// Puts the choice of the most likely tokens on the stream, and lets the state go on to the next position.
    pub fn choose(&mut self, context: &Context<'_, T>, state: &mut State) -> Result<(), CudaError> {
        let _stage = stage_mark!(context.marks, Layer, "choose");
        self.step.argmax(context.stream, &self.activations.logits, state)
    }

    /// Puts all layers on the stream, from `x` to `x`, at the state's position.
    ///
    /// What makes `x` must wait for what wrote the cache before it lets these begin, as [`Step::embed`] does.
    pub fn layers(
        &mut self,
        context: &Context<'_, T>,
        state: &State,
        cache: &mut GpuCache<T>,
    ) -> Result<(), CudaError> {
        self.layers_from(context, 0, &mut Sequences::Together(state, cache))
    }

    /// The same, with what is to be done before each layer.
    pub fn layers_between(
        &mut self,
        context: &Context<'_, T>,
        state: &State,
        cache: &mut GpuCache<T>,
        before: &mut dyn FnMut(usize) -> Result<(), CudaError>,
    ) -> Result<(), CudaError> {
        let mut sequences = Sequences::Together(state, cache);
        for (index, weights) in context.layers.iter().enumerate() {
            before(index)?;
            self.marked_layer(context, index, weights, &mut sequences)?;
        }
        Ok(())
    }

    /// Puts the layers of the context on the stream, the first of which is the model's `first`. See [`Self::layers`].
    pub fn layers_from(
        &mut self,
        context: &Context<'_, T>,
        first: usize,
        sequences: &mut Sequences<'_, T>,
    ) -> Result<(), CudaError> {
        for (index, weights) in (first..).zip(context.layers) {
            self.marked_layer(context, index, weights, sequences)?;
        }
        Ok(())
    }

    fn marked_layer(
        &mut self,
        context: &Context<'_, T>,
        index: usize,
        weights: &LayerWeights<T>,
        sequences: &mut Sequences<'_, T>,
    ) -> Result<(), CudaError> {
        let _layer = stage_mark!(context.marks, Layer, "layer", layer = index);
        self.layer(context, index, weights, sequences)
    }

    /// Puts the turns of all streamed layers on the stream, as one pass. See [`Self::layers`].
    pub fn streamed_layers(
        &mut self,
        context: &Context<'_, T>,
        streamed: &mut Streamed<'_, T>,
        sequences: &mut Sequences<'_, T>,
    ) -> Result<(), CudaError> {
        streamed.begin()?;
        for index in 0..streamed.layers() {
            streamed.turn(index, |weights| self.layer(context, index, weights, sequences))?;
        }
        Ok(())
    }

    fn layer(
        &mut self,
        context: &Context<'_, T>,
        index: usize,
        weights: &LayerWeights<T>,
        sequences: &mut Sequences<'_, T>,
    ) -> Result<(), CudaError> {
        {
            let _part = stage_mark!(context.marks, Layer, "attention");
            self.attention(context, index, weights, sequences)?;
        }
        let _part = stage_mark!(context.marks, Layer, "ffn");
        self.ffn(context, weights)
    }

    /// Puts the logits of a head over the normed `x` on the stream.
    pub fn head(&mut self, context: &Context<'_, T>, norm: &Buffer<T>, head: &Buffer<T>) -> Result<(), CudaError> {
        let _stage = stage_mark!(context.marks, Layer, "head");
        let StepSizes { hidden, vocab, .. } = self.sizes;
        let Activations { x, logits, .. } = &mut self.activations;
        let norm = Norm { weight: norm, epsilon: context.config.norm_eps as f32 };
        let linear = Linear { weight: head, bias: None };
        match &mut self.wide {
            None => self.step.norm_linear(context.stream, x, &norm, &linear, logits, [vocab, hidden]),
            Some(wide) => wide.norm_linear(context, x, &norm, &linear, logits, [vocab, hidden]),
        }
    }

    /// Puts a linear part of a normed row of another decoder, which is so wide, into `x`.
    pub fn enter(
        &mut self,
        stream: &Stream,
        from: &Buffer<T>,
        norm: &Norm<'_, T>,
        linear: &Linear<'_, T>,
        width: usize,
    ) -> Result<(), CudaError> {
        let shape = [self.sizes.hidden, size(width)?];
        self.step.norm_linear(stream, from, norm, linear, &mut self.activations.x, shape)
    }

    fn attention(
        &mut self,
        context: &Context<'_, T>,
        index: usize,
        weights: &LayerWeights<T>,
        sequences: &mut Sequences<'_, T>,
    ) -> Result<(), CudaError> {
        let StepSizes { hidden, .. } = self.sizes;
        let (qkv_rows, attended_width) = (self.sizes.qkv(), self.sizes.attended());
        let (stream, epsilon) = (context.stream, context.config.norm_eps as f32);
        {
            let _op = stage_mark!(context.marks, Ops, "qkv");
            let Activations { x, qkv, .. } = &mut self.activations;
            let linear = Linear { weight: &weights.qkv, bias: weights.qkv_bias.as_ref() };
            let norm = Norm { weight: &weights.attention_norm, epsilon };
            match &mut self.wide {
                None => self.step.norm_linear(stream, x, &norm, &linear, qkv, [qkv_rows, hidden])?,
                Some(wide) => wide.norm_linear(context, x, &norm, &linear, qkv, [qkv_rows, hidden])?,
            }
        }
        {
            let _op = stage_mark!(context.marks, Ops, "fused");
            let in_pairs = context.turns.layout == RopeLayout::Pairs;
            let rotation = Rotation { cosines: &context.turns.cosines, sines: &context.turns.sines, in_pairs };
            let (query_norm, key_norm) = (weights.query_norm.as_ref(), weights.key_norm.as_ref());
            self.attend(stream, index, &Attention { query_norm, key_norm, epsilon, rotation }, sequences)?;
        }
        let _op = stage_mark!(context.marks, Ops, "output");
        let Activations { x, attended, .. } = &mut self.activations;
        let linear = Linear { weight: &weights.output, bias: None };
        match &self.wide {
            None => self.step.linear_add(stream, attended, &linear, x, [hidden, attended_width]),
            Some(_) => add_product(context, attended, &linear, x, [hidden, attended_width]),
        }
    }

    fn attend(
        &mut self,
        stream: &Stream,
        layer: usize,
        attention: &Attention<'_, T>,
        sequences: &mut Sequences<'_, T>,
    ) -> Result<(), CudaError> {
        let (step, Activations { qkv, attended, .. }) = (&self.step, &mut self.activations);
        match sequences {
            Sequences::Together(state, cache) => {
                let [keys, values] = &mut cache.layers[layer];
                step.attention(stream, qkv, attention, state, [keys, values], attended)
            }
            Sequences::Apart(rows) => {
                for (row, Apart { position, cache }) in (0..).zip(rows.iter_mut()) {
                    if cache.capacity != self.sizes.capacity as usize {
                        return Err(CudaError::refused("attention", 0, "a cache has another room than the step"));
                    }
                    let [keys, values] = &mut cache.layers[layer];
                    step.attention_of_row(stream, row, qkv, attention, position, [keys, values], attended)?;
                }
                Ok(())
            }
        }
    }

    fn ffn(&mut self, context: &Context<'_, T>, weights: &LayerWeights<T>) -> Result<(), CudaError> {
        let StepSizes { hidden, ffn, .. } = self.sizes;
        let epsilon = context.config.norm_eps as f32;
        let Activations { x, gated, .. } = &mut self.activations;
        {
            let _op = stage_mark!(context.marks, Ops, "gate_up");
            let norm = Norm { weight: &weights.ffn_norm, epsilon };
            let linear = Linear { weight: &weights.gate_up, bias: weights.gate_up_bias.as_ref() };
            match &mut self.wide {
                None => self.step.norm_gate_up(context.stream, x, &norm, &linear, gated, [ffn, hidden])?,
                Some(wide) => wide.norm_gate_up(context, x, &norm, &linear, gated, [ffn, hidden])?,
            }
        }
        let _op = stage_mark!(context.marks, Ops, "down");
        let linear = Linear { weight: &weights.down, bias: weights.down_bias.as_ref() };
        match &self.wide {
            None => self.step.linear_add(context.stream, gated, &linear, x, [hidden, ffn]),
            Some(_) => add_product(context, gated, &linear, x, [hidden, ffn]),
        }
    }
}

impl<T: Number> Wide<T> {
    fn norm_linear(
        &mut self,
        context: &Context<'_, T>,
        x: &Buffer<T>,
        norm: &Norm<'_, T>,
        linear: &Linear<'_, T>,
        out: &mut Buffer<T>,
        [rows, width]: [u32; 2],
    ) -> Result<(), CudaError> {
        self.norm(context, x, norm, width)?;
        let batch = size(x.length())? / width.max(1);
        let sizes = Sizes { m: batch, n: rows, k: width, b_is_transposed: true };
        context.blas.multiply_slices([self.normed.all(), linear.weight.all()], out.all_mut(), sizes)?;
        add_bias(context, linear, out, [batch, rows])
    }

    fn norm_gate_up(
        &mut self,
        context: &Context<'_, T>,
        x: &Buffer<T>,
        norm: &Norm<'_, T>,
        linear: &Linear<'_, T>,
        out: &mut Buffer<T>,
        [ffn, width]: [u32; 2],
    ) -> Result<(), CudaError> {
        self.norm(context, x, norm, width)?;
        let batch = size(x.length())? / width.max(1);
        let sizes = Sizes { m: batch, n: 2 * ffn, k: width, b_is_transposed: true };
        context.blas.multiply_slices([self.normed.all(), linear.weight.all()], self.gate_up.all_mut(), sizes)?;
        let bias = linear.bias.map(Buffer::all);
        context.operations.swiglu(context.stream, &self.gate_up, bias, out, [batch, ffn])
    }

    fn norm(
        &mut self,
        context: &Context<'_, T>,
        x: &Buffer<T>,
        norm: &Norm<'_, T>,
        width: u32,
    ) -> Result<(), CudaError> {
        let shape = [size(x.length())? / width.max(1), width];
        context.operations.rms_norm(context.stream, x, norm.weight, &mut self.normed, shape, norm.epsilon)
    }
}

fn add_product<T: Number>(
    context: &Context<'_, T>,
    a: &Buffer<T>,
    linear: &Linear<'_, T>,
    x: &mut Buffer<T>,
    [rows, width]: [u32; 2],
) -> Result<(), CudaError> {
    let batch = size(a.length())? / width.max(1);
    let sizes = Sizes { m: batch, n: rows, k: width, b_is_transposed: true };
    context.blas.multiply_add([a.all(), linear.weight.all()], x.all_mut(), sizes)?;
    add_bias(context, linear, x, [batch, rows])
}

fn add_bias<T: Number>(
    context: &Context<'_, T>,
    linear: &Linear<'_, T>,
    out: &mut Buffer<T>,
    shape: [u32; 2],
) -> Result<(), CudaError> {
    linear.bias.map_or(Ok(()), |bias| context.operations.add_bias(context.stream, out, bias, shape))
}
