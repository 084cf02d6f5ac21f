//! A memory limit for compressed files: a few megabytes can unpack to billions of events.

use std::io::{self, BufRead, Read};
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use super::ReadError;
use crate::builder::TraceBuilder;

/// The limit for any file: thirty million tiny events, with as much again for their analysis, need less than a gigabyte.
const FREE: u64 = 512 << 20;

/// The additional limit per byte of a compressed file. Traces of real programs need less than thirty.
const FOR_EACH_BYTE: u64 = 50;

/// The memory that a trace may use while it is read; it grows with the number of compressed bytes read.
#[derive(Debug, Clone, Default)]
pub struct Budget {
    /// None for an uncompressed file: its trace is smaller than its text.
    packed: Option<Arc<AtomicU64>>,
}

impl Budget {
    /// The budget of a compressed file before reading.
    pub fn of_packed() -> Self {
        Self { packed: Some(Arc::default()) }
    }

    /// Counts compressed bytes that were read.
    pub fn read(&self, bytes: u64) {
        if let Some(packed) = &self.packed {
            packed.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Reserves memory for more spans, or returns an error. `unpaired` is the size of events that are not in the builder
    /// yet.
    pub fn room_for(&self, spans: usize, unpaired: u64, builder: &mut TraceBuilder) -> Result<(), ReadError> {
        let held = builder.held_bytes() + unpaired;
        self.check(held)?;
        builder.try_reserve(spans).map_err(|_| ReadError::Memory { needed: held })
    }

    fn check(&self, held: u64) -> Result<(), ReadError> {
        let Some(packed) = &self.packed else { return Ok(()) };
        let packed = packed.load(Ordering::Relaxed);
        let most = FREE + FOR_EACH_BYTE.saturating_mul(packed);
        if held > most { Err(ReadError::TooLarge { packed, needed: held }) } else { Ok(()) }
    }
}

/// Compressed input that counts the bytes read.
pub struct Packed<R> {
    pub input: R,
    pub budget: Budget,
}

impl<R: BufRead> Read for Packed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.input.read(buffer)?;
        self.budget.read(read as u64);
        Ok(read)
    }
}

impl<R: BufRead> BufRead for Packed<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.input.fill_buf()
    }

    fn consume(&mut self, amount: usize) {
        self.budget.read(amount as u64);
        self.input.consume(amount);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_compressed_file_may_take_more_the_more_of_it_was_read() {
        let budget = Budget::of_packed();
        assert!(budget.check(FREE).is_ok());
        assert!(matches!(budget.check(FREE + 1), Err(ReadError::TooLarge { packed: 0, .. })));
        budget.read(10);
        assert!(budget.check(FREE + 10 * FOR_EACH_BYTE).is_ok());
        assert!(budget.check(FREE + 10 * FOR_EACH_BYTE + 1).is_err());
        assert!(Budget::default().check(u64::MAX).is_ok());
    }
}
