//! What the macros record, and into which recording.

mod outline;

use std::{borrow::Cow, panic, sync::Barrier, thread};

use laptime_probe::{
    Config, FieldValue, RawKind, Recorder, SiteKind, events, handle, lap, mark, stage, sync_point, value,
};
use outline::{drained, outline, recorded};

#[test]
fn stages_nest_and_keep_their_fields() {
    let seen = recorded(|| {
        let _generate = stage!("generate");
        {
            let _prefill = stage!("prefill", tokens = 512_usize);
            let _attention = stage!("attention", layer = 0_u8, causal = true);
        }
        for i in 0..2 {
            let _lap = lap!("decode", token = i);
            let token = sync_point!("read_token", bytes = 4_u64 => 40 + i);
            value!("kv_cache", token, unit = "tokens");
        }
        mark!("end_of_text", reason = "stop", score = -0.5);
    });
    let expected = "\
generate
  prefill tokens=512u
    attention layer=0u causal=true
  lap decode token=0
    sync read_token bytes=4u
    value kv_cache value=40
  lap decode token=1
    sync read_token bytes=4u
    value kv_cache value=41
  mark end_of_text reason=\"stop\" score=-0.5
";
    assert_eq!(seen, expected);
}

#[test]
fn a_site_has_its_module_file_and_line() {
    let mut recorder = Recorder::new(Config::default());
    let _entered = recorder.handle().enter();
    let line = line!() + 1;
    let waited = sync_point!("read_token", 7);
    let batches = drained(&mut recorder);
    let Some(RawKind::Enter { site, .. }) = events(&batches[0]).next().map(|event| event.kind) else {
        panic!("the wait was recorded")
    };
    assert_eq!((waited, site.kind, site.name), (7, SiteKind::Sync, "read_token"));
    assert_eq!((site.file, site.line, site.target), (file!(), line, module_path!()));
}

#[test]
fn every_type_of_field_is_recorded() {
    let seen = recorded(|| {
        mark!("integers", a = -1_i8, b = i64::MIN, c = u64::MAX, d = 3_usize, e = -4_isize, f = 5_u16);
        mark!("others", a = 1.5_f32, b = f64::NEG_INFINITY, c = false, d = &&7_u32);
        mark!("strings", a = "", b = String::from("eight by"), c = Cow::from("größer, 更大"), d = Some("x"));
        mark!(
            "fifteen",
            a = 1,
            b = 2,
            c = 3,
            d = 4,
            e = 5,
            f = 6,
            g = 7,
            h = 8,
            i = 9,
            j = 10,
            k = 11,
            l = 12,
            m = 13,
            n = "14",
            o = 15
        );
    });
    let expected = "\
mark integers a=-1 b=-9223372036854775808 c=18446744073709551615u d=3u e=-4 f=5u
mark others a=1.5 b=-inf c=false d=7u
mark strings a=\"\" b=\"eight by\" c=\"größer, 更大\" d=\"x\"
mark fifteen a=1 b=2 c=3 d=4 e=5 f=6 g=7 h=8 i=9 j=10 k=11 l=12 m=13 n=\"14\" o=15
";
    assert_eq!(seen, expected);
}

#[test]
fn a_field_without_a_value_is_absent() {
    let seen = recorded(|| {
        let _stage = stage!("decode", token = None::<u32>, text = Some("a"), score = None::<&str>);
        mark!("nothing", value = None::<f64>);
    });
    assert_eq!(seen, "decode text=\"a\"\n  mark nothing\n");
}

#[test]
fn a_long_string_is_truncated_at_a_character_boundary() {
    let long = format!("a{}", "é".repeat(3_000));
    let mut recorder = Recorder::new(Config::default());
    let _entered = recorder.handle().enter();
    mark!("text", text = &long, after = 7);
    let batches = drained(&mut recorder);
    let Some(RawKind::Point { fields, .. }) = events(&batches[0]).next().map(|event| event.kind) else {
        panic!("the mark was recorded")
    };
    let cut = FieldValue::Str(long[..4_095].to_owned());
    assert_eq!(fields.collect::<Vec<_>>(), [("text", cut), ("after", FieldValue::Int(7))]);
}

