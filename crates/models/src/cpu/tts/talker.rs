//! The talker: text and codes in, semantic codes out.

use super::{
    super::{
        crew::Crew,
        linear::Linear,
        model::{Body, Source},
        number::Number,
        stack::{Before, Stack},
        steps::embed,
    },
    engine::decoder_options,
    steps::{add_row, silu},
};
use crate::{
    ModelError, Room,
    cpu::cache::zeros,
    tts::{Part, Prompt, SpeakOptions, TtsConfig, TtsWeights},
};

/// The talker with its weights and its cache.
pub struct Talker<T> {
    text_embedding: Vec<T>,
    text_up: Linear<T>,
    text_down: Linear<T>,
    pub embedding: Vec<T>,
    head: Vec<T>,
    pub stack: Stack<T>,
    /// A row for every frame that text comes with, and one for when there is none left.
    following: Vec<T>,
}

impl<T: Number> Talker<T> {
    /// Puts the weights into memory.
    pub fn load(
        config: &TtsConfig,
        weights: &TtsWeights,
        options: &SpeakOptions,
        crew: &Crew,
    ) -> Result<Self, ModelError> {
        let source = Source { weights: Some(weights), crew };
        let tensors = config.talker_tensors();
        let body = Body::load(&config.talker, 0, Source { weights: Some(&weights.part(Part::Talker)), crew })?;
        let room = Room::Static(options.room);
        Ok(Self {
            text_embedding: source.stacked(&[&tensors.text_embedding])?,
            text_up: Linear::load(&tensors.text_up, source)?,
            text_down: Linear::load(&tensors.text_down, source)?,
            embedding: source.stacked(&[&tensors.embedding])?,
            head: source.stacked(&[&tensors.head])?,
            stack: Stack::new(config.talker.clone(), decoder_options(options, room, None), body)?,
            following: Vec::new(),
        })
    }

    /// Runs a prompt from the beginning, and keeps the rows of the text that follows.
    pub fn prefill(&mut self, crew: &Crew, prompt: &Prompt) -> Result<(), ModelError> {
        let hidden = self.stack.config().hidden;
        let first = prompt.positions.iter().map(|position| position.text);
        let ids: Vec<u32> = first.chain(prompt.following.iter().copied()).chain([prompt.pad]).collect();
        let mut rows = self.text_rows(crew, &ids)?;
        self.following = rows.split_off(prompt.positions.len() * hidden);
        for (position, row) in prompt.positions.iter().zip(rows.chunks_mut(hidden)) {
            if let Some(codec) = position.codec {
                add_row(row, &self.embedding[codec as usize * hidden..][..hidden]);
            }
        }
        self.stack.cache.truncate(0);
        let count = prompt.positions.len();
        self.stack.run(crew, count, Before::Cache, Some(&self.head), |stream| stream.copy_from_slice(&rows))
    }

    /// Runs a frame: what its codes make together, with the text that comes with it.
    pub fn step(&mut self, crew: &Crew, frame: usize, codes: &mut [T]) -> Result<(), ModelError> {
        let hidden = codes.len();
        let last = self.following.len() / hidden - 1;
        add_row(codes, &self.following[frame.min(last) * hidden..][..hidden]);
        self.stack.run(crew, 1, Before::Cache, Some(&self.head), |stream| stream.copy_from_slice(codes))
    }

    /// The rows of tokens of text, as wide as the talker.
    fn text_rows(&self, crew: &Crew, ids: &[u32]) -> Result<Vec<T>, ModelError> {
        let (width, rows) = (self.text_up.outputs(), ids.len());
        let (mut looked_up, mut inner) = (zeros(rows * width)?, zeros(rows * width)?);
        let mut out = zeros(rows * self.text_down.outputs())?;
        embed(crew, ids, &self.text_embedding, width, &mut looked_up);
        self.text_up.run(crew, rows, &looked_up, &mut inner);
        silu(crew, width, &mut inner);
        self.text_down.run(crew, rows, &inner, &mut out);
        Ok(out)
    }
}
