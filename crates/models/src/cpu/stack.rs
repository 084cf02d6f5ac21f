//! The layers of a decoder with their cache and buffers: hidden states in, normed hidden states out.
//!
//! The caller writes the hidden states and passes the head.

use std::sync::Arc;

use super::cache::{Cache, Heap};
use super::model::{Body, Loader};
use super::pass::{Buffers, Pass, Sizes};
use super::{attention::Span, crew::Crew, number::Number, streamed::Streamed};
use crate::attention::{CPU_TILING, Layout};
use crate::decoder::layers::{run_all, run_head};
use crate::{
    Config, Done, LayerVisit, ModelError, Offloading, Options, error::fit, marks::stage_mark, rope::RopeTable,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Before {
    /// No cache. Every row is normed.
    Nothing,
    /// The positions of the cache, to which the pass adds its own. The last row of each sequence is normed.
    Cache,
}

pub struct Stack<T> {
    pub config: Config,
    pub options: Options,
    body: Arc<Body<T>>,
    /// The offloaded layers, which precede those of the body.
    streamed: Option<Streamed<T>>,
    table: RopeTable,
    pub cache: Cache<T>,
    buffers: Buffers<T>,
    /// The layout of sparse attention at the length of the last pass.
    layout: Option<Layout>,
    /// The rows of the last pass that were normed, and those with logits.
    rows: usize,
    logits_rows: usize,
}

impl<T: Number> Stack<T> {
    pub fn new(config: Config, options: Options, body: Arc<Body<T>>) -> Result<Self, ModelError> {
        let (table, cache) = (RopeTable::new(&config), Cache::allocate(&Heap, &config, &options)?);
        let buffers = Buffers::default();
        Ok(Self { config, options, body, streamed: None, table, cache, buffers, layout: None, rows: 0, logits_rows: 0 })
    }

    pub fn load(config: Config, options: Options, mut loader: Loader<'_, T>) -> Result<Self, ModelError> {
        let streamed = Streamed::load(&config, &options, loader)?;
        let first = streamed.as_ref().map_or(0, |streamed| streamed.layers);
        let body = Arc::new(Body::load(&config, first, &mut loader)?);
        Ok(Self { streamed, ..Self::new(config, options, body)? })
    }

    pub fn offloading(&self) -> Option<Offloading> {
        self.streamed.as_ref().map(Streamed::offloading)
    }

    pub fn visits(&mut self) -> Result<Vec<LayerVisit>, ModelError> {
        self.streamed.as_mut().map_or(Ok(Vec::new()), Streamed::visits)
    }

    /// Runs this many rows of each sequence, which `enter` writes. With a head, also computes logits.
    pub fn run(
        &mut self,
        crew: &Crew,
        rows: usize,
        before: Before,
        head: Option<&Vec<T>>,
        enter: impl FnOnce(&mut [T]),
    ) -> Done {
        let start = if before == Before::Cache { self.cache.length() } else { 0 };
        let span = Span::new(&self.config, self.options.batch, rows, start);
        self.pass(crew, &[span], before, None, head, enter)
    }

    /// Runs a row of each sequence after the cache and, in the same pass, one after another cache at its own positions. The
    /// results of the first come first.
    pub fn run_both(
        &mut self,
        crew: &Crew,
        other: &mut Cache<T>,
        head: Option<&Vec<T>>,
        enter: impl FnOnce(&mut [T]),
    ) -> Done {
        other.reserve(&Heap, other.length() + 1)?;
        let spans = [self.cache.length(), other.length()];
        let spans = spans.map(|start| Span::new(&self.config, self.options.batch, 1, start));
        self.pass(crew, &spans, Before::Cache, Some(other), head, enter)
    }

    fn pass(
        &mut self,
        crew: &Crew,
        spans: &[Span],
        before: Before,
        other: Option<&mut Cache<T>>,
        head: Option<&Vec<T>>,
        enter: impl FnOnce(&mut [T]),
    ) -> Done {
        self.make_ready(spans, before, head.is_some())?;
        let rows: usize = spans.iter().map(Span::rows).sum();
        enter(&mut self.buffers.stream[..rows * self.config.hidden]);
        let own = (before == Before::Cache).then_some(&mut self.cache);
        let mut pass = Pass {
            config: &self.config,
            options: &self.options,
            crew,
            table: &self.table,
            layout: self.layout.as_ref(),
            spans,
            is_last_only: before == Before::Cache,
            buffers: &mut self.buffers,
            caches: own.into_iter().chain(other).collect(),
        };
        let Body { layers, norm } = &*self.body;
        run_all(&mut pass, self.streamed.as_mut(), layers, |pass| run_head(pass, norm, head))?;
        pass.caches.into_iter().zip(spans).for_each(|(cache, span)| cache.advance(span.keys()));
        Ok(())
    }

    pub fn normed(&self) -> &[T] {
        &self.buffers.normed[..self.rows * self.config.hidden]
    }

    pub fn logits(&self) -> &[T] {
        &self.buffers.logits[..self.logits_rows * self.config.vocab]
    }

    fn make_ready(&mut self, spans: &[Span], before: Before, has_head: bool) -> Done {
        let [first, ..] = spans else { return Ok(()) };
        let start = spans.iter().map(|span| span.start).max().unwrap_or_default();
        let span = &Span { batch: spans.iter().map(|span| span.batch).sum(), start, ..*first };
        fit(span.keys(), &self.config.name, self.config.context)?;
        let rows = match before {
            Before::Nothing => span.batch * span.queries,
            Before::Cache => {
                self.cache.reserve(&Heap, first.keys())?;
                span.batch
            }
        };
        (self.rows, self.logits_rows) = (0, 0);
        let logits_rows = if has_head { rows } else { 0 };
        self.buffers.fit(Sizes::new(&self.config, self.options.attention, span, logits_rows))?;
        (self.rows, self.logits_rows) = (rows, logits_rows);
        self.table.reach(span.keys());
        self.lay_out(span)
    }

    fn lay_out(&mut self, span: &Span) -> Done {
        let Some(kept) = &self.options.kept else { return Ok(()) };
        if span.start > 0 {
            return Err(ModelError::sparse_after_cache());
        }
        kept.refusal(span.queries).map_or(Ok(()), |reason| Err(ModelError::Refused(reason)))?;
        if self.layout.as_ref().is_none_or(|layout| layout.length != span.queries) {
            let _stage = stage_mark!(self.options.marks, Layer, "build_pattern");
            self.layout = Some(Layout::build(kept, span.queries, CPU_TILING));
        }
        Ok(())
    }
}
