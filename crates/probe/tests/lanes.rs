//! Stages on lanes: host lanes, and device lanes with a device clock.

mod outline;

use std::sync::Arc;

use laptime_probe::{
    Config, DeviceClock, Handle, Lane, RawKind, Recorder, Resolved, SimulatedDevice, Stamp, Ticks, events, lap, mark,
    stage,
};
use outline::{drained, outline, recorded};

/// The stamps of entries and exits, in order.
fn stamps(recorder: &mut Recorder) -> Vec<(&'static str, Option<Stamp>)> {
    let batches = drained(recorder);
    let stamp = |kind| match kind {
        RawKind::Enter { site, lane, .. } | RawKind::Exit { site, lane } => Some((site.name, lane?.stamp)),
        _ => None,
    };
    batches.iter().flat_map(events).filter_map(|event| stamp(event.kind)).collect()
}

#[test]
fn a_stage_on_a_lane_names_its_lane() {
    let copies = Lane::host("copies");
    let seen = recorded(|| {
        let _generate = stage!("generate");
        let _upload = stage!("upload", on = copies, bytes = 4096_u64);
        let _lap = lap!("layer", on = &copies, layer = 2, name = "norm");
    });
    assert_eq!(seen, "generate\n  upload on copies bytes=4096u\n    lap layer on copies layer=2 name=\"norm\"\n");
}

#[test]
fn a_stage_without_its_lane_is_only_on_the_thread() {
    let (some, none) = (Some(Lane::host("copies")), None::<&Lane>);
    let seen = recorded(|| {
        let _generate = stage!("generate", on = none, tokens = 3);
        let _upload = stage!("upload", on = some.as_ref());
    });
    assert_eq!(seen, "generate tokens=3\n  upload on copies\n");
}

#[test]
fn stages_mark_their_stream_in_order_and_are_resolved_later() {
    let device = Arc::new(SimulatedDevice::anchored_at(Ticks(0)));
    let stream = Lane::device("stream", device.clone());
    let mut recorder = Recorder::new(Config::default());
    let _entered = recorder.handle().enter();
    {
        let _prefill = stage!("prefill", on = stream);
        device.submit(500);
        let _attention = stage!("attention", on = stream);
        device.submit(200);
    }
    let stamps = stamps(&mut recorder);
    let names: Vec<_> = stamps.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["prefill", "attention", "attention", "prefill"]);
    assert!(stamps.is_sorted_by_key(|(_, stamp)| stamp.unwrap()));
    device.synchronise();
    let at = |stamp: Stamp| match device.resolve(stamp) {
        Resolved::At(moment) => moment.nanos,
        other => panic!("the device is done: {other:?}"),
    };
    assert_eq!(stamps.iter().map(|(_, stamp)| at(stamp.unwrap())).collect::<Vec<_>>(), [0, 500, 700, 700]);
}

#[test]
fn a_host_lane_has_no_stamps() {
    let copies = Lane::host("copies");
    let mut recorder = Recorder::new(Config::default());
    let _entered = recorder.handle().enter();
    drop(stage!("upload", on = copies));
    assert_eq!(stamps(&mut recorder), [("upload", None), ("upload", None)]);
}

#[test]
fn a_full_buffer_drops_whole_stages_and_does_not_mark_the_stream() {
    let device = Arc::new(SimulatedDevice::anchored_at(Ticks(0)));
    let stream = Lane::device("stream", device.clone());
    let mut recorder = Recorder::new(Config { bytes_per_thread: 128 });
    let entered = recorder.handle().enter();
    for _ in 0..10 {
        drop(stage!("step", on = stream));
    }
    drop(entered);
    let batches = drained(&mut recorder);
    assert_eq!(outline(&batches), "step on stream\nstep on stream\n");
    assert_eq!(batches[0].lost, 8);
    assert_eq!(device.mark(), Some(Stamp(5)), "two stages were marked at both ends");
}

/// A clock that records while it is queried, and enters another recording.
struct Intrusive(Handle);

impl DeviceClock for Intrusive {
    fn mark(&self) -> Option<Stamp> {
        mark!("asked");
        let _elsewhere = self.0.enter();
        mark!("elsewhere");
        Some(Stamp(1))
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
fn a_device_clock_may_record() {
    let mut other = Recorder::new(Config::default());
    let stream = Lane::device("stream", Arc::new(Intrusive(other.handle())));
    let seen = recorded(|| drop(stage!("step", on = stream, number = 1)));
    assert_eq!(seen, "mark asked\nstep on stream number=1\n  mark asked\n");
    let elsewhere: String = drained(&mut other).into_iter().map(|batch| outline(&[batch])).collect();
    assert_eq!(elsewhere, "mark elsewhere\nmark elsewhere\n");
}
