//! Voices and languages, by name.

use super::TtsConfig;
use crate::ModelError;

/// The language that leaves the choice to the model.
pub(super) const AUTO: &str = "auto";

/// What the names of dialects have in them; they are reached by speakers and not by name.
const DIALECT: &str = "dialect";

/// A voice that a model knows by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Speaker {
    /// Its name, in lower case.
    pub name: String,
    /// Its id among codes.
    pub id: u32,
    /// The dialect that it speaks where Chinese, or no language, is asked for.
    pub dialect: Option<String>,
}

/// A language that a model supports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Language {
    /// Its name, in lower case.
    pub name: String,
    /// Its id among codes.
    pub id: u32,
}

impl TtsConfig {
    /// The voice of this name, case-insensitive.
    pub fn speaker(&self, name: &str) -> Result<&Speaker, ModelError> {
        let asked = name.to_lowercase();
        self.speakers.iter().find(|speaker| speaker.name == asked).ok_or_else(|| {
            let known: Vec<&str> = self.speakers.iter().map(|speaker| speaker.name.as_str()).collect();
            unknown("speaker", name, &self.name, &known)
        })
    }

    /// The id of a language by name, case-insensitive; none for `auto`. A speaker of a dialect has Chinese said in it.
    pub fn language_id(&self, name: &str, speaker: Option<&Speaker>) -> Result<Option<u32>, ModelError> {
        let asked = name.to_lowercase();
        let find = |name: &str| self.languages.iter().find(|language| language.name == name).map(|found| found.id);
        let known = self.language_names();
        if !known.contains(&asked.as_str()) {
            return Err(unknown("language", name, &self.name, &known));
        }
        let dialect = speaker.and_then(|speaker| speaker.dialect.as_deref());
        match dialect.filter(|_| asked == AUTO || asked == "chinese") {
            Some(dialect) => Ok(find(dialect)),
            None => Ok(find(&asked)),
        }
    }

    /// The languages that can be asked for: `auto`, and all but the dialects.
    pub fn language_names(&self) -> Vec<&str> {
        let named = self.languages.iter().map(|language| language.name.as_str());
        [AUTO].into_iter().chain(named.filter(|name| !name.contains(DIALECT))).collect()
    }
}

fn unknown(what: &str, name: &str, model: &str, known: &[&str]) -> ModelError {
    match known {
        [] => ModelError::Refused(format!("`{model}` knows no {what} by name, and not `{name}`")),
        _ => ModelError::Refused(format!("there is no {what} `{name}`: `{model}` knows {}", known.join(", "))),
    }
}

pub(super) fn published_speakers() -> Vec<Speaker> {
    let named = [
        ("serena", 3066, None),
        ("vivian", 3065, None),
        ("uncle_fu", 3010, None),
        ("ryan", 3061, None),
        ("aiden", 2861, None),
        ("ono_anna", 2873, None),
        ("sohee", 2864, None),
        ("eric", 2875, Some("sichuan_dialect")),
        ("dylan", 2878, Some("beijing_dialect")),
    ];
    let speaker = |(name, id, dialect): (&str, u32, Option<&str>)| Speaker {
        name: name.to_owned(),
        id,
        dialect: dialect.map(str::to_owned),
    };
    named.map(speaker).into()
}

pub(super) fn published_languages() -> Vec<Language> {
    let named = [
        ("chinese", 2055),
        ("english", 2050),
        ("german", 2053),
        ("italian", 2070),
        ("portuguese", 2071),
        ("spanish", 2054),
        ("japanese", 2058),
        ("korean", 2064),
        ("french", 2061),
        ("russian", 2069),
        ("beijing_dialect", 2074),
        ("sichuan_dialect", 2062),
    ];
    named.map(|(name, id)| Language { name: name.to_owned(), id }).into()
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
    fn a_speaker_of_a_dialect_has_chinese_said_in_it() {
        let config = config();
        let eric = config.speaker("eric").unwrap();
        assert_eq!(config.language_id("chinese", Some(eric)).unwrap(), Some(2062));
        assert_eq!(config.language_id("auto", Some(eric)).unwrap(), Some(2062));
        assert_eq!(config.language_id("english", Some(eric)).unwrap(), Some(2050));
    }

    #[test]
    fn an_unknown_name_is_told_with_the_known_ones() {
        let config = config();
        let error = config.speaker("bob").unwrap_err().to_string();
        assert_eq!(
            error,
            "there is no speaker `bob`: `Qwen3-TTS-0.6B` knows serena, vivian, uncle_fu, ryan, aiden, ono_anna, sohee, \
             eric, dylan"
        );
        let error = config.language_id("klingon", None).unwrap_err().to_string();
        assert!(error.starts_with("there is no language `klingon`: `Qwen3-TTS-0.6B` knows auto, chinese, "), "{error}");
        assert!(config.language_id("beijing_dialect", None).is_err(), "dialects are not asked for by name");
        let nobody = TtsConfig { speakers: Vec::new(), ..config };
        let error = nobody.speaker("ryan").unwrap_err().to_string();
        assert_eq!(error, "`Qwen3-TTS-0.6B` knows no speaker by name, and not `ryan`");
    }
}
