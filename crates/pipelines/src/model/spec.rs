//! Parsed cases of `model`, their short names (`pp512`, `tg128@d4096`, `step512`), and their work.

use std::{fmt, str::FromStr};

use laptime_bench::{AxisValue, Case, Fact, Work};
use laptime_models::attention::{CPU_TILING, Kept, Kind, Layout, Pattern};
use laptime_models::{Attention, CacheCapacity, Config, Dtype, GraphMode, PassWork, TrainOptions};
use laptime_trace::run::Traffic;

use crate::attention::pattern;
use crate::request::{fact, graph, plus, seed};

/// Decode steps that are checked against a prefill of the same tokens.
pub const CHECKED_STEPS: usize = 8;

#[derive(Debug, Clone, PartialEq)]
pub struct Spec {
    pub model: String,
    pub test: Test,
    pub batch: usize,
    pub dtype: Dtype,
    pub attention: Attention,
    /// The pairs that attention keeps; none for all of them.
    pub kept: Option<Kept>,
    pub graph: GraphMode,
    pub threads: usize,
    pub seed: u64,
}

impl Spec {
    pub fn of(case: &Case) -> anyhow::Result<Self> {
        let test = Test {
            pass: case.text("pass_type")?.parse()?,
            tokens: case.size("seq_len")?,
            cached: case.size("cache_tokens")?,
        };
        let seed = seed(case)?;
        let kind: Kind = case.text("attention")?.parse()?;
        let (attention, kept) = match kind {
            Kind::Naive => (Attention::Naive, None),
            Kind::Dense => (Attention::Dense, None),
            Kind::Sparse | Kind::SlidingWindow => {
                (Attention::Dense, Some(Kept::of(kind, Pattern { seed, ..pattern(case)? }, None)))
            }
            Kind::BlockSparse => anyhow::bail!("`model` has no attention `{kind}`"),
        };
        Ok(Self {
            model: case.text("model")?.to_owned(),
            test,
            batch: case.size("batch_size")?,
            dtype: case.text("dtype")?.parse()?,
            attention,
            kept,
            graph: graph(case, "model")?,
            threads: case.size("threads")?,
            seed,
        })
    }

    /// Cached tokens of each sequence when an iteration begins; decoding needs at least one.
    pub fn prompt(&self) -> usize {
        if self.test.pass == Pass::Decode { self.test.cached.max(1) } else { self.test.cached }
    }

    /// Positions of each sequence that an iteration uses.
    pub fn positions(&self) -> usize {
        self.prompt().saturating_add(self.test.tokens)
    }

    /// The most tokens of a sequence in one pass: the prompt, the pass itself, or the prefill that checks decode steps.
    pub fn most_at_once(&self) -> usize {
        let decoded = if self.test.pass == Pass::Decode { CHECKED_STEPS } else { usize::MAX };
        self.prompt().max(self.test.tokens.min(decoded))
    }

    pub fn capacity(&self) -> CacheCapacity {
        if self.test.pass.has_cache() { CacheCapacity::Static(self.positions()) } else { CacheCapacity::Growing }
    }

    /// Why the pass cannot run with a pattern, if it cannot.
    fn kept_refusal(&self) -> Option<&'static str> {
        self.kept.as_ref()?;
        match self.test.pass {
            Pass::Decode => Some("sparse attention works with `forward` and `prefill`, not with single tokens"),
            Pass::Backward | Pass::ForwardBackward | Pass::Step => {
                Some("sparse attention has no gradients; it works with `forward` and `prefill`")
            }
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
        if self.test.pass.is_training() && self.dtype == Dtype::F16 {
            return Some(
                "training in f16 is not supported, because gradients underflow without loss scaling; use bf16 or f32"
                    .to_owned(),
            );
        }
        if self.test.pass.is_training() && self.dtype == Dtype::Fp8 {
            return Some("training with fp8 weights is not supported; use bf16".to_owned());
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

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pass {
    /// Logits of every position, without a cache.
    Forward,
    /// Many tokens at once, after the cached ones.
    Prefill,
    Decode,
    /// The backward pass of a training step; its forward pass is not timed.
    Backward,
    ForwardBackward,
    /// Forward, backward and the update of all parameters.
    Step,
}

/// The words of the passes, in their order.
pub const PASSES: &[&str] = &["forward", "prefill", "decode", "backward", "forward_backward", "step"];

impl Pass {
    const ALL: [Self; 6] =
        [Self::Forward, Self::Prefill, Self::Decode, Self::Backward, Self::ForwardBackward, Self::Step];

    pub fn word(self) -> &'static str {
        PASSES[self as usize]
    }

    pub fn has_cache(self) -> bool {
        matches!(self, Self::Prefill | Self::Decode)
    }

    pub fn is_training(self) -> bool {
        self >= Self::Backward
    }

    /// The prefix of its short name; prefill and decode have the names of llama-bench.
    fn short(self) -> &'static str {
        match self {
            Self::Prefill => "pp",
            Self::Decode => "tg",
            _ => self.word(),
        }
    }
}

impl FromStr for Pass {
    type Err = NoTest;

    fn from_str(word: &str) -> Result<Self, NoTest> {
        Self::ALL.into_iter().find(|pass| pass.word() == word).ok_or_else(|| NoTest { text: word.to_owned() })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Test {
    pub pass: Pass,
    /// Timed tokens of each sequence.
    pub tokens: usize,
    /// Cached tokens of each sequence.
    pub cached: usize,
}

impl fmt::Display for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.pass.short(), self.tokens)?;
        if self.cached > 0 { write!(f, "@d{}", self.cached) } else { Ok(()) }
    }
}

