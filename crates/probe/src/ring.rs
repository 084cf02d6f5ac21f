//! The bounded buffer between one recording thread and the writer.
//!
//! A lock-free queue with one producer and one consumer. A release store of `head` publishes the words of an event
//! together, and a release store of `tail` frees them. Space for the exit of a span is reserved at its entry: an exit
//! never fails, and only whole spans are dropped.

#[cfg(loom)]
use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use Ordering::{Acquire, Relaxed, Release};

#[cfg(loom)]
use checked::Word;

/// A slot of the ring. Relaxed order is enough: `head` and `tail` determine its owner.
#[cfg(not(loom))]
type Word = AtomicU64;

/// Slots for loom, which reports any slot that is written while another thread may read it. It could not with atomics,
/// because it does not explore loads that see a later store.
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

/// Keeps data written by different threads on separate cache lines (two lines: the prefetcher fetches pairs).
#[derive(Debug)]
#[repr(align(128))]
struct CacheAligned<T>(T);

/// Written only by the recording thread, so its read-modify-write steps need no atomic operation.
#[derive(Debug)]
struct Producer {
    /// Words pushed so far.
    head: AtomicU64,
    /// Words that may be pushed before the tail must be read again.
    limit: AtomicU64,
    /// Words reserved for exits.
    reserved: AtomicU64,
    /// Dropped events.
    lost: AtomicU64,
    /// Whether the thread has exited.
    finished: AtomicBool,
}

/// The result of a push beyond the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room {
    /// There is space.
    Enough,
    /// There is space, and the writer should be woken.
    Filling,
    /// There is no space; the event counts as dropped.
    None,
}

#[derive(Debug)]
pub struct Ring {
    words: Box<[Word]>,
    mask: u64,
    producer: CacheAligned<Producer>,
    /// Words taken so far; written only by the writer.
    tail: CacheAligned<AtomicU64>,
}

/// Words reserved for the event that a thread writes when it exits.
const RESERVED_FOR_DETACH: u64 = 1;

impl Ring {
    /// Creates a ring of at least `words` words and touches its pages.
    pub fn new(words: usize) -> Self {
        let capacity = words.next_power_of_two().max(8);
        let words: Box<[Word]> = (0..capacity).map(|_| Word::new(0)).collect();
        // Writing zeros may leave pages untouched; a page fault inside a measured stage would be attributed to it.
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

    /// Resets a drained ring for another thread.
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

    /// Checks whether `count` words plus `exit` words for a later exit fit, without reading the tail.
    #[inline(always)]
    pub fn fits(&self, count: u64, exit: u64) -> bool {
        let producer = &self.producer.0;
        producer.head.load(Relaxed) + count + producer.reserved.load(Relaxed) + exit <= producer.limit.load(Relaxed)
    }

    /// Reads the tail and moves the limit; counts a dropped event if there is no space.
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

    /// Counts a dropped event.
    pub fn lose_one(&self) {
        let lost = &self.producer.0.lost;
        lost.store(lost.load(Relaxed) + 1, Relaxed);
    }

    /// Reserves space for an exit.
    #[inline(always)]
    pub fn reserve(&self, words: u64) {
        let reserved = &self.producer.0.reserved;
        reserved.store(reserved.load(Relaxed) + words, Relaxed);
    }

    /// Releases space reserved by [`Ring::reserve`]; the caller pushes that number of words next.
    #[inline(always)]
    pub fn release(&self, words: u64) {
        let reserved = &self.producer.0.reserved;
        reserved.store(reserved.load(Relaxed) - words, Relaxed);
    }

    /// Begins a push; the caller has checked that there is space.
    #[inline(always)]
    pub fn push(&self) -> Push<'_> {
        Push { ring: self, at: self.producer.0.head.load(Relaxed) }
    }

    /// Marks that the thread has exited.
    pub fn finish(&self) {
        self.producer.0.finished.store(true, Release);
    }

    /// Whether the thread has exited; if so, what is taken after this call is the last.
    pub fn is_finished(&self) -> bool {
        self.producer.0.finished.load(Acquire)
    }

    pub fn lost(&self) -> u64 {
        self.producer.0.lost.load(Relaxed)
    }

    /// Moves all published words to the end of `into` and returns their number.
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

/// A push in progress; the reader sees none of its words before [`Push::publish`].
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
    fn words_are_taken_in_the_order_of_pushes() {
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
    fn a_full_ring_counts_dropped_words() {
        let ring = Ring::new(8);
        let kept = (0..20).filter(|&i| push(&ring, i)).count();
        assert_eq!((kept, ring.lost()), (7, 13), "one word stays reserved for the exit");
    }

    #[test]
    fn an_exit_fits_into_a_full_ring() {
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
    fn a_ring_over_half_full_wakes_the_writer() {
        let ring = Ring::new(64);
        assert_eq!(ring.make_room(1, 0), Room::Enough);
        for i in 0..33 {
            assert!(push(&ring, i));
        }
        assert_eq!(ring.make_room(1, 0), Room::Filling);
    }
}
