//! Splits a stream into chunks, each ending where an event seems to end.

use std::io::{self, Read};

use crate::format::is_damage;

/// Bytes requested at a time: data unpacked together with damage is lost with it.
const STEP: usize = 32 << 10;

/// A part of the text, in a buffer that is used again.
#[derive(Default)]
pub struct Chunk {
    buffer: Vec<u8>,
    length: usize,
}

impl Chunk {
    pub fn bytes(&self) -> &[u8] {
        &self.buffer[..self.length]
    }
}

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

    /// The next chunk, in the buffer of one that is no longer needed. Compressed data that is cut off or damaged ends
    /// there.
    pub fn next(&mut self, mut chunk: Chunk) -> io::Result<Option<Chunk>> {
        chunk.buffer.resize(self.size, 0);
        chunk.length = self.rest.len();
        chunk.buffer[..chunk.length].copy_from_slice(&self.rest);
        self.rest.clear();
        while !self.has_ended && chunk.length < self.size {
            let end = self.size.min(chunk.length + STEP);
            match self.input.read(&mut chunk.buffer[chunk.length..end]) {
                Ok(0) => self.has_ended = true,
                Ok(read) => chunk.length += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if is_damage(&error) => self.has_ended = true,
                Err(error) => return Err(error),
            }
        }
        if !self.has_ended {
            let end = border(chunk.bytes());
            self.rest.extend_from_slice(&chunk.bytes()[end..]);
            chunk.length = end;
        }
        Ok((chunk.length > 0).then_some(chunk))
    }
}

/// The last position where an event seems to begin; the end if nothing looks like that.
///
/// An event begins with a brace that follows another's closing brace and a comma, with a string inside.
fn border(text: &[u8]) -> usize {
    // Longer than nearly all events.
    const LOOKED_BACK: usize = 16 << 10;
    let first = text.len().saturating_sub(LOOKED_BACK);
    let mut end = text.len();
    while let Some(brace) = memchr::memrchr(b'{', &text[first..end]) {
        end = first + brace;
        let before = text[first..end].trim_ascii_end();
        let follows_event = before.strip_suffix(b",").is_some_and(|event| event.trim_ascii_end().ends_with(b"}"));
        if follows_event && text[end + 1..].trim_ascii_start().first() == Some(&b'"') {
            return end;
        }
    }
    text.len()
}
