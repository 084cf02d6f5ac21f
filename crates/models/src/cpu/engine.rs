//! A decoder whose numbers are all of one type.

use std::ops::Range;

use laptime_probe::stage;

use super::{
    crew::Crew,
    model::Source,
    number::Number,
    stack::{Before, Stack},
    steps::embed,
    vectors::index_of_largest,
};
use crate::{
    Config, Decoder, KeysValues, LayerVisit, ModelError, Offloading, Options, Replay, Tokens, Weights,
    marks::{mark_embedding, stage_mark},
};

/// A decoder whose numbers are all of one type.
pub struct Engine<T> {
    crew: Crew,
    embedding: Vec<T>,
    /// The head, unless it is the embedding.
    own_head: Option<Vec<T>>,
    stack: Stack<T>,
    chosen: Option<Vec<u32>>,
}

impl<T: Number> Engine<T> {
    /// Puts the weights into memory.
    pub fn new(config: Config, options: Options, threads: usize, weights: &Weights) -> Result<Self, ModelError> {
        let crew = Crew::new(threads)?;
        let source = Source { weights: Some(weights), crew: &crew };
        let _stage = stage!("weights");
        let embedding = source.stacked(&[&config.embedding_tensor()])?;
        let own_head = config.head_tensor().map(|spec| source.stacked(&[&spec])).transpose()?;
        let stack = Stack::load(config, options, source)?;
        Ok(Self { crew, embedding, own_head, stack, chosen: None })
    }

    /// Runs tokens of all sequences through the model.
    fn pass(&mut self, ids: &[u32], before: Before) -> Result<(), ModelError> {
        let Self { crew, embedding, own_head, stack, .. } = self;
        let (hidden, marks) = (stack.config().hidden, stack.options().marks.clone());
        let head = own_head.as_ref().unwrap_or(embedding);
        let tokens = ids.len() / stack.options().batch;
        stack.run(crew, tokens, before, Some(head), |stream| {
            let _stage = mark_embedding!(marks, ids.len());
            embed(crew, ids, embedding, hidden, stream);
        })
    }

    /// Runs tokens behind the cache and chooses the most likely ones.
    fn run_behind(&mut self, ids: &[u32]) -> Result<(), ModelError> {
        self.pass(ids, Before::Cache)?;
        let _stage = stage_mark!(self.stack.options().marks, Layer, "choose");
        let rows = self.stack.logits().chunks(self.stack.config().vocab);
        self.chosen = Some(rows.map(|row| index_of_largest(row) as u32).collect());
        Ok(())
    }

    /// The logits of the last pass.
    fn last_logits(&self) -> Result<&[T], ModelError> {
        match self.stack.logits() {
            [] => Err(ModelError::no_pass()),
            logits => Ok(logits),
        }
    }
}

impl<T: Number> Decoder for Engine<T> {
    fn config(&self) -> &Config {
        self.stack.config()
    }

    fn options(&self) -> &Options {
        self.stack.options()
    }

    fn forward(&mut self, tokens: &Tokens) -> Result<(), ModelError> {
        tokens.check_batch(self.stack.config(), self.stack.options().batch)?;
        self.pass(&tokens.ids, Before::Nothing)
    }

    fn prefill(&mut self, tokens: &Tokens) -> Result<(), ModelError> {
        tokens.check_batch(self.stack.config(), self.stack.options().batch)?;
        self.run_behind(&tokens.ids)
    }

    fn step(&mut self) -> Result<(), ModelError> {
        let ids = self.chosen()?;
        self.run_behind(&ids)
    }

    fn choose(&mut self, ids: &[u32]) -> Result<(), ModelError> {
        let tokens = Tokens { ids: ids.to_vec(), batch: ids.len() };
        tokens.check_batch(self.stack.config(), self.stack.options().batch)?;
        self.chosen = Some(tokens.ids);
        Ok(())
    }

    fn chosen(&mut self) -> Result<Vec<u32>, ModelError> {
        self.chosen.clone().ok_or_else(ModelError::no_token)
    }

    fn logits(&mut self) -> Result<Vec<f32>, ModelError> {
        Ok(self.last_logits()?.iter().map(|logit| logit.wide()).collect())
    }

    fn look(&mut self, row: &mut dyn FnMut(&[f32])) -> Result<(), ModelError> {
        let mut wide = vec![0.0; self.stack.config().vocab];
        for logits in self.last_logits()?.chunks(self.stack.config().vocab) {
            wide.iter_mut().zip(logits).for_each(|(wide, logit)| *wide = logit.wide());
            row(&wide);
        }
        Ok(())
    }

    fn length(&self) -> usize {
        self.stack.cache.length()
    }

    fn truncate(&mut self, length: usize) -> Result<(), ModelError> {
        self.stack.cache.truncate(length);
        Ok(())
    }

    fn read_cache(&mut self, layer: usize) -> Result<KeysValues, ModelError> {
        self.stack.cache.read(layer)
    }

    fn read_positions(&mut self, layer: usize, positions: Range<usize>) -> Result<KeysValues, ModelError> {
        self.stack.cache.read_positions(layer, positions)
    }

    fn write_cache(&mut self, layer: usize, start: usize, values: &KeysValues) -> Result<(), ModelError> {
        self.stack.cache.write(layer, start, values)
    }

    fn set_length(&mut self, length: usize) -> Result<(), ModelError> {
        self.stack.cache.set_length(length)
    }

    fn replay(&self) -> Replay {
        Replay::Launches
    }

    fn offloading(&self) -> Option<Offloading> {
        self.stack.offloading()
    }

    fn layer_visits(&mut self) -> Result<Vec<LayerVisit>, ModelError> {
        Ok(self.stack.visits())
    }
}
