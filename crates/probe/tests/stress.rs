//! Many threads record at once: nothing is dropped unnecessarily, no event is torn, and dropped events are counted.

use std::{
    collections::HashMap,
    sync::atomic::{
        AtomicU64, AtomicUsize,
        Ordering::{AcqRel, Acquire},
    },
    thread,
};

use laptime_probe::{
    Batch, Config, FieldValue, Fields, Handle, RawKind, Recorder, Site, events, lap, mark, stage, value,
};

const THREADS: u64 = 8;

/// A checksum of the recorded or the read fields of a thread.
#[derive(Debug, Default, PartialEq, Eq)]
struct Sum {
    events: u64,
    exits: u64,
    fields: u64,
}

impl Sum {
    fn add(&mut self, name: &str, value: u64) {
        let place = name.bytes().fold(7_u64, |hash, byte| hash.wrapping_mul(31).wrapping_add(u64::from(byte)));
        self.fields = self.fields.wrapping_add(value.wrapping_mul(place | 1));
    }

    fn read(&mut self, fields: Fields<'_>) {
        for (name, value) in fields {
            self.add(name, as_number(&value));
        }
    }
}

fn as_number(value: &FieldValue) -> u64 {
    match value {
        FieldValue::Int(value) => *value as u64,
        FieldValue::Uint(value) => *value,
        FieldValue::Float(value) => value.to_bits(),
        FieldValue::Bool(value) => u64::from(*value),
        FieldValue::Str(text) => {
            text.bytes().fold(1, |hash, byte| hash.wrapping_mul(257).wrapping_add(u64::from(byte)))
        }
    }
}

/// A pseudorandom number that is the same in every run.
fn scattered(number: u64) -> u64 {
    let mixed = (number ^ (number >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 29)
}

/// Records one step of at most four events, and adds it to the summary.
fn step(number: u64, sum: &mut Sum) {
    let (random, ratio) = (scattered(number), number as f64 / 3.0);
    let text = "täxt".repeat((random % 12) as usize);
    let _outer = stage!("outer", number = number, text = &text);
    sum.add("number", number);
    sum.add("text", as_number(&FieldValue::Str(text.clone())));
    let _inner = lap!("inner", random = random as i64, even = number.is_multiple_of(2), ratio = ratio);
    sum.add("random", random);
    sum.add("even", u64::from(number.is_multiple_of(2)));
    sum.add("ratio", ratio.to_bits());
    let odd = (!number.is_multiple_of(2)).then_some(number);
    mark!("point", maybe = odd, after = 1_u8);
    sum.add("maybe", odd.unwrap_or(0));
    sum.add("after", 1);
    value!("level", random);
    sum.add("value", random);
    sum.events += 4;
    sum.exits += 2;
}

/// Keeps this number of spans open at once.
fn descend(depth: u64) {
    if depth > 0 {
        let _deep = stage!("deep", depth = depth);
        descend(depth - 1);
    }
}

/// Reads batches thread by thread, checking that every exit closes the span entered last.
#[derive(Default)]
struct Reader {
    sums: HashMap<u32, Sum>,
    open: HashMap<u32, Vec<&'static Site>>,
    lost: HashMap<u32, u64>,
}

impl Reader {
    fn drain(&mut self, recorder: &mut Recorder) {
        let mut batches = Vec::new();
        recorder.drain(&mut batches);
        batches.iter().for_each(|batch| self.read(batch));
    }

    fn read(&mut self, batch: &Batch) {
        self.lost.insert(batch.source, batch.lost);
        let sum = self.sums.entry(batch.source).or_default();
        let open = self.open.entry(batch.source).or_default();
        for event in events(batch) {
            match event.kind {
                RawKind::Enter { site, fields, .. } => {
                    open.push(site);
                    sum.events += 1;
                    sum.read(fields);
                }
                RawKind::Exit { site, .. } => {
                    assert_eq!(open.pop(), Some(site));
                    sum.exits += 1;
                }
                RawKind::Point { fields, .. } => {
                    sum.events += 1;
                    sum.read(fields);
                }
                RawKind::Detach => assert!(open.is_empty()),
                RawKind::Record { .. } => panic!("no span got late fields"),
            }
        }
    }

    fn total(&self) -> Sum {
        self.sums.values().fold(Sum::default(), |total, sum| Sum {
            events: total.events + sum.events,
            exits: total.exits + sum.exits,
            fields: total.fields.wrapping_add(sum.fields),
        })
    }
}

/// Runs `work` on all threads while this one drains; returns what was read and what was recorded.
fn run(config: Config, work: impl Fn(u64, &AtomicU64) -> Sum + Sync) -> (Reader, Sum) {
    let mut recorder = Recorder::new(config);
    let (mut reader, drains, running) = (Reader::default(), AtomicU64::new(0), AtomicUsize::new(THREADS as usize));
    let recorded = thread::scope(|scope| {
        let spawn = |index| {
            let (handle, work, drains, running): (Handle, _, _, _) = (recorder.handle(), &work, &drains, &running);
            scope.spawn(move || {
                let entered = handle.enter();
                let sum = work(index, drains);
                drop(entered);
                running.fetch_sub(1, AcqRel);
                sum
            })
        };
        let workers: Vec<_> = (0..THREADS).map(spawn).collect();
        while running.load(Acquire) > 0 {
            reader.drain(&mut recorder);
            drains.fetch_add(1, AcqRel);
            thread::yield_now();
        }
        workers.into_iter().fold(Sum::default(), |total, worker| {
            let sum = worker.join().expect("a worker does not panic");
            Sum {
                events: total.events + sum.events,
                exits: total.exits + sum.exits,
                fields: total.fields.wrapping_add(sum.fields),
            }
        })
    });
    reader.drain(&mut recorder);
    (reader, recorded)
}

#[test]
fn a_drained_recording_drops_and_tears_nothing() {
    const BURSTS: u64 = 200;
    /// A burst fits into the buffer; the next one waits until the buffer was drained.
    const BURST: u64 = 60;
    let config = Config { bytes_per_thread: 32 << 10 };
    let (reader, recorded) = run(config, |index, drains| {
        let mut sum = Sum::default();
        for burst in 0..BURSTS {
            (0..BURST).for_each(|i| step((index << 32) + burst * BURST + i, &mut sum));
            let seen = drains.load(Acquire);
            // The current drain may have begun before the burst ended; the one after it did not.
            while drains.load(Acquire) < seen + 2 {
                thread::yield_now();
            }
        }
        sum
    });
    assert_eq!(reader.lost.values().sum::<u64>(), 0);
    assert_eq!(recorded.events, THREADS * BURSTS * BURST * 4);
    assert_eq!(reader.total(), recorded);
}

#[test]
fn a_small_buffer_drops_whole_spans_and_counts_them() {
    const STEPS: u64 = 10_000;
    const DEPTH: u64 = 100;
    const WORDS: usize = 64;
    let config = Config { bytes_per_thread: WORDS * size_of::<u64>() };
    let (reader, recorded) = run(config, |index, _| {
        let mut sum = Sum::default();
        (0..STEPS).for_each(|i| step((index << 32) + i, &mut sum));
        descend(DEPTH);
        sum.events += DEPTH;
        sum
    });
    let lost: u64 = reader.lost.values().sum();
    assert_eq!(recorded.events, THREADS * (STEPS * 4 + DEPTH));
    assert_eq!(reader.total().events + lost, recorded.events);
    assert!(lost >= THREADS * (DEPTH - WORDS as u64), "a buffer has no room for the exits of {DEPTH} open spans");
    assert!(reader.open.values().all(Vec::is_empty), "every span that was entered was left");
}
