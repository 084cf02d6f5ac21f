//! Counts the allocations of a thread and of all threads, so that tests can limit the memory of readers and analyses.

#![allow(unsafe_code)]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    sync::atomic::{AtomicIsize, Ordering::Relaxed},
};

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

static HELD_BY_ALL: AtomicIsize = AtomicIsize::new(0);
static PEAK_OF_ALL: AtomicIsize = AtomicIsize::new(0);

struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

fn count(bytes: isize) {
    let held = HELD_BY_ALL.fetch_add(bytes, Relaxed) + bytes;
    PEAK_OF_ALL.fetch_max(held, Relaxed);
    // A thread that is exiting has no counters left.
    let _ = HELD.try_with(|held| {
        held.set(held.get() + bytes);
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(held.get())));
    });
}

// SAFETY: every call is handed to the system's allocator; counting touches no memory of its callers.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller keeps to the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller keeps to the contract of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count(new_size as isize - layout.size() as isize);
        // SAFETY: the caller keeps to the contract of `realloc`.
        unsafe { System.realloc(pointer, layout, new_size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller keeps to the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// Returns the result of `work` and the peak memory of all threads, for programs that have one test.
#[allow(dead_code, reason = "one of two programs with this module")]
pub fn peak_of_all<R>(work: impl FnOnce() -> R) -> (R, usize) {
    let before = HELD_BY_ALL.load(Relaxed);
    PEAK_OF_ALL.store(before, Relaxed);
    let result = work();
    (result, usize::try_from(PEAK_OF_ALL.load(Relaxed) - before).unwrap_or(0))
}

/// Returns the result of `work` and its peak memory on this thread.
#[allow(dead_code, reason = "one of two programs with this module")]
pub fn peak_of<R>(work: impl FnOnce() -> R) -> (R, usize) {
    let before = HELD.get();
    PEAK.set(before);
    let result = work();
    (result, usize::try_from(PEAK.get() - before).unwrap_or(0))
}
