//! Tokens that stand for something else than text, by what they stand for.

use std::{collections::HashMap, path::Path};

use serde_json::Value;

use crate::{ModelError, folder::read_json, words::words};

words! {
    /// What a token stands for, by the field that names it; in the order in which roles are looked for.
    pub enum TokenRole {
        /// It fills what is left of a shorter sequence.
        Padding = "pad_token",
        /// It ends a sequence.
        End = "eos_token",
        /// It begins a sequence.
        Begin = "bos_token",
        /// It stands for what the vocabulary does not have.
        Unknown = "unk_token",
    }
}

/// The tokens of each role that the `tokenizer_config.json` of a folder names; none if it has no such file.
pub fn read(folder: &Path, id_of: impl Fn(&str) -> Option<u32>) -> Result<HashMap<TokenRole, u32>, ModelError> {
    let path = folder.join("tokenizer_config.json");
    if !path.exists() {
        return Ok(HashMap::new());
    }
    let fields: Value = read_json(&path, "JSON")?;
    let token = |role: TokenRole| {
        let field = fields.get(role.word())?;
        // Older files tell how a token is to be treated beside what it is.
        let text = field.as_str().or_else(|| field.get("content")?.as_str())?;
        Some((role, id_of(text)?))
    };
    Ok(TokenRole::ALL.into_iter().filter_map(token).collect())
}
