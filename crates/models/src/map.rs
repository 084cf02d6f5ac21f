//! A file mapped into memory: the one place of this crate that the compiler cannot check.

#![allow(unsafe_code)]

use std::{fs::File, io, path::Path};

use memmap2::Mmap;

#[derive(Debug)]
pub struct Map(Option<Mmap>);

impl Map {
    pub fn open(path: &Path) -> io::Result<Self> {
        // Opening a pipe would wait for somebody to write.
        if !path.metadata()?.is_file() {
            return Err(io::Error::other("it is no file"));
        }
        let file = File::open(path)?;
        if file.metadata()?.len() == 0 {
            return Ok(Self(None));
        }
        // SAFETY: the mapping is read only, its bytes are numbers of which every pattern is one, and its header is copied
        // out before it is trusted to be text. If another program cuts the file meanwhile, the system ends this one
        // with a signal; nothing is read beyond the mapping.
        Ok(Self(Some(unsafe { Mmap::map(&file) }?)))
    }

    pub fn bytes(&self) -> &[u8] {
        self.0.as_deref().unwrap_or_default()
    }
}
