//! NVTX ranges, and calls seen by callbacks, on their way from their thread to the writing thread.
//!
//! Each thread has its own buffer. Its lock is shared only with the writer, which takes it once per second.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use laptime_capture::part::{Call, Kind, Payload, Range, RangeAction};
use laptime_capture::{cupti, monotonic_nanos};

use crate::{locked, output::Output, state::State};

/// Bytes of ranges that wait to be written, in all threads together. What comes beyond is counted as dropped.
const MOST_BYTES: usize = 16 << 20;
/// Bytes of a call among those.
const CALL_BYTES: usize = size_of::<(cupti::Call, &str)>();
/// Longer messages are cut.
const LONGEST_MESSAGE: usize = 1024;

/// Ranges that have not been written yet.
#[derive(Debug, Default)]
pub struct Ranges {
    threads: Mutex<Vec<Arc<Waiting>>>,
    /// Texts that were registered or named: domains, messages, categories.
    pub texts: Mutex<Texts>,
    bytes: AtomicUsize,
    dropped: AtomicU64,
    dropped_calls: AtomicU64,
    next: AtomicU64,
    /// Numbers of ranges whose starts were kept and that have not ended.
    started: Mutex<HashSet<u64>>,
}

/// Texts by the handles that we gave out.
#[derive(Debug, Default, Clone)]
pub struct Texts {
    handles: Vec<Arc<[u8]>>,
    categories: HashMap<(usize, u32), Arc<[u8]>>,
    thread_names: Vec<(u32, Box<[u8]>)>,
}

#[derive(Debug)]
struct Waiting {
    thread: u32,
    events: Mutex<Vec<Marked>>,
    /// Calls that callbacks saw, with their names.
    calls: Mutex<Vec<(cupti::Call, &'static str)>>,
}

/// A range as its thread marked it.
#[derive(Debug)]
pub struct Marked {
    pub host_nanos: u64,
    pub action: RangeAction,
    pub message: Message,
    /// The handle of the domain; zero is none.
    pub domain: usize,
    pub category: u32,
    pub payload: Option<Payload>,
}

/// The text of a range.
#[derive(Debug)]
pub enum Message {
    None,
    Text(Box<[u8]>),
    Handle(usize),
}

thread_local! {
    /// The buffer of this thread, with the state that it belongs to.
    static OWN: RefCell<Option<(usize, Arc<Waiting>)>> = const { RefCell::new(None) };
}

impl Texts {
    /// Keeps a text; the handle is never zero.
    pub fn add(&mut self, text: &[u8]) -> usize {
        self.handles.push(cut(text).into());
        self.handles.len()
    }

    pub fn name_category(&mut self, domain: usize, category: u32, name: &[u8]) {
        self.categories.insert((domain, category), cut(name).into());
    }

    pub fn name_thread(&mut self, thread: u32, name: &[u8]) {
        self.thread_names.push((thread, cut(name).into()));
    }

    /// The text of a handle; empty if it is not known.
    pub fn at(&self, handle: usize) -> &[u8] {
        handle.checked_sub(1).and_then(|at| self.handles.get(at)).map_or(b"", |text| text)
    }
}

/// The text, cut to the maximum length.
pub fn cut(text: &[u8]) -> &[u8] {
    &text[..text.len().min(LONGEST_MESSAGE)]
}

impl Ranges {
    /// Those of a forked child, which uses handles and numbers of its parent.
    pub fn inheriting(parent: &Self) -> Self {
        // If another thread held the lock during the fork, it is never released.
        let texts = parent.texts.try_lock().map(|texts| Texts { thread_names: Vec::new(), ..texts.clone() });
        Self {
            texts: Mutex::new(texts.unwrap_or_default()),
            next: AtomicU64::new(parent.next.load(Ordering::Relaxed)),
            ..Self::default()
        }
    }

    /// A number for a range that begins on one thread and may end on another.
    pub fn next_number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The start of a range is kept.
    pub fn remember(&self, number: u64) -> bool {
        locked(&self.started).insert(number)
    }

    /// A range ends; says whether its start was kept.
    pub fn forget(&self, number: u64) -> bool {
        locked(&self.started).remove(&number)
    }

