//! Files truncated anywhere.

use crate::{complete_trace::complete_trace, many_blocks, read, samples, uncompressed};

#[test]
fn a_file_cut_off_anywhere_is_read_up_to_there_or_refused_in_one_sentence() {
    for (name, bytes) in samples() {
        let mut most = 0;
        for length in 0..=bytes.len() {
            let spans = match read(&bytes[..length]) {
                Ok(trace) => trace.span_count(),
                Err(error) => {
                    let sentence = error.to_string();
                    assert!(!sentence.is_empty() && !sentence.contains('\n'), "{name} cut at {length}: {sentence}");
                    0
                }
            };
            assert!(spans >= most, "{name} has {spans} spans cut at {length}, {most} cut before");
            most = spans;
        }
        assert!(most > 0, "{name} is read when whole");
    }
}

#[test]
fn a_cut_file_says_so() {
    let bytes = uncompressed(&complete_trace());
    let trace = read(&bytes[..bytes.len() - 3]).unwrap();
    assert_eq!(
        trace.warnings.first().map(String::as_str),
        Some("the file is cut off; only the packets before the cut were read")
    );
}

#[test]
fn every_whole_block_of_a_cut_recording_is_read() {
    let bytes = many_blocks();
    let counts: Vec<usize> =
        (0..=bytes.len()).map(|length| read(&bytes[..length]).map_or(0, |trace| trace.span_count())).collect();
    for lap in 0..=12 {
        assert!(counts.contains(&lap), "no cut leaves {lap} laps: {counts:?}");
    }
}

#[test]
fn spans_whose_end_was_cut_off_are_closed_and_flagged() {
    let bytes = uncompressed(&complete_trace());
    let whole = read(&bytes).unwrap();
    let cut = (0..bytes.len()).rev().find_map(|length| {
        let trace = read(&bytes[..length]).ok()?;
        (trace.span_count() < whole.span_count()).then_some(trace)
    });
    let cut = cut.unwrap();
    assert!(cut.spans().any(|span| span.name == "never ends" && span.is_open));
}
