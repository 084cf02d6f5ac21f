//! A heap that counts live bytes and their peak.
//!
//! Install it to measure the peak memory of cases:
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
//! Each thread keeps its own count and hands it on when it has moved by 64 KiB, when the thread asks for the peak, and
//! when it ends. One counter for all would be exact at every moment, but sixteen threads that allocate at once then
//! wait for each other: 78 times the cost of the system's heap, where this is within noise of one thread's
//! (`docs/measurements/cpu.md`). So the peak of one thread is exact; that of several may be off by 64 KiB per thread.

// An allocator cannot be written without `unsafe`; each block has its reason.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{
    AtomicBool, AtomicI64, AtomicU8,
    Ordering::{Relaxed, SeqCst},
};

/// How far the count of a thread may change before it is added to the total.
const BATCH: i64 = 64 << 10;

static COUNTS: Counts = Counts { live: AtomicI64::new(0), peak: AtomicI64::new(0) };

/// The bytes that were live when the peak was last reset.
static AT_RESET: AtomicI64 = AtomicI64::new(0);

/// Whether anything was ever counted; written once, so that all threads may read it without waiting.
static IS_INSTALLED: AtomicBool = AtomicBool::new(false);

/// Both counts in one cache line that nothing else shares: whoever changed the first owns the second.
#[repr(align(128))]
struct Counts {
    live: AtomicI64,
    peak: AtomicI64,
}

impl Counts {
    /// Takes over what a thread counted: how far it is now from where it began, and how far above it was at most.
    fn add(&self, moved: i64, high: i64) {
        let top = self.live.fetch_add(moved, Relaxed) + high;
        // Most set no record, and a look is cheaper than a change.
        if top > self.peak.load(Relaxed) {
            self.peak.fetch_max(top, Relaxed);
        }
    }
}

/// What a thread has counted and not yet added to the total.
struct Pending {
    moved: Cell<i64>,
    high: Cell<i64>,
    /// Whether an allocation of this thread failed since the peak was last reset.
    was_refused: Cell<bool>,
}

thread_local! {
    // On other systems the destructor of a thread-local may itself allocate, which an allocator must not.
    static PENDING: Pending = const { Pending { moved: Cell::new(0), high: Cell::new(0), was_refused: Cell::new(false) } };
}

impl Pending {
    fn change(&self, bytes: i64) {
        let moved = self.moved.get() + bytes;
        self.moved.set(moved);
        self.high.set(self.high.get().max(moved));
        if moved.abs() >= BATCH || self.high.get() >= BATCH {
            self.hand_on();
        }
    }

    fn hand_on(&self) {
        COUNTS.add(self.moved.replace(0), self.high.replace(0));
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.hand_on();
    }
}

/// Whether a thread-local with a destructor is safe to use inside an allocator: the C library keeps the list.
const HAS_PENDING: bool = cfg!(all(target_os = "linux", target_env = "gnu"));

fn count(bytes: i64) {
    if !IS_INSTALLED.load(Relaxed) {
        IS_INSTALLED.store(true, Relaxed);
    }
    // A thread that is ending no longer has its own count.
    if !HAS_PENDING || PENDING.try_with(|pending| pending.change(bytes)).is_err() {
        COUNTS.add(bytes, bytes.max(0));
    }
}

/// Remembers that an allocation of this thread failed.
fn refuse() {
    if HAS_PENDING {
        let _ = PENDING.try_with(|pending| pending.was_refused.set(true));
    }
}

/// Lets a failed allocation end the program with an error and this status. Without this it is aborted: Rust offers no
/// other way out of an allocation that cannot fail. What asks before it allocates (`try_reserve`) is not affected.
///
/// It needs a [`CountingHeap`], on Linux; elsewhere nothing changes.
pub fn exit_when_out_of_memory(status: u8) {
    STATUS.store(status, Relaxed);
    #[cfg(unix)]
    if HAS_PENDING {
        // SAFETY: the handler calls only what may be called in a handler.
        unsafe { libc::signal(libc::SIGABRT, on_abort as extern "C" fn(libc::c_int) as libc::sighandler_t) };
    }
}

