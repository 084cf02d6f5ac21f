//! Splits a stream into chunks, each ending where an event seems to end.

use std::io::{self, Read};

use super::pipeline::border;
use crate::format::is_damage;

/// Bytes requested at a time: data unpacked together with damage is lost with it.
const STEP: usize = 32 << 10;

pub struct Chunks<R> {
    input: R,
    size: usize,
    /// Bytes read after the end of the last chunk.
    rest: Vec<u8>,
    has_ended: bool,
}

impl<R: Read> Chunks<R> {
    pub fn new(input: R, size: usize) -> Self {
        Self { input, size, rest: Vec::new(), has_ended: false }
    }

    /// The next chunk. Compressed data that is cut off or damaged ends there.
    pub fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut chunk = Vec::with_capacity(self.size.max(self.rest.len()));
        chunk.append(&mut self.rest);
        while !self.has_ended && chunk.len() < self.size {
            let filled = chunk.len();
            chunk.resize(self.size.min(filled + STEP), 0);
            let read = self.input.read(&mut chunk[filled..]);
            chunk.truncate(filled + *read.as_ref().unwrap_or(&0));
            match read {
                Ok(0) => self.has_ended = true,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if is_damage(&error) => self.has_ended = true,
                Err(error) => return Err(error),
            }
        }
        if !self.has_ended {
            let end = border(&chunk, chunk.len());
            self.rest.extend_from_slice(&chunk[end..]);
            chunk.truncate(end);
        }
        Ok((!chunk.is_empty()).then_some(chunk))
    }
}
