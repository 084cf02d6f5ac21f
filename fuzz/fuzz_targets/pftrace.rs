//! Perfetto packets of any kind: what comes back holds together and survives being written.
#![no_main]

use laptime_trace::{Format, read_from, write_to};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(trace) = read_from(bytes) else { return };
    trace.check().expect("what is read holds together");
    let mut written = Vec::new();
    write_to(&trace, Format::Pftrace, &mut written).expect("memory takes everything");
    let again = read_from(written.as_slice()).expect("what we write can be read");
    assert!(again == trace, "Perfetto's format keeps everything\n{}\n{}", trace.outline(), again.outline());
});
