//! Tokens that stand for something else than text, by what they stand for.

use std::{collections::HashMap, path::Path};

use laptime_trace::small_file;
use serde_json::Value;

use crate::ModelError;

/// What a token stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TokenRole {
    /// It fills what is left of a shorter sequence.
    Padding,
    /// It ends a sequence.
    End,
    /// It begins a sequence.
    Begin,
    /// It stands for what the vocabulary does not have.
    Unknown,
}

impl TokenRole {
    /// All of them, in the order in which they are looked for.
    pub const ALL: [Self; 4] = [Self::Padding, Self::End, Self::Begin, Self::Unknown];

    const fn field(self) -> &'static str {
        match self {
            Self::Padding => "pad_token",
            Self::End => "eos_token",
            Self::Begin => "bos_token",
            Self::Unknown => "unk_token",
        }
    }
}

/// The tokens of each role that the `tokenizer_config.json` of a folder names; none if it has no such file.
pub fn read(folder: &Path, id_of: impl Fn(&str) -> Option<u32>) -> Result<HashMap<TokenRole, u32>, ModelError> {
    let path = folder.join("tokenizer_config.json");
    if !path.exists() {
        return Ok(HashMap::new());
    }
    let text = small_file::read_bytes(&path, small_file::LARGEST_SMALL_FILE)
        .map_err(|source| ModelError::Open { path: path.clone(), source })?;
    let damaged = |error| ModelError::Damaged { path: path.clone(), reason: format!("it is no JSON: {error}") };
    let fields: Value = serde_json::from_slice(&text).map_err(damaged)?;
    let token = |role: TokenRole| {
        let field = fields.get(role.field())?;
        // Older files tell how a token is to be treated beside what it is.
        let text = field.as_str().or_else(|| field.get("content")?.as_str())?;
        Some((role, id_of(text)?))
    };
    Ok(TokenRole::ALL.into_iter().filter_map(token).collect())
}
