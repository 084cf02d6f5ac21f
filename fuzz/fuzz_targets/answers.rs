//! Any bytes that are read as a trace have an answer to every question, or a reason why not.

#![no_main]

use laptime_analyze::{AccountOptions, By, accounts, gaps, laps, overlap, stages, syncs, top, waterfall};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(trace) = laptime_trace::read_from(bytes) else { return };
    stages(&trace);
    top(&trace);
    overlap(&trace);
    let _ = laps(&trace, None);
    let _ = gaps(&trace, None, 5);
    let _ = syncs(&trace, None);
    if let Ok(found) = accounts(&trace, &AccountOptions { by: By::Operation, ..AccountOptions::default() }) {
        let sum: u64 = found.whole.entries.iter().map(|entry| entry.time).sum();
        assert_eq!(sum, found.whole.total);
        waterfall(&found, &found);
    }
});
