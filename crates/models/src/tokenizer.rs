//! Tokenizers: that of a model's folder, or else bytes.

mod byte_pairs;

use std::collections::{HashMap, HashSet};
use std::{ops::Range, path::Path};

use laptime_trace::small_file;
use serde_json::Value;

use crate::folder::{open_file, read_json};
use crate::{Config, ModelError, error::ensure, words::words};

/// Converts text to tokens and back.
#[derive(Debug)]
pub struct Tokenizer {
    /// None if tokens are bytes.
    file: Option<Box<File>>,
}

#[derive(Debug)]
struct File {
    tokenizer: tokenizers::Tokenizer,
    /// Tokens that are not text.
    special: HashSet<u32>,
    roles: HashMap<TokenRole, u32>,
}

impl File {
    fn new(tokenizer: tokenizers::Tokenizer, folder: &Path) -> Result<Self, ModelError> {
        let roles = roles(folder, |token| tokenizer.token_to_id(token))?;
        let added = tokenizer.get_added_tokens_decoder().into_iter();
        let mut special: HashSet<u32> = added.filter(|(_, token)| token.special).map(|(id, _)| id).collect();
        special.extend(roles.values());
        Ok(Self { tokenizer, special, roles })
    }
}

const BYTES: usize = 256;

impl Tokenizer {
    /// The tokenizer of a folder: `tokenizer.json`, else `vocab.json` with `merges.txt` in the format of Qwen, else bytes.
    pub fn open(folder: &Path, config: &Config) -> Result<Self, ModelError> {
        let path = folder.join("tokenizer.json");
        let tokenizer = if path.exists() {
            let text = open_file(&path, |path| small_file::read_bytes(path, small_file::LARGEST_SMALL_FILE))?;
            let damaged = |error| ModelError::damaged(&path, format!("invalid tokenizer: {error}"));
            tokenizers::Tokenizer::from_bytes(text).map_err(damaged)?
        } else if byte_pairs::is_there(folder) {
            byte_pairs::open(folder)?
        } else {
            return Self::bytes(config);
        };
        Ok(Self { file: Some(Box::new(File::new(tokenizer, folder)?)) })
    }

    /// Tokens that are bytes. Refuses a vocabulary with fewer than 256 tokens.
    pub fn bytes(config: &Config) -> Result<Self, ModelError> {
        let (name, vocab) = (&config.name, config.vocab);
        ensure!(vocab >= BYTES, "`{name}` has {vocab} tokens, too few for {BYTES} bytes");
        Ok(Self { file: None })
    }

    /// Whether tokens are bytes.
    pub fn is_bytes(&self) -> bool {
        self.file.is_none()
    }

    /// The tokens of a text, with those that the tokenizer adds at its ends.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, ModelError> {
        let Some(file) = &self.file else { return Ok(text.bytes().map(u32::from).collect()) };
        let encoded = file.tokenizer.encode_fast(text, true);
        Ok(encoded.map_err(not_encoded)?.get_ids().to_vec())
    }

    /// The tokens of a text without added ones, each with its byte range in the text.
    pub fn encode_with_places(&self, text: &str) -> Result<Vec<(u32, Range<usize>)>, ModelError> {
        let Some(file) = &self.file else {
            return Ok(text.bytes().enumerate().map(|(at, byte)| (u32::from(byte), at..at + 1)).collect());
        };
        let encoded = file.tokenizer.encode(text, false).map_err(not_encoded)?;
        let places = encoded.get_offsets().iter().map(|(start, end)| *start..*end);
        Ok(encoded.get_ids().iter().copied().zip(places).collect())
    }

    /// The ID of a token by its text.
    pub fn id_of(&self, token: &str) -> Option<u32> {
        let Some(file) = &self.file else {
            return <[u8; 1]>::try_from(token.as_bytes()).ok().map(|[byte]| u32::from(byte));
        };
        file.tokenizer.token_to_id(token)
    }

    /// The text of one token, special or not.
    pub fn text_of(&self, id: u32) -> Result<String, ModelError> {
        self.text(&[id], false)
    }

    /// Whether a token is not text.
    pub fn is_special(&self, id: u32) -> bool {
        self.file.as_ref().is_some_and(|file| file.special.contains(&id))
    }

    /// The token with a role.
    pub fn role(&self, role: TokenRole) -> Option<u32> {
        self.file.as_ref()?.roles.get(&role).copied()
    }

    /// The text of tokens. Invalid UTF-8 becomes the replacement character, and tokens outside the bytes their number.
    pub fn decode(&self, ids: &[u32]) -> Result<String, ModelError> {
        self.text(ids, true)
    }

    fn text(&self, ids: &[u32], skips_special: bool) -> Result<String, ModelError> {
        let Some(file) = &self.file else { return Ok(bytes_as_text(ids)) };
        let not_decoded = |error| ModelError::Refused(format!("cannot decode the tokens: {error}"));
        file.tokenizer.decode(ids, skips_special).map_err(not_decoded)
    }
}

