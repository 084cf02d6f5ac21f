//! Gzip data of any kind, and any JSON gzipped and cut.
#![no_main]

use std::io::Write;

use flate2::{Compression, write::GzEncoder};
use laptime_trace::read_from;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(trace) = read_from(bytes) {
        trace.check().expect("what is read holds together");
    }
    let Some((&cut, text)) = bytes.split_first() else { return };
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text).expect("memory takes everything");
    let mut packed = encoder.finish().expect("memory takes everything");
    packed.truncate(packed.len() * (usize::from(cut) + 1) / 256);
    if let Ok(trace) = read_from(packed.as_slice()) {
        trace.check().expect("what is read holds together");
    }
});
