//! The state of the library in this process.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::sync::{Mutex, MutexGuard, Once, OnceLock};
use std::{env, process, ptr};

use laptime_capture::{CONTROL_FILE, FOLDER_VARIABLE, control::Control, monotonic_nanos};

use crate::{buffers::Pool, guarded, laps::Laps, locked, output::Output, ranges::Ranges, session::Session, worker};

/// The state of this process; null before the start and in a forked child.
static STATE: AtomicPtr<State> = AtomicPtr::new(ptr::null_mut());
/// In a forked child that has not started yet: the state of its parent.
static OF_PARENT: AtomicPtr<State> = AtomicPtr::new(ptr::null_mut());
/// Such a child has tried to start.
static HAS_TRIED: AtomicBool = AtomicBool::new(false);

/// Environment variables that name the place of a process among others.
const RANKS: [&str; 8] = [
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "SLURM_PROCID",
    "SLURM_LOCALID",
    "OMPI_COMM_WORLD_RANK",
    "SLURM_NODEID",
    "CUDA_VISIBLE_DEVICES",
];

/// The state of the library in this process. It lives as long as the process.
#[derive(Debug)]
pub struct State {
    /// What the recorder requests.
    pub control: Control,
    /// Buffers for CUPTI.
    pub pool: Pool,
    /// CUPTI, once CUDA has started.
    pub session: OnceLock<Session>,
    /// NVTX ranges that have not been written yet.
    pub ranges: Ranges,
    /// The laps to record, where NVTX ranges are laps.
    pub laps: Option<Laps>,
    /// Another profiler took over CUPTI.
    pub is_taken_over: AtomicBool,
    /// The process ends.
    pub is_ending: AtomicBool,
    /// The GPUs were described.
    pub has_devices: AtomicBool,
    output: Mutex<Output>,
}

impl State {
    /// The part files. Never held while CUPTI is called: it calls back and asks for them.
    pub fn output(&self) -> MutexGuard<'_, Output> {
        locked(&self.output)
    }

    /// Reports on the control page how much was recorded.
    pub fn report(&self, output: &mut Output) {
        let (kernels, beats) = std::mem::take(&mut output.unreported);
        self.control.add_recorded(kernels, beats);
    }

    /// The part files, unless another thread holds the lock.
    pub fn try_output(&self) -> Option<MutexGuard<'_, Output>> {
        match self.output.try_lock() {
            Ok(output) => Some(output),
            Err(std::sync::TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(std::sync::TryLockError::WouldBlock) => None,
        }
    }
}

/// The state, if the library works in this process.
pub fn current() -> Option<&'static State> {
    // SAFETY: what is stored there was leaked.
    unsafe { STATE.load(Ordering::Acquire).as_ref() }
}

/// The state. A forked child whose parent is recorded starts to record here, when it marks its first range.
pub fn in_process() -> Option<&'static State> {
    current().or_else(|| {
        // Once: a start that failed would be waited for at every range.
        let is_first = !OF_PARENT.load(Ordering::Acquire).is_null() && !HAS_TRIED.swap(true, Ordering::AcqRel);
        if is_first { get_or_start() } else { None }
    })
}

/// The state, which is made if this process has none. `None` if no recorder started it.
pub fn get_or_start() -> Option<&'static State> {
    static STARTING: Mutex<()> = Mutex::new(());
    if let Some(state) = current() {
        return Some(state);
    }
    // In a forked child this lock may never be released; the child then records nothing.
    let _starting = (0..100).find_map(|_| {
        STARTING.try_lock().ok().or_else(|| {
            std::thread::sleep(std::time::Duration::from_millis(1));
            None
        })
    })?;
    if let Some(state) = current() {
        return Some(state);
    }
    set_up_once();
    // SAFETY: what is stored there was leaked; a forked child has a copy of it.
    let parent = unsafe { OF_PARENT.swap(ptr::null_mut(), Ordering::AcqRel).as_ref() };
    let folder = PathBuf::from(env::var_os(FOLDER_VARIABLE)?);
    let control = Control::open(&folder.join(CONTROL_FILE)).ok()?;
    let settings = control.settings();
    let mut output = Output::new(settings.clone(), process::id(), monotonic_nanos());
    describe(&mut output);
    let state: &'static State = Box::leak(Box::new(State {
        control,
        pool: Pool::default(),
        session: OnceLock::new(),
        ranges: parent.map_or_else(Ranges::default, |parent| Ranges::inheriting(&parent.ranges)),
        laps: settings.laps.map(Laps::new),
        is_taken_over: AtomicBool::new(false),
        is_ending: AtomicBool::new(false),
        has_devices: AtomicBool::new(false),
        output: Mutex::new(output),
    }));
    STATE.store(ptr::from_ref(state).cast_mut(), Ordering::Release);
    state.output().write();
    worker::start(state);
    Some(state)
}

fn set_up_once() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // Our panics must not write to the program's standard error.
        std::panic::set_hook(Box::new(|_| {}));
        // SAFETY: both functions live as long as the process.
        unsafe {
            libc::pthread_atfork(None, None, Some(in_forked_child));
        }
    });
}

/// A forked child has none of our threads and may have our locks taken: it starts from nothing.
extern "C" fn in_forked_child() {
    let parent = STATE.swap(ptr::null_mut(), Ordering::AcqRel);
    if !parent.is_null() {
        HAS_TRIED.store(false, Ordering::Release);
        OF_PARENT.store(parent, Ordering::Release);
    }
}

/// Makes the process write the rest when it ends. Called after CUPTI was loaded, because handlers run in reverse order.
pub fn write_at_exit() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the function lives as long as the process.
        unsafe { libc::atexit(at_exit) };
    });
}

extern "C" fn at_exit() {
    guarded(|| {
        if let Some(state) = current() {
            worker::finish(state);
        }
    });
}

fn describe(output: &mut Output) {
    output.info("name", &program_name());
    output.info("parent", &std::os::unix::process::parent_id().to_string());
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    output.info("unix", &now.map_or(0, |now| now.as_nanos()).to_string());
    for name in RANKS {
        if let Ok(value) = env::var(name) {
            output.info(name, &value);
        }
    }
}

/// The program's name, and the script's if it is an interpreter: other arguments may be secrets.
fn program_name() -> String {
    let arguments = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    let mut words = arguments.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned());
    let base = |word: String| Path::new(&word).file_name().map(|name| name.to_string_lossy().into_owned());
    let program = words.next().and_then(base).unwrap_or_default();
    let is_script = |word: &String| Path::new(word).extension().is_some_and(|ending| ending == "py");
    match words.find(is_script).and_then(base) {
        Some(script) => format!("{program} {script}"),
        None => program,
    }
}
