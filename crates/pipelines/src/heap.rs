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
//! It counts requested bytes, without the rounding of the system's heap and without mappings outside it (thread stacks,
//! mapped files).
//!
//! Each thread keeps its own count and adds it to the total when it has changed by 64 KiB, when the thread asks for the
//! peak, and when it ends. A single counter would always be exact, but sixteen threads that allocate at once would
//! contend for it: 78 times the cost of the system's heap, where this is within noise (`docs/measurements/cpu.md`). So
//! the peak of one thread is exact; that of several may be off by 64 KiB per thread.

// An allocator needs `unsafe`.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{
    AtomicBool, AtomicI64, AtomicU8,
    Ordering::{Relaxed, SeqCst},
};

/// The change of a thread's count at which it is added to the total.
const BATCH: i64 = 64 << 10;

static COUNTS: Counts = Counts { live: AtomicI64::new(0), peak: AtomicI64::new(0) };

/// The bytes that were live when the peak was last reset.
static AT_RESET: AtomicI64 = AtomicI64::new(0);

/// Whether anything was ever counted; written once, so reads do not contend.
static IS_INSTALLED: AtomicBool = AtomicBool::new(false);

/// Both counts, alone in one cache line: whoever changed the first owns the second.
#[repr(align(128))]
struct Counts {
    live: AtomicI64,
    peak: AtomicI64,
}

impl Counts {
    /// Adds a thread's net change, and its highest point above the start.
    fn add(&self, moved: i64, high: i64) {
        let top = self.live.fetch_add(moved, Relaxed) + high;
        // New peaks are rare, and a load is cheaper than a read-modify-write.
        if top > self.peak.load(Relaxed) {
            self.peak.fetch_max(top, Relaxed);
        }
    }
}

/// The count of a thread that is not yet added to the total.
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
            self.flush();
        }
    }

    fn flush(&self) {
        COUNTS.add(self.moved.replace(0), self.high.replace(0));
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.flush();
    }
}

/// Whether a thread-local with a destructor is safe to use inside an allocator: the C library keeps the list.
const HAS_PENDING: bool = cfg!(all(target_os = "linux", target_env = "gnu"));

fn count(bytes: i64) {
    if !IS_INSTALLED.load(Relaxed) {
        IS_INSTALLED.store(true, Relaxed);
    }
    // A thread that is exiting no longer has its own count.
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

/// Makes a failed allocation end the program with an error and this status instead of an abort. Fallible allocations
/// (`try_reserve`) are not affected.
///
/// Needs a [`CountingHeap`] and Linux; otherwise it has no effect.
pub fn exit_when_out_of_memory(status: u8) {
    STATUS.store(status, Relaxed);
    #[cfg(unix)]
    if HAS_PENDING {
        // SAFETY: the handler is async-signal-safe.
        unsafe { libc::signal(libc::SIGABRT, on_abort as extern "C" fn(libc::c_int) as libc::sighandler_t) };
    }
}

/// The exit status of the process when memory runs out.
static STATUS: AtomicU8 = AtomicU8::new(2);

#[cfg(unix)]
const OUT_OF_MEMORY: &str = "error: out of memory: the system refused an allocation\n\n\
    hint: use a smaller input, or a machine with more memory; finished cases are saved, and `laptime bench --isolate` \
    continues after such a case\n";

/// An allocation failure aborts on the thread that was refused. For any other abort, the C library ends the process when
/// this returns.
#[cfg(unix)]
extern "C" fn on_abort(_: libc::c_int) {
    if PENDING.try_with(|pending| pending.was_refused.get()).unwrap_or(false) {
        // SAFETY: both calls are async-signal-safe, and the length is that of the text.
        unsafe {
            libc::write(2, OUT_OF_MEMORY.as_ptr().cast(), OUT_OF_MEMORY.len());
            libc::_exit(STATUS.load(Relaxed).into());
        }
    }
}

/// Adds the count of this thread to the total.
fn flush() {
    if HAS_PENDING {
        let _ = PENDING.try_with(Pending::flush);
    }
}

/// The highest number of live bytes since [`reset_peak`]; none if no [`CountingHeap`] is installed.
pub fn peak_bytes() -> Option<u64> {
    flush();
    IS_INSTALLED.load(Relaxed).then(|| u64::try_from(COUNTS.peak.load(Relaxed)).unwrap_or(0))
}

/// The live bytes; none if no [`CountingHeap`] is installed.
pub fn live_bytes() -> Option<u64> {
    flush();
    IS_INSTALLED.load(Relaxed).then(|| u64::try_from(COUNTS.live.load(Relaxed)).unwrap_or(0))
}

/// Resets the peak to the live bytes, and forgets failed allocations of this thread.
///
/// A concurrent allocation of another thread may be missed until its next one.
pub fn reset_peak() {
    flush();
    if HAS_PENDING {
        let _ = PENDING.try_with(|pending| pending.was_refused.set(false));
    }
    // First to 0, then up to the live bytes: a peak that another thread sets in between is kept.
    COUNTS.peak.swap(0, SeqCst);
    let live = COUNTS.live.load(SeqCst);
    COUNTS.peak.fetch_max(live, Relaxed);
    AT_RESET.store(live, Relaxed);
}

/// The peak above the live bytes at the reset: the memory of a case; none if no [`CountingHeap`] is installed.
pub fn peak_since_reset() -> Option<u64> {
    Some(peak_bytes()?.saturating_sub(u64::try_from(AT_RESET.load(Relaxed)).unwrap_or(0)))
}

/// Counts an allocation, or notes that it failed.
fn counted(pointer: *mut u8, bytes: i64) -> *mut u8 {
    if pointer.is_null() {
        refuse();
    } else {
        count(bytes);
    }
    pointer
}

/// The system's heap with counting.
#[derive(Debug, Clone, Copy, Default)]
pub struct CountingHeap;

// SAFETY: every call is forwarded to `System` unchanged; the counting neither allocates nor unwinds.
unsafe impl GlobalAlloc for CountingHeap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc`.
        counted(unsafe { System.alloc(layout) }, layout.size() as i64)
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as for `alloc`. Zeroing is left to the system, which does not zero fresh pages.
        counted(unsafe { System.alloc_zeroed(layout) }, layout.size() as i64)
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // Before the memory is free: another thread that gets it must not be counted on top.
        count(-(layout.size() as i64));
        // SAFETY: `pointer` came from this heap with this layout, hence from `System`.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: `pointer` came from this heap with this layout, hence from `System`; the caller guarantees the size.
        let moved = unsafe { System.realloc(pointer, layout, new_size) };
        // If it failed, the old block is still live and the count stays.
        counted(moved, new_size as i64 - layout.size() as i64)
    }
}
