//! Stages on the stream of a simulated device.

use std::sync::{Arc, Mutex};

use laptime_probe::{DeviceClock, Lane, Resolved, SimulatedDevice, Stamp, Ticks, now, stage};
use laptime_trace::{GraphReplay, GraphReplays, InnerStage, Nanos, TrackKind, Value, kernels::Stretch};

use crate::alone::{alone, on_thread, shape, track};

#[test]
fn stages_on_a_device_have_its_exact_times_and_flows_lead_to_them() {
    let alone = alone();
    let device = Arc::new(SimulatedDevice::anchored_at(now()));
    let stream = Lane::device("stream 7", Arc::clone(&device) as _);
    let (trace, recorded) = alone.record(|| {
        on_thread("pipeline", || {
            for work in [1_000, 2_000] {
                let _layer = stage!("layer", on = stream, work = work);
                device.submit(500);
                let _matmul = stage!("matmul", on = stream);
                device.submit(work);
            }
            device.synchronise();
        });
    });
    let expected = "layer  work=1000\n  matmul\nlayer  work=2000\n  matmul\n";
    assert_eq!((shape(&trace, "pipeline").as_str(), shape(&trace, "stream 7").as_str()), (expected, expected));
    let id = track(&trace, "stream 7");
    assert_eq!(trace.track(id).kind, TrackKind::Stream);
    let lengths: Vec<u64> = trace.spans_on(id).map(|span| span.duration.0).collect();
    assert_eq!(lengths, [1_500, 1_000, 2_500, 2_000]);
    let starts: Vec<u64> = trace.spans_on(id).map(|span| span.start.0).collect();
    assert_eq!(starts.iter().map(|start| start - starts[0]).collect::<Vec<_>>(), [0, 500, 1_500, 2_000]);
    for flow in trace.flows() {
        let (from, to) = (trace.span(flow.from), trace.span(flow.to));
        assert_eq!((from.name, from.fields.get("work")), (to.name, to.fields.get("work")));
        assert!(from.track == track(&trace, "pipeline") && to.track == id);
    }
    assert_eq!((trace.flows().len(), recorded.lost), (4, 0));
    assert_eq!(trace.clock_uncertainty, Some(Nanos(0)));
}

#[test]
fn stages_that_a_device_stamped_inside_a_graph_lie_in_the_recorded_span_of_its_replay() {
    let alone = alone();
    let device = Arc::new(SimulatedDevice::anchored_at(now()));
    let stream = Lane::device("stream 7", Arc::clone(&device) as _);
    let (trace, _) = alone.record(|| {
        on_thread("pipeline", || {
            for replay in [4_u64, 6] {
                let _graph = stage!("step", on = stream, replay = replay);
                device.submit(1_000);
            }
            device.synchronise();
        });
    });
    let stages: Arc<[InnerStage]> =
        ["first", "second"].map(|name| InnerStage { name: name.into(), place: None }).into();
    // The device's timer has another origin, and replay 5 was not recorded.
    let replay = |number: u64| {
        let start = 70_000_000_000 * number;
        let times = [(start, start + 200), (start + 200, start + 900)];
        let times = times.map(|(start_ns, end_ns)| Stretch { start_ns, end_ns }).to_vec();
        GraphReplay { number, stages: Arc::clone(&stages), times }
    };
    let replays = GraphReplays { replays: (4..7).map(replay).collect(), lost: 0 };
    let trace = trace.with_replays(&replays).unwrap();
    let expected =
        "step  replay=4\n  stamped:first\n  stamped:second\nstep  replay=6\n  stamped:first\n  stamped:second\n";
    assert_eq!(shape(&trace, "stream 7"), expected);
    assert_eq!(shape(&trace, "pipeline"), "step  replay=4\nstep  replay=6\n");
    let id = track(&trace, "stream 7");
    let begun = trace.spans_on(id).next().unwrap().start.0;
    let times: Vec<_> = trace.spans_on(id).map(|span| (span.start.0 - begun, span.end().0 - begun)).collect();
    assert_eq!(times, [(0, 1_000), (100, 300), (300, 1_000), (1_000, 2_000), (1_100, 1_300), (1_300, 2_000)]);
}

