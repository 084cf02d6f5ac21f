//! Attaches threads to recordings.
//!
//! A thread uses the recording it entered with [`Handle::enter`], otherwise the default recording of the process,
//! otherwise none. The hot path reads one pointer to a ring from a thread-local without a destructor. `EPOCH` changes
//! whenever a recording starts or ends, which makes each thread look up its recording once.

use std::cell::{Cell, RefCell};
use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU64, Ordering::Relaxed},
};
use std::{marker::PhantomData, ptr};

use crate::ring::{Ring, Room};
use crate::{clock, recorder::Shared, word};

/// Zero while nothing records or recording is paused; otherwise a number that is new each time a recording starts or
/// ends.
static EPOCH: AtomicU64 = AtomicU64::new(0);

/// The recordings of the process.
static RECORDINGS: Mutex<Recordings> = Mutex::new(Recordings { active: 0, paused: 0, changes: 0, default: None });

struct Recordings {
    active: u64,
    paused: u64,
    changes: u64,
    default: Option<Arc<Shared>>,
}

impl Recordings {
    fn lock() -> MutexGuard<'static, Self> {
        RECORDINGS.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn changed(&mut self) {
        self.changes += 1;
        let is_idle = self.active == 0 || self.paused > 0;
        EPOCH.store(if is_idle { 0 } else { self.changes }, Relaxed);
    }
}

/// Whether anything in this process records.
#[inline(always)]
pub fn recording() -> bool {
    EPOCH.load(Relaxed) != 0
}

pub(crate) fn recording_started() {
    let mut recordings = Recordings::lock();
    recordings.active += 1;
    recordings.changed();
}

pub(crate) fn recording_ended(shared: &Arc<Shared>) {
    let mut recordings = Recordings::lock();
    // None are left after a fork.
    recordings.active = recordings.active.saturating_sub(1);
    if recordings.default.as_ref().is_some_and(|default| Arc::ptr_eq(default, shared)) {
        recordings.default = None;
    }
    recordings.changed();
}

/// Pauses all recording in this process while the guard lives: marks then cost as much as without a recording.
///
/// This allows measuring a program with and without recording in alternation. Spans that are open are recorded to their
/// end.
pub fn pause() -> Paused {
    let mut recordings = Recordings::lock();
    recordings.paused += 1;
    recordings.changed();
    Paused(())
}

/// The guard of [`pause`]: recording resumes on drop.
#[must_use = "recording resumes when this guard is dropped"]
#[derive(Debug)]
pub struct Paused(());

impl Drop for Paused {
    fn drop(&mut self) {
        let mut recordings = Recordings::lock();
        recordings.paused -= 1;
        recordings.changed();
    }
}

/// Ends every recording in a process that was just forked: the threads that write them exist in the parent only. Call
/// this first in the child. It never waits for a lock.
pub fn forget_after_fork() {
    EPOCH.store(0, Relaxed);
    // A lock that another thread of the parent held stays locked; then only new recordings are refused.
    if let Ok(mut recordings) = RECORDINGS.try_lock() {
        let changes = recordings.changes;
        *recordings = Recordings { active: 0, paused: 0, changes, default: None };
    }
}

/// Makes this the default recording for threads that entered none; false if there is one already.
pub(crate) fn set_default(shared: &Arc<Shared>) -> bool {
    let mut recordings = Recordings::lock();
    if recordings.default.is_some() {
        return false;
    }
    recordings.default = Some(Arc::clone(shared));
    recordings.changed();
    true
}

/// The recording of a thread, as the hot path sees it.
pub(crate) struct Local {
    epoch: Cell<u64>,
    /// Distinguishes this attachment from earlier ones, so that a guard never writes its exit into another recording.
    attachment: Cell<u32>,
    ring: Cell<*const Ring>,
}

