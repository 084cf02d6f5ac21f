//! A case of `model`, read.

use laptime_bench::Case;
use laptime_models::{Attention, Dtype, GraphMode, Room};

use super::test_name::{Pass, Test};

/// Steps that are checked against a prefill of the same tokens.
pub const CHECKED_STEPS: usize = 8;

/// What a case asks for.
#[derive(Debug, Clone, PartialEq)]
pub struct Wanted {
    /// The model, by the name of the case.
    pub model: String,
    /// What runs.
    pub test: Test,
    /// Sequences that run together.
    pub batch: usize,
    /// Number type of weights, activations and cache.
    pub dtype: Dtype,
    /// How attention is computed.
    pub attention: Attention,
    /// Whether decode steps are replayed as a graph.
    pub graph: GraphMode,
    /// Threads of the CPU.
    pub threads: usize,
    /// What random tokens and synthetic weights start from.
    pub seed: u64,
}

impl Wanted {
    /// Reads a case.
    pub fn of(case: &Case) -> anyhow::Result<Self> {
        let test = Test {
            pass: case.text("pass_type")?.parse()?,
            tokens: case.size("seq_len")?,
            cached: case.size("cache_tokens")?,
        };
        let attention = match case.text("attention")? {
            "naive" => Attention::Naive,
            "dense" => Attention::Dense,
            other => anyhow::bail!("`model` has no attention `{other}`"),
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
            graph,
            threads: case.size("threads")?,
            seed: u64::try_from(case.int("seed")?)?,
        })
    }

    /// Tokens of each sequence that are in the cache when a take begins: decoding needs one to go on from.
    pub fn prompt(&self) -> usize {
        match self.test.pass {
            Pass::Decode => self.test.cached.max(1),
            Pass::Forward | Pass::Prefill => self.test.cached,
        }
    }

    /// Positions of each sequence that a take uses.
    pub fn positions(&self) -> usize {
        self.prompt().saturating_add(self.test.tokens)
    }

    /// Tokens of a sequence that run at once at most: the prompt that fills the cache, the pass itself, or the prefill that
    /// steps are checked by.
    pub fn most_at_once(&self) -> usize {
        match self.test.pass {
            Pass::Decode => self.prompt().max(self.test.tokens.min(CHECKED_STEPS)),
            Pass::Forward | Pass::Prefill => self.test.tokens.max(self.prompt()),
        }
    }

    /// The room of the cache: what the take uses; without a cache it never grows.
    pub fn room(&self) -> Room {
        match self.test.pass {
            Pass::Forward => Room::Growing,
            Pass::Prefill | Pass::Decode => Room::Static(self.positions()),
        }
    }

    /// Why the case makes no sense for a model with so many positions, if it does not.
    pub fn refusal(&self, context: usize) -> Option<String> {
        if self.test.pass == Pass::Forward && self.test.cached > 0 {
            return Some("`forward` runs without a cache; `prefill` runs behind cached tokens".to_owned());
        }
        let positions = self.positions();
        let what = match (self.test.pass, self.prompt()) {
            (_, 0) => format!("{positions} tokens"),
            (_, prompt) => format!("{} tokens behind {prompt}", self.test.tokens),
        };
        (positions > context).then(|| format!("`{}` has {context} positions, and {what} are longer", self.model))
    }
}
