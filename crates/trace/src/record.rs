//! Records a running program to a file.
//!
//! A separate thread drains the buffers of the recorded threads and encodes the events when there is time. If encoding
//! falls behind, batches wait in memory up to a limit; beyond it the buffers fill up, and events without space are
//! dropped and counted. The file is flushed at least ten times per second, so a killed program leaves a trace.

mod announce;
mod at_exit;
mod waiting;

use std::path::{Path, PathBuf};
use std::sync::{
    Arc, Condvar, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, Ordering::Relaxed},
};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use std::{fs::File, io, thread::JoinHandle};

use laptime_probe::{Anchor, Config, DefaultTaken, Recorder, TickMap, Ticks, now};

pub use self::announce::ANNOUNCED;
use self::waiting::Waiting;
use crate::format::{self, Format, ReadError, WriteError};
use crate::{live::LiveWriter, time::Origin};

/// Why a recording could not be started or finished.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages say what the errors are")]
pub enum RecordError {
    #[error("cannot record to `{path}`", path = path.display())]
    Taken { path: PathBuf, source: DefaultTaken },
    #[error("`{path}` does not have a trace extension; use `.pftrace`, `.json` or `.json.gz`", path = path.display())]
    Extension { path: PathBuf },
    #[error("cannot write `{path}`", path = path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("cannot convert the recording `{recorded}`", recorded = recorded.display())]
    Convert { recorded: PathBuf, source: Box<dyn std::error::Error + Send + Sync> },
    #[error("the writer thread of the recording panicked")]
    WriterDied,
}

/// What a finished recording holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    /// The file.
    pub path: PathBuf,
    /// Its size.
    pub bytes: u64,
    /// Spans recorded by host threads; the corresponding device spans are not counted again.
    pub spans: u64,
    /// Dropped events.
    pub lost: u64,
    /// The time zero of the trace on [`laptime_probe::monotonic_nanos`].
    pub start_ns: u64,
}

/// A running recording. It ends on drop, or with [`Recording::finish`], which returns the result. If it cannot be
/// written completely, `finish` returns the error, and dropping it prints a warning to standard error.
///
/// `std::process::exit` drops nothing. On Unix the file still contains everything recorded until then, as for a killed
/// program: open spans are marked as open. Instead of a `.json` there is then the `.pftrace` that it would have been
/// converted from.
#[must_use = "the recording ends when this is dropped"]
#[derive(Debug)]
pub struct Recording {
    path: PathBuf,
    /// The file being written: `path`, or a temporary file that is converted at the end.
    recorded: PathBuf,
    start_ns: u64,
    control: Arc<Control>,
    writer: Option<JoinHandle<io::Result<Written>>>,
}

/// Records every thread of this process to a file, from here until the returned value is dropped.
///
/// The format follows the extension: `.pftrace` is written while the program runs; `.json` and `.json.gz` are converted
/// from it at the end. Only one such recording can run at a time.
pub fn record_to(path: impl AsRef<Path>) -> Result<Recording, RecordError> {
    record_to_with(path, Config::default())
}

/// Like [`record_to`], with other buffer settings.
pub fn record_to_with(path: impl AsRef<Path>, config: Config) -> Result<Recording, RecordError> {
    let path = path.as_ref().to_owned();
    let recorded = match Format::from_path(&path) {
        Some(Format::Pftrace) => path.clone(),
        Some(Format::Chrome | Format::ChromeGz) => temporary_path(&path),
        _ => return Err(RecordError::Extension { path }),
    };
    let failed = |source| RecordError::Write { path: recorded.clone(), source };
    let start = Start::now();
    // Before the file is created, because a second recording of the same name would truncate the file of the first.
    let recorder = Recorder::new(config);
    recorder.make_default().map_err(|source| RecordError::Taken { path: path.clone(), source })?;
    let file = File::create(&recorded).map_err(failed)?;
    let (control, start_ns) = (Arc::new(Control::default()), start.anchor.nanos);
    let thread = WriterThread::new(start, config, recorder, file, Arc::clone(&control));
    let writer = std::thread::Builder::new()
        .name("laptime-writer".to_owned())
        .spawn(move || {
            let _ended = NoteEnd(Arc::clone(&thread.control));
            thread.run()
        })
        .map_err(failed)?;
    at_exit::flush(&control, writer.thread().clone());
    announce::announce(&path, start_ns);
    if cfg!(panic = "abort") {
        flush_on_panic(&control, writer.thread().clone());
    }
    Ok(Recording { path, recorded, start_ns, control, writer: Some(writer) })
}