#[test]
fn threads_that_share_a_stream_have_its_exact_times() {
    let alone = alone();
    let device = Arc::new(SimulatedDevice::anchored_at(now()));
    let stream = Lane::device("stream", Arc::clone(&device) as _);
    let (trace, recorded) = alone.record(|| {
        let turn = Mutex::new(());
        std::thread::scope(|scope| {
            for thread in 0..2 {
                let (turn, device, stream) = (&turn, &device, &stream);
                scope.spawn(move || {
                    for lap in 0..2_000 {
                        let _turn = turn.lock().unwrap();
                        let _stage = stage!("layer", on = stream, thread = thread, lap = lap);
                        device.submit(1_000 + lap);
                        device.synchronise();
                    }
                });
            }
        });
    });
    assert_eq!(recorded.lost, 0);
    let mut reached = None;
    for span in trace.spans_on(track(&trace, "stream")) {
        let Some(Value::Int(lap)) = span.fields.get("lap") else { panic!("a lap has a number") };
        assert_eq!(span.duration.0, 1_000 + lap as u64);
        assert!(reached.is_none_or(|end| end == span.start), "the stream goes on where it was");
        reached = Some(span.end());
    }
    assert_eq!(trace.spans_on(track(&trace, "stream")).count(), 4_000);
}

#[test]
fn the_uncertainty_of_the_clocks_is_kept() {
    let alone = alone();
    let (before, after) = (now(), Ticks(now().0 + 4_000));
    let device = Arc::new(SimulatedDevice::default());
    device.anchor_between(before, after);
    let stream = Lane::device("stream", Arc::clone(&device) as _);
    let (trace, _) = alone.record(|| drop(stage!("layer", on = stream)));
    assert_eq!(trace.clock_uncertainty, Some(Nanos(device.uncertainty_nanos())));
    assert!(device.uncertainty_nanos() >= 2_000);
}

#[test]
fn without_a_device_the_uncertainty_is_unknown() {
    let alone = alone();
    let (trace, _) = alone.record(|| drop(stage!("stage")));
    assert_eq!(trace.clock_uncertainty, None);
}

#[test]
fn work_that_the_device_never_reached_is_counted_as_lost() {
    let alone = alone();
    let device = Arc::new(SimulatedDevice::anchored_at(now()));
    let stream = Lane::device("stream", Arc::clone(&device) as _);
    let (trace, recorded) = alone.record(|| {
        on_thread("pipeline", || {
            let _reached = stage!("reached", on = stream);
            device.submit(1_000);
            let _never = stage!("never", on = stream);
        });
    });
    assert_eq!(shape(&trace, "pipeline"), "reached\n  never\n");
    assert_eq!(shape(&trace, "stream"), "reached  open\n");
    assert_eq!((recorded.lost, trace.lost), (3, 3));
}

/// A device that provides no marks, or forgets them.
struct Broken {
    gives_marks: bool,
}

impl DeviceClock for Broken {
    fn mark(&self) -> Option<Stamp> {
        self.gives_marks.then_some(Stamp(now().0))
    }

    fn resolve(&self, _: Stamp) -> Resolved {
        Resolved::Never
    }

    fn anchor(&self) {}

    fn uncertainty_nanos(&self) -> u64 {
        0
    }
}

#[test]
fn a_device_without_marks_does_not_affect_host_stages() {
    for (gives_marks, lost) in [(false, 0), (true, 4)] {
        let alone = alone();
        let stream = Lane::device("stream", Arc::new(Broken { gives_marks }));
        let (trace, recorded) = alone.record(|| {
            on_thread("pipeline", || {
                let _outer = stage!("layer", on = stream);
                let _inner = stage!("layer", on = stream, inner = true);
            });
        });
        assert_eq!(shape(&trace, "pipeline"), "layer\n  layer  inner=true\n");
        // A stream that never provided a mark has no track; one whose marks were lost has an empty one.
        let has_track = trace.tracks().any(|(_, track)| trace.name(track.name) == "stream");
        assert_eq!(has_track, gives_marks);
        assert!(!has_track || shape(&trace, "stream").is_empty());
        assert_eq!((recorded.lost, trace.lost), (lost, lost));
    }
}
