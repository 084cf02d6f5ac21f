//! Perfetto traces of other tools, built packet by packet.

#[allow(dead_code, reason = "shared with the tests of damaged files, which need more of it")]
#[path = "../damage/packet.rs"]
mod packet;

use self::packet::{Message, begin, end, file};
use laptime_trace::{Trace, read_from};

fn read(packets: &[Message]) -> Trace {
    read_from(file(packets).as_slice()).unwrap()
}

/// A begin event with a time on a clock, an interned name and a sequence.
fn interned(sequence: u64, clock: u64, time: u64, name: u64) -> Message {
    let event = Message::new().number(9, 1).number(11, 1).number(10, name);
    Message::new().number(8, time).number(10, sequence).number(58, clock).bytes(11, &event.0)
}

fn names(sequence: u64, flags: u64, number: u64, name: &str) -> Message {
    let entry = Message::new().number(1, number).bytes(2, name.as_bytes());
    Message::new().number(10, sequence).number(13, flags).bytes(12, &Message::new().bytes(2, &entry.0).0)
}

fn clocks(times: &[(u64, u64)]) -> Message {
    let snapshot = times.iter().fold(Message::new(), |snapshot, &(clock, time)| {
        snapshot.bytes(1, &Message::new().number(1, clock).number(2, time).0)
    });
    Message::new().bytes(6, &snapshot.0)
}

const BOOT: u64 = 6;
const MONOTONIC: u64 = 3;

#[test]
fn names_belong_to_their_sequence_until_it_is_cleared() {
    let packets = [
        names(1, 1, 5, "first of one"),
        names(2, 1, 5, "first of two"),
        interned(1, BOOT, 10, 5),
        interned(2, BOOT, 11, 5),
        names(1, 1, 5, "second of one"),
        interned(1, BOOT, 12, 5),
        names(2, 1, 6, "cleared"),
        interned(2, BOOT, 13, 5),
    ];
    let trace = read(&packets);
    let names: Vec<_> = trace.spans().map(|span| span.name).collect();
    assert_eq!(names, ["first of one", "first of two", "second of one"]);
    assert_eq!(trace.warnings[0], "1 damaged packet was skipped");
}

#[test]
fn times_on_another_clock_are_moved_to_boot_time() {
    let packets = [
        clocks(&[(BOOT, 5_000), (MONOTONIC, 3_000)]),
        names(1, 1, 5, "step"),
        interned(1, MONOTONIC, 3_100, 5),
        end(5_200, 1),
    ];
    assert_eq!(read(&packets).outline(), "track 1 (host lane)\n  step  5100..5200\n");
}

#[test]
fn nested_annotations_are_fields_in_json() {
    let number = |value| Message::new().number(4, value);
    let list = Message::new().bytes(10, b"shape").bytes(12, &number(16).0).bytes(12, &number(64).0);
    let entry = Message::new().bytes(10, b"kind").bytes(6, b"pinned");
    let dictionary = Message::new().bytes(10, b"memory").bytes(11, &entry.0);
    let event = Message::new().number(9, 1).number(11, 1).bytes(23, b"op").bytes(4, &list.0).bytes(4, &dictionary.0);
    let packets = [Message::new().number(8, 10).number(10, 1).bytes(11, &event.0), end(20, 1)];
    let expected = "track 1 (host lane)\n  op  10..20  shape=[16,64]  memory={\"kind\":\"pinned\"}\n";
    assert_eq!(read(&packets).outline(), expected);
}

#[test]
fn events_of_kinds_without_a_place_are_counted() {
    let event = Message::new().number(9, 77).number(11, 1);
    let other = Message::new().number(8, 10).number(10, 1).bytes(11, &event.0);
    let trace = read(&[begin(1, 1, "a"), end(2, 1), other]);
    assert_eq!(trace.warnings, ["1 event of other kinds was skipped"]);
}

#[test]
fn threads_and_processes_have_their_names_and_curves_their_units() {
    let thread = Message::new().number(1, 9).number(2, 12).bytes(5, b"worker");
    let process = Message::new().number(1, 9).bytes(6, b"server");
    let counter = Message::new().number(3, 3);
    let descriptor = |uuid, field, message: &Message| {
        Message::new()
            .bytes(60, &Message::new().number(1, uuid).number(5, 1).bytes(2, b"used").bytes(field, &message.0).0)
    };
    let value = Message::new().number(9, 4).number(11, 3).number(30, 7);
    let packets = [
        descriptor(1, 3, &process),
        descriptor(2, 4, &thread),
        descriptor(3, 8, &counter),
        begin(1, 2, "a"),
        end(2, 2),
        Message::new().number(8, 10).number(10, 1).bytes(11, &value.0),
    ];
    let trace = read(&packets);
    assert_eq!(trace.outline(), "worker\n  a  1..2\nused (counter)\n  = Int(7)  10  bytes\n");
    assert_eq!(trace.processes().map(|(_, process)| trace.name(process.name)).collect::<Vec<_>>(), ["server"]);
}