/// The exit status of the process when memory runs out.
static STATUS: AtomicU8 = AtomicU8::new(2);

#[cfg(unix)]
const OUT_OF_MEMORY: &str = "error: out of memory: the system refused an allocation\n\n\
    hint: use a smaller input, or a machine with more memory; finished cases are saved, and `laptime bench --isolate` \
    continues after such a case\n";

/// The thread that aborts is the one that was refused. Any other abort goes on: when this returns, the C library ends the
/// process as it would have.
#[cfg(unix)]
extern "C" fn on_abort(_: libc::c_int) {
    if PENDING.try_with(|pending| pending.was_refused.get()).unwrap_or(false) {
        // SAFETY: both calls may be made in a handler, and the text is as long as said.
        unsafe {
            libc::write(2, OUT_OF_MEMORY.as_ptr().cast(), OUT_OF_MEMORY.len());
            libc::_exit(STATUS.load(Relaxed).into());
        }
    }
}

/// Adds the count of this thread to the total.
fn hand_on() {
    if HAS_PENDING {
        let _ = PENDING.try_with(Pending::hand_on);
    }
}

/// The highest number of live bytes since [`reset_peak`]; none if no [`CountingHeap`] is installed.
pub fn peak_bytes() -> Option<u64> {
    hand_on();
    IS_INSTALLED.load(Relaxed).then(|| u64::try_from(COUNTS.peak.load(Relaxed)).unwrap_or(0))
}

/// The bytes that are live now; none if no [`CountingHeap`] is installed.
pub fn live_bytes() -> Option<u64> {
    hand_on();
    IS_INSTALLED.load(Relaxed).then(|| u64::try_from(COUNTS.live.load(Relaxed)).unwrap_or(0))
}

/// Forgets the peak: from here on it is that of the bytes that are live and come. What this thread was refused before, and
/// went on without, is forgotten too.
///
/// An allocation of another thread in this very moment may be missed until the next one.
pub fn reset_peak() {
    hand_on();
    if HAS_PENDING {
        let _ = PENDING.try_with(|pending| pending.was_refused.set(false));
    }
    // First down, then up to what is live: a record that another thread sets in between stays.
    COUNTS.peak.swap(0, SeqCst);
    let live = COUNTS.live.load(SeqCst);
    COUNTS.peak.fetch_max(live, Relaxed);
    AT_RESET.store(live, Relaxed);
}

/// How far the peak lies above what was live when it was forgotten: what a case itself used; none if no
/// [`CountingHeap`] is installed.
pub fn peak_since_reset() -> Option<u64> {
    Some(peak_bytes()?.saturating_sub(u64::try_from(AT_RESET.load(Relaxed)).unwrap_or(0)))
}

/// The same place, after its bytes were counted or its refusal was noted.
fn counted(place: *mut u8, bytes: i64) -> *mut u8 {
    if place.is_null() {
        refuse();
    } else {
        count(bytes);
    }
    place
}

/// The system's heap with counting.
#[derive(Debug, Clone, Copy, Default)]
pub struct CountingHeap;

// SAFETY: every call is handed to `System` with the arguments it came with, and its answer is given back unchanged;
// the counting neither allocates nor unwinds.
unsafe impl GlobalAlloc for CountingHeap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc`, which is that of `System`.
        let place = unsafe { System.alloc(layout) };
        counted(place, layout.size() as i64)
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as for `alloc`. The system's own zeroing is kept: fresh pages need none.
        let place = unsafe { System.alloc_zeroed(layout) };
        counted(place, layout.size() as i64)
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // Before the memory is free: another thread that gets it must not be counted on top.
        count(-(layout.size() as i64));
        // SAFETY: the caller got `place` from this heap with this layout, hence from `System`.
        unsafe { System.dealloc(place, layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: the caller got `place` from this heap with this layout, hence from `System`, and vouches for the size.
        let moved = unsafe { System.realloc(place, layout, new_size) };
        // If it failed, the old block is still live and the count stays.
        counted(moved, new_size as i64 - layout.size() as i64)
    }
}
