//! Records the GPU work of this process, for `laptime.record` in Python, with the library and parts of `laptime record`.

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

/// The recorder of this process. Created once, since the library stays loaded and keeps its folder.
struct Recorder {
    folder: socket::Folder,
    library: PathBuf,
    control: Control,
    start: Start,
    /// The start of the current recording, and its Python sampler.
    running: Option<(u64, Observer<python::Samples>)>,
}

/// How long to wait for the library.
const LONGEST_WAIT: Duration = Duration::from_secs(2);

static RECORDER: Mutex<Option<Recorder>> = Mutex::new(None);

/// Must be set in the environment before CUDA is initialised.
#[derive(Debug, Clone)]
pub struct Injection {
    /// The library for the driver to load.
    pub library: PathBuf,
    /// The folder of the recording.
    pub folder: PathBuf,
}

/// Prepares the recorder without recording.
pub fn prepare() -> anyhow::Result<Injection> {
    let mut place = RECORDER.lock().unwrap_or_else(PoisonError::into_inner);
    let recorder = match &mut *place {
        Some(known) => known,
        none => none.insert(Recorder::new()?),
    };
    Ok(Injection { library: recorder.library.clone(), folder: recorder.folder.path().to_owned() })
}

/// Starts recording.
pub fn begin() -> anyhow::Result<()> {
    with(|recorder| {
        let sampler = python::start(std::process::id(), recorder.control, None);
        recorder.running = Some((monotonic_nanos(), sampler));
        recorder.control.request_mode(RecordingMode::Everything);
        recorder.await_state(State::Recording);
    })
}

/// Stops recording. If CUDA was used, adds kernels, copies, calls and Python lines to the trace that this process
/// recorded itself, and returns the number of kernels.
pub fn finish(trace: &Path) -> anyhow::Result<Option<usize>> {
    with(|recorder| recorder.finish(trace))?
}

/// Removes the files of the recorder at the end of the process.
pub fn remove() {
    drop(RECORDER.lock().unwrap_or_else(PoisonError::into_inner).take());
}

/// Forgets the recorder in a forked process, since its folder belongs to the parent.
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
        let folder = socket::Folder::create()?;
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

    /// Waits until the library has written this state to its part. Returns at once without CUDA, and after a timeout if
    /// the library cannot record.
    fn await_state(&self, expected: State) {
        let until = Instant::now() + LONGEST_WAIT;
        let folder = self.folder.path().join(PARTS_FOLDER);
        while self.control.attached() > 0 && Instant::now() < until {
            let begin = Instant::now();
            let processes = parts::read(&folder);
            let own = processes.iter().find(|process| process.pid == std::process::id());
            let state = own.and_then(|process| process.states.last()).map(|(_, state)| *state);
            if state.is_some_and(|state| state == expected || state == State::TakenOver) {
                return;
            }
            // Reading the parts of a long recording takes time.
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
        // The folder itself is removed by its guard.
        let _ = fs::remove_dir_all(self.folder.path().join(PARTS_FOLDER));
    }
}
