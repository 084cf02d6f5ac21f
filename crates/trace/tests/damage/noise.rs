//! Noise instead of a trace.

use std::io::{BufReader, Read};

use laptime_trace::{ReadError, read_from};

use crate::{heap::peak_of, read};

/// Pseudorandom noise, the same in every run.
struct Noise {
    state: u64,
    left: usize,
    /// The bytes it consists of; all bytes if this is empty.
    alphabet: &'static [u8],
}

impl Noise {
    fn new(seed: u64, left: usize) -> Self {
        Self { state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1, left, alphabet: b"" }
    }

    fn word(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state
    }
}

impl Read for Noise {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = buffer.len().min(self.left);
        for chunk in buffer[..count].chunks_mut(8) {
            let word = self.word().to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
        if !self.alphabet.is_empty() {
            buffer[..count].iter_mut().for_each(|byte| *byte = self.alphabet[usize::from(*byte) % self.alphabet.len()]);
        }
        self.left -= count;
        Ok(count)
    }
}

const BEGINNINGS: [&[u8]; 8] = [
    b"",
    b"\n",
    b"\n\x05hello",
    b"[",
    b"[{\"ph\":\"X\"},",
    b"{\"traceEvents\":[",
    b"{\"a\":\"",
    b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03",
];

#[test]
fn a_megabyte_of_noise_is_not_a_trace() {
    for beginning in BEGINNINGS {
        for seed in 0..4 {
            let mut bytes = beginning.to_vec();
            Noise::new(seed, 1 << 20).read_to_end(&mut bytes).unwrap();
            let read = read(&bytes);
            assert!(read.is_err() || beginning.len() > 1, "{beginning:?} and noise: {read:?}");
        }
    }
}

/// A gigabyte in optimised builds, as in CI; less otherwise.
const STREAM_BYTES: usize = if cfg!(debug_assertions) { 16 << 20 } else { 1 << 30 };

#[test]
fn a_gigabyte_of_noise_passes_in_bounded_memory() {
    for beginning in BEGINNINGS {
        let stream = BufReader::with_capacity(1 << 20, beginning.chain(Noise::new(7, STREAM_BYTES)));
        let (read, held) = peak_of(|| read_from(stream).map(|trace| trace.span_count()));
        assert!(!matches!(read, Err(ReadError::Read(_))), "{beginning:?}");
        assert!(held < 256 << 20, "{beginning:?} and noise took {held} bytes");
    }
}

#[test]
fn noise_that_never_ends_the_events_passes_in_bounded_memory() {
    for alphabet in [&b"abc,:0123 \n"[..], b"abc,:0 {}", b"{[", b"{}"] {
        let noise = Noise { alphabet, ..Noise::new(7, STREAM_BYTES / 4) };
        let stream = BufReader::with_capacity(1 << 20, b"{\"traceEvents\":[".chain(noise));
        let (read, held) = peak_of(|| read_from(stream).map(|trace| trace.span_count()));
        assert!(matches!(read, Ok(0) | Err(ReadError::NotATrace { .. })), "{read:?}");
        assert!(held < 256 << 20, "{held} bytes");
    }
}
