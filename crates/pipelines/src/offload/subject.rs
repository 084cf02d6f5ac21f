//! What a case runs: the model and its prompt, known before weights are read.

use std::path::{Path, PathBuf};

use laptime_models::{
    Config, Dtype, ModelError, Tokens,
    vibevoice::{Guidance, Noise, Script, VibeVoiceConfig, Voice, VoicePrompt},
};
use laptime_stats::Rng;

use super::{
    axes::AUTO,
    layers::{Stay, stay},
    plan::refused,
    spec::Spec,
};
use crate::model::{BuiltIn, Found, Maker, Named};

/// What to do about a number of layers that the model does not have.
const LAYERS_HINT: &str = "`--no-offload` keeps all of them, `--auto` as many as fit";

/// The default model on a GPU.
const ON_GPU: [&str; 2] = ["7b", "Qwen2.5-7B"];

/// The default model on a CPU.
const ON_CPU: &str = "tiny";

/// The number of tokens with synthetic weights, which do not decide the end.
const TOKENS: usize = 20;

/// Positions of the prompt of a language model alone.
const PROMPT: usize = 32;

/// The name of the built-in script.
const BUILT_IN: &str = "built_in";

/// The model and prompt of a case.
#[derive(Debug)]
pub struct Subject {
    /// The model and its prompt.
    pub kind: Kind,
    /// The name in cases: of the preset in its own spelling, or of the folder as it was written.
    pub name: String,
    /// The folder of its weights; none for synthetic ones.
    pub folder: Option<PathBuf>,
    /// The dtype.
    pub dtype: Dtype,
    /// The number of tokens; a maximum if the weights decide the end.
    pub tokens: usize,
    /// The number of resident layers, or as many as fit.
    pub stay: Stay,
    /// The name of the script.
    pub stem: String,
}

/// A model and its prompt.
#[derive(Debug)]
pub enum Kind {
    /// A speech model with a script.
    Speech {
        /// The model.
        config: Box<VibeVoiceConfig>,
        /// The prompt.
        prompt: VoicePrompt,
        /// Voices whose files were resampled, and from which rate.
        resampled: Vec<(PathBuf, u32)>,
    },
    /// A language model.
    Lm {
        /// The model.
        found: Found,
        /// The prompt tokens.
        prompt: Tokens,
    },
}

/// The name of the model that `auto` stands for.
pub fn usual_model(is_lm: bool, is_gpu: bool) -> &'static str {
    match (is_gpu, is_lm) {
        (false, _) => ON_CPU,
        (true, false) => ON_GPU[0],
        (true, true) => ON_GPU[1],
    }
}

/// Whether a name is meant as a path: it begins like one, or there is a folder of it that is no preset.
pub fn looks_like_a_folder(name: &str) -> bool {
    let is_path = name.starts_with(['.', '/', '~']) || name.ends_with('/');
    let is_preset =
        || !name.contains('/') && (VibeVoiceConfig::from_preset(name).is_ok() || Config::from_preset(name).is_ok());
    is_path || Path::new(name).is_dir() && !is_preset()
}

impl Subject {
    /// Finds the model and makes a prompt of the script and its voices. Of weights nothing is read. A model that is not
    /// named is taken for that of a GPU.
    pub fn of(spec: &Spec) -> anyhow::Result<Self> {
        let name = match spec.model.as_str() {
            AUTO => usual_model(spec.is_lm, true).to_owned(),
            name => name.to_owned(),
        };
        let folder = looks_like_a_folder(&name).then(|| PathBuf::from(&name));
        let stem = spec.script.as_deref().and_then(Path::file_stem).map(|stem| stem.to_string_lossy().into_owned());
        let kind = if spec.is_lm { lm(&name, spec)? } else { speech(&name, folder.as_deref(), spec)? };
        let decoder = kind.decoder();
        let is_tiny = folder.is_none() && kind.name(&name).starts_with(ON_CPU);
        let stay = stay(&spec.stay, decoder.layers, is_tiny).map_err(|reason| refused(reason, LAYERS_HINT))?;
        let most = decoder.context.saturating_sub(kind.positions());
        let usual = if folder.is_some() { kind.positions().saturating_mul(2).min(most) } else { TOKENS };
        Ok(Self {
            dtype: spec.dtype.unwrap_or(decoder.dtype),
            tokens: spec.max_tokens.unwrap_or(usual),
            name: kind.name(&name),
            stem: stem.unwrap_or_else(|| BUILT_IN.to_owned()),
            kind,
            folder,
            stay,
        })
    }

