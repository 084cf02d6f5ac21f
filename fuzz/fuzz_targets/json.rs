//! JSON of any kind: what comes back holds together, is the same in pieces, and survives being written.
#![no_main]

use std::io::BufReader;

use laptime_trace::{Format, read_from, write_to};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(trace) = read_from(bytes) else { return };
    trace.check().expect("what is read holds together");
    let in_pieces = read_from(BufReader::with_capacity(7, bytes));
    // Of seven bytes not every beginning can be told.
    if let Ok(in_pieces) = in_pieces {
        assert!(in_pieces == trace, "pieces make no difference");
    }
    let mut written = Vec::new();
    write_to(&trace, Format::Chrome, &mut written).expect("memory takes everything");
    let again = read_from(written.as_slice()).expect("what we write can be read");
    assert!(again == trace, "JSON keeps everything\n{}\n{}", trace.outline(), again.outline());
});