fn not_encoded(error: tokenizers::Error) -> ModelError {
    ModelError::Refused(format!("cannot encode the text: {error}"))
}

fn bytes_as_text(ids: &[u32]) -> String {
    let mut bytes = Vec::with_capacity(ids.len());
    for id in ids {
        match u8::try_from(*id) {
            Ok(byte) => bytes.push(byte),
            Err(_) => bytes.extend(format!("<{id}>").bytes()),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

words! {
    /// The role of a token, by the field that names it, in order of preference.
    pub enum TokenRole {
        /// Pads shorter sequences.
        Padding = "pad_token",
        /// Ends a sequence.
        End = "eos_token",
        /// Begins a sequence.
        Begin = "bos_token",
        /// Replaces text outside the vocabulary.
        Unknown = "unk_token",
    }
}

/// The tokens by role in the `tokenizer_config.json` of a folder, if it has one.
fn roles(folder: &Path, id_of: impl Fn(&str) -> Option<u32>) -> Result<HashMap<TokenRole, u32>, ModelError> {
    let path = folder.join("tokenizer_config.json");
    if !path.exists() {
        return Ok(HashMap::new());
    }
    let fields: Value = read_json(&path, "JSON")?;
    let token = |role: TokenRole| {
        let field = fields.get(role.word())?;
        // Older files have an object with the text and its properties.
        let text = field.as_str().or_else(|| field.get("content")?.as_str())?;
        Some((role, id_of(text)?))
    };
    Ok(TokenRole::ALL.into_iter().filter_map(token).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORDS: &str = r#"{"version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": {"type": "Whitespace"}, "post_processor": null, "decoder": null,
        "model": {"type": "WordLevel", "vocab": {"[UNK]": 0, "say": 1, "hello": 2}, "unk_token": "[UNK]"}}"#;

    fn tiny() -> Config {
        Config::from_preset("tiny").unwrap()
    }

    #[test]
    fn without_a_file_tokens_are_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let tokenizer = Tokenizer::open(folder.path(), &tiny()).unwrap();
        assert!(tokenizer.is_bytes());
        assert_eq!(tokenizer.encode("aé").unwrap(), [97, 195, 169]);
        assert_eq!(tokenizer.decode(&[97, 195, 169, 300, 255]).unwrap(), "aé<300>\u{fffd}");
    }

    #[test]
    fn the_tokenizer_file_of_a_folder_is_used() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("tokenizer.json"), WORDS).unwrap();
        let tokenizer = Tokenizer::open(folder.path(), &tiny()).unwrap();
        assert_eq!(tokenizer.encode("say hello world").unwrap(), [1, 2, 0]);
        assert_eq!(tokenizer.decode(&[1, 2]).unwrap(), "say hello");
    }

    #[test]
    fn a_damaged_tokenizer_and_a_small_vocabulary_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("tokenizer.json"), "{").unwrap();
        let error = Tokenizer::open(folder.path(), &tiny()).unwrap_err().to_string();
        assert!(error.contains("invalid tokenizer"), "{error}");
        let error = Tokenizer::bytes(&Config { vocab: 199, ..tiny() }).unwrap_err().to_string();
        assert_eq!(error, "`tiny` has 199 tokens, too few for 256 bytes");
    }
}