fn temporary_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".pftrace");
    PathBuf::from(name)
}

impl Recording {
    /// Ends the recording and returns a summary.
    pub fn finish(mut self) -> Result<Recorded, RecordError> {
        self.end().unwrap_or(Err(RecordError::WriterDied))
    }

    fn end(&mut self) -> Option<Result<Recorded, RecordError>> {
        let writer = self.writer.take()?;
        self.control.stop.store(true, Relaxed);
        writer.thread().unpark();
        Some(match writer.join() {
            Ok(Ok(written)) => self.settle(written),
            Ok(Err(source)) => Err(RecordError::Write { path: self.recorded.clone(), source }),
            Err(_) => Err(RecordError::WriterDied),
        })
    }

    fn settle(&self, written: Written) -> Result<Recorded, RecordError> {
        let Written { spans, lost, mut bytes } = written;
        if self.recorded != self.path {
            convert(&self.recorded, &self.path)?;
            bytes = std::fs::metadata(&self.path).map_or(0, |metadata| metadata.len());
        }
        Ok(Recorded { path: self.path.clone(), bytes, spans, lost, start_ns: self.start_ns })
    }
}

fn convert(recorded: &Path, path: &Path) -> Result<(), RecordError> {
    let boxed = |source: Box<dyn std::error::Error + Send + Sync>| RecordError::Convert {
        recorded: recorded.to_owned(),
        source,
    };
    let trace = format::read(recorded).map_err(|source: ReadError| boxed(source.into()))?;
    format::write(&trace, path).map_err(|source: WriteError| boxed(source.into()))?;
    // The requested file is complete; a leftover temporary file does no harm.
    let _ = std::fs::remove_file(recorded);
    Ok(())
}

/// A dropped recording cannot return an error, so the error goes to standard error.
impl Drop for Recording {
    fn drop(&mut self) {
        if let Some(Err(error)) = self.end() {
            let causes = std::iter::successors(Some(&error as &dyn std::error::Error), |error| error.source());
            let causes: Vec<String> = causes.map(ToString::to_string).collect();
            #[allow(clippy::print_stderr, reason = "a lost trace must be reported")]
            {
                eprintln!("warning: the recording is incomplete: {}", causes.join(": "));
            }
        }
    }
}

/// Communication with the writer thread.
#[derive(Debug, Default)]
struct Control {
    stop: AtomicBool,
    flush: Mutex<FlushState>,
    flushed: Condvar,
}

#[derive(Debug, Default)]
struct FlushState {
    asked: u64,
    done: u64,
    /// The writer thread has ended.
    has_ended: bool,
}

impl Control {
    fn flush_state(&self) -> MutexGuard<'_, FlushState> {
        self.flush.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Requests that everything recorded so far is in the file, and waits for it with a timeout.
    fn flush(&self, writer: &std::thread::Thread) {
        const LONGEST: Duration = Duration::from_secs(2);
        let mut state = self.flush_state();
        state.asked += 1;
        let asked = state.asked;
        writer.unpark();
        // The result is unknown here; the caller can do nothing more.
        let _ = self.flushed.wait_timeout_while(state, LONGEST, |state| state.done < asked && !state.has_ended);
    }
}

/// Notes that the writer thread has ended, normally or by a panic.
struct NoteEnd(Arc<Control>);

impl Drop for NoteEnd {
    fn drop(&mut self) {
        self.0.flush_state().has_ended = true;
        self.0.flushed.notify_all();
    }
}

/// If a panic aborts the process, no guard is dropped: the file is flushed first.
fn flush_on_panic(control: &Arc<Control>, writer: std::thread::Thread) {
    let control = Arc::downgrade(control);
    let earlier = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        earlier(panic);
        if let Some(control) = control.upgrade() {
            control.flush(&writer);
        }
    }));
}

struct Written {
    spans: u64,
    lost: u64,
    bytes: u64,
}

/// How long the writer thread sleeps when it is idle.
const PAUSE: Duration = Duration::from_millis(10);
/// The maximum time before events are in the file.
const FLUSH_EVERY: Duration = Duration::from_millis(100);
/// The interval between clock comparisons.
const ANCHOR_EVERY: Duration = Duration::from_secs(1);
/// The minimum time for the first rate measurement.
const FIRST_BASE: Duration = Duration::from_millis(20);
/// Time zero of a recording: taken before anything is recorded, so that no time is negative.
struct Start {
    anchor: Anchor,
    origin: Origin,
}

