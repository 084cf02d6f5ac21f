//! The two models of a case, the fuser between them and the prompt that they read.

use laptime_bench::PlanError;
use laptime_models::{
    Dtype, ModelError, Tokenizer,
    fuser::{Aligned, Aligner, ChatStyle, Choice, FuserConfig, FuserWeights, Prompt, Rendered, Response, SharerMask},
};
use laptime_stats::Rng;

use super::{
    prompts,
    spec::{Source, Spec},
};
use crate::model::{BuiltIn, Found, Maker, Named, looks_like_a_folder};

/// The two models of a case, the fuser between them and the prompt that they read.
#[derive(Debug)]
pub struct Pair {
    /// The base model.
    pub base: Found,
    /// The teacher model.
    pub teacher: Found,
    /// The configuration of the fuser.
    pub fuser: FuserConfig,
    /// Where its weights come from.
    pub weights: FuserWeights,
    /// Their dtype.
    pub dtype: Dtype,
    /// The prompt in the tokens of both.
    pub prompt: Prompt,
    /// The message, if the prompt is one.
    pub message: Option<String>,
    /// The tokenizer that decodes the answer.
    pub tokenizer: Option<Tokenizer>,
}

/// Finds a model by the name of a case.
pub fn find(name: &str) -> Result<Found, PlanError> {
    BuiltIn::default().find(Named::Any(name))
}

/// A prompt that does not fit the context of a model.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct TooLong(String);

impl Pair {
    /// As [`Pair::of`]; the inner error says why the case cannot run.
    pub fn runnable(spec: &Spec) -> anyhow::Result<Result<Self, String>> {
        match Self::of(spec) {
            Ok(pair) => Ok(match pair.refusal(spec) {
                Some(reason) => Err(reason),
                None => Ok(pair),
            }),
            Err(error) => error.downcast::<TooLong>().map(|TooLong(reason)| Err(reason)),
        }
    }

    /// Finds models and fuser, and tokenizes the prompt. Only names and shapes of weights are read.
    pub fn of(spec: &Spec) -> anyhow::Result<Self> {
        let (base, teacher) = (find(&spec.base_model)?, find(&spec.teacher_model)?);
        // Before tokens are generated: there may be billions of them.
        if let Source::Random(tokens) = spec.prompt
            && let Some(reason) = base_refusal(&base, tokens, spec)
        {
            return Err(TooLong(reason).into());
        }
        let (fuser, weights) = match &spec.checkpoint {
            Some(folder) => FuserWeights::open(folder, &base.config, &teacher.config)?,
            None => {
                let fuser = FuserConfig::new(&base.config, &teacher.config, spec.alignment);
                (fuser, FuserWeights::synthetic(spec.seed))
            }
        };
        fuser.check()?;
        let message = match &spec.prompt {
            Source::Random(_) => None,
            Source::Message(message) => Some(message.clone()),
            Source::Line(file, line) => Some(prompts::line(file, *line)?),
        };
        let tokenizer = message.as_ref().map(|_| tokenizer(&base)).transpose()?;
        let prompt = match (&message, &tokenizer, &spec.prompt) {
            (Some(message), Some(tokenizer), _) => of_message(message, tokenizer, &base, &teacher)?,
            (_, _, Source::Random(tokens)) => random(*tokens, &base, &teacher, spec.seed)?,
            _ => return Err(ModelError::Refused("the prompt is empty".to_owned()).into()),
        };
        let dtype = spec.dtype.unwrap_or(base.config.dtype);
        Ok(Self { base, teacher, fuser, weights, dtype, prompt, message, tokenizer })
    }

    /// Tokens of the base model before the first new one.
    pub fn tokens(&self) -> usize {
        self.prompt.receiver.len()
    }

    /// Tokens that the teacher processes before the base model continues.
    pub fn heard(&self, spec: &Spec) -> usize {
        match spec.response {
            Response::Plain => self.prompt.heard_tokens(0),
            Response::Fused(_) => self.teacher_prompt().len(),
        }
    }

    /// The whole prompt in the tokens of the teacher.
    pub fn teacher_prompt(&self) -> &[u32] {
        self.prompt.sharers.first().map(Vec::as_slice).unwrap_or_default()
    }

