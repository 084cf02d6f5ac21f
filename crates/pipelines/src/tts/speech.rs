//! The text and model of a case: everything that is known before weights are read.

use std::path::{Path, PathBuf};

use anyhow::Context;
use laptime_models::{
    Dtype, ModelError,
    tts::{Prompt, Sampling, TextFeed, TtsConfig, TtsWeights},
};
use laptime_trace::small_file;

use super::{
    axes::{AUTO, ON_GPU},
    corpus,
    spec::{Source, Spec},
};

/// Frames of synthetic weights for two words: 4.5 each, so that 167 words are said in a minute.
const FRAMES_OF_TWO_WORDS: usize = 9;

/// Frames at most where weights know their end, as the official package has it.
const MOST_FRAMES: usize = 2048;

/// Bytes of a file that are read at most: no text of more can be said.
const MOST_BYTES: u64 = 16 << 20;

/// The text and model of a case.
#[derive(Debug)]
pub struct Speech {
    /// The configuration of the model.
    pub config: TtsConfig,
    /// The folder of its weights; none for synthetic ones.
    pub folder: Option<PathBuf>,
    /// The dtype.
    pub dtype: Dtype,
    /// The text.
    pub text: String,
    /// The text as a prompt of the talker.
    pub prompt: Prompt,
    /// The number of frames; a maximum if the weights decide the end.
    pub frames: usize,
}

/// Finds a model by the name of a case, with the folder of its weights; `auto` is taken for that of a GPU.
pub fn find(name: &str) -> Result<(TtsConfig, Option<PathBuf>), ModelError> {
    match looks_like_a_folder(name) {
        true => Ok((TtsConfig::from_folder(Path::new(name))?, Some(PathBuf::from(name)))),
        false => Ok((TtsConfig::from_preset(if name == AUTO { ON_GPU } else { name })?, None)),
    }
}

/// Whether a name is meant as a path: it begins like one, or there is a folder of it that is no preset.
pub fn looks_like_a_folder(name: &str) -> bool {
    let is_path = name.starts_with(['.', '/', '~']) || name.ends_with('/');
    let is_preset = || !name.contains('/') && TtsConfig::from_preset(name).is_ok();
    is_path || Path::new(name).is_dir() && !is_preset()
}

impl Speech {
    /// Finds the model and encodes the text. No weights are read.
    pub fn of(spec: &Spec) -> anyhow::Result<Self> {
        let (config, folder) = find(&spec.model)?;
        let text = text(&spec.text)?;
        let tokenizer = config.tokenizer(folder.as_deref())?;
        let speaker = Some(spec.speaker.as_str());
        let prompt = Prompt::new(&config, &tokenizer, &text, speaker, &spec.language, TextFeed::ByFrame)?;
        spec.sampling.check()?;
        let frames = spec.frames.unwrap_or_else(|| match &folder {
            None => frames_of(corpus::words(&text)),
            Some(_) => MOST_FRAMES.min(config.talker.context.saturating_sub(prompt.positions.len())),
        });
        let dtype = spec.dtype.unwrap_or(config.talker.dtype);
        Ok(Self { config, folder, dtype, text, prompt, frames })
    }

    /// Why the case is invalid, if it is.
    pub fn refusal(&self) -> Option<String> {
        let checked = self.prompt.check(&self.config, self.frames, usize::MAX);
        checked.err().map(|error| error.to_string())
    }

    /// Positions of the talker's cache.
    pub fn room(&self) -> usize {
        self.prompt.positions.len().saturating_add(self.frames)
    }

    /// Words of the text.
    pub fn words(&self) -> usize {
        corpus::words(&self.text)
    }

    /// How codes are sampled; synthetic weights do not decide the end.
    pub fn sampling(&self, spec: &Spec) -> Sampling {
        Sampling { is_endless: self.folder.is_none(), ..spec.sampling }
    }

    /// The weights, and where they come from. Of a folder only names and shapes are read.
    pub fn weights(&self, seed: u64) -> Result<(TtsWeights, &'static str), ModelError> {
        match &self.folder {
            Some(folder) => Ok((TtsWeights::open(folder, &self.config)?, "folder")),
            None => Ok((TtsWeights::synthetic(seed), "synthetic")),
        }
    }
}

/// The number of frames with synthetic weights: 4.5 per word, rounded up.
pub fn frames_of(words: usize) -> usize {
    words.saturating_mul(FRAMES_OF_TWO_WORDS).div_ceil(2).max(1)
}

fn text(source: &Source) -> anyhow::Result<String> {
    match source {
        Source::Own(text) => Ok(text.clone()),
        Source::Corpus(label) => {
            let text = corpus::text(label).with_context(|| format!("there is no text `{label}`"))?;
            Ok(text.to_owned())
        }
        Source::File(file) => read(file).with_context(|| format!("cannot read the text of `{}`", file.display())),
    }
}

fn read(file: &Path) -> anyhow::Result<String> {
    Ok(small_file::read_text(file, MOST_BYTES)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_words_are_nine_frames_and_a_part_of_one_is_one() {
        assert_eq!([0, 1, 2, 13, 53, 115].map(frames_of), [1, 5, 9, 59, 239, 518]);
        assert_eq!(frames_of(usize::MAX), usize::MAX.div_ceil(2));
    }

    #[test]
    fn a_preset_is_no_folder_even_if_there_is_one_of_its_name() {
        let are_folders = ["tiny", "./tiny", "0.6b", "/x", "models/"].map(looks_like_a_folder);
        assert_eq!(are_folders, [false, true, false, true, true]);
    }
}
