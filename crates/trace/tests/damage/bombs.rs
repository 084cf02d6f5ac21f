//! Small files that inflate to huge ones.

use std::io::Write;

use flate2::{Compression, write::GzEncoder};

use crate::{
    heap::peak_of,
    packet::{Message, begin, compressed, end, file},
    read,
};

fn gzipped(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

const MIB: usize = 1 << 20;

/// A gigabyte in optimised builds, as in CI; less otherwise.
const BOMB_MIB: usize = if cfg!(debug_assertions) { 80 } else { 1024 };

/// A gzip file with a beginning and many copies of one byte: gzip members can be repeated without compressing them
/// again.
fn bomb(beginning: &str, filling: u8, ending: &str) -> Vec<u8> {
    let member = gzipped(&vec![filling; MIB]);
    let mut bytes = gzipped(beginning.as_bytes());
    (0..BOMB_MIB).for_each(|_| bytes.extend_from_slice(&member));
    bytes.extend(gzipped(ending.as_bytes()));
    assert!(bytes.len() < 8 * MIB);
    bytes
}

#[test]
fn a_gigabyte_of_white_space_passes_in_little_memory() {
    let bytes = bomb("[", b' ', r#"{"ph":"X","pid":1,"tid":1,"name":"a","ts":1,"dur":1}]"#);
    let (trace, held) = peak_of(|| read(&bytes).unwrap());
    assert_eq!(trace.span_count(), 1);
    assert!(held < 2 * MIB, "{held} bytes");
    let (read, held) = peak_of(|| read(&bomb("", b' ', "")).is_ok());
    assert!(!read && held < 16 * MIB, "{held} bytes");
}

#[test]
fn a_gigabyte_as_a_name_is_taken_for_damage() {
    let good = r#"[{"ph":"X","pid":1,"tid":1,"name":"a","ts":1,"dur":1},"#;
    let bytes = bomb(&format!("{good}{{\"ph\":\"X\",\"name\":\""), b'a', "\"}]");
    let (trace, held) = peak_of(|| read(&bytes).unwrap());
    assert_eq!(trace.span_count(), 1);
    assert!(trace.warnings[0].starts_with("the file is damaged after"), "{:?}", trace.warnings);
    assert!(held < 160 * MIB, "{held} bytes");
}

#[test]
fn a_gigabyte_of_a_member_nobody_asked_for_is_passed_over() {
    let bytes =
        bomb("{\"other\":\"", b'a', r#"","traceEvents":[{"ph":"X","pid":1,"tid":1,"name":"a","ts":1,"dur":1}]}"#);
    let (trace, held) = peak_of(|| read(&bytes).unwrap());
    assert_eq!(trace.span_count(), 1);
    assert!(held < 2 * MIB, "{held} bytes");
}

#[test]
fn a_block_that_inflates_too_far_ends_the_file() {
    let filling = Message::new().bytes(900, &vec![0; MIB]);
    let mut packets = file(&[begin(3, 1, "b"), end(4, 1)]);
    let one = file(&[filling]);
    (0..140).for_each(|_| packets.extend_from_slice(&one));
    let bytes = file(&[begin(1, 1, "a"), end(2, 1), compressed(&packets), begin(5, 1, "c"), end(6, 1)]);
    drop(packets);
    let (trace, held) = peak_of(|| read(&bytes).unwrap());
    assert_eq!(trace.outline(), "track 1 (host lane)\n  a  1..2\n");
    assert!(trace.warnings[0].starts_with("the file is damaged after "), "{:?}", trace.warnings);
    assert!(held < 16 * MIB, "{held} bytes");
}

#[test]
fn a_packet_beyond_all_sense_ends_its_block() {
    let mut packets = file(&[begin(1, 1, "a"), end(2, 1)]);
    packets.extend(file(&[begin(3, 1, &"b".repeat(65 * MIB)), end(4, 1)]));
    let bytes = file(&[compressed(&packets)]);
    drop(packets);
    let (trace, held) = peak_of(|| read(&bytes).unwrap());
    assert_eq!(trace.span_count(), 1);
    assert!(held < 4 * MIB, "{held} bytes");
}

/// A gzipped array of tiny events, which `event` writes.
fn tiny_events(count: usize, event: impl Fn(&mut dyn Write, usize)) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(b"[").unwrap();
    (0..count).for_each(|at| event(&mut encoder, at));
    encoder.finish().unwrap()
}

/// Reads events, just below a power of two, where columns have the least spare capacity; returns their bytes.
fn bytes_of_each(event: impl Fn(&mut dyn Write, usize)) -> usize {
    const EVENTS: usize = (1 << 18) - 16;
    let bytes = tiny_events(EVENTS, event);
    let (trace, held) = peak_of(|| read(&bytes).unwrap());
    assert!(trace.span_count() >= EVENTS / 2);
    held.saturating_sub(MIB) / EVENTS
}

#[test]
fn tiny_events_take_little_memory_each() {
    let following = bytes_of_each(|out, at| write!(out, "{{\"ph\":\"X\",\"name\":\"a\",\"ts\":{at}}},").unwrap());
    assert!(following <= 9, "{following} bytes per event");
    let one = "{\"ph\":\"X\",\"name\":\"a\",\"ts\":1,\"dur\":1},";
    let nested = bytes_of_each(|out, _| out.write_all(one.as_bytes()).unwrap());
    assert!(nested <= 17, "{nested} bytes per event");
    let phases = ["B", "E"];
    let pairs = bytes_of_each(|out, at| {
        write!(out, "{{\"ph\":\"{}\",\"name\":\"a\",\"ts\":{}}},", phases[at % 2], 7 * at).unwrap();
    });
    assert!(pairs <= 21, "{pairs} bytes per event");
}
