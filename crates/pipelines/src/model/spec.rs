//! A case of `model`, read.

use laptime_bench::Case;
use laptime_models::{
    Attention, Dtype, GraphMode, Room,
    attention::{Kept, Kind, Pattern},
};

use super::test_name::{Pass, Test};
use crate::attention::pattern;

/// Steps that are checked against a prefill of the same tokens.
pub const CHECKED_STEPS: usize = 8;

/// The parameters of a case.
#[derive(Debug, Clone, PartialEq)]
pub struct Spec {
    /// The model, by the name of the case.
    pub model: String,
    /// What runs.
    pub test: Test,
    /// Sequences that run together.
    pub batch: usize,
    /// The dtype of weights, activations and cache.
    pub dtype: Dtype,
    /// How attention is computed.
    pub attention: Attention,
    /// The pairs that attention keeps; none for all of them.
    pub kept: Option<Kept>,
    /// Whether decode steps are replayed as a graph.
    pub graph: GraphMode,
    /// Threads of the CPU.
    pub threads: usize,
    /// The seed of random tokens and synthetic weights.
    pub seed: u64,
}

impl Spec {
    /// Reads a case.
    pub fn of(case: &Case) -> anyhow::Result<Self> {
        let test = Test {
            pass: case.text("pass_type")?.parse()?,
            tokens: case.size("seq_len")?,
            cached: case.size("cache_tokens")?,
        };
        let seed = u64::try_from(case.int("seed")?)?;
        let kind: Kind = case.text("attention")?.parse()?;
        let (attention, kept) = match kind {
            Kind::Naive => (Attention::Naive, None),
            Kind::Dense => (Attention::Dense, None),
            Kind::Sparse | Kind::SlidingWindow => {
                (Attention::Dense, Some(Kept::of(kind, Pattern { seed, ..pattern(case)? }, None)))
            }
            Kind::BlockSparse => anyhow::bail!("`model` has no attention `{kind}`"),
        };
        let graph = match case.text("graph")? {
            "auto" => GraphMode::Auto,
            "on" => GraphMode::On,
            "off" => GraphMode::Off,
            other => anyhow::bail!("`model` has no graph `{other}`"),
        };
        Ok(Self {
            model: case.text("model")?.to_owned(),
            test,
            batch: case.size("batch_size")?,
            dtype: case.text("dtype")?.parse()?,
            attention,
            kept,
            graph,
            threads: case.size("threads")?,
            seed,
        })
    }

    /// Tokens of each sequence that are in the cache when an iteration begins: decoding needs one to go on from.
    pub fn prompt(&self) -> usize {
        match self.test.pass {
            Pass::Decode => self.test.cached.max(1),
            Pass::Forward | Pass::Prefill | Pass::Training(_) => self.test.cached,
        }
    }

    /// Positions of each sequence that an iteration uses.
    pub fn positions(&self) -> usize {
        self.prompt().saturating_add(self.test.tokens)
    }

    /// Tokens of a sequence that run at once at most: the prompt that fills the cache, the pass itself, or the prefill that
    /// steps are checked by.
    pub fn most_at_once(&self) -> usize {
        match self.test.pass {
            Pass::Decode => self.prompt().max(self.test.tokens.min(CHECKED_STEPS)),
            Pass::Forward | Pass::Prefill | Pass::Training(_) => self.test.tokens.max(self.prompt()),
        }
    }

    /// The capacity of the cache: the positions that the iteration uses.
    pub fn room(&self) -> Room {
        if self.test.pass.has_cache() { Room::Static(self.positions()) } else { Room::Growing }
    }

    /// Why the pass cannot run with a pattern, if it cannot.
    fn kept_refusal(&self) -> Option<&'static str> {
        self.kept.as_ref()?;
        match self.test.pass {
            Pass::Decode => Some("sparse attention works with `forward` and `prefill`, not with single tokens"),
            Pass::Training(_) => Some("sparse attention has no gradients; it works with `forward` and `prefill`"),
            Pass::Prefill if self.test.cached > 0 => Some("sparse attention needs an empty cache"),
            Pass::Forward | Pass::Prefill => None,
        }
    }

    /// Why the case is invalid for a model with this context, if it is.
    pub fn refusal(&self, context: usize) -> Option<String> {
        if !self.test.pass.has_cache() && self.test.cached > 0 {
            let pass = self.test.pass.word();
            return Some(format!("`{pass}` runs without a cache; `prefill` can follow cached tokens"));
        }
        if matches!(self.test.pass, Pass::Training(_)) && self.dtype == Dtype::F16 {
            return Some(
                "training in f16 is not supported, because gradients underflow without loss scaling; use bf16 or f32"
                    .to_owned(),
            );
        }
        if let Some(reason) = self.kept_refusal() {
            return Some(reason.to_owned());
        }
        let positions = self.positions();
        let what = match self.prompt() {
            0 => format!("{positions} tokens"),
            1 => format!("1 cached token plus {} tokens", self.test.tokens),
            prompt => format!("{prompt} cached tokens plus {} tokens", self.test.tokens),
        };
        (positions > context).then(|| format!("{what} exceed the context of `{}` ({context})", self.model))
    }
}
