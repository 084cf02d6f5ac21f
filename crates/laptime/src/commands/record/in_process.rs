//! Records the GPU work of this process itself, for `laptime.record` in Python: the library that `laptime record` injects
//! writes the same parts, and they are assembled in the same way.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{fs, thread};

use anyhow::Context;
use laptime_capture::control::{Control, RecordingMode, Settings};
use laptime_capture::{CONTROL_FILE, monotonic_nanos, part::State};
use laptime_trace::{Activity, Nanos};

use super::assemble::{Observations, Start};
use super::folder::{PARTS_FOLDER, Recording};
use super::{RING_BYTES, RING_PART_BYTES, append, library, observer::Observer, parts, python, socket, start};

/// The recorder of this process. It is made once: the library stays loaded and writes to the same place.
struct Recorder {
    folder: socket::Folder,
    library: PathBuf,
    control: Control,
    start: Start,
    /// Since when it records, and what samples the Python stacks.
    running: Option<(u64, Observer<python::Samples>)>,
}

/// How long the library is waited for.
const LONGEST_WAIT: Duration = Duration::from_secs(2);

static RECORDER: Mutex<Option<Recorder>> = Mutex::new(None);

/// What must be in the environment before CUDA starts in this process.
#[derive(Debug, Clone)]
pub struct Injection {
    /// The library that the driver loads.
    pub library: PathBuf,
    /// The folder of the recording.
    pub folder: PathBuf,
}

/// Prepares the recorder; nothing is recorded yet.
pub fn prepare() -> anyhow::Result<Injection> {
    let mut place = RECORDER.lock().unwrap_or_else(PoisonError::into_inner);
    let recorder = match &mut *place {
        Some(known) => known,
        none => none.insert(Recorder::new()?),
    };
    Ok(Injection { library: recorder.library.clone(), folder: recorder.folder.path().to_owned() })
}

/// Records from here on.
pub fn begin() -> anyhow::Result<()> {
    with(|recorder| {
        let sampler = python::start(std::process::id(), recorder.control, None);
        recorder.running = Some((monotonic_nanos(), sampler));
        recorder.control.request_mode(RecordingMode::Everything);
        recorder.await_state(State::Recording);
    })
}

/// Ends the recording. If CUDA was used, the trace that this process recorded of itself gets kernels, copies, calls and
/// Python lines; returns the number of kernels. Otherwise the trace stays as it is.
pub fn finish(trace: &Path) -> anyhow::Result<Option<usize>> {
    with(|recorder| recorder.finish(trace))?
}

/// Removes what lies in folders, at the end of the process.
pub fn remove() {
    drop(RECORDER.lock().unwrap_or_else(PoisonError::into_inner).take());
}

/// Forgets the recorder in a forked process: its folder is the parent's.
pub fn forget_after_fork() {
    if let Ok(mut recorder) = RECORDER.try_lock() {
        std::mem::forget(recorder.take());
    }
}

fn with<R>(work: impl FnOnce(&mut Recorder) -> R) -> anyhow::Result<R> {
    let mut recorder = RECORDER.lock().unwrap_or_else(PoisonError::into_inner);
    recorder.as_mut().map(work).context("the recorder of this process was not prepared")
}

impl Recorder {
    fn new() -> anyhow::Result<Self> {
        let folder = socket::Folder::make()?;
        let parts = folder.path().join(PARTS_FOLDER);
        library::private_folder(&parts)?;
        let library = library::unpack(folder.path())?;
        let settings = Settings {
            parts,
            whole_graphs: false,
            memory: false,
            keep: None,
            part_bytes: RING_PART_BYTES,
            ring_bytes: RING_BYTES,
            laps: None,
        };
        let control = Control::create(&folder.path().join(CONTROL_FILE), &settings, RecordingMode::Nothing)
            .context("cannot create the control page of the recording")?;
        Ok(Self { folder, library, control, start: start(), running: None })
    }

    /// Waits until the library in this process has done what was asked: it then writes its state to its part. Without
    /// CUDA there is nothing to wait for; a library that cannot record is not waited for long.
    fn await_state(&self, wanted: State) {
        let until = Instant::now() + LONGEST_WAIT;
        let folder = self.folder.path().join(PARTS_FOLDER);
        while self.control.attached() > 0 && Instant::now() < until {
            let begin = Instant::now();
            let processes = parts::read(&folder);
            let own = processes.iter().find(|process| process.pid == std::process::id());
            let state = own.and_then(|process| process.states.last()).map(|(_, state)| *state);
            if state.is_some_and(|state| state == wanted || state == State::TakenOver) {
                return;
            }
            // Parts of a long recording take time to read.
            thread::sleep(Duration::from_millis(1).max(4 * begin.elapsed()));
        }
    }

    fn finish(&mut self, to: &Path) -> anyhow::Result<Option<usize>> {
        let Some((since_ns, sampler)) = self.running.take() else { return Ok(None) };
        self.control.request_mode(RecordingMode::Nothing);
        let samples = sampler.finish();
        let own = append::announced(self.folder.path());
        append::forget(self.folder.path());
        let folder = self.folder.path().join(PARTS_FOLDER);
        if self.control.attached() == 0 {
            return Ok(None);
        }
        self.await_state(State::Paused);
        let observations = Observations { samples, own, ..Observations::default() };
        let recording = Recording::read(&folder, &observations, self.start)?;
        let since = Nanos(since_ns.saturating_sub(self.start.host_ns));
        let trace = recording.trace.retain(|trace, id| trace.span_end(id) >= since)?;
        let trace = trace.retain_points(|time| time >= since)?;
        laptime_trace::write(&trace, to)?;
        let is_kernel = |activity: &&Activity| matches!(activity, Activity::Kernel | Activity::Graph);
        Ok(Some(trace.activities().iter().filter(is_kernel).count()))
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.control.request_mode(RecordingMode::Nothing);
        // The folder is removed with its guard; parts of processes that go on are not wanted any more.
        let _ = fs::remove_dir_all(self.folder.path().join(PARTS_FOLDER));
    }
}
