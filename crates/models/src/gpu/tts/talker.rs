//! The talker on a GPU: a prompt as one pass, a frame as one step.

use laptime_cuda::{
    Blas, Buffer, Cache, CudaError, Device, Sizes,
    decode::{FrameStep, FrameTables, Frames, State},
    nn::{Attention, Gate},
};

use super::{
    super::{
        cache::GpuCache,
        pass::{Buffers, KeysValuesIn, Pass, PassRows, PromptRows, Sequences, Turns, head_sizes},
        room::{Head, PassSizes},
        size,
        step::Stepper,
        weights::Number,
    },
    captured::{Border, inside_graphs},
    context, decoder_options,
    weights::{LinearWeights, TtsGpuWeights},
};
use crate::{
    Config, ModelError, Options,
    decoder::layers::run_resident,
    tts::{Prompt, SpeakOptions, TtsConfig},
};

/// Rows of text that there is room for at first.
pub const TEXT_ROOM: usize = 1024;

/// The talker's cache, and what goes through it.
pub struct Talker<T> {
    config: Config,
    options: Options,
    /// Those of a step, which may be captured.
    step_options: Options,
    text_width: usize,
    /// Codes of each group but the first.
    codes: usize,
    pub stepper: Stepper<T>,
    pub state: State,
    cache: GpuCache<T>,
    turns: Turns,
    attention: Attention<T>,
    /// Rows of the text that enters frame by frame, the last of which stays.
    text: Buffer<T>,
    /// How many there are, on the device.
    text_rows: Buffer<u32>,
}

impl<T: Number> Talker<T> {
    pub fn new(device: &Device, config: &TtsConfig, options: &SpeakOptions) -> Result<Self, ModelError> {
        let (talker, room) = (config.talker.clone(), options.room);
        Ok(Self {
            options: decoder_options(options, room, None),
            step_options: decoder_options(&inside_graphs(options), room, None),
            text_width: config.text_width,
            codes: config.predictor.vocab,
            stepper: Stepper::new(device, &talker, 1, room)?,
            state: State::new(device, 1, 1)?,
            cache: GpuCache::new(device, &talker, 1, room)?,
            turns: Turns::new(device, &talker, room)?,
            attention: Attention::load(device, &Cache::of_user(), size(talker.head_dim)?)?,
            text: device.allocate(TEXT_ROOM * talker.hidden)?,
            text_rows: device.upload(&[0])?,
            config: talker,
        })
    }

    /// Makes room for the rows of a text; says whether the old place is no more.
    pub fn make_room(&mut self, device: &Device, rows: usize) -> Result<bool, CudaError> {
        let numbers = rows.saturating_mul(self.config.hidden);
        if numbers <= self.text.length() {
            return Ok(false);
        }
        device.stream().synchronise()?;
        self.text = device.allocate(numbers.next_power_of_two())?;
        Ok(true)
    }

    /// Runs a prompt, and leaves the stream and the logits of its last position where a step leaves them.
    pub fn prefill(
        &mut self,
        device: &Device,
        blas: &Blas,
        weights: &TtsGpuWeights<T>,
        prompt: &Prompt,
    ) -> Result<(), CudaError> {
        let (stream, hidden, count) = (device.stream(), self.config.hidden, prompt.positions.len());
        let first = prompt.positions.iter().map(|position| position.text);
        let ids: Vec<u32> = first.chain(prompt.following.iter().copied()).chain([prompt.pad]).collect();
        let rows = self.text_rows(device, blas, weights, &ids)?;
        let following = rows.slice(count * hidden..rows.length())?;
        self.text.all_mut().copy_from(stream, following)?;
        self.text_rows.set_all(stream, size(ids.len() - count)?)?;

        let sizes = PassSizes::new(&self.config, &self.options, count, count, Head::Last);
        let mut buffers = Buffers::new(device, sizes)?;
        buffers.x.all_mut().copy_from(stream, rows.slice(0..count * hidden)?)?;
        let codec: Vec<u32> = prompt.positions.iter().map(|position| position.codec.unwrap_or(u32::MAX)).collect();
        let codec = device.upload(&codec)?;
        let shape = [size(self.config.vocab)?, size(hidden)?];
        weights.rows.add_embedding(stream, codec.all(), weights.talker.embedding.all(), &mut buffers.x, shape)?;
        self.run_prompt(device, blas, weights, &mut buffers, count)?;
        let x = &mut self.stepper.buffers.x;
        weights.operations.last_rows(stream, &buffers.x, x, [1, size(count)?, size(hidden)?])?;
        self.state.position.set_all(stream, size(count)?)?;
        self.head(device, blas, weights)
    }

