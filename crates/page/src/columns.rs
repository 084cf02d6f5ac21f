//! Columns of numbers and a JSON header, compressed into one block.
//!
//! Unpacked (zlib), a block is the length of the header as four bytes, little end first, the header, and the columns.
//! The entry `columns` of the header has the offset and the length of each column behind the header. Numbers of a
//! column have seven bits per byte, the lowest first; columns of floats have eight bytes per number.

use std::io::{self, Write};

use flate2::{Compression, write::ZlibEncoder};
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

    /// Compresses the block.
    pub(crate) fn compress(mut self) -> io::Result<Vec<u8>> {
        let mut places = Map::new();
        let mut offset = 0;
        for (name, bytes) in &self.columns {
            places.insert((*name).to_owned(), json!([offset, bytes.len()]));
            offset += bytes.len();
        }
        self.header.insert("columns".to_owned(), Value::Object(places));
        let header = Value::Object(self.header).to_string();
        let mut out = ZlibEncoder::new(Vec::new(), Compression::new(6));
        out.write_all(&(header.len() as u32).to_le_bytes())?;
        out.write_all(header.as_bytes())?;
        for (_, bytes) in self.columns {
            out.write_all(&bytes)?;
        }
        out.finish()
    }
}
