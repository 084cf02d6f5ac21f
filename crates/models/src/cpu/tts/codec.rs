//! The codec decoder: codes in, samples out.

use super::{
    super::{
        conv::{Conv, Depthwise},
        crew::Crew,
        linear::Linear,
        model::Source,
        number::Number,
        product::{Put, project},
        rows::Rows,
        stack::{Before, Stack},
        steps::gelu,
    },
    engine::decoder_options,
    load::Load,
    memory::Sizes,
    steps::{CentredNorm, Snake, add_scaled},
};
use crate::{
    ModelError, Room,
    cpu::cache::zeros,
    tts::{CodecConfig, Part, SpeakOptions, TtsConfig, TtsWeights},
};

/// The codec decoder with its weights.
pub struct Codec<T> {
    config: CodecConfig,
    /// The vectors of each group, rounded to the dtype of the weights.
    codebooks: Vec<Vec<f32>>,
    /// Both projections side by side: the first group's vector, then the sum of all others.
    projection: Vec<T>,
    input: Conv<T>,
    enter: Linear<T>,
    stack: Stack<T>,
    leave: Linear<T>,
    next: Vec<Next<T>>,
    first: Conv<T>,
    blocks: Vec<Block<T>>,
    snake: Snake,
    last: Conv<T>,
    buffers: Buffers<T>,
}

/// A block that lengthens, and a ConvNeXt block behind it.
pub struct Next<T> {
    pub lengthen: Conv<T>,
    pub depthwise: Depthwise,
    pub norm: CentredNorm,
    pub up: Linear<T>,
    pub down: Linear<T>,
    pub scale: Vec<f32>,
}

/// A block that lengthens, and residual units behind it.
pub struct Block<T> {
    pub snake: Snake,
    pub lengthen: Conv<T>,
    pub units: Vec<Unit<T>>,
}

/// A residual unit.
pub struct Unit<T> {
    pub snake: Snake,
    pub wide: Conv<T>,
    pub snake_between: Snake,
    pub narrow: Conv<T>,
}

/// What decoding computes in, kept from one chunk to the next.
#[derive(Default)]
struct Buffers<T> {
    /// What blocks add to.
    stream: Vec<T>,
    second: Vec<T>,
    third: Vec<T>,
    gathered: Vec<T>,
}

impl<T: Number> Codec<T> {
    /// Puts the weights into memory.
    pub fn load(
        config: &TtsConfig,
        weights: &TtsWeights,
        options: &SpeakOptions,
        crew: &Crew,
    ) -> Result<Self, ModelError> {
        let load = Load(Source { weights: Some(weights), crew });
        let tensors = config.codec_tensors();
        let codec = &config.codec;
        let next = tensors.next.iter().zip(&codec.ratios).map(|(next, ratio)| load.next(next, *ratio));
        let blocks = tensors.blocks.iter().zip(&codec.rates).map(|(block, rate)| load.block(block, *rate));
        let body = load.body(config, &weights.part(Part::Codec), &tensors)?;
        let options = decoder_options(options, Room::Growing, Some(codec.kept()));
        Ok(Self {
            codebooks: tensors.codebooks.iter().map(|book| load.codebook::<T>(book)).collect::<Result<_, _>>()?,
            projection: load.projection(&tensors, codec.vector_width())?,
            input: load.conv(&tensors.input, 1)?,
            enter: Linear::load(&tensors.enter, load.0)?,
            stack: Stack::new(codec.transformer.clone(), options, body)?,
            leave: Linear::load(&tensors.leave, load.0)?,
            next: next.collect::<Result<_, _>>()?,
            first: load.conv(&tensors.first, 1)?,
            blocks: blocks.collect::<Result<_, _>>()?,
            snake: load.snake::<T>(&tensors.snake)?,
            last: load.conv(&tensors.last, 1)?,
            config: config.codec.clone(),
            buffers: Buffers::default(),
        })
    }

    /// Adds the samples of frames of codes, without the first ones.
    pub fn decode(
        &mut self,
        crew: &Crew,
        codes: &[u32],
        dropped: usize,
        samples: &mut Vec<f32>,
    ) -> Result<(), ModelError> {
        let frames = codes.len() / self.config.groups;
        self.fit(frames)?;
        self.quantised(crew, codes);
        self.transform(crew, frames)?;
        let rows = self.lengthen(crew, frames);
        let Self { first, blocks, snake, last, buffers, .. } = self;
        let rows = buffers.conv(crew, first, rows);
        let rows = blocks.iter().fold(rows, |rows, block| block.run(crew, rows, buffers));
        buffers.snake(crew, snake, rows * last.inputs());
        std::mem::swap(&mut buffers.stream, &mut buffers.second);
        buffers.conv(crew, last, rows);
        let heard = &buffers.stream[dropped.min(rows)..rows];
        let bytes = 4 * heard.len() as u64;
        samples.try_reserve_exact(heard.len()).map_err(|_| ModelError::OutOfMemory { bytes })?;
        samples.extend(heard.iter().map(|sample| sample.wide().clamp(-1.0, 1.0)));
        Ok(())
    }

