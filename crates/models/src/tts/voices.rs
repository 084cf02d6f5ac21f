//! Speakers and languages, by name.

use super::TtsConfig;
use crate::ModelError;

/// Leaves the language to the model.
const AUTO: &str = "auto";

/// Part of the name of every dialect. A dialect is selected by its speakers and not by name.
const DIALECT: &str = "dialect";

/// A speaker that a model was trained with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Speaker {
    /// Its name, in lower case.
    pub name: String,
    /// Its id in the talker's vocabulary.
    pub id: u32,
    /// The dialect that it speaks when the language is Chinese or `auto`.
    pub dialect: Option<String>,
}

/// A language that a model supports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Language {
    /// Its name, in lower case.
    pub name: String,
    /// Its id in the talker's vocabulary.
    pub id: u32,
}

impl TtsConfig {
    /// The speaker of this name, case-insensitive.
    pub fn speaker(&self, name: &str) -> Result<&Speaker, ModelError> {
        let asked = name.to_lowercase();
        self.speakers.iter().find(|speaker| speaker.name == asked).ok_or_else(|| {
            let known: Vec<&str> = self.speakers.iter().map(|speaker| speaker.name.as_str()).collect();
            unknown("speaker", name, &self.name, &known)
        })
    }

    /// The id of a language, case-insensitive; none for `auto`. A speaker of a dialect speaks Chinese in it.
    pub(super) fn language_id(&self, name: &str, speaker: Option<&Speaker>) -> Result<Option<u32>, ModelError> {
        let asked = name.to_lowercase();
        let find = |name: &str| self.languages.iter().find(|language| language.name == name).map(|found| found.id);
        let named = self.languages.iter().map(|language| language.name.as_str());
        let known: Vec<&str> = [AUTO].into_iter().chain(named.filter(|name| !name.contains(DIALECT))).collect();
        if !known.contains(&asked.as_str()) {
            return Err(unknown("language", name, &self.name, &known));
        }
        let dialect = speaker.and_then(|speaker| speaker.dialect.as_deref());
        Ok(find(dialect.filter(|_| asked == AUTO || asked == "chinese").unwrap_or(&asked)))
    }
}

fn unknown(what: &str, name: &str, model: &str, known: &[&str]) -> ModelError {
    match known {
        [] => ModelError::Refused(format!("`{model}` has no {what}s by name, got `{name}`")),
        _ => ModelError::Refused(format!("there is no {what} `{name}`: `{model}` has {}", known.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> TtsConfig {
        TtsConfig::from_preset("0.6b").unwrap()
    }

    #[test]
    fn names_are_found_in_any_case() {
        let config = config();
        assert_eq!(config.speaker("Ryan").unwrap().id, 3061);
        assert_eq!(config.language_id("English", None).unwrap(), Some(2050));
        assert_eq!(config.language_id("AUTO", None).unwrap(), None);
    }

    #[test]
    fn a_speaker_of_a_dialect_speaks_chinese_in_it() {
        let config = config();
        let eric = config.speaker("eric").unwrap();
        assert_eq!(config.language_id("chinese", Some(eric)).unwrap(), Some(2062));
        assert_eq!(config.language_id("auto", Some(eric)).unwrap(), Some(2062));
        assert_eq!(config.language_id("english", Some(eric)).unwrap(), Some(2050));
    }

    #[test]
    fn an_unknown_name_is_refused_with_the_known_ones() {
        let config = config();
        let error = config.speaker("bob").unwrap_err().to_string();
        assert_eq!(
            error,
            "there is no speaker `bob`: `Qwen3-TTS-0.6B` has serena, vivian, uncle_fu, ryan, aiden, ono_anna, sohee, \
             eric, dylan"
        );
        let error = config.language_id("klingon", None).unwrap_err().to_string();
        assert!(error.starts_with("there is no language `klingon`: `Qwen3-TTS-0.6B` has auto, chinese, "), "{error}");
        assert!(config.language_id("beijing_dialect", None).is_err(), "dialects are not selected by name");
        let nobody = TtsConfig { speakers: Vec::new(), ..config };
        let error = nobody.speaker("ryan").unwrap_err().to_string();
        assert_eq!(error, "`Qwen3-TTS-0.6B` has no speakers by name, got `ryan`");
    }
}