impl Start {
    fn now() -> Self {
        let anchor = Anchor::take();
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).ok();
        let unix_nanos = unix.and_then(|since| i64::try_from(since.as_nanos()).ok());
        Self { anchor, origin: Origin { name: "start of the recording".to_owned(), unix_nanos } }
    }
}

struct WriterThread {
    recorder: Recorder,
    control: Arc<Control>,
    file: Option<File>,
    start: Start,
    live: Option<LiveWriter<File>>,
    waiting: Waiting,
    last_flush: Instant,
    last_anchor: Instant,
}

impl WriterThread {
    fn new(start: Start, config: Config, recorder: Recorder, file: File, control: Arc<Control>) -> Self {
        let now = Instant::now();
        Self {
            recorder,
            control,
            file: Some(file),
            start,
            live: None,
            waiting: Waiting::new(config),
            last_flush: now,
            last_anchor: now,
        }
    }

    fn run(mut self) -> io::Result<Written> {
        self.recorder.wake_when_filling(std::thread::current());
        loop {
            let stop = self.control.stop.load(Relaxed);
            let flush_asked = self.control.flush_state().asked;
            if stop {
                self.recorder.close();
            }
            self.waiting.drain(&mut self.recorder);
            if stop {
                return self.finish(now());
            }
            self.recorder.prepare_for_thread();
            self.start_encoding(false)?;
            let flush_now = self.control.flush_state().done < flush_asked;
            if flush_now {
                self.encode_all()?;
            }
            let encoded = self.encode_one()?;
            self.keep_up_to_date(flush_now)?;
            if flush_now {
                self.control.flush_state().done = flush_asked;
                self.control.flushed.notify_all();
            }
            if !encoded {
                std::thread::park_timeout(PAUSE);
            }
        }
    }

    /// Starts encoding once the rate of the clock is known; `in_haste` measures it over a shorter time.
    fn start_encoding(&mut self, in_haste: bool) -> io::Result<()> {
        if self.live.is_some() {
            return Ok(());
        }
        let second = Anchor::take();
        if !in_haste && second.nanos.saturating_sub(self.start.anchor.nanos) < FIRST_BASE.as_nanos() as u64 {
            return Ok(());
        }
        if let Some(map) = TickMap::new(self.start.anchor, second)
            && let Some(file) = self.file.take()
        {
            self.live = Some(LiveWriter::new(file, map, &self.start.origin)?);
        }
        Ok(())
    }

    /// Encodes one batch; false if there was none to encode.
    fn encode_one(&mut self) -> io::Result<bool> {
        let Some(live) = &mut self.live else { return Ok(false) };
        let Some(batch) = self.waiting.pop() else { return Ok(false) };
        live.batch(&batch, || self.waiting.drain(&mut self.recorder))?;
        Ok(true)
    }

    fn encode_all(&mut self) -> io::Result<()> {
        while self.live.is_none() && self.file.is_some() {
            self.start_encoding(true)?;
            std::hint::spin_loop();
        }
        while self.encode_one()? {}
        Ok(())
    }

    fn keep_up_to_date(&mut self, flush_now: bool) -> io::Result<()> {
        let Some(live) = &mut self.live else { return Ok(()) };
        live.ask_devices(self.waiting.encoded_until())?;
        if self.last_anchor.elapsed() >= ANCHOR_EVERY {
            self.last_anchor = Instant::now();
            live.map_mut().correct(Anchor::take());
        }
        if flush_now || self.last_flush.elapsed() >= FLUSH_EVERY {
            self.last_flush = Instant::now();
            live.flush()?;
        }
        Ok(())
    }

    fn finish(mut self, end: Ticks) -> io::Result<Written> {
        // A device may still be working on submitted work; it is queried for a moment longer.
        const DEVICE_GRACE: Duration = Duration::from_millis(200);
        const EVER: Ticks = Ticks(u64::MAX);
        self.encode_all()?;
        self.waiting.drain(&mut self.recorder);
        self.encode_all()?;
        let Some(mut live) = self.live.take() else { return Ok(Written { spans: 0, lost: 0, bytes: 0 }) };
        let asked = Instant::now();
        live.ask_devices(EVER)?;
        while live.has_pending_marks() && asked.elapsed() < DEVICE_GRACE {
            std::thread::park_timeout(Duration::from_millis(1));
            live.ask_devices(EVER)?;
        }
        live.finish(end)?;
        Ok(Written { spans: live.spans(), lost: live.lost(), bytes: live.written() })
    }
}
