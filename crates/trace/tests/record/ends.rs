//! How recordings end, and what they drop.

use laptime_probe::{Config, lap, stage};
use laptime_trace::{Format, Trace, read, record_to};

use crate::alone::{alone, on_thread, shape};

#[test]
fn spans_open_at_the_end_are_closed_there_and_flagged() {
    let alone = alone();
    let path = alone.path("trace.pftrace");
    std::thread::Builder::new()
        .name("pipeline".to_owned())
        .spawn(move || {
            let recording = record_to(&path).unwrap();
            let _outer = stage!("outer");
            let _inner = stage!("inner");
            drop(stage!("whole"));
            recording.finish().unwrap();
        })
        .unwrap()
        .join()
        .unwrap();
    let trace = read(alone.path("trace.pftrace")).unwrap();
    assert_eq!(shape(&trace, "pipeline"), "outer  open\n  inner  open\n    whole\n");
    let ends: Vec<_> = trace.spans().filter(|span| span.is_open).map(|span| span.end()).collect();
    assert_eq!(ends[0], ends[1]);
}

#[test]
fn a_panic_loses_nothing() {
    let alone = alone();
    let (trace, _) = alone.record(|| {
        on_thread("pipeline", || {
            let _outer = stage!("outer");
            let panicked = std::panic::catch_unwind(|| {
                let _failing = stage!("failing");
                std::panic::resume_unwind(Box::new("on purpose"));
            });
            assert!(panicked.is_err());
            drop(stage!("after"));
        });
    });
    assert_eq!(shape(&trace, "pipeline"), "outer\n  failing\n  after\n");
}

#[test]
fn a_thread_that_dies_of_a_panic_leaves_its_spans() {
    let alone = alone();
    let (trace, _) = alone.record(|| {
        let died = std::thread::Builder::new().name("pipeline".to_owned()).spawn(|| {
            let _outer = stage!("outer");
            std::panic::resume_unwind(Box::new("on purpose"));
        });
        assert!(died.unwrap().join().is_err());
    });
    assert_eq!(shape(&trace, "pipeline"), "outer\n");
}

#[test]
fn a_recording_that_is_dropped_is_whole() {
    let alone = alone();
    let recording = alone.start();
    on_thread("pipeline", || drop(stage!("stage")));
    drop(recording);
    assert_eq!(shape(&read(alone.path("trace.pftrace")).unwrap(), "pipeline"), "stage\n");
}

#[test]
fn one_recording_follows_another() {
    let alone = alone();
    for _ in 0..3 {
        let (trace, recorded) = alone.record(|| on_thread("pipeline", || drop(stage!("stage"))));
        assert_eq!((shape(&trace, "pipeline").as_str(), recorded.spans), ("stage\n", 1));
    }
}

#[test]
fn nothing_is_recorded_after_the_end() {
    let alone = alone();
    let recording = alone.start();
    let outlives = stage!("outlives");
    recording.finish().unwrap();
    drop(outlives);
    drop(stage!("late"));
    let names: Vec<String> = spans(&read(alone.path("trace.pftrace")).unwrap());
    assert_eq!(names, ["outlives"]);
}

fn spans(trace: &Trace) -> Vec<String> {
    trace.spans().map(|span| span.name.to_owned()).collect()
}

#[test]
fn events_without_buffer_space_are_counted_in_the_file() {
    let alone = alone();
    let long = "x".repeat(2_000);
    let (trace, recorded) = alone.record_with(Config { bytes_per_thread: 1 << 10 }, || {
        on_thread("pipeline", || {
            drop(stage!("short"));
            for _ in 0..5 {
                drop(stage!("too_long", text = &long));
            }
            drop(stage!("short"));
        });
    });
    assert_eq!(shape(&trace, "pipeline"), "short\nshort\n");
    assert_eq!((recorded.spans, recorded.lost, trace.lost), (2, 5, 5));
}

#[test]
fn every_event_is_either_written_or_counted() {
    let alone = alone();
    let laps = 200_000_u64;
    let (trace, recorded) = alone.record_with(Config { bytes_per_thread: 1 << 12 }, || {
        on_thread("pipeline", || (0..laps).for_each(|lap| drop(lap!("lap", lap = lap))));
    });
    assert_eq!(recorded.spans + recorded.lost, laps);
    assert_eq!((trace.span_count() as u64, trace.lost), (recorded.spans, recorded.lost));
}

#[test]
fn the_format_follows_the_name() {
    let alone = alone();
    for name in ["trace.json", "trace.json.gz", "trace.perfetto-trace", "TRACE.JSON"] {
        let recording = record_to(alone.path(name)).unwrap();
        on_thread("pipeline", || drop(stage!("stage", id = 7)));
        let recorded = recording.finish().unwrap();
        assert_eq!((recorded.path.clone(), recorded.spans), (alone.path(name), 1));
        assert_eq!(recorded.bytes, std::fs::metadata(&recorded.path).unwrap().len());
        assert_eq!(shape(&read(&recorded.path).unwrap(), "pipeline"), "stage  id=7\n", "{name}");
        let start = std::fs::read(&recorded.path).unwrap()[0];
        let expected = match Format::from_path(&recorded.path).unwrap() {
            Format::Chrome => b'{',
            Format::ChromeGz => 0x1f,
            _ => 0x0a,
        };
        assert_eq!(start, expected, "{name}");
        std::fs::remove_file(&recorded.path).unwrap();
    }
    let left = std::fs::read_dir(alone.path("")).unwrap();
    assert_eq!(left.count(), 0, "the recordings behind them are gone");
}
