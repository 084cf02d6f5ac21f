//! Passes over many tokens on a GPU. From the third prompt of a length on, prompts are replayed as a graph.

// A graph keeps addresses of buffers, which the decoder keeps as long as the graph.
#![allow(unsafe_code)]

use std::slice::from_mut;

use laptime_probe::stage;

use super::captured::{Captured, most_stages};
use super::decoder::GpuPasses;
use super::memory::{Head, PassSizes};
use super::pass::{Buffers, DeviceRope, Pass, PassRows, PromptRows, head_sizes};
use super::{size, sparse::Sparse, stepping::context, weights::Number};
use crate::decoder::layers::{run_all, run_head};
use crate::marks::{mark_embedding, stage_mark};
use crate::{Attention, Done, EmbeddingStage, GraphMode, Marks, ModelError, Replay};

/// What the launches of a prompt depend on: buffer sizes, tokens, and whether it begins with the first position, which
/// has another attention. Other positions are on the device.
type Key = (PassSizes, usize, bool);

/// The last prompt.
pub struct Prompt {
    key: Key,
    /// None before the second prompt; then the graph, or why there is none.
    graph: Option<Result<Captured, String>>,
}

impl Prompt {
    pub fn into_graph(self) -> Option<Captured> {
        self.graph?.ok()
    }

    fn graph_mut(&mut self) -> Option<&mut Captured> {
        self.graph.as_mut()?.as_mut().ok()
    }
}