    /// Positions of the base model's cache; the last new token is sampled but not processed.
    pub fn positions(&self, spec: &Spec) -> usize {
        positions(self.tokens(), spec)
    }

    /// Capacity of the teacher's KV cache in tokens.
    pub fn teacher_positions(&self, spec: &Spec) -> usize {
        let teacher_tokens = self.teacher_prompt().len();
        let with_text = spec.text_tokens.map_or(0, |text| teacher_tokens.saturating_add(text.saturating_sub(1)));
        let with_response = match spec.response {
            Response::Plain => 0,
            Response::Fused(_) => teacher_tokens.saturating_add(spec.new_tokens.saturating_sub(1)),
        };
        self.heard(spec).max(with_text).max(with_response)
    }

    /// Why the case is invalid, if it is.
    pub fn refusal(&self, spec: &Spec) -> Option<String> {
        let (base, teacher) = (&self.base, &self.teacher);
        if let Some(reason) = base_refusal(base, self.tokens(), spec) {
            return Some(reason);
        }
        if spec.response != Response::Plain && self.prompt.is_aligned {
            let (base, teacher) = (&base.name, &teacher.name);
            return Some(format!("the response can be fused only in tokens that `{base}` and `{teacher}` share"));
        }
        let heard = self.teacher_positions(spec);
        (heard > teacher.config.context).then(|| exceeds(teacher, &format!("{heard} tokens exceed")))
    }
}

/// Capacity of the base model's KV cache for a prompt of this length.
fn positions(tokens: usize, spec: &Spec) -> usize {
    let behind = spec.new_tokens.saturating_sub(1).max(spec.text_tokens.unwrap_or(0));
    tokens.saturating_add(behind)
}

/// Why the base model cannot answer a prompt of this length, if it cannot.
fn base_refusal(base: &Found, tokens: usize, spec: &Spec) -> Option<String> {
    let behind = match spec.text_tokens {
        Some(text) => format!("{text} tokens of text"),
        None => format!("{} new tokens", spec.new_tokens),
    };
    let is_longer = positions(tokens, spec) > base.config.context;
    is_longer.then(|| exceeds(base, &format!("the prompt ({tokens} tokens) plus {behind} exceeds")))
}

fn exceeds(found: &Found, what: &str) -> String {
    format!("{what} the context of `{}` ({})", found.name, found.config.context)
}

fn tokenizer(found: &Found) -> Result<Tokenizer, ModelError> {
    match looks_like_a_folder(&found.name) {
        true => Tokenizer::open(std::path::Path::new(&found.name), &found.config),
        false => Tokenizer::bytes(&found.config),
    }
}

/// Random tokens that both models have.
fn random(tokens: usize, base: &Found, teacher: &Found, seed: u64) -> Result<Prompt, ModelError> {
    let vocab = base.config.vocab.min(teacher.config.vocab) as f64;
    let mut rng = Rng::new(seed);
    Prompt::shared((0..tokens).map(|_| (rng.uniform() * vocab) as u32).collect(), 1, SharerMask::FIRST)
}

/// A message in the tokens of both models, in the chat template of each where it has one.
fn of_message(message: &str, ours: &Tokenizer, base: &Found, teacher: &Found) -> Result<Prompt, ModelError> {
    if message.trim().is_empty() {
        return Err(ModelError::Refused("the prompt is empty".to_owned()));
    }
    let theirs = tokenizer(teacher)?;
    let is_raw = ours.is_bytes() && theirs.is_bytes();
    let rendered = |tokenizer: &Tokenizer, found: &Found| -> Result<Rendered, ModelError> {
        if is_raw { Ok(Rendered::raw(message)) } else { Ok(ChatStyle::of(tokenizer, &found.name)?.render(message)) }
    };
    let own = rendered(ours, base)?;
    let ids = ours.encode(&own.text)?;
    let mut aligner = Aligner::new(ours, &theirs, Choice::default());
    if aligner.is_shared(&ids) {
        return Prompt::shared(ids, 1, SharerMask::FIRST);
    }
    let aligned = aligner.align(&own, &rendered(&theirs, teacher)?)?;
    Aligned::prompt(&[aligned], SharerMask::FIRST)
}
