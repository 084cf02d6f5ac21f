//! Columns of numbers and a JSON header, compressed into one block.
//!
//! Decompressed (zlib), a block is the length of the header as a little-endian u32, the header, and the columns.
//! The entry `columns` of the header has the offset (after the header) and the length of each column. Numbers of a
//! column are LEB128 varints; columns of floats have eight bytes per number.

use std::io;

use flate2::{Compress, Compression, FlushCompress, Status};
use rayon::prelude::*;
use serde_json::{Map, Value, json};

/// A column of whole numbers.
#[derive(Debug, Default)]
pub(crate) struct Numbers(pub(crate) Vec<u8>);

impl Numbers {
    /// Adds a number.
    pub(crate) fn push(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    /// Adds the difference of two numbers, which may be negative.
    pub(crate) fn push_signed(&mut self, number: i64) {
        self.push(((number << 1) ^ (number >> 63)) as u64);
    }
}

/// The parts of a block.
#[derive(Debug, Default)]
pub(crate) struct Block {
    header: Map<String, Value>,
    columns: Vec<(&'static str, Vec<u8>)>,
}

impl Block {
    /// Adds an entry to the header.
    pub(crate) fn set(&mut self, key: &str, value: Value) {
        self.header.insert(key.to_owned(), value);
    }

    /// Adds a column.
    pub(crate) fn column(&mut self, name: &'static str, bytes: Vec<u8>) {
        self.columns.push((name, bytes));
    }

    /// Compresses the block, pieces of it at the same time.
    pub(crate) fn compress(mut self) -> io::Result<Vec<u8>> {
        let mut places = Map::new();
        let mut offset = 0;
        for (name, bytes) in &self.columns {
            places.insert((*name).to_owned(), json!([offset, bytes.len()]));
            offset += bytes.len();
        }
        self.header.insert("columns".to_owned(), Value::Object(places));
        let header = Value::Object(self.header).to_string();
        let length = (header.len() as u32).to_le_bytes();
        let parts =
            [&length[..], header.as_bytes()].into_iter().chain(self.columns.iter().map(|(_, bytes)| &bytes[..]));
        zlib(&parts.flat_map(|part| part.chunks(PIECE)).collect::<Vec<_>>())
    }
}

/// Bytes that are compressed as one piece: large enough that a fresh start costs little.
const PIECE: usize = 1 << 20;

/// One zlib stream of several pieces. A piece ends at a whole byte, so pieces can be compressed independently.
fn zlib(pieces: &[&[u8]]) -> io::Result<Vec<u8>> {
    let last = pieces.len().saturating_sub(1);
    let packed = pieces.par_iter().enumerate().map(|(at, piece)| deflate(piece, at == last));
    let packed = packed.collect::<io::Result<Vec<Vec<u8>>>>()?;
    // Deflate with a window of 32 KiB at the usual level.
    let mut out = vec![0x78, 0x9c];
    packed.iter().for_each(|piece| out.extend_from_slice(piece));
    out.extend(adler32(pieces).to_be_bytes());
    Ok(out)
}

fn deflate(piece: &[u8], is_last: bool) -> io::Result<Vec<u8>> {
    let mut deflate = Compress::new(Compression::new(6), false);
    let flush = if is_last { FlushCompress::Finish } else { FlushCompress::Sync };
    let mut out = Vec::with_capacity(piece.len() / 2 + 64);
    loop {
        let rest = &piece[deflate.total_in() as usize..];
        let status = deflate.compress_vec(rest, &mut out, flush).map_err(io::Error::other)?;
        // Space that is left means that nothing waits to be written.
        let is_flushed = deflate.total_in() as usize == piece.len() && out.len() < out.capacity();
        if status == Status::StreamEnd || !is_last && is_flushed {
            return Ok(out);
        }
        out.reserve(out.capacity());
    }
}

fn adler32(pieces: &[&[u8]]) -> u32 {
    const BASE: u32 = 65_521;
    // So many bytes cannot overflow 32 bits.
    const MOST: usize = 5552;
    let (mut low, mut high) = (1_u32, 0_u32);
    for bytes in pieces.iter().flat_map(|piece| piece.chunks(MOST)) {
        for &byte in bytes {
            low += u32::from(byte);
            high += low;
        }
        (low, high) = (low % BASE, high % BASE);
    }
    high << 16 | low
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn pieces_unpack_as_one_stream() {
        let noise: Vec<u8> = (0..3 * PIECE as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let zeros = vec![0; 2 * PIECE];
        for parts in [vec![&b""[..]], vec![&noise[..100], b"", &zeros], vec![&zeros, &noise[..PIECE], &noise[PIECE..]]]
        {
            let mut unpacked = Vec::new();
            flate2::read::ZlibDecoder::new(&zlib(&parts).unwrap()[..]).read_to_end(&mut unpacked).unwrap();
            assert!(unpacked == parts.concat(), "{} parts", parts.len());
        }
    }
}
