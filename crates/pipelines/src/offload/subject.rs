//! Parsed cases of `offload`: parameters, the model and its prompt, before weights are read.

use std::path::{Path, PathBuf};

use laptime_bench::Case;
use laptime_models::vibevoice::{Guidance, Noise, Script, VibeVoiceConfig, Voice, VoicePrompt};
use laptime_models::{Config, Dtype, ModelError, StreamMode, Tokens};
use laptime_stats::Rng;

use super::axes::{LAYERS, MAX_TOKENS};
use super::layers::{Residency, budget_bytes, parse_residency};
use crate::axis::AUTO;
use crate::model::{BuiltIn, Found, Maker, Named};
use crate::request::{self, number, refused, seed, text};

/// The hint for a number of layers that the model does not have.
const LAYERS_HINT: &str = "`--no-offload` keeps all of them, `--auto` as many as fit";
const ON_GPU: [&str; 2] = ["7b", "Qwen2.5-7B"];
const ON_CPU: &str = "tiny";

/// The number of tokens with synthetic weights, which never end.
const TOKENS: usize = 20;

/// The length of a language model's prompt.
const PROMPT: usize = 32;
const BUILT_IN: &str = "built_in";

#[derive(Debug)]
pub struct Subject {
    pub kind: Kind,
    /// The name in cases: of the preset in its own spelling, or of the folder as it was written.
    pub name: String,
    /// The folder of its weights; none for synthetic ones.
    pub folder: Option<PathBuf>,
    pub dtype: Dtype,
    /// The number of tokens; a maximum for a checkpoint, which decides the end.
    pub tokens: usize,
    pub residency: Residency,
    /// The name of the script without its extension.
    pub stem: String,
}

#[derive(Debug)]
pub enum Kind {
    Speech {
        config: Box<VibeVoiceConfig>,
        prompt: VoicePrompt,
        /// Voices whose files were resampled, and from which rate.
        resampled: Vec<(PathBuf, u32)>,
    },
    Lm {
        found: Box<Found>,
        prompt: Tokens,
    },
}

/// The default model.
pub fn usual_model(is_lm: bool, is_gpu: bool) -> &'static str {
    match (is_gpu, is_lm) {
        (false, _) => ON_CPU,
        (true, false) => ON_GPU[0],
        (true, true) => ON_GPU[1],
    }
}

pub fn looks_like_a_folder(name: &str) -> bool {
    let is_preset = |name: &str| VibeVoiceConfig::from_preset(name).is_ok() || Config::from_preset(name).is_ok();
    request::looks_like_a_folder(name, is_preset)
}

impl Subject {
    /// Finds the model and builds the prompt of the script and its voices, without reading weights. `auto` is the default
    /// model of a GPU.
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
        let residency = parse_residency(&spec.residency, decoder.layers, is_tiny);
        let residency = residency.map_err(|reason| refused(reason, LAYERS_HINT))?;
        let most = decoder.context.saturating_sub(kind.positions());
        let usual = if folder.is_some() { kind.positions().saturating_mul(2).min(most) } else { TOKENS };
        Ok(Self {
            dtype: spec.dtype.unwrap_or(decoder.dtype),
            tokens: spec.max_tokens.unwrap_or(usual),
            name: kind.name(&name),
            stem: stem.unwrap_or_else(|| BUILT_IN.to_owned()),
            kind,
            folder,
            residency,
        })
    }

    /// Why the case is invalid, if it is.
    pub fn refusal(&self) -> Option<String> {
        let checked = match &self.kind {
            Kind::Speech { config, prompt, .. } => prompt.check(config, self.tokens, usize::MAX),
            Kind::Lm { found, .. } => {
                let (tokens, capacity) = (PROMPT.saturating_add(self.tokens), found.config.context);
                let too_long = || Err(ModelError::TooLong { tokens, what: found.name.clone(), capacity });
                if tokens > capacity { too_long() } else { Ok(()) }
            }
        };
        checked.err().map(|error| error.to_string())
    }

    /// Seconds of audio per token; none for a language model.
    pub fn token_seconds(&self) -> Option<f64> {
        match &self.kind {
            Kind::Speech { config, .. } => Some(config.token_seconds()),
            Kind::Lm { .. } => None,
        }
    }

    /// The sampling of latents and tokens; synthetic weights never end.
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
    pub fn decoder(&self) -> &Config {
        match self {
            Self::Speech { config, .. } => &config.decoder,
            Self::Lm { found, .. } => &found.config,
        }
    }

    /// Positions of the prompt.
    pub fn positions(&self) -> usize {
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
    let found = BuiltIn::default().find(Named::Any(name))?;
    let mut rng = Rng::new(spec.seed);
    let ids = (0..PROMPT).map(|_| (rng.uniform() * found.config.vocab as f64) as u32).collect();
    Ok(Kind::Lm { found: Box::new(found), prompt: Tokens::one(ids) })
}

#[derive(Debug, Clone, PartialEq)]
pub struct Spec {
    pub model: String,
    pub is_lm: bool,
    /// The resident layers, as written in the case.
    pub residency: String,
    /// None for that of the model.
    pub dtype: Option<Dtype>,
    /// None for the built-in one.
    pub script: Option<PathBuf>,
    /// None for synthetic ones.
    pub voices: Vec<PathBuf>,
    pub mode: StreamMode,
    /// The memory budget in bytes; none for the free memory.
    pub budget: Option<u64>,
    pub link_gbps: Option<f64>,
    /// Copies between two clearings of the allocator cache.
    pub clear_every: Option<usize>,
    pub cfg_scale: f64,
    pub steps: usize,
    pub max_tokens: Option<usize>,
    pub threads: usize,
    pub seed: u64,
}

impl Spec {
    pub fn of(case: &Case) -> anyhow::Result<Self> {
        let link = number(case, "link_gbps")?;
        anyhow::ensure!(
            link.is_finite() && link >= 0.0,
            "the link rate `{link}` GB/s is not valid; use a rate above 0, or 0 for full speed"
        );
        let clear = case.size("cache_clear_interval")?;
        let voices = case.text("voice_files").unwrap_or_default().split(',');
        Ok(Self {
            model: case.text("model")?.to_owned(),
            is_lm: case.text("pipeline")? == "lm",
            residency: text(case, LAYERS),
            dtype: case.text("dtype")?.parse().ok(),
            script: case.text("txt_path").ok().map(PathBuf::from),
            voices: voices.map(str::trim).filter(|file| !file.is_empty()).map(PathBuf::from).collect(),
            mode: case.text("mode")?.parse()?,
            budget: budget_bytes(&text(case, "memory_budget")).map_err(anyhow::Error::msg)?,
            link_gbps: (link > 0.0).then_some(link),
            clear_every: (clear > 0).then_some(clear),
            cfg_scale: number(case, "cfg_scale")?,
            steps: case.size("steps")?,
            max_tokens: case.size(MAX_TOKENS).ok(),
            threads: case.size("threads")?,
            seed: seed(case)?,
        })
    }
}
