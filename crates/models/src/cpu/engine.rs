//! The passes of a decoder on the CPU.

use std::ops::Range;

use laptime_probe::stage;

use super::cache::{Cache, Heap};
use super::stack::{Before, Stack};
use super::steps::{embed, scale};
use super::{crew::Crew, model::Loader, number::Number, vectors::index_of_largest};
use crate::decoder::generic::{Passes, Results};
use crate::marks::{mark_embedding, stage_mark};
use crate::{Config, DecoderBackend, Done, Dtype, LayerVisit, ModelError, Offloading, Options, Weights};

pub struct CpuPasses<T> {
    crew: Crew,
    embedding: Vec<T>,
    /// The head, unless it is tied to the embedding.
    own_head: Option<Vec<T>>,
    stack: Stack<T>,
    sampled: Vec<u32>,
    results: Results,
}

impl<T: Number> CpuPasses<T> {
    pub fn new(config: Config, options: Options, threads: usize, weights: &Weights) -> Result<Self, ModelError> {
        let crew = Crew::new(threads)?;
        let fp8 = (options.dtype == Dtype::Fp8).then_some(config.weight_scales);
        let loader = Loader::new(Some(weights), &crew).with_fp8(fp8);
        let _stage = stage!("weights");
        let embedding = loader.stacked(&[config.embedding_tensor()])?;
        let own_head = config.head_tensor().map(|spec| loader.stacked(&[spec])).transpose()?;
        let stack = Stack::load(config, options, loader)?;
        Ok(Self { crew, embedding, own_head, stack, sampled: Vec::new(), results: Results::default() })
    }

    fn run(&mut self, ids: &[u32], before: Before) -> Done {
        let Self { crew, embedding, own_head, stack, .. } = self;
        let (hidden, factor) = (stack.config.hidden, stack.config.embedding_scale());
        let marks = stack.options.marks.clone();
        let head = own_head.as_ref().unwrap_or(embedding);
        let tokens = ids.len() / stack.options.batch;
        stack.run(crew, tokens, before, Some(head), |stream| {
            let _stage = mark_embedding!(marks, ids.len());
            embed(crew, ids, embedding, hidden, stream);
            if let Some(factor) = factor {
                scale(crew, factor, stream);
            }
        })
    }
}

impl<T: Number> DecoderBackend for CpuPasses<T> {
    fn config(&self) -> &Config {
        &self.stack.config
    }

    fn options(&self) -> &Options {
        &self.stack.options
    }

    fn offloading(&self) -> Option<Offloading> {
        self.stack.offloading()
    }

    fn layer_visits(&mut self) -> Result<Vec<LayerVisit>, ModelError> {
        self.stack.visits()
    }
}

impl<T: Number> Passes for CpuPasses<T> {
    type Buffer = Vec<T>;
    type Memory = Heap;

    fn results(&mut self) -> &mut Results {
        &mut self.results
    }

    fn cache(&self) -> &Cache<T> {
        &self.stack.cache
    }

    fn cache_mut(&mut self) -> (&mut Cache<T>, &Heap) {
        (&mut self.stack.cache, &Heap)
    }

    fn reserve(&mut self, positions: usize) -> Done {
        self.stack.cache.reserve(&Heap, positions)
    }

    fn run_forward(&mut self, ids: &[u32]) -> Done {
        self.run(ids, Before::Nothing)
    }

    fn run_prefill(&mut self, ids: &[u32]) -> Done {
        self.run(ids, Before::Cache)?;
        let _stage = stage_mark!(self.stack.options.marks, Layer, "sampling");
        let rows = self.stack.logits().chunks(self.stack.config.vocab);
        self.sampled = rows.map(|row| index_of_largest(row) as u32).collect();
        Ok(())
    }

    fn run_next(&mut self) -> Done {
        self.run_prefill(&self.sampled.clone())
    }

    fn write_next(&mut self, ids: &[u32]) -> Done {
        ids.clone_into(&mut self.sampled);
        Ok(())
    }

    fn read_next(&mut self) -> Result<Vec<u32>, ModelError> {
        Ok(self.sampled.clone())
    }

    fn logits_count(&self) -> usize {
        self.stack.logits().len()
    }

    fn read_logits(&self, range: Range<usize>) -> Result<Vec<f32>, ModelError> {
        Ok(self.stack.logits()[range].iter().map(|logit| logit.wide()).collect())
    }
}