    /// Makes every buffer as large as this many frames need.
    fn fit(&mut self, frames: usize) -> Result<(), ModelError> {
        let sizes = Sizes::new(&self.config, frames);
        let Buffers { stream, second, third, gathered } = &mut self.buffers;
        for (buffer, size) in
            [stream, second, third].map(|buffer| (buffer, sizes.stream)).into_iter().chain([(gathered, sizes.gathered)])
        {
            if buffer.len() < size {
                // The old one is not needed, and not both at once.
                *buffer = Vec::new();
                *buffer = zeros(size)?;
            }
        }
        Ok(())
    }

    /// Looks the vectors of all codes up, and brings them to the width of codes.
    fn quantised(&mut self, crew: &Crew, codes: &[u32]) {
        let (width, groups) = (self.config.vector_width(), self.config.groups);
        let Buffers { stream, second, .. } = &mut self.buffers;
        let mut sum = vec![0.0; width];
        for (codes, out) in codes.chunks(groups).zip(second.chunks_mut(2 * width)) {
            let vector = |group: usize| &self.codebooks[group][codes[group] as usize * width..][..width];
            let (first, rest) = out.split_at_mut(width);
            first.iter_mut().zip(vector(0)).for_each(|(out, number)| *out = T::narrow(*number));
            sum.fill(0.0);
            (1..groups).for_each(|group| sum.iter_mut().zip(vector(group)).for_each(|(sum, number)| *sum += number));
            rest.iter_mut().zip(&sum).for_each(|(out, sum)| *out = T::narrow(*sum));
        }
        let (frames, outputs) = (codes.len() / groups, self.projection.len() / (2 * width));
        let projection = Rows::dense(&self.projection, outputs, 2 * width);
        project(crew, Rows::dense(second, frames, 2 * width), projection, stream, Put::OVER);
    }

    /// The first convolution, and the transformer.
    fn transform(&mut self, crew: &Crew, frames: usize) -> Result<(), ModelError> {
        self.buffers.conv(crew, &self.input, frames);
        let Self { enter, stack, leave, buffers, .. } = self;
        let stream = &buffers.stream;
        stack.run(crew, frames, Before::Nothing, None, |to| enter.run(crew, frames, stream, to))?;
        leave.run(crew, frames, stack.normed(), &mut buffers.stream);
        Ok(())
    }

    /// The blocks behind the transformer; says how many positions there are behind them.
    fn lengthen(&mut self, crew: &Crew, frames: usize) -> usize {
        let Self { next, buffers, .. } = self;
        next.iter().fold(frames, |rows, next| next.run(crew, rows, buffers))
    }
}

impl<T: Number> Next<T> {
    fn run(&self, crew: &Crew, rows: usize, buffers: &mut Buffers<T>) -> usize {
        let rows = buffers.conv(crew, &self.lengthen, rows);
        let (width, inner) = (self.scale.len(), self.up.outputs());
        let Buffers { stream, second, third, .. } = buffers;
        let stream = &mut stream[..rows * width];
        self.depthwise.run(crew, stream, third);
        self.norm.run(crew, &mut third[..rows * width]);
        self.up.run(crew, rows, third, second);
        gelu(crew, inner, &mut second[..rows * inner]);
        self.down.run(crew, rows, second, third);
        add_scaled(crew, &self.scale, &third[..rows * width], stream);
        rows
    }
}

impl<T: Number> Block<T> {
    fn run(&self, crew: &Crew, rows: usize, buffers: &mut Buffers<T>) -> usize {
        buffers.snake(crew, &self.snake, rows * self.lengthen.inputs());
        std::mem::swap(&mut buffers.stream, &mut buffers.second);
        let rows = buffers.conv(crew, &self.lengthen, rows);
        self.units.iter().for_each(|unit| unit.run(crew, rows, buffers));
        rows
    }
}

impl<T: Number> Unit<T> {
    fn run(&self, crew: &Crew, rows: usize, buffers: &mut Buffers<T>) {
        let size = rows * self.wide.inputs();
        buffers.snake(crew, &self.snake, size);
        let Buffers { stream, second, third, gathered } = buffers;
        self.wide.run(crew, &second[..size], third, gathered, Put::OVER);
        self.snake_between.run(crew, &third[..size], second);
        self.narrow.run(crew, &second[..size], stream, gathered, Put::ONTO);
    }
}

impl<T: Number> Buffers<T> {
    /// Convolves the stream; says how many positions it has behind that.
    fn conv(&mut self, crew: &Crew, conv: &Conv<T>, rows: usize) -> usize {
        let from = &self.stream[..rows * conv.inputs()];
        conv.run(crew, from, &mut self.second, &mut self.gathered, Put::OVER);
        std::mem::swap(&mut self.stream, &mut self.second);
        rows * conv.stride()
    }

    /// What an activation makes of the stream, into the second buffer.
    fn snake(&mut self, crew: &Crew, snake: &Snake, size: usize) {
        snake.run(crew, &self.stream[..size], &mut self.second);
    }
}
