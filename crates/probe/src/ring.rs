//! The bounded buffer between one recording thread and the writer.
//!
//! One thread pushes, one other takes, no lock. The words are published by one store of `head` with release
//! order, so an event is seen whole or not at all; `tail` goes the other way. Room for the exit of every open span
//! is set aside at its entry: an exit never fails, and what is lost is always a whole span, never half of one.

#[cfg(loom)]
use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use Ordering::{Acquire, Relaxed, Release};

#[cfg(loom)]
use checked::Word;

/// A place of the ring. Relaxed order is enough: `head` and `tail` say whose it is.
#[cfg(not(loom))]
type Word = AtomicU64;

/// Places for loom, which reports any that is written while another thread may read it. With atomics it could not:
/// it does not try loads that see a later store.
#[cfg(loom)]
mod checked {
    use loom::{cell::UnsafeCell, sync::atomic::Ordering};

    #[derive(Debug)]
    pub struct Word(UnsafeCell<u64>);

    // SAFETY: loom checks every access and ends the model at the first race.
    #[allow(unsafe_code)]
    unsafe impl Sync for Word {}

    #[allow(unsafe_code)]
    impl Word {
        pub fn new(word: u64) -> Self {
            Self(UnsafeCell::new(word))
        }

        pub fn load(&self, _: Ordering) -> u64 {
            // SAFETY: as above.
            self.0.with(|word| unsafe { *word })
        }

        pub fn store(&self, new: u64, _: Ordering) {
            // SAFETY: as above.
            self.0.with_mut(|word| unsafe { *word = new });
        }
    }
}

/// Keeps what two threads write on cache lines of their own (two lines: the prefetcher fetches pairs).
#[derive(Debug)]
#[repr(align(128))]
struct CacheAligned<T>(T);

/// Written by the recording thread alone, so its read-modify-write steps need no atomic operation.
#[derive(Debug)]
struct Producer {
    /// Words pushed so far.
    head: AtomicU64,
    /// Words that may be pushed before the tail must be looked at again.
    limit: AtomicU64,
    /// Words set aside for exits.
    reserved: AtomicU64,
    /// Events that found no room.
    lost: AtomicU64,
    /// The thread has left.
    finished: AtomicBool,
}

/// What a push found when it had to look beyond its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room {
    /// There is room.
    Enough,
    /// There is room, and the writer should hurry.
    Filling,
    /// There is none; the event is counted as lost.
    None,
}

#[derive(Debug)]
pub struct Ring {
    words: Box<[Word]>,
    mask: u64,
    producer: CacheAligned<Producer>,
    /// Words taken so far; written by the writer alone.
    tail: CacheAligned<AtomicU64>,
}

/// Words kept for the event that a thread writes when it leaves.
const RESERVED_FOR_DETACH: u64 = 1;

impl Ring {
    /// Makes a ring of at least `words` words, its pages touched.
    pub fn new(words: usize) -> Self {
        let capacity = words.next_power_of_two().max(8);
        let words: Box<[Word]> = (0..capacity).map(|_| Word::new(0)).collect();
        // Writing zeros may leave untouched pages; a page fault inside a measured stage would be charged to it.
        for word in words.iter().step_by(512) {
            word.store(1, Relaxed);
        }
        Self {
            words,
            mask: capacity as u64 - 1,
            producer: CacheAligned(Producer {
                head: AtomicU64::new(0),
                limit: AtomicU64::new(0),
                reserved: AtomicU64::new(RESERVED_FOR_DETACH),
                lost: AtomicU64::new(0),
                finished: AtomicBool::new(false),
            }),
            tail: CacheAligned(AtomicU64::new(0)),
        }
    }

    /// Makes a drained ring ready for another thread.
    pub fn reset(&mut self) {
        let producer = &self.producer.0;
        producer.head.store(0, Relaxed);
        producer.limit.store(0, Relaxed);
        producer.reserved.store(RESERVED_FOR_DETACH, Relaxed);
        producer.lost.store(0, Relaxed);
        producer.finished.store(false, Relaxed);
        self.tail.0.store(0, Relaxed);
    }

    pub fn capacity(&self) -> u64 {
        self.mask + 1
    }

    /// Sees whether `count` words and `exit` words for a later exit fit, without looking at the tail.
    #[inline(always)]
    pub fn fits(&self, count: u64, exit: u64) -> bool {
        let producer = &self.producer.0;
        producer.head.load(Relaxed) + count + producer.reserved.load(Relaxed) + exit <= producer.limit.load(Relaxed)
    }

