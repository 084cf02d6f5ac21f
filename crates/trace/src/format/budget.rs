//! How much memory a compressed file may ask for: a few megabytes can unpack to thousands of millions of events.

use std::{
    io::{self, BufRead, Read},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use super::ReadError;
use crate::builder::TraceBuilder;

/// What any file may take.
const FREE: u64 = 1 << 30;

/// What each byte of a compressed file may take besides. Traces of real programs need ten to thirty.
const FOR_EACH_BYTE: u64 = 100;

/// The memory that a trace may take while it is read; it grows with the compressed bytes that were read.
#[derive(Debug, Clone, Default)]
pub struct Budget {
    /// None where the file is not compressed: then the trace is smaller than its text.
    packed: Option<Arc<AtomicU64>>,
}

impl Budget {
    /// The budget of a compressed file, of which nothing was read yet.
    pub fn of_packed() -> Self {
        Self { packed: Some(Arc::default()) }
    }

    /// Counts compressed bytes that were read.
    pub fn read(&self, bytes: u64) {
        if let Some(packed) = &self.packed {
            packed.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Makes room for more spans, or says why there is none.
    pub fn room_for(&self, spans: usize, builder: &mut TraceBuilder) -> Result<(), ReadError> {
        self.check(builder.held_bytes())?;
        builder.try_reserve(spans).map_err(|_| ReadError::Memory { needed: builder.held_bytes() })
    }

    fn check(&self, held: u64) -> Result<(), ReadError> {
        let Some(packed) = &self.packed else { return Ok(()) };
        let packed = packed.load(Ordering::Relaxed);
        let most = FREE + FOR_EACH_BYTE.saturating_mul(packed);
        if held > most { Err(ReadError::TooLarge { packed, needed: held }) } else { Ok(()) }
    }
}

/// Compressed input that counts what is read of it.
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