#[test]
fn spans_may_be_dropped_out_of_order() {
    let seen = recorded(|| {
        let outer = stage!("outer");
        let inner = stage!("inner");
        outer.end();
        mark!("between");
        inner.end();
        mark!("after");
    });
    assert_eq!(seen, "outer\n  inner\n  mark between\nmark after\n");
}

#[test]
fn a_sync_point_evaluates_once_and_ends_on_an_early_return() {
    fn read(fails: bool) -> Result<u32, String> {
        let mut calls = 0;
        let mut call = || {
            calls += 1;
            if fails { Err("device lost".to_owned()) } else { Ok(calls) }
        };
        Ok(sync_point!("read", call()?))
    }
    let seen = recorded(|| {
        assert_eq!(read(false), Ok(1));
        assert_eq!(read(true), Err("device lost".to_owned()));
        mark!("after");
    });
    assert_eq!(seen, "sync read\nsync read\nmark after\n");
}

#[test]
fn a_panic_drops_nothing_and_ends_its_stages() {
    let mut recorder = Recorder::new(Config::default());
    let handle = recorder.handle();
    let worker = thread::spawn(move || {
        let _entered = handle.enter();
        let _generate = stage!("generate");
        let _prefill = stage!("prefill", tokens = 3);
        panic::resume_unwind(Box::new("out of memory"));
    });
    assert!(worker.join().is_err());
    let batches = drained(&mut recorder);
    assert_eq!(outline(&batches), "generate\n  prefill tokens=3\n");
    assert!(batches.iter().all(|batch| batch.finished && batch.lost == 0));
}

#[test]
fn a_thread_that_ends_inside_a_stage_leaves_it_open() {
    let mut recorder = Recorder::new(Config::default());
    let handle = recorder.handle();
    let worker = thread::spawn(move || {
        std::mem::forget(handle.enter());
        std::mem::forget(stage!("generate"));
    });
    worker.join().unwrap();
    let batches = drained(&mut recorder);
    assert_eq!(outline(&batches), "generate (open)\n");
    assert!(batches[0].finished);
    assert_eq!(events(&batches[0]).last().map(|event| event.kind), Some(RawKind::Detach));
}

#[test]
fn a_handle_moves_the_recording_to_another_thread() {
    let mut recorder = Recorder::new(Config::default());
    let _entered = recorder.handle().enter();
    let _generate = stage!("generate");
    thread::scope(|scope| {
        let handle = handle();
        let worker = thread::Builder::new().name("worker".to_owned());
        let spawned = worker.spawn_scoped(scope, move || {
            let _entered = handle.enter();
            let _load = stage!("load", shard = 1);
        });
        spawned.unwrap().join().unwrap();
    });
    let batches = drained(&mut recorder);
    let by_name = |name: &str| batches.iter().filter(|batch| batch.thread.name == name).cloned().collect::<Vec<_>>();
    assert_eq!(outline(&by_name("worker")), "load shard=1\n");
    assert_eq!(outline(&by_name("a_handle_moves_the_recording_to_another_thread")), "generate (open)\n");
    assert_eq!(batches.len(), 2);
}

#[test]
fn two_recordings_on_two_threads_do_not_mix() {
    let meeting = Barrier::new(2);
    let record = |name: u64| {
        let mut recorder = Recorder::new(Config::default());
        let _entered = recorder.handle().enter();
        for round in 0..50 {
            meeting.wait();
            let _stage = stage!("work", thread = name, round = round);
        }
        outline(&drained(&mut recorder))
    };
    let expected = |name: u64| (0..50).map(|round| format!("work thread={name}u round={round}\n")).collect::<String>();
    thread::scope(|scope| {
        let other = scope.spawn(|| record(2));
        assert_eq!(record(1), expected(1));
        assert_eq!(other.join().unwrap(), expected(2));
    });
}

