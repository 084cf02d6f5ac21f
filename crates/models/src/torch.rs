//! State dicts written by `torch.save`: a zip archive of a pickle that names tensors, and their data.
//!
//! Nothing in the pickle is executed. Unsupported opcodes are refused by name.

mod pickle;

use std::{collections::HashMap, io::Cursor, ops::Range, path::Path};

use safetensors::tensor::Dtype as StoredType;
use zip::{CompressionMethod, ZipArchive, result::ZipError};

use self::pickle::{Found, Storage};
use crate::ModelError;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tensor {
    pub name: String,
    pub bytes: Range<usize>,
    pub shape: Vec<usize>,
    pub stored_as: StoredType,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    Damaged(String),
    NotRead(String),
}

impl Fault {
    pub fn of(self, path: &Path) -> ModelError {
        match self {
            Self::Damaged(reason) => ModelError::damaged(path, reason),
            Self::NotRead(reason) => not_read(path, &reason),
        }
    }
}

/// The error for a file in an unsupported format.
pub fn not_read(path: &Path, reason: &str) -> ModelError {
    let hint = "save the fuser with `torch.save(projector.state_dict(), …)` (torch 1.6 or later) or as safetensors";
    ModelError::hinted(format!("`{}`: {reason}", path.display()), hint)
}

/// The byte ranges of the entries of an archive, by name without the archive's own folder.
type Entries = HashMap<String, Range<usize>>;

pub fn tensors(bytes: &[u8]) -> Result<Vec<Tensor>, Fault> {
    let entries = entries(bytes)?;
    if entries.get("byteorder").is_some_and(|order| bytes[order.clone()].starts_with(b"big")) {
        return Err(Fault::NotRead("big-endian data is not supported".to_owned()));
    }
    let no_pickle = || Fault::NotRead("`data.pkl` is missing, so `torch.save` did not write it".to_owned());
    let pickle = entries.get("data.pkl").ok_or_else(no_pickle)?;
    let found = pickle::state_dict(&bytes[pickle.clone()])?;
    found.into_iter().map(|found| place(&entries, found)).collect()
}

fn place(entries: &Entries, found: Found<'_>) -> Result<Tensor, Fault> {
    let Found { name, storage: Storage { key, stored_as, count }, offset, shape } = found;
    let Some(entry) = entries.get(&format!("data/{key}")) else {
        return Err(Fault::Damaged(format!("the data of `{name}` is missing")));
    };
    let bytes = |count: usize| count.checked_mul(stored_as.bitsize().div_ceil(8));
    let range = || {
        let start = entry.start.checked_add(bytes(offset)?)?;
        let elements = shape.iter().try_fold(1_usize, |all, &side| all.checked_mul(side))?;
        let end = start.checked_add(bytes(elements)?)?;
        (end <= entry.end && bytes(count)? <= entry.len()).then_some(start..end)
    };
    let short = || Fault::Damaged(format!("`{name}` needs more than the {} bytes stored", entry.len()));
    Ok(Tensor { bytes: range().ok_or_else(short)?, name: name.to_owned(), shape, stored_as })
}

fn entries(bytes: &[u8]) -> Result<Entries, Fault> {
    match bytes {
        [b'P', b'K', 3, 4, ..] => {}
        [0x80, 2, ..] => return Err(Fault::NotRead("the format of torch before 1.6 is not supported".to_owned())),
        [] | [_] | [_, _] | [_, _, _] => return Err(Fault::Damaged(format!("truncated after {} bytes", bytes.len()))),
        _ => return Err(Fault::NotRead("not a zip archive, so `torch.save` did not write it".to_owned())),
    }
    let damaged = |error: ZipError| Fault::Damaged(format!("truncated or damaged: {error}"));
    let mut archive = ZipArchive::new(Cursor::new(bytes)).map_err(damaged)?;
    let mut entries = Entries::new();
    for at in 0..archive.len() {
        let entry = archive.by_index_raw(at).map_err(damaged)?;
        let (name, size) = (entry.name().map_err(damaged)?.into_owned(), entry.size());
        let is_stored = entry.compression() == CompressionMethod::Stored && entry.compressed_size() == size;
        if !is_stored || entry.encrypted() {
            return Err(Fault::NotRead(format!("`{name}` is compressed or encrypted")));
        }
        let range = || {
            let start = usize::try_from(entry.data_start()?).ok()?;
            let end = start.checked_add(usize::try_from(size).ok()?)?;
            (end <= bytes.len()).then_some(start..end)
        };
        let range = range().ok_or_else(|| Fault::Damaged(format!("`{name}` is truncated")))?;
        entries.insert(name.split_once('/').map_or(name.as_str(), |(_, rest)| rest).to_owned(), range);
    }
    Ok(entries)
}

#[cfg(test)]
mod tests;
