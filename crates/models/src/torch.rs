//! Files that `torch.save` writes of a state dict: a zip archive with a pickle that names tensors, and their numbers.
//!
//! Nothing of the pickle is executed. The supported operations are listed here; any other is refused by name.

mod pickle;

use std::{collections::HashMap, io::Cursor, ops::Range, path::Path};

use safetensors::tensor::Dtype as StoredType;
use zip::{CompressionMethod, ZipArchive, result::ZipError};

use self::pickle::Found;
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

/// A file in a format, or with contents, that is not read.
pub fn not_read(path: &Path, reason: &str) -> ModelError {
    let hint =
        "a fuser is read as `torch.save(projector.state_dict(), …)` writes it since torch 1.6, or as safetensors";
    ModelError::hinted(format!("`{}`: {reason}", path.display()), hint)
}

pub fn tensors(bytes: &[u8]) -> Result<Vec<Tensor>, Fault> {
    let archive = Archive::read(bytes)?;
    if archive.entry("byteorder").is_some_and(|order| bytes[order].starts_with(b"big")) {
        return Err(Fault::NotRead("its numbers are high byte first".to_owned()));
    }
    let no_pickle = || Fault::NotRead("it has no `data.pkl`, so it is no file of torch".to_owned());
    let pickle = archive.entry("data.pkl").ok_or_else(no_pickle)?;
    let found = pickle::state_dict(&bytes[pickle])?;
    found.into_iter().map(|found| place(&archive, found)).collect()
}

fn place(archive: &Archive, found: Found) -> Result<Tensor, Fault> {
    let Found { name, place } = found;
    let pickle::Place { storage, offset, shape } = &*place;
    let width = storage.stored_as.bitsize().div_ceil(8);
    let Some(entry) = archive.entry(&format!("data/{}", storage.key)) else {
        return Err(Fault::Damaged(format!("the numbers of `{name}` are missing")));
    };
    let size = |count: usize| count.checked_mul(width);
    let count = shape.iter().try_fold(1_usize, |count, &side| count.checked_mul(side));
    let places = || -> Option<Range<usize>> {
        let start = entry.start.checked_add(size(*offset)?)?;
        let end = start.checked_add(size(count?)?)?;
        (end <= entry.end && size(storage.count)? <= entry.len()).then_some(start..end)
    };
    let short = || Fault::Damaged(format!("the numbers of `{name}` are more than the {} bytes there", entry.len()));
    Ok(Tensor { bytes: places().ok_or_else(short)?, name, shape: shape.clone(), stored_as: storage.stored_as })
}

#[derive(Debug)]
pub struct Archive {
    entries: HashMap<String, Range<usize>>,
}

impl Archive {
    pub fn read(bytes: &[u8]) -> Result<Self, Fault> {
        refuse_others(bytes)?;
        let damaged = |error: ZipError| Fault::Damaged(format!("it is cut off or damaged: {error}"));
        let mut archive = ZipArchive::new(Cursor::new(bytes)).map_err(damaged)?;
        let mut entries = HashMap::new();
        for at in 0..archive.len() {
            let entry = archive.by_index_raw(at).map_err(damaged)?;
            let (name, size) = (entry.name().map_err(damaged)?.into_owned(), entry.size());
            let is_plain = entry.compression() == CompressionMethod::Stored && entry.compressed_size() == size;
            if !is_plain || entry.encrypted() {
                return Err(Fault::NotRead(format!("`{name}` in it is compressed or locked")));
            }
            let place = || -> Option<Range<usize>> {
                let start = usize::try_from(entry.data_start()?).ok()?;
                let end = start.checked_add(usize::try_from(size).ok()?)?;
                (end <= bytes.len()).then_some(start..end)
            };
            let place = place().ok_or_else(|| Fault::Damaged(format!("`{name}` in it is cut off")))?;
            entries.insert(without_folder(&name).to_owned(), place);
        }
        Ok(Self { entries })
    }

    /// Where an entry is, by its name without the archive's own folder.
    pub fn entry(&self, name: &str) -> Option<Range<usize>> {
        self.entries.get(name).cloned()
    }
}

fn refuse_others(bytes: &[u8]) -> Result<(), Fault> {
    match bytes {
        [_, _, _, _, ..] if bytes.starts_with(b"PK\x03\x04") => Ok(()),
        [0x80, 2, ..] => Err(Fault::NotRead("it is in the format that torch wrote before 1.6".to_owned())),
        [] | [_] | [_, _] | [_, _, _] => Err(Fault::Damaged(format!("it is cut off after {} bytes", bytes.len()))),
        _ => Err(Fault::NotRead("it does not begin as a zip archive, so it is no file of torch".to_owned())),
    }
}

fn without_folder(name: &str) -> &str {
    name.split_once('/').map_or(name, |(_, rest)| rest)
}

#[cfg(test)]
mod tests;