#[test]
fn an_inner_recording_replaces_the_outer_until_it_is_left() {
    let (mut outer, mut inner) = (Recorder::new(Config::default()), Recorder::new(Config::default()));
    let _outer = outer.handle().enter();
    let open = stage!("outer");
    let shadow = inner.handle().enter();
    let _inner = stage!("inner");
    open.end();
    drop(shadow);
    mark!("back");
    assert_eq!(outline(&drained(&mut inner)), "inner (open)\n");
    assert_eq!(outline(&drained(&mut outer)), "outer\nmark back\n");
}

#[test]
fn entering_a_recording_twice_records_once() {
    let mut recorder = Recorder::new(Config::default());
    let first = recorder.handle().enter();
    let second = recorder.handle().enter();
    mark!("one");
    drop(second);
    mark!("two");
    drop(first);
    mark!("three");
    assert_eq!(outline(&drained(&mut recorder)), "mark one\nmark two\n");
}

#[test]
fn a_guard_that_outlives_its_recording_writes_nothing() {
    let mut ended = Recorder::new(Config::default());
    let entered = ended.handle().enter();
    let left_behind = stage!("left_behind");
    let outlived = stage!("outlived");
    drop(entered);
    left_behind.end();
    let batches = drained(&mut ended);
    drop(ended);
    let seen = recorded(|| {
        outlived.end();
        mark!("new");
    });
    assert_eq!(outline(&batches), "left_behind (open)\n  outlived (open)\n");
    assert_eq!(seen, "mark new\n");
}

#[test]
fn a_closed_recording_records_nothing_more() {
    // Another recording keeps the macros active.
    let _awake = Recorder::new(Config::default());
    let mut recorder = Recorder::new(Config::default());
    let entered = recorder.handle().enter();
    mark!("before");
    recorder.close();
    mark!("after");
    drop(entered);
    let _again = recorder.handle().enter();
    mark!("much later");
    assert_eq!(outline(&drained(&mut recorder)), "mark before\n");
}

#[test]
fn each_drain_returns_only_new_events() {
    let mut recorder = Recorder::new(Config::default());
    let _entered = recorder.handle().enter();
    mark!("one");
    assert_eq!(outline(&drained(&mut recorder)), "mark one\n");
    mark!("two");
    assert_eq!(outline(&drained(&mut recorder)), "mark two\n");
    assert_eq!(drained(&mut recorder), []);
}

#[test]
fn the_ticks_of_a_thread_are_monotone() {
    let mut recorder = Recorder::new(Config::default());
    let _entered = recorder.handle().enter();
    for i in 0..1_000 {
        let _lap = lap!("lap", number = i);
    }
    let batches = drained(&mut recorder);
    let ticks: Vec<_> = events(&batches[0]).map(|event| event.ticks).collect();
    assert_eq!(ticks.len(), 2_000);
    assert!(ticks.is_sorted());
    assert!(*ticks.last().unwrap() <= batches[0].read_at);
}

#[test]
fn the_buffer_of_an_exited_thread_is_reused() {
    let mut recorder = Recorder::new(Config { bytes_per_thread: 1 << 10 });
    let mut sources = Vec::new();
    for i in 0..20 {
        let handle = recorder.handle();
        let worker = thread::spawn(move || {
            let _entered = handle.enter();
            mark!("here", i = i);
        });
        worker.join().unwrap();
        let batches = drained(&mut recorder);
        assert_eq!(outline(&batches), format!("mark here i={i}\n"));
        sources.extend(batches.iter().map(|batch| batch.source));
    }
    assert!(sources.is_sorted_by(|earlier, later| earlier < later), "a buffer used again is a new source");
}
