//! A file as memory.

#![allow(unsafe_code)]

use std::fs::File;

use memmap2::Mmap;

/// A file mapped into memory, to be read once from its beginning to its end.
pub struct Map(Mmap);

impl Map {
    /// Maps a plain file; none if it is no plain file, or cannot be mapped.
    pub fn of(file: &File) -> Option<Self> {
        if !file.metadata().ok()?.is_file() {
            return None;
        }
        // SAFETY: the mapping is read only and private to this process, and bytes are copied out of it before they are
        // trusted to be text. If another program cuts the file meanwhile, the system ends this one with a signal, as
        // `read` documents; nothing is read beyond the mapping.
        let map = unsafe { Mmap::map(file) }.ok()?;
        // A hint; without it reading works the same.
        #[cfg(unix)]
        let _ = map.advise(memmap2::Advice::Sequential);
        Some(Self(map))
    }

    /// The file's bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}
