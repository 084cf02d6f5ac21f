//! Finds symbols in the mapped ELF files of a process.

use std::{fs, path::PathBuf};

/// A library or program that a process has mapped.
#[derive(Debug, Clone)]
pub struct Mapped {
    /// A path that this process can open.
    pub file: PathBuf,
    /// The file name.
    pub name: String,
    /// The base address.
    pub start: u64,
}

/// The files that a process has mapped from offset 0, without duplicates.
pub fn mapped(pid: u32) -> Vec<Mapped> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let mut found: Vec<Mapped> = Vec::new();
    for line in maps.lines() {
        // `start-end rwxp offset device inode path`
        let mut words = line.splitn(6, ' ');
        let (Some(range), Some(offset)) = (words.next(), words.nth(1)) else { continue };
        let Some(path) = words.nth(2).map(str::trim).filter(|path| path.starts_with('/')) else { continue };
        let start = range.split('-').next().and_then(|start| u64::from_str_radix(start, 16).ok());
        let (Some(start), true) = (start, offset.bytes().all(|digit| digit == b'0')) else { continue };
        let name = path.rsplit('/').next().unwrap_or_default().to_owned();
        // Through the root of the process, for containers.
        let file = PathBuf::from(format!("/proc/{pid}/root{path}"));
        if !found.iter().any(|known| known.file == file) {
            found.push(Mapped { file, name, start });
        }
    }
    found
}

/// The value of a symbol in a 64-bit ELF file: an offset from the base address, or an address in a fixed executable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Symbol {
    pub value: u64,
    pub is_address: bool,
}

/// Looks up a symbol in `.dynsym`, then in `.symtab`.
pub fn symbol(bytes: &[u8], name: &str) -> Option<Symbol> {
    const DYNSYM: u32 = 11;
    const SYMTAB: u32 = 2;
    const FIXED: u16 = 2;
    if bytes.get(..5)? != b"\x7fELF\x02" {
        return None;
    }
    let is_address = u16_at(bytes, 16)? == FIXED;
    let sections = sections(bytes)?;
    [DYNSYM, SYMTAB].into_iter().find_map(|kind| {
        let table = sections.iter().find(|section| section.kind == kind)?;
        let texts = sections.get(table.link as usize)?;
        let symbols = bytes.get(table.range()?)?;
        let texts = bytes.get(texts.range()?)?;
        let found = symbols.chunks_exact(24).find(|symbol| {
            let text = u32_at(symbol, 0).and_then(|at| texts.get(at as usize..));
            text.is_some_and(|text| text.strip_prefix(name.as_bytes()).is_some_and(|rest| rest.first() == Some(&0)))
        })?;
        let value = u64_at(found, 8).filter(|value| *value != 0)?;
        Some(Symbol { value, is_address })
    })
}

#[derive(Debug)]
struct Section {
    kind: u32,
    offset: u64,
    size: u64,
    link: u32,
}

impl Section {
    fn range(&self) -> Option<std::ops::Range<usize>> {
        let (from, size) = (usize::try_from(self.offset).ok()?, usize::try_from(self.size).ok()?);
        Some(from..from.checked_add(size)?)
    }
}

fn sections(bytes: &[u8]) -> Option<Vec<Section>> {
    let start = usize::try_from(u64_at(bytes, 40)?).ok()?;
    let (length, count) = (usize::from(u16_at(bytes, 58)?), usize::from(u16_at(bytes, 60)?));
    (0..count)
        .map(|at| {
            let section = bytes.get(start.checked_add(at * length)?..)?;
            Some(Section {
                kind: u32_at(section, 4)?,
                offset: u64_at(section, 24)?,
                size: u64_at(section, 32)?,
                link: u32_at(section, 40)?,
            })
        })
        .collect()
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_program_is_mapped_and_has_symbols() {
        let own = std::env::current_exe().unwrap();
        let found = mapped(std::process::id());
        let name = own.file_name().unwrap().to_string_lossy().into_owned();
        assert!(found.iter().any(|mapped| mapped.name == name), "{found:?}");
        let bytes = fs::read(own).unwrap();
        assert!(symbol(&bytes, "main").is_some());
        assert_eq!(symbol(&bytes, "no_such_symbol_at_all"), None);
    }

    #[test]
    fn truncated_files_have_no_symbols() {
        let own = fs::read(std::env::current_exe().unwrap()).unwrap();
        for length in [0, 5, 40, 64, 1000] {
            assert_eq!(symbol(&own[..length], "main"), None);
        }
    }
}
