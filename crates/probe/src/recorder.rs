//! The receiving side of a recording: collects the threads' events in batches of words.
//!
//! The owner of a [`Recorder`] decides when to drain it and what to do with the batches; `laptime-trace` drains it on a
//! background thread and writes a file.

use std::sync::{
    Arc, Mutex, MutexGuard, OnceLock, PoisonError,
    atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
};
use std::{path::Path, thread::Thread};

use crate::attach::{self, Handle};
use crate::clock::{Ticks, now};
use crate::ring::Ring;

/// Buffer settings of a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// Bytes of buffer per thread; rounded up to a power of two. Default: 2 MiB, about 130,000 stages.
    pub bytes_per_thread: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self { bytes_per_thread: 2 << 20 }
    }
}

/// The identity of a recording thread.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ThreadIdentity {
    /// The process id.
    pub pid: u32,
    /// The thread id of the system, or our own number if the system has none.
    pub tid: u64,
    /// The thread's name.
    pub name: String,
}

impl ThreadIdentity {
    fn current() -> Self {
        static COUNTED: AtomicU64 = AtomicU64::new(1);
        let tid = std::fs::read_link("/proc/thread-self").ok().and_then(|link| last_number(&link));
        let tid = tid.unwrap_or_else(|| COUNTED.fetch_add(1, Relaxed));
        let name = std::thread::current().name().map_or_else(|| format!("thread {tid}"), str::to_owned);
        Self { pid: std::process::id(), tid, name }
    }
}

fn last_number(path: &Path) -> Option<u64> {
    path.file_name()?.to_str()?.parse().ok()
}

/// State shared by a recorder and its threads.
#[derive(Debug)]
pub struct Shared {
    config: Config,
    /// Rings in use by threads that the recorder has not seen yet.
    joined: Mutex<Vec<(Arc<Ring>, ThreadIdentity)>>,
    /// Prepared rings, so that a new thread does not touch fresh pages.
    spare: Mutex<Vec<Arc<Ring>>>,
    writer: OnceLock<Thread>,
    closed: AtomicBool,
}

impl Shared {
    pub(crate) fn ring_for_this_thread(&self) -> Arc<Ring> {
        let spare = locked(&self.spare).pop();
        let ring = spare.unwrap_or_else(|| Arc::new(self.new_ring()));
        locked(&self.joined).push((Arc::clone(&ring), ThreadIdentity::current()));
        ring
    }

    fn new_ring(&self) -> Ring {
        Ring::new(self.config.bytes_per_thread / size_of::<u64>())
    }

    pub(crate) fn wake_writer(&self) {
        if let Some(writer) = self.writer.get() {
            writer.unpark();
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Relaxed)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// There already is a default recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DefaultTaken;

impl std::fmt::Display for DefaultTaken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a recording is already running in this process")
    }
}

impl std::error::Error for DefaultTaken {}

/// The events of one thread since the last drain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// The number of the buffer: one per recorded thread.
    pub source: u32,
    /// The thread.
    pub thread: Arc<ThreadIdentity>,
    /// The events, to be decoded with [`events`](crate::events).
    pub words: Vec<u64>,
    /// Dropped events of this thread since it began.
    pub lost: u64,
    /// Whether the thread has exited, so that this is the last batch from this source.
    pub finished: bool,
    /// When the words were taken.
    pub read_at: Ticks,
}

#[derive(Debug)]
struct Source {
    id: u32,
    ring: Arc<Ring>,
    thread: Arc<ThreadIdentity>,
    lost: u64,
}

/// A recording in progress.
#[derive(Debug)]
pub struct Recorder {
    shared: Arc<Shared>,
    sources: Vec<Source>,
    sources_seen: u32,
}

impl Recorder {
    /// Starts a recording. Threads join it through [`Recorder::handle`] or [`Recorder::make_default`].
    pub fn new(config: Config) -> Self {
        let shared = Arc::new(Shared {
            config,
            joined: Mutex::default(),
            spare: Mutex::default(),
            writer: OnceLock::new(),
            closed: AtomicBool::new(false),
        });
        let first = shared.new_ring();
        locked(&shared.spare).push(Arc::new(first));
        attach::recording_started();
        Self { shared, sources: Vec::new(), sources_seen: 0 }
    }

    /// A handle with which threads join the recording.
    pub fn handle(&self) -> Handle {
        Handle(Some(Arc::clone(&self.shared)))
    }

    /// Includes every thread that has entered no other recording.
    pub fn make_default(&self) -> Result<(), DefaultTaken> {
        if attach::set_default(&self.shared) { Ok(()) } else { Err(DefaultTaken) }
    }

    /// Sets the thread to be unparked when a buffer fills up; only the first call has an effect.
    pub fn wake_when_filling(&self, writer: Thread) {
        let _ = self.shared.writer.set(writer);
    }

    /// Ends the recording: no new stage is recorded. The buffers can still be drained.
    pub fn close(&mut self) {
        if !self.shared.closed.swap(true, Relaxed) {
            attach::recording_ended(&self.shared);
        }
    }

    /// Takes the events since the last call, one batch for each thread with new events.
    pub fn drain(&mut self, batches: &mut Vec<Batch>) {
        for (ring, thread) in locked(&self.shared.joined).drain(..) {
            self.sources_seen += 1;
            self.sources.push(Source { id: self.sources_seen, ring, thread: Arc::new(thread), lost: 0 });
        }
        let mut at = 0;
        while let Some(source) = self.sources.get_mut(at) {
            let batch = source.drain();
            let finished = batch.finished;
            if finished || !batch.words.is_empty() || batch.lost != source.lost {
                source.lost = batch.lost;
                batches.push(batch);
            }
            if finished {
                let left = self.sources.swap_remove(at);
                self.recycle(left.ring);
            } else {
                at += 1;
            }
        }
    }

    /// Prepares a ring for the next thread, so that its first stage pays for no fresh memory.
    pub fn prepare_for_thread(&self) {
        if locked(&self.shared.spare).is_empty() {
            let ring = Arc::new(self.shared.new_ring());
            locked(&self.shared.spare).push(ring);
        }
    }

    fn recycle(&self, mut ring: Arc<Ring>) {
        let mut spare = locked(&self.shared.spare);
        if spare.len() < 4
            && let Some(unshared) = Arc::get_mut(&mut ring)
        {
            unshared.reset();
            spare.push(ring);
        }
    }
}

impl Source {
    fn drain(&self) -> Batch {
        // Checked before the words are taken: a thread that has exited by then has published its last word.
        let finished = self.ring.is_finished();
        let mut words = Vec::with_capacity(self.ring.waiting() as usize);
        self.ring.take(&mut words);
        let lost = self.ring.lost();
        Batch { source: self.id, thread: Arc::clone(&self.thread), words, lost, finished, read_at: now() }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.close();
    }
}
