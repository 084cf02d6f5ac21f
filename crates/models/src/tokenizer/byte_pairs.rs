//! Byte-pair tokenizers in the older format: `vocab.json`, `merges.txt` and `tokenizer_config.json`, as published by Qwen.

use std::{collections::BTreeMap, path::Path};

use serde::Deserialize;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::pre_tokenizers::{byte_level::ByteLevel, sequence::Sequence};
use tokenizers::{AddedToken, Tokenizer, models::bpe::BPE, normalizers::NFC, tokenizer::SplitDelimiterBehavior};

use crate::{Done, ModelError, folder::read_json};

/// The pre-tokenization of Qwen.
const CUTS: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

pub fn is_there(folder: &Path) -> bool {
    folder.join("vocab.json").exists() && folder.join("merges.txt").exists()
}

pub fn open(folder: &Path) -> Result<Tokenizer, ModelError> {
    let [vocab, merges] = ["vocab.json", "merges.txt"].map(|file| folder.join(file));
    let damaged =
        |error: tokenizers::Error| ModelError::damaged(&vocab, format!("invalid tokenizer with `merges.txt`: {error}"));
    let model = BPE::from_file(&vocab.to_string_lossy(), &merges.to_string_lossy()).build().map_err(damaged)?;
    let mut tokenizer = Tokenizer::new(model);
    let cuts = SplitPattern::Regex(CUTS.to_owned());
    let cuts = Split::new(cuts, SplitDelimiterBehavior::Isolated, false).map_err(damaged)?;
    tokenizer.with_normalizer(Some(NFC)).map_err(damaged)?;
    tokenizer.with_pre_tokenizer(Some(Sequence::new(vec![cuts.into(), ByteLevel::new(false, false, false).into()])));
    tokenizer.with_decoder(Some(ByteLevel::new(false, false, false)));
    add_tokens(folder, &mut tokenizer)?;
    Ok(tokenizer)
}

#[derive(Deserialize)]
struct Added {
    content: String,
    #[serde(default)]
    special: bool,
    #[serde(default)]
    normalized: bool,
    #[serde(default)]
    lstrip: bool,
    #[serde(default)]
    rstrip: bool,
    #[serde(default)]
    single_word: bool,
}

/// Adds the tokens outside the vocabulary in the order of their IDs, which must match the given ones.
fn add_tokens(folder: &Path, tokenizer: &mut Tokenizer) -> Done {
    #[derive(Deserialize)]
    struct Config {
        #[serde(default)]
        added_tokens_decoder: BTreeMap<u32, Added>,
    }
    let path = folder.join("tokenizer_config.json");
    if !path.exists() {
        return Ok(());
    }
    let config: Config = read_json(&path, "tokenizer configuration")?;
    let damaged = |reason: String| ModelError::damaged(&path, reason);
    for (id, added) in config.added_tokens_decoder {
        let token = AddedToken::from(added.content.clone(), added.special)
            .normalized(added.normalized)
            .lstrip(added.lstrip)
            .rstrip(added.rstrip)
            .single_word(added.single_word);
        let refused = |error: tokenizers::Error| damaged(format!("cannot add `{}`: {error}", added.content));
        tokenizer.add_tokens([token]).map_err(refused)?;
        let found = tokenizer.token_to_id(&added.content);
        if found != Some(id) {
            return Err(damaged(format!("`{}` should be token {id}, but is {found:?}", added.content)));
        }
    }
    Ok(())
}
