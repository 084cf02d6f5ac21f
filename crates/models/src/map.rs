//! Memory-mapped files.

#![allow(unsafe_code)]

use std::{fs::File, io, path::Path};

use memmap2::Mmap;

#[derive(Debug)]
pub struct Map(Option<Mmap>);

impl Map {
    pub fn open(path: &Path) -> io::Result<Self> {
        // Opening a pipe would block until someone writes.
        if !path.metadata()?.is_file() {
            return Err(io::Error::other("not a regular file"));
        }
        let file = File::open(path)?;
        if file.metadata()?.len() == 0 {
            return Ok(Self(None));
        }
        // SAFETY: the mapping is read-only, any bytes are valid numbers, and the header is copied before it is parsed. If
        // another program truncates the file meanwhile, this one is ended by a signal; nothing else is read.
        Ok(Self(Some(unsafe { Mmap::map(&file) }?)))
    }

    pub fn bytes(&self) -> &[u8] {
        self.0.as_deref().unwrap_or_default()
    }
}
