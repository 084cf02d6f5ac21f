//! A heap that counts: how many bytes are live, and how many were at most.
//!
//! A program that wants the peak memory of its cases installs it:
//!
//! ```
//! #[global_allocator]
//! static HEAP: laptime_pipelines::CountingHeap = laptime_pipelines::CountingHeap;
//!
//! assert!(laptime_pipelines::heap::peak_bytes().is_some());
//! ```
//!
//! It counts the bytes that were asked for, not what the system's heap rounds them up to, and not what is mapped
//! past it (stacks of threads, mapped files).
//!
//! There is one counter for all threads. Counters for each thread would spare them the shared cache line, but the sum
//! of their peaks is not the peak of their sum, and a thread that ends would take what it has not handed on with it.
//! `docs/measurements.md` has what it costs: next to nothing for programs that allocate tensors.

// An allocator cannot be written without `unsafe`; each block has its reason.
#![allow(unsafe_code)]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::atomic::{
        AtomicI64,
        Ordering::{Relaxed, SeqCst},
    },
};

/// What the peak is before the first allocation: below every count, so that the first one replaces it.
const NOBODY_COUNTS: i64 = -1;

static COUNTS: Counts = Counts { live: AtomicI64::new(0), peak: AtomicI64::new(NOBODY_COUNTS) };

/// Both counts in one cache line that nothing else shares: whoever changed the first owns the second.
#[repr(align(128))]
struct Counts {
    live: AtomicI64,
    peak: AtomicI64,
}

impl Counts {
    fn grow(&self, bytes: usize) {
        let live = self.live.fetch_add(bytes as i64, Relaxed) + bytes as i64;
        // Most allocations set no record, and a look is cheaper than a change.
        if live > self.peak.load(Relaxed) {
            self.peak.fetch_max(live, Relaxed);
        }
    }

    fn shrink(&self, bytes: usize) {
        self.live.fetch_sub(bytes as i64, Relaxed);
    }
}

/// The highest number of live bytes since [`reset_peak`]; none if no [`CountingHeap`] is installed.
pub fn peak_bytes() -> Option<u64> {
    u64::try_from(COUNTS.peak.load(Relaxed)).ok()
}

/// The bytes that are live now; none if no [`CountingHeap`] is installed.
pub fn live_bytes() -> Option<u64> {
    peak_bytes().and_then(|_| u64::try_from(COUNTS.live.load(Relaxed)).ok())
}

/// Forgets the peak: from here on it is that of the bytes that are live and come.
///
/// An allocation of another thread in this very moment may be missed until the next one.
pub fn reset_peak() {
    if peak_bytes().is_some() {
        // First down, then up to what is live: a record that another thread sets in between stays.
        COUNTS.peak.swap(0, SeqCst);
        COUNTS.peak.fetch_max(COUNTS.live.load(SeqCst), Relaxed);
    }
}

/// The system's heap, counted.
#[derive(Debug, Clone, Copy, Default)]
pub struct CountingHeap;

// SAFETY: every call is handed to `System` with the arguments it came with, and its answer is given back unchanged;
// the counting neither allocates nor unwinds.
unsafe impl GlobalAlloc for CountingHeap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc`, which is that of `System`.
        let place = unsafe { System.alloc(layout) };
        if !place.is_null() {
            COUNTS.grow(layout.size());
        }
        place
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as for `alloc`. The system's own zeroing is kept: fresh pages need none.
        let place = unsafe { System.alloc_zeroed(layout) };
        if !place.is_null() {
            COUNTS.grow(layout.size());
        }
        place
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // Before the memory is free: another thread that gets it must not be counted on top.
        COUNTS.shrink(layout.size());
        // SAFETY: the caller got `place` from this heap with this layout, hence from `System`.
        unsafe { System.dealloc(place, layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: the caller got `place` from this heap with this layout, hence from `System`, and vouches for the size.
        let moved = unsafe { System.realloc(place, layout, new_size) };
        // If it failed, the old block is still live and nothing changes.
        if !moved.is_null() {
            match new_size.checked_sub(layout.size()) {
                Some(more) => COUNTS.grow(more),
                None => COUNTS.shrink(layout.size() - new_size),
            }
        }
        moved
    }
}