    /// Buffers a range of this thread until it is written.
    pub fn add(state: &'static State, marked: Marked) {
        let size = marked.bytes();
        let is_kept = state.ranges.with_own(state, size, |own| locked(&own.events).push(marked));
        if !is_kept {
            state.ranges.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Buffers a call seen by a callback until it is written.
    pub fn add_call(state: &'static State, call: &cupti::Call, name: &'static str) {
        let is_kept = state.ranges.with_own(state, CALL_BYTES, |own| locked(&own.calls).push((call.clone(), name)));
        if !is_kept {
            state.ranges.dropped_calls.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Calls a function with the buffer of this thread if there is space for `size` more bytes; returns whether it did.
    fn with_own(&self, state: &'static State, size: usize, work: impl FnOnce(&Waiting)) -> bool {
        let has_space = self.bytes.fetch_add(size, Ordering::Relaxed) + size <= MOST_BYTES;
        let is_kept = has_space && self.with_buffer(state, work);
        if !is_kept {
            self.bytes.fetch_sub(size, Ordering::Relaxed);
        }
        is_kept
    }

    /// Runs a function on the buffer of this thread; returns whether it has one.
    fn with_buffer(&self, state: &'static State, work: impl FnOnce(&Waiting)) -> bool {
        let key = std::ptr::from_ref(state) as usize;
        let done = OWN.try_with(|own| {
            let Ok(mut own) = own.try_borrow_mut() else { return false };
            if own.as_ref().is_none_or(|(known, _)| *known != key) {
                *own = Some((key, self.register()));
            }
            own.as_ref().is_some_and(|(_, waiting)| {
                work(waiting);
                true
            })
        });
        done == Ok(true)
    }

    fn register(&self) -> Arc<Waiting> {
        // SAFETY: the call takes no arguments.
        let thread = unsafe { libc::gettid() } as u32;
        let waiting = Arc::new(Waiting { thread, events: Mutex::default(), calls: Mutex::default() });
        locked(&self.threads).push(Arc::clone(&waiting));
        waiting
    }

    /// Moves everything that is buffered into the block.
    pub fn drain(&self, output: &mut Output) {
        let mut texts = locked(&self.texts);
        for (thread, name) in std::mem::take(&mut texts.thread_names) {
            output.encoder.thread_name(thread, &name);
        }
        let threads: Vec<Arc<Waiting>> = {
            let mut threads = locked(&self.threads);
            let all = threads.clone();
            // The buffer of a thread that ended has two handles left: in the list and in `all`.
            threads.retain(|waiting| Arc::strong_count(waiting) > 2);
            all
        };
        for waiting in threads {
            let events = std::mem::take(&mut *locked(&waiting.events));
            for marked in events {
                self.bytes.fetch_sub(marked.bytes(), Ordering::Relaxed);
                self.put(waiting.thread, &marked, &texts, output);
                output.write_if_large();
            }
            let calls = std::mem::take(&mut *locked(&waiting.calls));
            for (call, name) in calls {
                self.bytes.fetch_sub(CALL_BYTES, Ordering::Relaxed);
                let name = output.encoder.name(name.as_bytes());
                let cupti::Call { is_driver, start_nanos, end_nanos, thread, correlation, .. } = call;
                output.encoder.call(&Call { is_driver, name, start_nanos, end_nanos, thread, correlation });
                output.write_if_large();
            }
        }
        output.encoder.dropped(Kind::Range, self.dropped.swap(0, Ordering::Relaxed));
        output.encoder.dropped(Kind::Call, self.dropped_calls.swap(0, Ordering::Relaxed));
    }

    fn put(&self, thread: u32, marked: &Marked, texts: &Texts, output: &mut Output) {
        let encoder = &mut output.encoder;
        let name = match &marked.message {
            Message::None => 0,
            Message::Text(text) => encoder.name(text),
            Message::Handle(handle) => encoder.name(texts.at(*handle)),
        };
        let domain = encoder.name(texts.at(marked.domain));
        let category = match texts.categories.get(&(marked.domain, marked.category)) {
            Some(known) => encoder.name(known),
            None if marked.category != 0 => encoder.name(format!("category {}", marked.category).as_bytes()),
            None => 0,
        };
        output.unreported.1 += u64::from(matches!(marked.action, RangeAction::Push));
        encoder.range(&Range {
            host_nanos: marked.host_nanos,
            thread,
            action: marked.action,
            name,
            domain,
            category,
            payload: marked.payload,
        });
    }
}

impl Marked {
    fn bytes(&self) -> usize {
        size_of::<Self>() + if let Message::Text(text) = &self.message { text.len() } else { 0 }
    }

    /// Something that happens now.
    pub fn now(action: RangeAction, message: Message, domain: usize) -> Self {
        Self { host_nanos: monotonic_nanos(), action, message, domain, category: 0, payload: None }
    }
}
