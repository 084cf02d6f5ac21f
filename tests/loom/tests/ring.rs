//! The ring between a recording thread and the writer, in every order that the memory model allows.
//!
//! `RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom cargo test -p laptime-loom --release`. The ring is included as a file
//! and uses loom's atomics.

#![cfg(loom)]

#[allow(dead_code, missing_docs)]
#[path = "../../../crates/probe/src/ring.rs"]
mod ring;

use loom::{sync::Arc, thread};
use ring::{Ring, Room};

fn push(ring: &Ring, words: &[u64], exit: u64) -> bool {
    let count = words.len() as u64;
    if !ring.fits(count, exit) && ring.make_room(count, exit) == Room::None {
        return false;
    }
    ring.reserve(exit);
    write(ring, words);
    true
}

fn write(ring: &Ring, words: &[u64]) {
    let mut push = ring.push();
    for &word in words {
        push.word(word);
    }
    push.publish();
}

/// An event of three words.
fn event(number: u64) -> [u64; 3] {
    [number, number + 100, number + 200]
}

/// Takes words while the thread runs, then the rest, and returns all of them.
fn take_all(ring: &Ring, recording: thread::JoinHandle<()>, takes: usize) -> Vec<u64> {
    let mut words = Vec::new();
    for _ in 0..takes {
        let count = ring.take(&mut words);
        assert_eq!(count % 3, 0, "an event is seen whole or not at all");
    }
    recording.join().expect("the recording thread does not panic");
    ring.take(&mut words);
    words
}

#[test]
fn events_arrive_whole_once_and_in_order_and_drops_are_counted() {
    loom::model(|| {
        const EVENTS: u64 = 5;
        let ring = Arc::new(Ring::new(8));
        let producer = Arc::clone(&ring);
        let recording = thread::spawn(move || {
            for number in 0..EVENTS {
                push(&producer, &event(number), 0);
            }
        });
        let words = take_all(&ring, recording, 2);
        let numbers: Vec<u64> = words.chunks(3).map(|words| words[0]).collect();
        assert!(words.chunks(3).all(|words| words == event(words[0])), "no event is torn: {words:?}");
        assert!(numbers.is_sorted_by(|earlier, later| earlier < later), "no event is read twice: {numbers:?}");
        assert_eq!(numbers.len() as u64 + ring.lost(), EVENTS);
    });
}

#[test]
fn an_exit_always_fits() {
    loom::model(|| {
        const SPANS: u64 = 5;
        let ring = Arc::new(Ring::new(8));
        let producer = Arc::clone(&ring);
        let recording = thread::spawn(move || {
            let mut open = Vec::new();
            for number in 1..=SPANS {
                if push(&producer, &[number], 1) {
                    open.push(number);
                }
            }
            for number in open.into_iter().rev() {
                producer.release(1);
                write(&producer, &[number + 100]);
            }
            // Space for the last word of a thread is reserved from the start.
            write(&producer, &[100]);
        });
        let mut words = Vec::new();
        ring.take(&mut words);
        recording.join().unwrap();
        ring.take(&mut words);
        let entries: Vec<u64> = words.iter().copied().filter(|word| *word < 100).collect();
        let exits: Vec<u64> = words.iter().rev().copied().filter(|word| *word > 100).map(|word| word - 100).collect();
        assert_eq!(entries, exits, "every entry has its exit: {words:?}");
        assert_eq!(words.last(), Some(&100));
        assert_eq!(entries.len() as u64 + ring.lost(), SPANS);
    });
}

#[test]
fn an_exited_thread_is_seen_only_with_all_its_words() {
    loom::model(|| {
        let ring = Arc::new(Ring::new(8));
        let producer = Arc::clone(&ring);
        let recording = thread::spawn(move || {
            push(&producer, &event(1), 0);
            push(&producer, &event(2), 0);
            write(&producer, &[7]);
            producer.finish();
        });
        let mut words = Vec::new();
        for _ in 0..3 {
            let finished = ring.is_finished();
            ring.take(&mut words);
            if finished {
                assert_eq!(words, [1, 101, 201, 2, 102, 202, 7]);
            }
        }
        recording.join().unwrap();
    });
}
