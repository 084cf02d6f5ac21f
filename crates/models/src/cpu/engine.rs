//! A decoder whose numbers are all of one type.

use std::ops::Range;

use super::{
    attention::Span,
    cache::Cache,
    crew::Crew,
    model::{Model, Source},
    number::Number,
    pass::{Buffers, Pass, Sizes},
    vectors::index_of_largest,
};
use crate::{
    Config, Decoder, KeysValues, ModelError, Options, Replay, Tokens, Weights,
    attention::{CPU_TILING, Layout},
    marks::mark,
    rope::RopeTable,
};

/// A decoder whose numbers are all of one type.
pub struct Engine<T> {
    config: Config,
    options: Options,
    crew: Crew,
    model: Model<T>,
    table: RopeTable,
    cache: Cache<T>,
    buffers: Buffers<T>,
    /// What of the pairs is kept, at the length of the last pass.
    layout: Option<Layout>,
    /// Rows of logits that the last pass left.
    logits_rows: usize,
    chosen: Option<Vec<u32>>,
}

/// Whether a pass has keys and values before its own.
#[derive(Clone, Copy, PartialEq)]
enum Before {
    Nothing,
    Cache,
}

impl<T: Number> Engine<T> {
    /// Puts the weights into memory.
    pub fn new(config: Config, options: Options, threads: usize, weights: &Weights) -> Result<Self, ModelError> {
        let crew = Crew::new(threads)?;
        let model = Model::load(&config, Source { weights: Some(weights), crew: &crew })?;
        let (table, cache) = (RopeTable::new(&config), Cache::new(&config, &options)?);
        let buffers = Buffers::default();
        Ok(Self { config, options, crew, model, table, cache, buffers, layout: None, logits_rows: 0, chosen: None })
    }

    /// Runs tokens of all sequences through the model.
    fn pass(&mut self, ids: &[u32], before: Before) -> Result<(), ModelError> {
        let batch = self.options.batch;
        let is_last_only = before == Before::Cache;
        let start = if is_last_only { self.cache.length() } else { 0 };
        let span = Span::new(&self.config, batch, ids.len() / batch, start);
        self.make_ready(&span, before)?;
        let pass = Pass {
            config: &self.config,
            options: &self.options,
            crew: &self.crew,
            model: &self.model,
            table: &self.table,
            layout: self.layout.as_ref(),
            span,
            is_last_only,
        };
        pass.run(ids, &mut self.buffers, is_last_only.then_some(&mut self.cache));
        match before {
            Before::Nothing => Ok(()),
            Before::Cache => self.cache.set_length(span.keys()),
        }
    }

    /// Makes room for a pass, or refuses it before anything is computed.
    fn make_ready(&mut self, span: &Span, before: Before) -> Result<(), ModelError> {
        let (tokens, room) = (span.keys(), self.config.context);
        if tokens > room {
            return Err(ModelError::TooLong { tokens, what: self.config.name.clone(), room });
        }
        let rows = match before {
            Before::Nothing => span.batch * span.queries,
            Before::Cache => {
                self.cache.reserve(tokens)?;
                span.batch
            }
        };
        self.logits_rows = 0;
        self.buffers.fit(&Sizes::new(&self.config, self.options.attention, span, rows))?;
        self.logits_rows = rows;
        self.table.reach(tokens);
        self.lay_out(span)
    }

    /// Builds the layout of what is kept, unless the last pass had it.
    fn lay_out(&mut self, span: &Span) -> Result<(), ModelError> {
        let Some(kept) = &self.options.kept else { return Ok(()) };
        if span.start > 0 {
            return Err(refused("sparse attention begins with the first token: the cache must be empty".to_owned()));
        }
        if let Some(reason) = kept.refusal(span.queries) {
            return Err(refused(reason));
        }
        if self.layout.as_ref().is_none_or(|layout| layout.length != span.queries) {
            let _stage = mark!(self.options.marks, Layer, "build_pattern");
            self.layout = Some(Layout::build(kept, span.queries, CPU_TILING));
        }
        Ok(())
    }

