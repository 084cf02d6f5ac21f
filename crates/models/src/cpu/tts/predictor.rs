//! The code predictor: what the talker heard and a semantic code in, the other codes of the frame out.

use super::{
    super::{
        crew::Crew,
        linear::Linear,
        model::{Body, Source},
        number::Number,
        stack::{Before, Stack},
    },
    engine::decoder_options,
    steps::add_row,
};
use crate::{
    ModelError, Room, TensorSpec,
    tts::{Choice, Part, SpeakOptions, TtsConfig, TtsWeights, random_bits, sample},
};

/// The code predictor with its weights and the cache of one frame.
pub struct Predictor<T> {
    bridge: Option<Linear<T>>,
    /// For every group but the first.
    embeddings: Vec<Vec<T>>,
    heads: Vec<Vec<T>>,
    stack: Stack<T>,
    /// Rows as wide as the predictor's, and logits.
    rows: Vec<T>,
    scores: Vec<f32>,
}

/// Which frame is made, and how its codes are chosen.
#[derive(Clone, Copy)]
pub struct Chosen {
    pub frame: usize,
    pub choice: Choice,
    pub seed: u64,
}

impl<T: Number> Predictor<T> {
    /// Puts the weights into memory.
    pub fn load(
        config: &TtsConfig,
        weights: &TtsWeights,
        options: &SpeakOptions,
        crew: &Crew,
    ) -> Result<Self, ModelError> {
        let source = Source { weights: Some(weights), crew };
        let tensors = config.predictor_tensors();
        let body = Body::load(&config.predictor, 0, Source { weights: Some(&weights.part(Part::Predictor)), crew })?;
        let all = |specs: &[TensorSpec]| -> Result<Vec<Vec<T>>, ModelError> {
            specs.iter().map(|spec| source.stacked(&[spec])).collect()
        };
        let room = Room::Static(config.groups);
        Ok(Self {
            bridge: tensors.bridge.map(|bridge| Linear::load(&bridge, source)).transpose()?,
            embeddings: all(&tensors.embeddings)?,
            heads: all(&tensors.heads)?,
            stack: Stack::new(config.predictor.clone(), decoder_options(options, room, None), body)?,
            rows: Vec::new(),
            scores: Vec::new(),
        })
    }

    /// Chooses the other codes of a frame. `heard` are two rows of the talker's width: what it left, and the embedding of
    /// the semantic code. To the second the embeddings of all other codes are added.
    pub fn run(
        &mut self,
        crew: &Crew,
        heard: &mut [T],
        codes: &mut Vec<u32>,
        chosen: Chosen,
    ) -> Result<(), ModelError> {
        let wide = heard.len() / 2;
        self.stack.cache.truncate(0);
        self.pass(crew, 0, heard)?;
        for group in 1..=self.heads.len() {
            let code = self.choose(group, chosen);
            codes.push(code);
            let row = self.embeddings[group - 1][code as usize * wide..][..wide].to_vec();
            add_row(&mut heard[wide..], &row);
            if group < self.heads.len() {
                self.pass(crew, group, &row)?;
            }
        }
        Ok(())
    }

    /// Runs rows of the talker's width, and leaves logits of one of the heads.
    fn pass(&mut self, crew: &Crew, head: usize, from: &[T]) -> Result<(), ModelError> {
        let Self { bridge, heads, stack, rows, .. } = self;
        let hidden = stack.config().hidden;
        let wide = bridge.as_ref().map_or(hidden, |bridge| bridge.weight.len() / bridge.outputs());
        let count = from.len() / wide;
        rows.resize(count * hidden, T::default());
        match bridge {
            Some(bridge) => bridge.run(crew, count, from, rows),
            None => rows.copy_from_slice(from),
        }
        stack.run(crew, count, Before::Cache, Some(&heads[head]), |stream| stream.copy_from_slice(rows))
    }

    /// Chooses the code of a group from the logits that were left.
    fn choose(&mut self, group: usize, chosen: Chosen) -> u32 {
        self.scores.clear();
        self.scores.extend(self.stack.logits().iter().map(|logit| logit.wide()));
        sample(&mut self.scores, chosen.choice, random_bits(chosen.seed, chosen.frame as u32, group as u32))
    }
}
