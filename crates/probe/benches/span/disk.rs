//! Bytes that a recorded span takes in a trace file, as it is written and with its packets unpacked.

use std::{hint::black_box, io};

use laptime_probe::{Config, stage};
use laptime_trace::format::pftrace;

/// Spans of a measured file.
const SPANS: u64 = 300_000;

/// Bytes a span.
pub struct OnDisk {
    pub raw: f64,
    pub compressed: f64,
}

/// Records nested spans, three deep, and looks at the file. Must be called while nothing else records.
pub fn measure(fields: bool) -> io::Result<OnDisk> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("spans.pftrace");
    // Large enough to hold every span: the loop makes tens of millions a second, and the writer may be kept waiting.
    let config = Config { bytes_per_thread: 32 << 20 };
    let recording = laptime_trace::record_to_with(&path, config).map_err(io::Error::other)?;
    let mut work = Work(0x5eed);
    for i in 0..SPANS / 3 {
        if fields { nest_with_fields(i, &mut work) } else { nest(&mut work) }
    }
    let recorded = recording.finish().map_err(io::Error::other)?;
    if (recorded.spans, recorded.lost) != (SPANS / 3 * 3, 0) {
        return Err(io::Error::other(format!("{} spans, {} lost", recorded.spans, recorded.lost)));
    }
    let trace = laptime_trace::read(&path).map_err(io::Error::other)?;
    let mut raw = Vec::new();
    pftrace::write_uncompressed(&trace, &mut raw)?;
    let a_span = |bytes: u64| bytes as f64 / recorded.spans as f64;
    Ok(OnDisk { raw: a_span(raw.len() as u64), compressed: a_span(std::fs::metadata(&path)?.len()) })
}

fn nest(work: &mut Work) {
    let _outer = stage!("decode");
    work.go_on();
    let _middle = stage!("layer");
    work.go_on();
    let _inner = stage!("attention");
    work.go_on();
}

fn nest_with_fields(i: u64, work: &mut Work) {
    let _outer = stage!("decode", token = i, context = i + 512);
    work.go_on();
    let _middle = stage!("layer", token = i, layer = i % 28);
    work.go_on();
    let _inner = stage!("attention", token = i, head = i % 16);
    work.go_on();
}

/// Work of a length that is never the same, so that times differ as in a pipeline and do not compress to nothing.
struct Work(u64);

impl Work {
    fn go_on(&mut self) {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        black_box((0..self.0 % 2048).fold(0, |sum, x| black_box(sum ^ x)));
    }
}