    /// The layers, over all positions of a prompt.
    fn run_prompt(
        &mut self,
        device: &Device,
        blas: &Blas,
        weights: &TtsGpuWeights<T>,
        buffers: &mut Buffers<T>,
        count: usize,
    ) -> Result<(), CudaError> {
        self.state.position.set_all(device.stream(), 0)?;
        let prompt = PromptRows {
            attention: &self.attention,
            blocks: None,
            kind: self.options.attention,
            start: &self.state.position,
            heads: head_sizes(&self.config, 1, count, self.cache.capacity)?,
            keys: size(count)?,
            head: Head::Last,
            cache: KeysValuesIn::Cache(&mut self.cache),
        };
        let context = context(device, blas, &weights.operations, (&self.config, &self.options, &self.turns));
        let mut pass = Pass { context, buffers, rows: PassRows::Prompt(prompt) };
        run_resident(&mut pass, 0, &weights.talker.layers, |_| Ok(()))
    }

    /// The rows of tokens of text, as wide as the talker.
    fn text_rows(
        &self,
        device: &Device,
        blas: &Blas,
        weights: &TtsGpuWeights<T>,
        ids: &[u32],
    ) -> Result<Buffer<T>, CudaError> {
        let (stream, width, talker) = (device.stream(), self.text_width, &weights.talker);
        let (rows, columns) = (size(ids.len())?, size(width)?);
        let vocab = size(talker.text_embedding.length() / width.max(1))?;
        let ids = device.upload(ids)?;
        let mut looked_up = device.allocate(ids.length() * width)?;
        weights.operations.embed(stream, &ids, &talker.text_embedding, &mut looked_up, [vocab, columns])?;
        let mut inner = linear(device, blas, &talker.text_up, &looked_up, [rows, columns])?;
        let bias = Some(talker.text_up.bias.all());
        weights.rows.bias_gate(stream, &mut inner, bias, [rows, columns], Gate::Silu)?;
        let mut out = linear(device, blas, &talker.text_down, &inner, [rows, columns])?;
        let shape = [rows, size(self.config.hidden)?];
        weights.operations.add_bias(stream, &mut out, &talker.text_down.bias, shape)?;
        Ok(out)
    }

    /// Stages that a step has at most: the sum of embeddings, the layers and the head.
    pub fn step_stages(&self) -> usize {
        self.config.layers + 2
    }

    /// Puts a step on the stream: all codes of the frame and the text that comes with it, through all layers to logits.
    pub fn step(
        &mut self,
        device: &Device,
        blas: &Blas,
        weights: &TtsGpuWeights<T>,
        (kernels, frames): (&FrameStep<T>, &Frames),
        border: Border<'_>,
    ) -> Result<(), CudaError> {
        border("embed", None)?;
        let tables = FrameTables {
            first: &weights.talker.embedding,
            first_size: size(self.config.vocab)?,
            others: &weights.predictor.embeddings,
            size: size(self.codes)?,
            text: &self.text,
            text_rows: &self.text_rows,
        };
        let hidden = size(self.config.hidden)?;
        kernels.sum(device.stream(), frames, &tables, &mut self.stepper.buffers.x, hidden)?;
        let of = (&self.config, &self.step_options, &self.turns);
        let context = context(device, blas, &weights.operations, of);
        let sequences = Sequences::Together(&self.state, &mut self.cache);
        run_resident(&mut self.stepper.pass(context, sequences), 0, &weights.talker.layers, |index| {
            border("layer", Some(("layer", index)))
        })?;
        border("head", None)?;
        self.stepper.head(context, &weights.talker.norm, &weights.talker.head)
    }

    /// Logits of the stream as it is.
    fn head(&mut self, device: &Device, blas: &Blas, weights: &TtsGpuWeights<T>) -> Result<(), CudaError> {
        let of = (&self.config, &self.options, &self.turns);
        let context = context(device, blas, &weights.operations, of);
        self.stepper.head(context, &weights.talker.norm, &weights.talker.head)
    }
}

/// The product of rows with a matrix.
fn linear<T: Number>(
    device: &Device,
    blas: &Blas,
    linear: &LinearWeights<T>,
    from: &Buffer<T>,
    [rows, width]: [u32; 2],
) -> Result<Buffer<T>, CudaError> {
    let outputs = size(linear.bias.length())?;
    let mut out = device.allocate(rows as usize * outputs as usize)?;
    let sizes = Sizes { m: rows, n: outputs, k: width, b_is_transposed: true };
    blas.multiply([from, &linear.weight], &mut out, sizes)?;
    Ok(out)
}