    /// The logits of the last pass.
    fn last_logits(&self) -> &[T] {
        &self.buffers.logits[..self.logits_rows * self.config.vocab]
    }

    /// Runs tokens behind the cache and chooses the most likely ones.
    fn run_behind(&mut self, ids: &[u32]) -> Result<(), ModelError> {
        self.pass(ids, Before::Cache)?;
        let rows = self.last_logits().chunks(self.config.vocab);
        self.chosen = Some(rows.map(|row| index_of_largest(row) as u32).collect());
        Ok(())
    }

    /// Refuses tokens that are not of as many sequences as the decoder has.
    fn check(&self, tokens: &Tokens) -> Result<(), ModelError> {
        tokens.check(&self.config)?;
        match tokens.batch == self.options.batch {
            true => Ok(()),
            false => {
                Err(refused(format!("{} sequences are not the {} of the decoder", tokens.batch, self.options.batch)))
            }
        }
    }
}

impl<T: Number> Decoder for Engine<T> {
    fn config(&self) -> &Config {
        &self.config
    }

    fn options(&self) -> &Options {
        &self.options
    }

    fn forward(&mut self, tokens: &Tokens) -> Result<(), ModelError> {
        self.check(tokens)?;
        self.pass(&tokens.ids, Before::Nothing)
    }

    fn prefill(&mut self, tokens: &Tokens) -> Result<(), ModelError> {
        self.check(tokens)?;
        self.run_behind(&tokens.ids)
    }

    fn step(&mut self) -> Result<(), ModelError> {
        let ids = self.chosen()?;
        self.run_behind(&ids)
    }

    fn choose(&mut self, ids: &[u32]) -> Result<(), ModelError> {
        self.check(&Tokens { ids: ids.to_vec(), batch: self.options.batch })?;
        if ids.len() != self.options.batch {
            return Err(refused(format!(
                "{} tokens are not one for each of {} sequences",
                ids.len(),
                self.options.batch
            )));
        }
        self.chosen = Some(ids.to_vec());
        Ok(())
    }

    fn chosen(&mut self) -> Result<Vec<u32>, ModelError> {
        self.chosen.clone().ok_or_else(|| refused("no token was chosen yet".to_owned()))
    }

    fn logits(&mut self) -> Result<Vec<f32>, ModelError> {
        Ok(self.last_logits().iter().map(|logit| logit.wide()).collect())
    }

    fn look(&mut self, row: &mut dyn FnMut(&[f32])) -> Result<(), ModelError> {
        let mut wide = vec![0.0; self.config.vocab];
        for logits in self.last_logits().chunks(self.config.vocab) {
            wide.iter_mut().zip(logits).for_each(|(wide, logit)| *wide = logit.wide());
            row(&wide);
        }
        Ok(())
    }

    fn length(&self) -> usize {
        self.cache.length()
    }

    fn truncate(&mut self, length: usize) -> Result<(), ModelError> {
        self.cache.truncate(length);
        Ok(())
    }

    fn read_cache(&mut self, layer: usize) -> Result<KeysValues, ModelError> {
        self.cache.read(layer)
    }

    fn read_positions(&mut self, layer: usize, positions: Range<usize>) -> Result<KeysValues, ModelError> {
        self.cache.read_positions(layer, positions)
    }

    fn write_cache(&mut self, layer: usize, start: usize, values: &KeysValues) -> Result<(), ModelError> {
        self.cache.write(layer, start, values)
    }

    fn set_length(&mut self, length: usize) -> Result<(), ModelError> {
        self.cache.set_length(length)
    }

    fn replay(&self) -> Replay {
        Replay::Launches
    }
}

fn refused(reason: String) -> ModelError {
    ModelError::Refused(reason)
}