thread_local! {
    static LOCAL: Local = const {
        Local { epoch: Cell::new(0), attachment: Cell::new(0), ring: Cell::new(ptr::null()) }
    };
    static ATTACHED: RefCell<Attachments> = const {
        RefCell::new(Attachments { entered: Vec::new(), default: None, last_id: 0 })
    };
}

impl Local {
    /// An address that is unique among living threads.
    #[inline(always)]
    pub(crate) fn address() -> usize {
        LOCAL.with(|local| ptr::from_ref(local) as usize)
    }

    /// Calls `with` on this thread's current ring, if it has one.
    #[inline(always)]
    pub(crate) fn with_ring<R>(with: impl FnOnce(&Ring, u32) -> Option<R>) -> Option<R> {
        LOCAL.with(|local| {
            if local.epoch.get() != EPOCH.load(Relaxed) {
                settle(local);
            }
            with(local.ring()?, local.attachment.get())
        })
    }

    /// Calls `with` on the ring of an attachment that may have been replaced since.
    #[inline(always)]
    pub(crate) fn with_ring_of(attachment: u32, with: impl FnOnce(&Ring)) {
        LOCAL.with(|local| {
            if local.attachment.get() != attachment {
                return with_replaced(attachment, with);
            }
            if let Some(ring) = local.ring() {
                with(ring);
            }
        });
    }

    #[allow(unsafe_code)]
    #[inline(always)]
    fn ring(&self) -> Option<&Ring> {
        // SAFETY: the pointer is null or comes from an `Arc` that `ATTACHED` of this same thread holds; `show` replaces
        // the pointer before that `Arc` can be dropped. Nothing that runs while the reference lives (clock reads and
        // stores of words; the field traits are sealed, device clocks are called outside) attaches or detaches.
        unsafe { self.ring.get().as_ref() }
    }

    fn show(&self, current: Option<&Attachment>) {
        self.ring.set(current.map_or(ptr::null(), |attachment| Arc::as_ptr(&attachment.ring)));
        self.attachment.set(current.map_or(0, |attachment| attachment.id));
    }
}

/// Makes room in a full ring; wakes the writer if needed.
#[cold]
#[inline(never)]
pub(crate) fn make_room(ring: &Ring, count: u64, exit: u64) -> bool {
    let room = ring.make_room(count, exit);
    // A saturated thread drops thousands of events in a row; waking the writer rarely is enough.
    if room == Room::Filling || (room == Room::None && ring.lost() % 1024 == 1) {
        let _ = ATTACHED.try_with(|attached| {
            if let Ok(attached) = attached.try_borrow()
                && let Some(current) = attached.current()
            {
                current.shared.wake_writer();
            }
        });
    }
    room != Room::None
}

struct Attachment {
    id: u32,
    shared: Arc<Shared>,
    ring: Arc<Ring>,
}

impl Attachment {
    /// Signals to the writer that this thread has exited; spans still open end here.
    fn leave(self) {
        let mut push = self.ring.push();
        push.word(word::head(clock::now().0, word::EXTENDED, word::DETACH));
        push.publish();
        self.ring.finish();
    }
}

struct Attachments {
    entered: Vec<Attachment>,
    default: Option<Attachment>,
    last_id: u32,
}

impl Attachments {
    fn current(&self) -> Option<&Attachment> {
        self.entered.last().or(self.default.as_ref())
    }

    fn attach(&mut self, shared: &Arc<Shared>) -> Attachment {
        self.last_id += 1;
        Attachment { id: self.last_id, shared: Arc::clone(shared), ring: shared.ring_for_this_thread() }
    }

    /// Sets the recording that the hot path writes to.
    fn settle(&mut self, local: &Local) {
        // Read before the recordings are looked up: a later change makes the thread look again.
        local.epoch.set(EPOCH.load(Relaxed));
        // The pointer must not outlive its target.
        local.show(None);
        self.follow_default();
        local.show(self.current().filter(|attachment| !attachment.shared.is_closed()));
    }

