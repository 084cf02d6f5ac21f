//! Stores the fields of spans for the [`Subscriber`](super::Subscriber), from their creation to their entries.
//!
//! A span may be created on one thread, entered repeatedly on others, and closed anywhere. Its fields are stored in one
//! of a fixed number of slots, which are claimed and released without a lock; the span's id contains the slot. Fields
//! that are too long for a slot, and spans beyond the number of slots, go to a table behind a lock.

use std::collections::{HashMap, hash_map::Entry};
use std::sync::{
    LazyLock, Mutex, MutexGuard, PoisonError,
    atomic::{
        AtomicU32, AtomicU64,
        Ordering::{Acquire, Relaxed, Release},
        fence,
    },
};
use std::{cell::Cell, thread};

use super::fields::{Gathered, Words};
use crate::field::FieldTuple;

const SLOTS: u32 = 1024;
/// Words per slot: shape and values, so that a slot fills two cache lines.
const WORDS: usize = 14;
/// Slots tried before the table is used.
const TRIES: u32 = 16;

/// Where the fields of a span are: a slot, or a key of the table at and above `SLOTS`.
pub type Place = u32;

#[repr(align(128))]
struct Slot {
    /// The number of handles of the span; zero if the slot is free.
    handles: AtomicU32,
    /// The length in words, and above it the number of changes; odd during a change.
    state: AtomicU32,
    words: [AtomicU64; WORDS],
}

const LENGTH_MASK: u32 = 0xff;
const ONE_CHANGE: u32 = LENGTH_MASK + 1;

static ALL: [Slot; SLOTS as usize] = [const {
    Slot { handles: AtomicU32::new(0), state: AtomicU32::new(0), words: [const { AtomicU64::new(0) }; WORDS] }
}; SLOTS as usize];

impl Slot {
    /// Writes the fields and returns their length; the caller owns the slot.
    #[inline]
    fn fill(&self, fields: &Gathered) -> u32 {
        let mut places = self.words.iter();
        fields.each_word(|word| {
            if let Some(place) = places.next() {
                place.store(word, Relaxed);
            }
        });
        (WORDS - places.len()) as u32
    }

    /// Copies the words, all from before or all from after any change, and returns their number.
    #[inline]
    fn read(&self, into: &mut [u64; WORDS]) -> usize {
        loop {
            let state = self.state.load(Acquire);
            let length = (state & LENGTH_MASK) as usize;
            if state & ONE_CHANGE == 0 {
                into.iter_mut().zip(&self.words).take(length).for_each(|(to, word)| *to = word.load(Relaxed));
                fence(Acquire);
                if self.state.load(Relaxed) == state {
                    return length;
                }
            }
            thread::yield_now();
        }
    }

    fn update(&self, later: &Gathered) {
        let state = self.begin_change();
        let words: Vec<u64> = self.words.iter().map(|word| word.load(Relaxed)).collect();
        let fields = Gathered::updated(&words, later);
        // Late strings may outgrow the slot; they are then recorded for this entry only, by a separate event.
        let length = if fields.words() as usize <= WORDS { self.fill(&fields) } else { state & LENGTH_MASK };
        let changed = (state & !LENGTH_MASK).wrapping_add(2 * ONE_CHANGE) | length;
        self.state.store(changed, Release);
    }

    fn begin_change(&self) -> u32 {
        loop {
            let state = self.state.load(Relaxed) & !ONE_CHANGE;
            if self.state.compare_exchange(state, state | ONE_CHANGE, Acquire, Relaxed).is_ok() {
                fence(Release);
                return state;
            }
            thread::yield_now();
        }
    }
}

struct Spilled {
    handles: u32,
    words: Box<[u64]>,
}

fn spilled() -> MutexGuard<'static, HashMap<Place, Spilled>> {
    static TABLE: LazyLock<Mutex<HashMap<Place, Spilled>>> = LazyLock::new(Mutex::default);
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

thread_local! {
    /// The slot this thread tries first.
    static NEXT: Cell<u32> = const { Cell::new(0) };
}

/// Stores the fields of a new span with one handle.
#[inline]
pub fn keep(fields: &Gathered) -> Place {
    if fields.words() as usize <= WORDS
        && let Some(place) = claim()
    {
        let slot = &ALL[place as usize];
        slot.state.store(slot.fill(fields), Relaxed);
        return place;
    }
    spill(fields)
}

#[inline]
fn claim() -> Option<Place> {
    let first = NEXT.get();
    (first..first + TRIES).map(|at| at % SLOTS).find(|&place| {
        let handles = &ALL[place as usize].handles;
        let claimed = handles.load(Relaxed) == 0 && handles.compare_exchange(0, 1, Acquire, Relaxed).is_ok();
        if claimed {
            NEXT.set(place);
        }
        claimed
    })
}

#[cold]
fn spill(fields: &Gathered) -> Place {
    static LAST: AtomicU32 = AtomicU32::new(0);
    let mut table = spilled();
    loop {
        let place = SLOTS + LAST.fetch_add(1, Relaxed) % (1 << 20);
        if let Entry::Vacant(entry) = table.entry(place) {
            entry.insert(Spilled { handles: 1, words: fields.to_words() });
            return place;
        }
    }
}

/// Adds a handle of a span.
pub fn clone(place: Place) {
    if place < SLOTS {
        ALL[place as usize].handles.fetch_add(1, Relaxed);
    } else if let Some(spilled) = spilled().get_mut(&place) {
        spilled.handles += 1;
    }
}

/// Removes a handle, and frees the slot with the last one; true if it was the last.
#[inline]
pub fn close(place: Place) -> bool {
    if place < SLOTS {
        return ALL[place as usize].handles.fetch_sub(1, Release) == 1;
    }
    let mut table = spilled();
    let Some(spilled) = table.get_mut(&place) else { return false };
    spilled.handles -= 1;
    let last = spilled.handles == 0;
    if last {
        table.remove(&place);
    }
    last
}

/// Adds fields that a span got after its creation.
pub fn update(place: Place, later: &Gathered) {
    if place < SLOTS {
        ALL[place as usize].update(later);
    } else if let Some(spilled) = spilled().get_mut(&place) {
        spilled.words = Gathered::updated(&spilled.words, later).to_words();
    }
}

/// Passes the fields of a span to `with`.
#[inline]
pub fn with_fields(place: Place, with: impl FnOnce(&Words<'_>)) {
    if place < SLOTS {
        let mut words = [0; WORDS];
        let length = ALL[place as usize].read(&mut words);
        return with(&Words(&words[..length]));
    }
    if let Some(spilled) = spilled().get(&place) {
        with(&Words(&spilled.words));
    }
}
