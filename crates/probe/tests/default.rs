//! The process's default recording. There can be only one at a time, so these tests are serialised.

mod outline;

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
};

use laptime_probe::{Config, DefaultTaken, Recorder, handle, mark, pause, recording, stage};
use outline::{drained, outline};

fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn default_recorder() -> Recorder {
    let recorder = Recorder::new(Config::default());
    recorder.make_default().expect("the tests take turns");
    recorder
}

#[test]
fn every_thread_follows_the_default_recording() {
    let _turn = turn();
    let mut recorder = default_recorder();
    let _stage = stage!("generate");
    thread::spawn(|| drop(stage!("load"))).join().unwrap();
    let mut seen: Vec<String> = drained(&mut recorder).into_iter().map(|batch| outline(&[batch])).collect();
    seen.sort();
    assert_eq!(seen, ["generate (open)\n", "load\n"]);
}

#[test]
fn a_pause_records_nothing_and_open_spans_still_end() {
    let _turn = turn();
    let mut recorder = default_recorder();
    let before = stage!("before");
    {
        let (_paused, _twice) = (pause(), pause());
        assert!(!recording());
        mark!("unseen");
        drop(before);
        thread::spawn(|| mark!("unseen_too")).join().unwrap();
    }
    mark!("after");
    assert_eq!(outline(&drained(&mut recorder)), "before\nmark after\n");
}

#[test]
fn there_is_one_default_at_a_time() {
    let _turn = turn();
    let first = default_recorder();
    let second = Recorder::new(Config::default());
    assert_eq!(second.make_default(), Err(DefaultTaken));
    drop(first);
    assert_eq!(second.make_default(), Ok(()));
}

#[test]
fn a_thread_that_entered_a_recording_leaves_the_default_alone() {
    let _turn = turn();
    let (mut default, mut own) = (default_recorder(), Recorder::new(Config::default()));
    let entered = own.handle().enter();
    mark!("own");
    assert_eq!(drained(&mut default), []);
    drop(entered);
    mark!("default");
    assert_eq!(outline(&drained(&mut own)), "mark own\n");
    assert_eq!(outline(&drained(&mut default)), "mark default\n");
}

#[test]
fn the_next_default_recording_has_no_events_of_the_previous_one() {
    let _turn = turn();
    let mut first = default_recorder();
    let open = stage!("first");
    let seen = drained(&mut first);
    drop(first);
    let mut second = default_recorder();
    mark!("second");
    open.end();
    assert_eq!(outline(&seen), "first (open)\n");
    assert_eq!(outline(&drained(&mut second)), "mark second\n");
}

#[test]
fn nothing_is_evaluated_when_nothing_records() {
    let _turn = turn();
    assert!(!recording());
    let _stage = stage!("generate", tokens = unreachable_field());
    mark!("end", tokens = unreachable_field());
    let _entered = handle().enter();
    assert!(!recording());
}

fn unreachable_field() -> u32 {
    panic!("nothing records")
}

#[test]
fn a_thread_local_destructor_may_mark() {
    struct MarksLate;
    impl Drop for MarksLate {
        fn drop(&mut self) {
            mark!("too late, or not");
        }
    }
    thread_local!(static LATE: MarksLate = const { MarksLate });
    let _turn = turn();
    let mut recorder = default_recorder();
    thread::spawn(|| {
        LATE.with(|_| ());
        mark!("in time");
    })
    .join()
    .unwrap();
    let batches = drained(&mut recorder);
    assert!(outline(&batches).starts_with("mark in time\n"));
    assert!(batches.iter().all(|batch| batch.finished));
}