    /// The language model.
    pub fn decoder(&self) -> &Config {
        self.kind.decoder()
    }

    /// Positions of the prompt.
    pub fn positions(&self) -> usize {
        self.kind.positions()
    }

    /// Why the case is invalid, if it is.
    pub fn refusal(&self) -> Option<String> {
        let checked = match &self.kind {
            Kind::Speech { config, prompt, .. } => prompt.check(config, self.tokens, usize::MAX),
            Kind::Lm { found, .. } => {
                let (tokens, room) = (PROMPT.saturating_add(self.tokens), found.config.context);
                let too_long = || Err(ModelError::TooLong { tokens, what: found.name.clone(), room });
                if tokens > room { too_long() } else { Ok(()) }
            }
        };
        checked.err().map(|error| error.to_string())
    }

    /// Seconds of audio per token; none for a language model alone.
    pub fn token_seconds(&self) -> Option<f64> {
        match &self.kind {
            Kind::Speech { config, .. } => Some(config.token_seconds()),
            Kind::Lm { .. } => None,
        }
    }

    /// How latents and tokens are sampled; synthetic weights do not decide the end.
    pub fn guidance(&self, spec: &Spec) -> Guidance {
        Guidance {
            steps: spec.steps,
            scale: spec.cfg_scale as f32,
            noise: Noise::Seed(spec.seed),
            is_endless: self.folder.is_none(),
            ..Guidance::default()
        }
    }
}

impl Kind {
    /// The language model.
    pub fn decoder(&self) -> &Config {
        match self {
            Self::Speech { config, .. } => &config.decoder,
            Self::Lm { found, .. } => &found.config,
        }
    }

    fn positions(&self) -> usize {
        match self {
            Self::Speech { prompt, .. } => prompt.ids.len(),
            Self::Lm { prompt, .. } => prompt.ids.len(),
        }
    }

    fn name(&self, asked: &str) -> String {
        match self {
            Self::Speech { .. } if looks_like_a_folder(asked) => asked.to_owned(),
            Self::Speech { config, .. } => config.name.clone(),
            Self::Lm { found, .. } => found.name.clone(),
        }
    }
}

fn speech(name: &str, folder: Option<&Path>, spec: &Spec) -> Result<Kind, ModelError> {
    let config = match folder {
        Some(folder) => VibeVoiceConfig::from_folder(folder)?,
        None => VibeVoiceConfig::from_preset(name)?,
    };
    let script = spec.script.as_deref().map_or_else(|| Ok(Script::built_in()), Script::read)?;
    let voices = match spec.voices.as_slice() {
        [] => (0..script.speakers.len()).map(|speaker| Voice::synthetic(&config, spec.seed, speaker)).collect(),
        files => files.iter().map(|file| Voice::read(file, &config)).collect::<Result<Vec<_>, _>>()?,
    };
    let rates = spec.voices.iter().zip(&voices);
    let resampled = rates.filter_map(|(file, voice)| Some((file.clone(), voice.resampled_from?))).collect();
    let prompt = VoicePrompt::new(&config, &config.tokenizer(folder)?, &script, &voices)?;
    Ok(Kind::Speech { config: Box::new(config), prompt, resampled })
}

fn lm(name: &str, spec: &Spec) -> anyhow::Result<Kind> {
    let found = BuiltIn { own: Vec::new() }.find(Named::Any(name))?;
    let mut rng = Rng::new(spec.seed);
    let ids = (0..PROMPT).map(|_| (rng.uniform() * found.config.vocab as f64) as u32).collect();
    Ok(Kind::Lm { found, prompt: Tokens::one(ids) })
}
