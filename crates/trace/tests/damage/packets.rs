//! Valid packets with inconsistent content.

use laptime_trace::{Nanos, ReadError, Trace};

use crate::{
    packet::{Message, begin, compressed, end, file, lane, process, track, value},
    read,
};

fn outline(packets: &[Message]) -> (String, Vec<String>) {
    let Trace { warnings, .. } = &read(&file(packets)).unwrap();
    (read(&file(packets)).unwrap().outline(), warnings.clone())
}

#[test]
fn an_unrepresentable_time_drops_only_its_event() {
    let latest = Nanos::MAX.0;
    let packets =
        [begin(5, 1, "a"), end(7, 1), begin(latest + 1, 1, "late"), begin(u64::MAX, 1, "later"), value(u64::MAX, 2, 1)];
    let (text, warnings) = outline(&packets);
    assert_eq!(text, "track 1 (host lane)\n  a  5..7\n");
    assert_eq!(warnings, ["3 events without a valid time were skipped"]);
}

#[test]
fn the_latest_time_of_all_is_kept() {
    let latest = Nanos::MAX.0;
    let (text, _) = outline(&[begin(latest, 1, "a"), end(latest, 1)]);
    assert_eq!(text, format!("track 1 (host lane)\n  a  {latest}..{latest}\n"));
}

#[test]
fn a_clock_with_an_absurd_unit_costs_its_events() {
    let clock = |id, time| Message::new().number(1, id).number(2, time);
    let absurd = clock(65, u64::MAX).number(4, u64::MAX);
    let snapshot = Message::new().bytes(1, &clock(6, u64::MAX).0).bytes(1, &absurd.0);
    let mut late = begin(1, 1, "a");
    late = late.number(58, 65);
    let packets = [Message::new().number(10, 1).bytes(6, &snapshot.0), late, begin(3, 1, "b"), end(4, 1)];
    let (text, warnings) = outline(&packets);
    assert_eq!(text, "track 1 (host lane)\n  b  3..4\n");
    assert_eq!(warnings, ["1 event without a valid time was skipped"]);
}

#[test]
fn ends_without_a_beginning_are_counted() {
    let (text, warnings) = outline(&[end(1, 1), begin(2, 1, "a"), end(3, 1), end(4, 1)]);
    assert_eq!(text, "track 1 (host lane)\n  a  2..3\n");
    assert_eq!(warnings, ["2 end events have no begin event and were skipped"]);
}

#[test]
fn of_two_descriptions_of_one_track_the_later_counts() {
    let (text, _) = outline(&[track(1, "one", 0), begin(2, 1, "a"), track(1, "two", 0), end(3, 1)]);
    assert_eq!(text, "two (host lane)\n  a  2..3\n");
}

#[test]
fn a_ring_of_parents_ends() {
    let packets = [track(1, "one", 2), track(2, "two", 3), track(3, "three", 1), begin(2, 1, "a"), end(3, 1)];
    let (text, _) = outline(&packets);
    assert_eq!(text, "one (host lane)\n  a  2..3\ntwo (host lane)\nthree (host lane)\n");
}

#[test]
fn a_lane_of_nothing_a_process_or_itself_is_a_track() {
    for parent in [1, 2, 9] {
        let packets = [process(1, 7), lane(2, parent), begin(2, 2, "a"), end(3, 2), value(4, 2, 5)];
        let trace = read(&file(&packets)).unwrap();
        assert_eq!((trace.span_count(), trace.values().count()), (1, 1), "{}", trace.outline());
    }
}

#[test]
fn packets_are_unpacked_once() {
    let spans = file(&[begin(2, 1, "a"), end(3, 1)]);
    let twice = file(&[compressed(&spans), compressed(&file(&[compressed(&spans)]))]);
    let trace = read(&twice).unwrap();
    assert_eq!(trace.span_count(), 1);
    assert_eq!(trace.warnings, ["the file is damaged after 42 bytes; everything before that was read"]);
}

#[test]
fn a_length_beyond_the_file_allocates_no_memory() {
    let mut bytes = file(&[begin(2, 1, "a"), end(3, 1)]);
    bytes.extend([0x0a, 0xff, 0xff, 0xff, 0x0f]);
    let (trace, held) = crate::heap::peak_of(|| read(&bytes).unwrap());
    assert_eq!(trace.span_count(), 1);
    assert!(held < 1 << 20, "{held} bytes");
}

#[test]
fn packets_without_known_data_are_not_a_trace() {
    let nothing = file(&[Message::new().number(900, 1), Message::new().bytes(901, b"text")]);
    assert!(matches!(read(&nothing), Err(ReadError::NoTrackEvents { .. })));
}

#[test]
fn ten_thousand_fields_on_one_span_are_read() {
    let mut event = Message::new().number(9, 1).number(11, 1);
    for at in 0..10_000 {
        let name = format!("f{at}");
        event = event.bytes(4, &Message::new().bytes(10, name.as_bytes()).number(4, at).0);
    }
    let packets = [Message::new().number(8, 1).bytes(11, &event.0), end(2, 1)];
    let trace = read(&file(&packets)).unwrap();
    assert_eq!(trace.spans().map(|span| span.fields.iter().len()).sum::<usize>(), 10_000);
}
