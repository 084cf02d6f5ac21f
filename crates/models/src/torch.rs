//! Files that `torch.save` writes of a state dict: a zip archive with a pickle that names tensors, and their numbers.
//!
//! Nothing of the pickle is executed. The supported operations are listed here; any other is refused by name.

mod archive;
mod pickle;

use std::{ops::Range, path::Path};

use safetensors::tensor::Dtype as StoredType;

use self::{archive::Archive, pickle::Found};
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

#[cfg(test)]
mod tests;