/// A text that is not the name of a test.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a test; examples: `pp512`, `tg128`, `tg128@d4096` or `forward512`")]
pub struct NoTest {
    text: String,
}

impl FromStr for Test {
    type Err = NoTest;

    fn from_str(text: &str) -> Result<Self, NoTest> {
        let wrong = || NoTest { text: text.to_owned() };
        let lower = text.to_ascii_lowercase();
        let (test, depth) = lower.split_once('@').map_or((lower.as_str(), None), |(test, depth)| (test, Some(depth)));
        let begins = |pass: &Pass| test.trim().starts_with(pass.short());
        // `forward_backward512` begins with `forward` too.
        let named = Pass::ALL.into_iter().filter(begins).max_by_key(|pass| pass.short().len());
        let pass = named.ok_or_else(wrong)?;
        let number = |text: &str| text.trim().parse::<usize>().ok();
        let tokens = number(&test.trim()[pass.short().len()..]).filter(|&tokens| tokens > 0).ok_or_else(wrong)?;
        let cached = match depth {
            None => 0,
            Some(depth) => depth.trim().strip_prefix('d').and_then(number).ok_or_else(wrong)?,
        };
        Ok(Self { pass, tokens, cached })
    }
}

/// The work of an iteration: one pass, or all steps.
pub fn work(config: &Config, spec: &Spec) -> Work {
    let Spec { batch, dtype, attention, test, .. } = spec;
    let of_kept = |work: PassWork| match &spec.kept {
        None => work.work(),
        Some(kept) => work.with_pairs(config, *batch, connections(kept, test.tokens)).work(),
    };
    let forward = || config.forward_work(*batch, test.tokens, *attention, *dtype);
    let backward = || config.backward_work(*batch, test.tokens, *attention, *dtype).work();
    let training = |work: Work| Work { dtype: dtype.word().to_owned(), traffic: Traffic::Copy, ..work };
    match test.pass {
        Pass::Forward => of_kept(forward()),
        Pass::Prefill => of_kept(config.prefill_work(*batch, test.tokens, test.cached, *attention, *dtype)),
        Pass::Decode => {
            let positions = spec.prompt()..spec.positions();
            let steps = positions.map(|position| config.step_work(*batch, position, *dtype));
            let all = steps.reduce(|all, step| all.plus(&step));
            all.map_or_else(|| config.step_work(*batch, 0, *dtype).work(), |all| all.work())
        }
        Pass::Backward => training(backward()),
        Pass::ForwardBackward => training(plus(forward().work(), backward())),
        Pass::Step => training(plus(plus(forward().work(), backward()), config.update_work(*dtype))),
    }
}

fn connections(kept: &Kept, tokens: usize) -> u64 {
    Layout::build(kept, tokens, CPU_TILING).connections()
}

pub fn kept_facts(kept: &Kept, tokens: usize) -> Vec<Fact> {
    let connections = connections(kept, tokens);
    let sparsity = 1.0 - connections as f64 / kept.allowed(tokens).max(1) as f64;
    vec![fact("connections", connections), Fact::new("sparsity", AxisValue::Float(sparsity))]
}

/// Facts about the memory of training, computed before anything is allocated.
pub fn training_facts(config: &Config, options: &TrainOptions) -> Vec<Fact> {
    let need = config.train_need(options);
    vec![
        fact("gradient_bytes", need.gradients),
        fact("optimizer_bytes", need.optimizer),
        fact("activation_bytes", need.activations),
    ]
}

pub fn facts(config: &Config, spec: &Spec) -> Vec<Fact> {
    vec![
        fact("parameters", config.parameters()),
        fact("weight_bytes", config.weight_bytes(spec.dtype)),
        fact("kv_token_bytes", config.kv_bytes_per_token(spec.dtype)),
        fact("layers", config.layers),
        fact("hidden", config.hidden),
        fact("heads", config.heads),
        fact("kv_heads", config.kv_heads),
        fact("head_dim", config.head_dim),
        fact("ffn", config.ffn),
        fact("vocab", config.vocab),
        fact("context", config.context),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn tests_have_the_names_of_llama_bench() {
        let test = |pass, tokens, cached| Ok(Test { pass, tokens, cached });
        assert_eq!("pp512".parse(), test(Pass::Prefill, 512, 0));
        assert_eq!("tg128 @ d4096".parse(), test(Pass::Decode, 128, 4096));
        assert_eq!("PP8@d1".parse(), test(Pass::Prefill, 8, 1));
        assert_eq!("forward512".parse(), test(Pass::Forward, 512, 0));
        assert_eq!("backward64".parse(), test(Pass::Backward, 64, 0));
        assert_eq!("forward_backward64".parse(), test(Pass::ForwardBackward, 64, 0));
        assert_eq!("step64".parse(), test(Pass::Step, 64, 0));
    }

    #[test]
    fn invalid_test_names_are_refused_with_examples() {
        for text in [
            "",
            "pp",
            "pp0",
            "pp-1",
            "tg128@",
            "tg128@4096",
            "xx512",
            "512",
            "pp512@d",
            "pp99999999999999999999",
            "forward_512",
        ] {
            let error = text.parse::<Test>().unwrap_err().to_string();
            assert!(error.starts_with(&format!("`{text}` is not a test; examples: `pp512`")), "{error}");
        }
    }

    proptest! {
        #[test]
        fn every_test_is_parsed_from_its_name(pass in 0..6_usize, tokens in 1..usize::MAX, cached in any::<usize>()) {
            let test = Test { pass: Pass::ALL[pass], tokens, cached };
            prop_assert_eq!(test.to_string().parse::<Test>(), Ok(test));
        }

        #[test]
        fn any_text_is_parsed_or_refused(text in ".{0,20}") {
            let _ = text.parse::<Test>();
        }
    }
}