impl<T: Number> GpuPasses<'_, T> {
    /// Runs the ids in the buffers after the cache. The first prompt of a length is launched, so that everything it needs
    /// is loaded; the second is captured.
    pub(super) fn run_prompt(&mut self, tokens: usize) -> Done {
        self.capture_prompt(tokens)?;
        if !self.embeds_inside() {
            self.embed(tokens)?;
        }
        let stream = self.device.stream();
        match self.prompt.as_mut().and_then(Prompt::graph_mut) {
            // SAFETY: this decoder owns the buffers and waits for the stream before it drops the graph or them.
            Some(graph) => unsafe { graph.launch(stream) }?,
            None => self.launch_prompt(tokens)?,
        }
        self.has_step_logits = false;
        Ok(())
    }

    /// The number of the next replay of a prompt, if its stages are recorded.
    pub(super) fn next_prompt_number(&mut self, tokens: usize) -> Result<Option<u64>, ModelError> {
        let sizes = self.prompt_sizes(tokens);
        if self.buffers.as_ref().is_none_or(|buffers| buffers.sizes != sizes) {
            return Ok(None);
        }
        self.capture_prompt(tokens)?;
        let graph = self.prompt.as_mut().and_then(Prompt::graph_mut);
        graph.map_or(Ok(None), |graph| graph.next_number(self.device))
    }

    pub(super) fn prompt_sizes(&self, tokens: usize) -> PassSizes {
        PassSizes::new(&self.config, &self.options, tokens, self.cache.length() + tokens, Head::Last)
    }

    /// How prompts run: the last one, or the next if it is the same.
    pub(super) fn replay_of_prompts(&self) -> Replay {
        let graph = self.prompt.as_ref().and_then(|prompt| prompt.graph.as_ref());
        match (self.options.graph, self.prompt_obstacle(), graph) {
            (GraphMode::Off, ..) | (_, None, None) => Replay::Launches,
            (_, Some(reason), _) => Replay::FellBack(reason.to_owned()),
            (_, None, Some(Ok(graph))) => Replay::Graph { nodes: graph.nodes() },
            (_, None, Some(Err(reason))) => Replay::FellBack(reason.clone()),
        }
    }

    /// Why prompts cannot be captured, if they cannot.
    fn prompt_obstacle(&self) -> Option<&'static str> {
        if self.options.attention == Attention::Naive {
            Some("the scores of naive attention grow with the cache")
        } else if self.sparse.is_some() {
            Some("the layout of sparse attention is uploaded for each length")
        } else if self.streamed.is_some() {
            Some("offloaded layers are copied during the pass")
        } else {
            None
        }
    }

    /// Drops the last prompt before buffers change whose addresses are in its graph. Waits for the device if there is one.
    pub(super) fn drop_prompt(&mut self) -> Done {
        let Some(mut graph) = self.prompt.take().and_then(Prompt::into_graph) else { return Ok(()) };
        self.device.stream().synchronise()?;
        graph.hand_on(self.device)
    }

    /// Captures a prompt if the last one was the same.
    fn capture_prompt(&mut self, tokens: usize) -> Done {
        if self.options.graph == GraphMode::Off || self.prompt_obstacle().is_some() {
            return Ok(());
        }
        let key = (self.prompt_sizes(tokens), tokens, self.cache.length() == 0);
        match &self.prompt {
            Some(last) if last.key == key && last.graph.is_some() => {}
            Some(last) if last.key == key => {
                let graph = self.captured(|decoder| decoder.launch_prompt(tokens))?;
                self.prompt = Some(Prompt { key, graph: Some(graph) });
            }
            _ => {
                self.drop_prompt()?;
                self.prompt = Some(Prompt { key, graph: None });
            }
        }
        Ok(())
    }

    /// Captures launches as a graph. A refusal is an error with `--graph on`; otherwise its reason is returned.
    pub(super) fn captured(
        &mut self,
        launch: impl Fn(&mut Self) -> Done,
    ) -> Result<Result<Captured, String>, ModelError> {
        let _stage = stage!("capture");
        let (marks, stages) = (self.options.marks.clone(), most_stages(self.config.layers, &self.options.marks));
        let captured = Captured::new(self.device, &marks, stages, |marks| self.with_marks(marks, &launch));
        match captured {
            Err(error) if self.options.graph == GraphMode::On => Err(error),
            captured => Ok(captured.map_err(|error| error.to_string())),
        }
    }

    /// Runs something with other marks.
    pub(super) fn with_marks(&mut self, marks: Marks, launch: impl FnOnce(&mut Self) -> Done) -> Done {
        let usual = std::mem::replace(&mut self.options.marks, marks);
        let launched = launch(self);
        self.options.marks = usual;
        launched
    }

    /// An embedding that is a stage at any depth comes before the graph.
    fn embeds_inside(&self) -> bool {
        self.options.marks.embedding == EmbeddingStage::Usual
    }

    fn launch_prompt(&mut self, tokens: usize) -> Done {
        if self.embeds_inside() {
            self.embed(tokens)?;
        }
        self.run_embedded(tokens, self.cache.length(), Head::Last)?;
        self.sample()
    }

    /// A pass from the ids in the buffers to logits. Keys and values go to the cache, unless logits of every position are
    /// wanted.
    pub(super) fn pass(&mut self, tokens: usize, start: usize, head: Head) -> Done {
        self.embed(tokens)?;
        self.run_embedded(tokens, start, head)
    }

    fn embed(&mut self, tokens: usize) -> Done {
        let (context, parameters) = (context!(self), &self.weights.parameters);
        let Some(Buffers { ids, parts, .. }) = &mut self.buffers else { return Ok(()) };
        let _stage = mark_embedding!(context.marks, tokens);
        let shape = [size(self.config.vocab)?, size(self.config.hidden)?];
        context.operations.embed(context.stream, &*ids, &parameters.embedding, &mut parts.x, shape)?;
        context.scale_embedding(&mut parts.x, self.options.batch * tokens)
    }

    /// The part of a pass after the embedding.
    fn run_embedded(&mut self, tokens: usize, start: usize, head: Head) -> Done {
        let capacity = if head == Head::All { tokens } else { self.cache.capacity };
        let heads = head_sizes(&self.config, self.options.batch, tokens, capacity)?;
        let (context, parameters) = (context!(self), &self.weights.parameters);
        let dense = self.dense.as_ref().filter(|_| start == 0).and_then(|dense| dense.parts_for(tokens));
        let Some(buffers) = &mut self.buffers else { return Ok(()) };
        let prompt = PromptRows {
            attention: &self.attention,
            windowed: self.windowed.as_ref(),
            blocks: self.sparse.as_ref().map_or(dense, Sparse::parts),
            is_sparse: self.sparse.is_some(),
            kind: self.options.attention,
            start: &self.state.position,
            heads,
            keys: size(start + tokens)?,
            head,
            cache: match &mut self.uncached {
                Some(uncached) if head == Head::All => from_mut(uncached),
                _ => &mut self.cache.layers,
            },
        };
        let mut pass = Pass { context, buffers, rows: PassRows::Prompt(prompt) };
        run_all(&mut pass, self.streamed.as_mut(), &parameters.layers, |pass| {
            run_head(pass, &parameters.norm, Some(parameters.head()))
        })
    }

    /// Samples the most likely tokens from the logits of a pass.
    pub(super) fn sample(&mut self) -> Done {
        let Some(buffers) = &self.buffers else { return Ok(()) };
        let _stage = stage_mark!(self.options.marks, Layer, "sampling");
        let shape = [size(self.options.batch)?, size(self.config.vocab)?];
        let operations = &self.weights.operations;
        Ok(operations.argmax(self.device.stream(), &buffers.parts.logits, &mut self.state.token, shape)?)
    }

    /// Allocates keys and values of one layer, and RoPE tables, for a forward pass without the cache.
    pub(super) fn allocate_uncached(&mut self, length: usize) -> Done {
        let numbers = self.options.batch * self.config.kv_heads * length * self.config.head_dim;
        if self.uncached.as_ref().is_none_or(|[keys, _]| keys.length() != numbers) {
            self.uncached = None;
            self.uncached = Some([self.device.allocate(numbers)?, self.device.allocate(numbers)?]);
        }
        let positions = self.rope.cosines.length() / (self.config.head_dim / 2).max(1);
        if positions < length {
            // Graphs have the addresses of the old tables.
            self.drop_graphs()?;
            self.rope = DeviceRope::new(self.device, &self.config, length)?;
        }
        Ok(())
    }
}