    fn follow_default(&mut self) {
        let wanted = Recordings::lock().default.clone();
        let shadowed = !self.entered.is_empty();
        let held = self.default.as_ref().map(|attachment| &attachment.shared);
        let same = match (held, &wanted) {
            (Some(held), Some(wanted)) => Arc::ptr_eq(held, wanted),
            (None, None) => true,
            _ => false,
        };
        if !same {
            // A thread that entered another recording takes no buffer of the default one until it leaves.
            let next = wanted.filter(|_| !shadowed).map(|shared| self.attach(&shared));
            if let Some(left) = std::mem::replace(&mut self.default, next) {
                left.leave();
            }
        }
    }
}

impl Drop for Attachments {
    fn drop(&mut self) {
        LOCAL.with(|local| local.show(None));
        for attachment in self.entered.drain(..).chain(self.default.take()) {
            attachment.leave();
        }
    }
}

/// Looks up the recording of this thread after recordings started or ended.
#[cold]
#[inline(never)]
fn settle(local: &Local) {
    let settled = ATTACHED.try_with(|attached| {
        if let Ok(mut attached) = attached.try_borrow_mut() {
            attached.settle(local);
        }
    });
    if settled.is_err() {
        local.epoch.set(EPOCH.load(Relaxed));
        local.show(None);
    }
}

#[cold]
#[inline(never)]
fn with_replaced(attachment: u32, with: impl FnOnce(&Ring)) {
    let _ = ATTACHED.try_with(|attached| {
        let Ok(attached) = attached.try_borrow() else { return };
        let mut all = attached.entered.iter().chain(&attached.default);
        if let Some(found) = all.find(|candidate| candidate.id == attachment) {
            with(&found.ring);
        }
    });
}

/// Carries a recording to another thread.
///
/// Threads that enter no recording use the process's default recording, if there is one.
#[derive(Debug, Clone)]
pub struct Handle(pub(crate) Option<Arc<Shared>>);

impl Handle {
    /// Records this thread's stages into the handle's recording while the guard lives.
    pub fn enter(&self) -> Entered {
        let id = self.0.as_ref().and_then(|shared| {
            ATTACHED
                .try_with(|attached| {
                    let mut attached = attached.try_borrow_mut().ok()?;
                    if attached.current().is_some_and(|current| Arc::ptr_eq(&current.shared, shared)) {
                        return None;
                    }
                    let attachment = attached.attach(shared);
                    let id = attachment.id;
                    attached.entered.push(attachment);
                    LOCAL.with(|local| attached.settle(local));
                    Some(id)
                })
                .ok()
                .flatten()
        });
        Entered { id, stays_on_its_thread: PhantomData }
    }
}

/// The handle of the recording that this thread writes to; empty if none.
pub fn handle() -> Handle {
    let current = ATTACHED.try_with(|attached| {
        let attached = attached.try_borrow().ok()?;
        attached.entered.last().map(|attachment| Arc::clone(&attachment.shared))
    });
    Handle(current.ok().flatten().or_else(|| Recordings::lock().default.clone()))
}

/// The guard of [`Handle::enter`]: on drop the thread returns to its previous recording.
#[must_use = "the thread leaves the recording when this guard is dropped"]
#[derive(Debug)]
pub struct Entered {
    id: Option<u32>,
    stays_on_its_thread: PhantomData<*const ()>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        let Some(id) = self.id else { return };
        let _ = ATTACHED.try_with(|attached| {
            let Ok(mut attached) = attached.try_borrow_mut() else { return };
            let Some(at) = attached.entered.iter().position(|attachment| attachment.id == id) else { return };
            LOCAL.with(|local| local.show(None));
            attached.entered.remove(at).leave();
            // Zero is never the epoch of a recording, so the next event looks up its recording again.
            LOCAL.with(|local| local.epoch.set(0));
        });
    }
}
