//! Marked stages have the recorded nesting.

use std::sync::Barrier;

use laptime_probe::{Lane, lap, mark, stage, sync_point, value};
use laptime_trace::{Nanos, Number, TrackKind};

use crate::alone::{alone, on_thread, shape, track};

#[test]
fn stages_laps_marks_and_waits_nest_as_they_ran() {
    let alone = alone();
    let (trace, recorded) = alone.record(|| {
        on_thread("pipeline", || {
            let _generate = stage!("generate", tokens = 2, prompt = "Es war einmal");
            drop(stage!("prefill"));
            for token in 0..2 {
                let _lap = lap!("decode", token = token, greedy = true);
                sync_point!("read_token", bytes = 4_u64 => ());
            }
            mark!("end_of_text", share = 0.5);
        });
    });
    let line = shape(&trace, "pipeline")
        .lines()
        .find_map(|line| line.split("line=").nth(1)?.split(' ').next()?.parse::<u32>().ok())
        .unwrap();
    let file = file!();
    let expected = format!(
        "generate  tokens=2  prompt=Es war einmal
  prefill
  lap:decode  token=0  greedy=true
    sync:read_token  bytes=4  file={file}  line={line}  stage=decode  lap=0
  lap:decode  token=1  greedy=true
    sync:read_token  bytes=4  file={file}  line={line}  stage=decode  lap=1
! end_of_text  share=0.5
"
    );
    assert_eq!(shape(&trace, "pipeline"), expected);
    assert_eq!((recorded.spans, recorded.lost, trace.lost), (6, 0, 0));
}

#[test]
fn a_wait_outside_all_stages_says_where_it_belongs() {
    let alone = alone();
    let line = line!() + 2;
    let (trace, _) = alone.record(|| {
        on_thread("pipeline", || sync_point!("read", ()));
    });
    assert_eq!(shape(&trace, "pipeline"), format!("sync:read  file={}  line={line}\n", file!()));
}

#[test]
fn every_thread_has_a_track_of_its_own() {
    let alone = alone();
    let (trace, recorded) = alone.record(|| {
        std::thread::scope(|scope| {
            for worker in 0..4 {
                let name = format!("worker {worker}");
                let work = move || {
                    for lap in 0..1_000 {
                        let _lap = lap!("step", lap = lap);
                        let _inner = stage!("inner", worker = worker);
                    }
                };
                std::thread::Builder::new().name(name).spawn_scoped(scope, work).unwrap();
            }
        });
    });
    assert_eq!((recorded.spans, recorded.lost), (8_000, 0));
    for worker in 0..4_i64 {
        let id = track(&trace, &format!("worker {worker}"));
        assert!(trace.track(id).kind == TrackKind::Thread && trace.track(id).number.is_some());
        let laps: Vec<_> =
            trace.spans_on(id).filter(|span| span.parent.is_none()).map(|span| span.fields.get("lap")).collect();
        assert_eq!(laps, (0..1_000).map(|lap: i64| Some(lap.into())).collect::<Vec<_>>());
        let inner = trace.spans_on(id).filter(|span| span.name == "inner");
        assert!(
            inner.into_iter().all(|span| span.fields.get("worker") == Some(worker.into()) && span.parent.is_some())
        );
    }
}

#[test]
fn the_process_and_the_origin_are_named() {
    let alone = alone();
    let (trace, _) = alone.record(|| drop(stage!("stage")));
    let (_, process) = trace.processes().next().unwrap();
    assert_eq!(process.number, i64::from(std::process::id()));
    assert!(trace.name(process.name).starts_with("record-"), "{}", trace.name(process.name));
    assert_eq!(trace.origin.name, "start of the recording");
    assert!(trace.origin.unix_nanos.is_some());
}

#[test]
fn the_first_event_is_after_time_zero() {
    let alone = alone();
    let (trace, _) = alone.record(|| drop(stage!("first")));
    assert!(trace.spans().next().unwrap().start > Nanos(0));
}

#[test]
fn values_of_one_place_make_a_curve() {
    let alone = alone();
    let (trace, _) = alone.record(|| {
        for depth in [3_i64, -4] {
            value!("queue", depth, unit = "requests");
            value!("load", depth as f64 / 2.0);
        }
        value!("large", u64::MAX);
        value!("busy", true);
    });
    let points: Vec<_> = trace
        .values()
        .map(|point| {
            (trace.name(trace.track(point.track).name), trace.name(trace.track(point.track).unit), point.number)
        })
        .collect();
    let expected = [
        ("queue", "requests", Number::Int(3)),
        ("queue", "requests", Number::Int(-4)),
        ("load", "", Number::Float(1.5)),
        ("load", "", Number::Float(-2.0)),
        ("large", "", Number::Float(u64::MAX as f64)),
        ("busy", "", Number::Int(1)),
    ];
    assert_eq!(points, expected);
}

