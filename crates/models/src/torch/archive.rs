//! The zip archives of torch: entries that are stored as they are.

use std::{collections::HashMap, ops::Range};

use super::Fault;

/// How the parts of an archive begin.
const ENTRY: [u8; 4] = *b"PK\x03\x04";
const LISTED: [u8; 4] = *b"PK\x01\x02";
const END: [u8; 4] = *b"PK\x05\x06";
const END_64: [u8; 4] = *b"PK\x06\x06";
const END_64_PLACE: [u8; 4] = *b"PK\x06\x07";

/// Bytes of the end of an archive, without its comment, and the longest comment.
const END_BYTES: usize = 22;
const LONGEST_COMMENT: usize = u16::MAX as usize;

/// The placeholder of a number that needs more than 32 bits and is stored elsewhere.
const BESIDE: u32 = u32::MAX;

#[derive(Debug)]
pub struct Archive {
    entries: HashMap<String, Range<usize>>,
}

impl Archive {
    pub fn read(bytes: &[u8]) -> Result<Self, Fault> {
        refuse_others(bytes)?;
        let cut_off = || Fault::Damaged(format!("it is cut off: {} bytes, and no end of the archive", bytes.len()));
        let end = find_end(bytes).ok_or_else(cut_off)?;
        let damaged = || Fault::Damaged("the list of its archive is damaged".to_owned());
        let (count, mut at) = list_of(bytes, end).ok_or_else(damaged)?;
        let mut entries = HashMap::new();
        for _ in 0..count {
            let listed = Listed::read(bytes, at).ok_or_else(damaged)?;
            let place = listed.place(bytes)?;
            entries.insert(without_folder(&listed.name).to_owned(), place);
            at = listed.end;
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
        [_, _, _, _, ..] if bytes.starts_with(&ENTRY) => Ok(()),
        [0x80, 2, ..] => Err(Fault::NotRead("it is in the format that torch wrote before 1.6".to_owned())),
        [] | [_] | [_, _] | [_, _, _] => Err(Fault::Damaged(format!("it is cut off after {} bytes", bytes.len()))),
        _ => Err(Fault::NotRead("it does not begin as a zip archive, so it is no file of torch".to_owned())),
    }
}

fn find_end(bytes: &[u8]) -> Option<usize> {
    let last = bytes.len().checked_sub(END_BYTES)?;
    let first = last.saturating_sub(LONGEST_COMMENT);
    let is_end = |&at: &usize| {
        let comment = u16_at(bytes, at + 20).map(usize::from);
        bytes[at..].starts_with(&END) && comment == Some(last - at)
    };
    (first..=last).rev().find(is_end)
}

/// How many entries are listed, and where the list begins.
fn list_of(bytes: &[u8], end: usize) -> Option<(u64, usize)> {
    let place = end.checked_sub(20).filter(|&at| bytes[at..].starts_with(&END_64_PLACE));
    let Some(place) = place else {
        return Some((u64::from(u16_at(bytes, end + 10)?), u32_at(bytes, end + 16)? as usize));
    };
    let long = usize::try_from(u64_at(bytes, place + 8)?).ok()?;
    if !bytes.get(long..)?.starts_with(&END_64) {
        return None;
    }
    Some((u64_at(bytes, long.checked_add(32)?)?, usize::try_from(u64_at(bytes, long.checked_add(48)?)?).ok()?))
}

struct Listed {
    name: String,
    is_plain: bool,
    size: u64,
    offset: u64,
    end: usize,
}

impl Listed {
    fn read(bytes: &[u8], at: usize) -> Option<Self> {
        let line = bytes.get(at..)?;
        if !line.starts_with(&LISTED) {
            return None;
        }
        let length = |at: usize| u16_at(line, at).map(usize::from);
        let (name_end, extra_end) = (46 + length(28)?, 46 + length(28)? + length(30)?);
        let name = String::from_utf8_lossy(line.get(46..name_end)?).into_owned();
        let is_plain = u16_at(line, 10)? == 0 && u16_at(line, 8)? & 1 == 0;
        let [stored, size, offset] = sizes(line, line.get(name_end..extra_end)?)?;
        let end = at.checked_add(extra_end)?.checked_add(length(32)?)?;
        Some(Self { name, is_plain: is_plain && stored == size, size, offset, end })
    }

    fn place(&self, bytes: &[u8]) -> Result<Range<usize>, Fault> {
        if !self.is_plain {
            return Err(Fault::NotRead(format!("`{}` in it is compressed or locked", self.name)));
        }
        let found = || -> Option<Range<usize>> {
            let offset = usize::try_from(self.offset).ok()?;
            let header = bytes.get(offset..)?;
            let names = usize::from(u16_at(header, 26)?) + usize::from(u16_at(header, 28)?);
            let start = offset.checked_add(30 + names)?;
            let end = start.checked_add(usize::try_from(self.size).ok()?)?;
            (header.starts_with(&ENTRY) && end <= bytes.len()).then_some(start..end)
        };
        found().ok_or_else(|| Fault::Damaged(format!("`{}` in it is cut off", self.name)))
    }
}

/// The stored size, the whole size and the place of an entry; large ones are in the extra field of its record.
fn sizes(line: &[u8], extra: &[u8]) -> Option<[u64; 3]> {
    let short = [u32_at(line, 20)?, u32_at(line, 24)?, u32_at(line, 42)?];
    let mut long = extra_64(extra).into_iter().flatten();
    let mut one = |short: u32| if short == BESIDE { long.next() } else { Some(u64::from(short)) };
    // The whole size is told first beside the line, and second in it.
    let (size, stored) = (one(short[1])?, one(short[0])?);
    Some([stored, size, one(short[2])?])
}

/// The large numbers beside a line.
fn extra_64(mut extra: &[u8]) -> Option<impl Iterator<Item = u64>> {
    while let (Some(kind), Some(length)) = (u16_at(extra, 0), u16_at(extra, 2)) {
        let field = extra.get(4..4 + usize::from(length))?;
        if kind == 1 {
            return Some(field.as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes)));
        }
        extra = &extra[4 + field.len()..];
    }
    None
}

fn without_folder(name: &str) -> &str {
    name.split_once('/').map_or(name, |(_, rest)| rest)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}
