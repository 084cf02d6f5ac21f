//! Bytes per recorded span in a trace file, as written and with its packets unpacked.

use std::{hint::black_box, io};

use laptime_probe::{Config, stage};
use laptime_trace::format::pftrace;

/// Spans in a measured file.
const SPANS: u64 = 300_000;

/// Bytes per span.
pub struct OnDisk {
    pub raw: f64,
    pub compressed: f64,
}

/// Records nested spans, three deep, and measures the file. Nothing else may record at the same time.
pub fn measure(fields: bool) -> io::Result<OnDisk> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("spans.pftrace");
    // Large enough for every span: the loop records tens of millions per second, and the writer may fall behind.
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

/// Work of varying length, so that timestamps differ as in a real pipeline and do not compress away.
struct Work(u64);

impl Work {
    fn go_on(&mut self) {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        black_box((0..self.0 % 2048).fold(0, |sum, x| black_box(sum ^ x)));
    }
}