#[test]
fn the_same_curve_reported_from_two_places_is_one() {
    let alone = alone();
    let (trace, _) = alone.record(|| {
        value!("queue", 1, unit = "requests");
        value!("queue", 2, unit = "requests");
        value!("queue", 3, unit = "bytes");
    });
    let counters = trace.tracks().filter(|(_, track)| track.kind == TrackKind::Counter);
    assert_eq!(counters.count(), 2);
}

#[test]
fn spans_dropped_out_of_order_keep_their_true_times_on_lanes() {
    let alone = alone();
    let (trace, recorded) = alone.record(|| {
        on_thread("pipeline", || {
            let a = stage!("a", first = true);
            let b = stage!("b", second = true);
            let c = stage!("c");
            drop(a);
            mark!("between");
            drop(b);
            drop(stage!("d"));
            drop(c);
        });
    });
    assert_eq!(shape(&trace, "pipeline"), "a  first=true\nb  lane 1  second=true\nc  lane 2\nd\n! between\n");
    assert_eq!(recorded.spans, 4);
    let span = |name: &str| trace.spans().find(|span| span.name == name).unwrap();
    let between = trace.marks().next().unwrap().time;
    assert!(span("a").start <= span("b").start && span("b").start <= span("c").start);
    assert!(span("a").end() <= between && between <= span("b").end() && span("b").end() <= span("c").end());
    assert!(span("d").start >= span("b").end() && span("d").end() <= span("c").end());
}

#[test]
fn stages_on_a_lane_of_the_host_lie_on_its_track() {
    let alone = alone();
    let queue = Lane::host("queue");
    let (trace, _) = alone.record(|| {
        on_thread("pipeline", || {
            let _outer = stage!("outer");
            let _request = stage!("request", on = queue, id = 7);
            drop(stage!("inner"));
        });
    });
    assert_eq!(shape(&trace, "pipeline"), "outer\n  inner\n");
    assert_eq!(shape(&trace, "queue"), "request  id=7\n");
    assert_eq!(trace.track(track(&trace, "queue")).kind, TrackKind::Lane);
}

#[test]
fn threads_that_share_a_lane_keep_their_true_times() {
    let alone = alone();
    let queue = Lane::host("queue");
    let (trace, _) = alone.record(|| {
        let turn = Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let request = stage!("request", on = queue, id = 1);
                turn.wait();
                turn.wait();
                drop(request);
                turn.wait();
            });
            scope.spawn(|| {
                turn.wait();
                let request = stage!("request", on = queue, id = 2);
                turn.wait();
                turn.wait();
                drop(request);
                drop(stage!("request", on = queue, id = 3));
            });
        });
    });
    assert_eq!(shape(&trace, "queue"), "request  id=1\nrequest  lane 1  id=2\nrequest  id=3\n");
    let spans: Vec<_> = trace.spans_on(track(&trace, "queue")).collect();
    assert!(spans[1].start < spans[0].end() && spans[0].end() < spans[1].end() && spans[1].end() < spans[2].start);
}

#[test]
fn stages_without_length_stay_where_they_are() {
    let alone = alone();
    let (trace, _) = alone.record(|| {
        on_thread("pipeline", || {
            for _ in 0..1_000 {
                let _outer = stage!("outer");
                let _inner = stage!("inner");
                drop(stage!("first"));
                drop(stage!("second"));
            }
        });
    });
    assert_eq!(shape(&trace, "pipeline"), "outer\n  inner\n    first\n    second\n".repeat(1_000));
}

#[test]
fn long_and_hostile_text_comes_back_unchanged() {
    let alone = alone();
    let texts = ["\"\\\n\r\0</script>".to_owned(), "長い ".repeat(500), String::new()];
    let (trace, _) = alone.record(|| {
        for text in &texts {
            drop(stage!("stage", text = text));
        }
    });
    let found: Vec<_> = trace.spans().map(|span| span.fields.get("text").unwrap().to_string()).collect();
    assert_eq!(found, texts);
}
