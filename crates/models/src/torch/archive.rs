//! The zip archives of torch: entries that are stored as they are.

use std::{collections::HashMap, io::Cursor, ops::Range};

use zip::{CompressionMethod, ZipArchive, result::ZipError};

use super::Fault;

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