    /// Looks at the tail and moves the limit; counts a loss when there is no room.
    #[cold]
    pub fn make_room(&self, count: u64, exit: u64) -> Room {
        let producer = &self.producer.0;
        let head = producer.head.load(Relaxed);
        let tail = self.tail.0.load(Acquire);
        let end = head + count + producer.reserved.load(Relaxed) + exit;
        if end > tail + self.capacity() {
            self.lose_one();
            return Room::None;
        }
        // The limit moves in quarters, so that a filling ring is noticed twice before it is full.
        let limit = (head + self.capacity() / 4).max(end).min(tail + self.capacity());
        producer.limit.store(limit, Relaxed);
        if head - tail > self.capacity() / 2 { Room::Filling } else { Room::Enough }
    }

    /// Counts an event that could not be kept.
    pub fn lose_one(&self) {
        let lost = &self.producer.0.lost;
        lost.store(lost.load(Relaxed) + 1, Relaxed);
    }

    /// Sets room aside for an exit.
    #[inline(always)]
    pub fn reserve(&self, words: u64) {
        let reserved = &self.producer.0.reserved;
        reserved.store(reserved.load(Relaxed) + words, Relaxed);
    }

    /// Gives back what [`Ring::reserve`] set aside; the caller pushes that many words next.
    #[inline(always)]
    pub fn release(&self, words: u64) {
        let reserved = &self.producer.0.reserved;
        reserved.store(reserved.load(Relaxed) - words, Relaxed);
    }

    /// Begins to push; the caller has seen that there is room.
    #[inline(always)]
    pub fn push(&self) -> Push<'_> {
        Push { ring: self, at: self.producer.0.head.load(Relaxed) }
    }

    /// Says that the thread has left and pushes no more.
    pub fn finish(&self) {
        self.producer.0.finished.store(true, Release);
    }

    /// Whether the thread has left; if so, what is taken after this call is the last.
    pub fn is_finished(&self) -> bool {
        self.producer.0.finished.load(Acquire)
    }

    pub fn lost(&self) -> u64 {
        self.producer.0.lost.load(Relaxed)
    }

    /// Moves all published words to the end of `into`, and says how many they were.
    pub fn take(&self, into: &mut Vec<u64>) -> usize {
        let head = self.producer.0.head.load(Acquire);
        let tail = self.tail.0.load(Relaxed);
        into.extend((tail..head).map(|at| self.words[(at & self.mask) as usize].load(Relaxed)));
        self.tail.0.store(head, Release);
        (head - tail) as usize
    }

    /// Words waiting to be taken.
    pub fn waiting(&self) -> u64 {
        self.producer.0.head.load(Relaxed) - self.tail.0.load(Relaxed)
    }
}

/// Words being pushed; the reader sees none of them before [`Push::publish`].
#[derive(Debug)]
pub struct Push<'a> {
    ring: &'a Ring,
    at: u64,
}

impl Push<'_> {
    #[inline(always)]
    pub fn word(&mut self, word: u64) {
        self.ring.words[(self.at & self.ring.mask) as usize].store(word, Relaxed);
        self.at += 1;
    }

    #[inline(always)]
    pub fn publish(self) {
        self.ring.producer.0.head.store(self.at, Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn push(ring: &Ring, word: u64) -> bool {
        if !ring.fits(1, 0) && ring.make_room(1, 0) == Room::None {
            return false;
        }
        let mut push = ring.push();
        push.word(word);
        push.publish();
        true
    }

    #[test]
    fn what_is_pushed_is_taken_in_order() {
        let ring = Ring::new(8);
        let mut taken = Vec::new();
        for round in 0..5 {
            for i in 0..7 {
                assert!(push(&ring, round * 7 + i));
            }
            assert_eq!(ring.take(&mut taken), 7);
        }
        assert_eq!(taken, (0..35).collect::<Vec<_>>());
        assert_eq!(ring.lost(), 0);
    }

    #[test]
    fn a_full_ring_counts_what_it_loses() {
        let ring = Ring::new(8);
        let kept = (0..20).filter(|&i| push(&ring, i)).count();
        assert_eq!((kept, ring.lost()), (7, 13), "one word stays reserved for leaving");
    }

    #[test]
    fn an_exit_finds_room_in_a_full_ring() {
        let ring = Ring::new(8);
        assert_eq!(ring.make_room(1, 1), Room::Enough);
        ring.reserve(1);
        let mut entry = ring.push();
        entry.word(100);
        entry.publish();
        while push(&ring, 1) {}
        ring.release(1);
        let mut exit = ring.push();
        exit.word(101);
        exit.publish();
        let mut taken = Vec::new();
        ring.take(&mut taken);
        assert_eq!(taken, [100, 1, 1, 1, 1, 1, 101]);
    }

    #[test]
    fn a_ring_over_half_full_asks_for_the_writer() {
        let ring = Ring::new(64);
        assert_eq!(ring.make_room(1, 0), Room::Enough);
        for i in 0..33 {
            assert!(push(&ring, i));
        }
        assert_eq!(ring.make_room(1, 0), Room::Filling);
    }
}
