//! Prompts on a GPU: launched, and replayed as a graph from the third of the same length on.

// A graph keeps addresses of buffers; the decoder holds them as long as it.
#![allow(unsafe_code)]

use laptime_probe::stage;

use super::captured::{Captured, most_stages};
use super::decoder::{GpuPasses, Logits};
use super::memory::{Head, PassSizes};
use super::weights::Number;
use crate::{Attention, Done, EmbeddingStage, GraphMode, Marks, ModelError, Replay};

/// The last prompt that ran: its kernels, whose launches depend on its length and on whether it is the first. Where others
/// begin lies on the device.
pub struct Prompt {
    sizes: PassSizes,
    tokens: usize,
    /// Whether it began with the first position, which has another attention.
    is_first: bool,
    /// None before the second prompt; then the graph, or why there is none.
    graph: Option<Result<Captured, ModelError>>,
}

impl Prompt {
    pub fn into_graph(self) -> Option<Captured> {
        self.graph?.ok()
    }

    fn graph_mut(&mut self) -> Option<&mut Captured> {
        self.graph.as_mut()?.as_mut().ok()
    }

    pub fn replay(&self) -> Replay {
        match &self.graph {
            None => Replay::Launches,
            Some(Ok(graph)) => Replay::Graph { nodes: graph.nodes() },
            Some(Err(error)) => Replay::FellBack(error.to_string()),
        }
    }
}

impl<T: Number> GpuPasses<'_, T> {
    /// Runs the ids in the buffers behind the cache. The first prompt of a length is launched, so that everything it needs
    /// is loaded; the second is captured.
    pub(super) fn run_prompt(&mut self, tokens: usize) -> Done {
        self.capture_prompt(tokens)?;
        if !self.embeds_inside() {
            self.embed(tokens)?;
        }
        let stream = self.device.stream();
        match self.prompt.as_mut().and_then(Prompt::graph_mut) {
            // SAFETY: the buffers live in this decoder, which waits for the stream before it drops the graph or them.
            Some(graph) => unsafe { graph.launch(stream) }?,
            None => self.launch_prompt(tokens)?,
        }
        self.logits = Logits::OfPass;
        Ok(())
    }

    /// The number of the next replay of a prompt, if it is one whose stages are recorded.
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

    /// Forgets the last prompt, since buffers that its graph knows are about to change. Waits for the device if there is one.
    pub(super) fn drop_prompt(&mut self) -> Done {
        let Some(mut graph) = self.prompt.take().and_then(Prompt::into_graph) else { return Ok(()) };
        self.device.stream().synchronise()?;
        graph.hand_on(self.device)
    }

    /// Captures a prompt if the last one was the same.
    fn capture_prompt(&mut self, tokens: usize) -> Done {
        if !self.captures_prompts() {
            return Ok(());
        }
        let (sizes, is_first) = (self.prompt_sizes(tokens), self.cache.length() == 0);
        match &self.prompt {
            Some(last) if (last.sizes, last.tokens, last.is_first) == (sizes, tokens, is_first) => {
                if last.graph.is_some() {
                    return Ok(());
                }
            }
            _ => {
                self.drop_prompt()?;
                self.prompt = Some(Prompt { sizes, tokens, is_first, graph: None });
                return Ok(());
            }
        }
        let captured = self.captured_prompt(tokens);
        let Some(prompt) = &mut self.prompt else { return Ok(()) };
        match captured {
            Err(error) if self.options.graph == GraphMode::On => return Err(error),
            captured => prompt.graph = Some(captured),
        }
        Ok(())
    }

    fn captured_prompt(&mut self, tokens: usize) -> Result<Captured, ModelError> {
        let _stage = stage!("capture");
        let (marks, stages) = (self.options.marks.clone(), most_stages(self.config.layers, &self.options.marks));
        Captured::new(self.device, &marks, stages, |marks| {
            self.with_marks(marks, |decoder| decoder.launch_prompt(tokens))
        })
    }

    /// Stored scores grow with the cache, a layout of blocks is uploaded, and offloaded layers are copied.
    fn captures_prompts(&self) -> bool {
        let is_plain = self.sparse.is_none() && self.streamed.is_none();
        self.options.graph != GraphMode::Off && self.options.attention == Attention::Dense && is_plain
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
        self.choose_most_likely()
    }

    /// Launches something with other marks.
    pub(super) fn with_marks(&mut self, marks: Marks, launch: impl FnOnce(&mut Self) -> Done) -> Done {
        let usual = std::mem::replace(&mut self.options.marks, marks);
        let launched = launch(self);
        self.options.marks = usual;
        launched
    }
}
