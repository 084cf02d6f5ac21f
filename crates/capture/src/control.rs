//! The control page: the requests of the recorder to every process of the program.
//!
//! The recorder creates the file at its full size before the program starts, so mapping it never faults. A process
//! waits on `epoch` with a futex, so a change takes effect at once and waiting costs nothing.
#![allow(unsafe_code)]

use std::os::fd::AsRawFd;
use std::os::unix::{ffi::OsStrExt, fs::OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use std::{ffi::OsStr, fs::File, io};

const MAGIC: u64 = u64::from_le_bytes(*b"laptime1");
const LONGEST_PATH: usize = 3072;
const LONGEST_LAP: usize = 512;

#[repr(C)]
struct Page {
    magic: u64,
    epoch: AtomicU32,
    mode: AtomicU32,
    flags: u32,
    part_bytes: u32,
    keep_nanos: u64,
    ring_bytes: u64,
    /// Kernels and beats that all processes have recorded since the start.
    kernels: AtomicU64,
    beats: AtomicU64,
    /// How many processes have mapped the page since the start.
    attached: AtomicU32,
    path_length: u32,
    path: [u8; LONGEST_PATH],
    after_laps: u32,
    for_laps: u32,
    lap_length: u32,
    lap: [u8; LONGEST_LAP],
}

/// What processes should do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordingMode {
    /// Record nothing.
    Nothing = 0,
    /// Record everything.
    Everything,
    /// Record only copies and syncs. The difference to `Everything` is the recording overhead.
    Light,
    /// Record only the work that was launched before: the device is often behind the host.
    Rest,
}

impl RecordingMode {
    /// The number in files and on the page.
    pub const fn number(self) -> u32 {
        self as u32
    }

    /// Whether kernels are recorded.
    pub fn has_kernels(self) -> bool {
        matches!(self, Self::Everything | Self::Rest)
    }

    /// Whether syncs are recorded.
    pub fn has_waits(self) -> bool {
        matches!(self, Self::Everything | Self::Light)
    }

    /// The state of a number; anything unknown means nothing.
    pub const fn from_number(number: u32) -> Self {
        match number {
            1 => Self::Everything,
            2 => Self::Light,
            3 => Self::Rest,
            _ => Self::Nothing,
        }
    }
}

/// The rest of the work has come back if none came for this long.
const QUIET: Duration = Duration::from_secs(2);

/// Decides when all work that was launched before has been recorded.
#[derive(Debug, Default)]
pub struct Resting {
    since: Option<Instant>,
}

impl Resting {
    /// The mode to apply instead of the requested one: nothing, once the remaining work was reported.
    pub fn mode(&mut self, asked: RecordingMode, had_work: bool, now: Instant) -> RecordingMode {
        if asked != RecordingMode::Rest {
            self.since = None;
            return asked;
        }
        let since = if had_work { self.since.insert(now) } else { self.since.get_or_insert(now) };
        if now.duration_since(*since) < QUIET { asked } else { RecordingMode::Nothing }
    }
}

/// What does not change during a recording.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Where parts are written.
    pub parts: PathBuf,
    /// Record a graph launch as one piece of work.
    pub whole_graphs: bool,
    /// Record allocations of device memory.
    pub memory: bool,
    /// Keep only this much of the past; `None` keeps everything.
    pub keep: Option<Duration>,
    /// Begin a new part when this many bytes are written.
    pub part_bytes: u32,
    /// Maximum bytes of parts per process if only the recent past is kept.
    pub ring_bytes: u64,
    /// The laps to record; `None` if they are not named, or all are wanted.
    pub laps: Option<LapSettings>,
}

/// A window of laps. A lap is an NVTX range of this name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LapSettings {
    /// The name; a star at its end matches anything.
    pub name: String,
    /// Laps to leave out at the beginning.
    pub after: u32,
    /// Laps to record; `None` records all that follow.
    pub during: Option<u32>,
}

const WHOLE_GRAPHS: u32 = 1;
const MEMORY: u32 = 2;

/// The mapped page. It stays mapped.
#[derive(Debug, Clone, Copy)]
pub struct Control(NonNull<Page>);

// SAFETY: fields that change are atomics; the others are written before another process maps the page.
unsafe impl Send for Control {}
// SAFETY: as above.
unsafe impl Sync for Control {}

impl Control {
    /// Creates the page.
    pub fn create(path: &Path, settings: &Settings, mode: RecordingMode) -> io::Result<Self> {
        let parts = settings.parts.as_os_str().as_bytes();
        let lap = settings.laps.as_ref().map_or("", |laps| &laps.name).as_bytes();
        if parts.len() > LONGEST_PATH || lap.len() > LONGEST_LAP {
            return Err(io::Error::from(io::ErrorKind::InvalidFilename));
        }
        let mut open = std::fs::OpenOptions::new();
        let file = open.read(true).write(true).create_new(true).mode(0o600).open(path)?;
        file.set_len(size_of::<Page>() as u64)?;
        let control = Self::map(&file)?;
        let flags = if settings.whole_graphs { WHOLE_GRAPHS } else { 0 } | if settings.memory { MEMORY } else { 0 };
        // SAFETY: no other process has mapped the page yet.
        unsafe {
            let page = &mut *control.0.as_ptr();
            page.flags = flags;
            page.part_bytes = settings.part_bytes;
            page.keep_nanos = settings.keep.map_or(0, |keep| keep.as_nanos() as u64);
            page.ring_bytes = settings.ring_bytes;
            page.path_length = parts.len() as u32;
            page.path[..parts.len()].copy_from_slice(parts);
            page.lap_length = lap.len() as u32;
            page.lap[..lap.len()].copy_from_slice(lap);
            page.after_laps = settings.laps.as_ref().map_or(0, |laps| laps.after);
            page.for_laps = settings.laps.as_ref().and_then(|laps| laps.during).unwrap_or(0);
            page.mode.store(mode.number(), Ordering::Relaxed);
            page.magic = MAGIC;
        }
        Ok(control)
    }

    /// Maps the page that a recorder created.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = std::fs::OpenOptions::new().read(true).write(true).open(path)?;
        if file.metadata()?.len() != size_of::<Page>() as u64 {
            return Err(io::Error::from(io::ErrorKind::InvalidData));
        }
        let control = Self::map(&file)?;
        if control.page().magic != MAGIC || control.page().path_length as usize > LONGEST_PATH {
            return Err(io::Error::from(io::ErrorKind::InvalidData));
        }
        control.page().attached.fetch_add(1, Ordering::Relaxed);
        Ok(control)
    }

    fn map(file: &File) -> io::Result<Self> {
        let (access, shared) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: a new mapping of a file of this size; it is never unmapped.
        let found = unsafe { libc::mmap(ptr::null_mut(), size_of::<Page>(), access, shared, file.as_raw_fd(), 0) };
        if found == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        NonNull::new(found.cast()).map(Self).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
    }

    fn page(&self) -> &Page {
        // SAFETY: the mapping stays, and every byte pattern is a valid page.
        unsafe { self.0.as_ref() }
    }

    /// What does not change.
    pub fn settings(&self) -> Settings {
        let page = self.page();
        let path = &page.path[..(page.path_length as usize).min(LONGEST_PATH)];
        let lap = &page.lap[..(page.lap_length as usize).min(LONGEST_LAP)];
        let laps = (!lap.is_empty()).then(|| LapSettings {
            name: String::from_utf8_lossy(lap).into_owned(),
            after: page.after_laps,
            during: Some(page.for_laps).filter(|laps| *laps > 0),
        });
        Settings {
            parts: PathBuf::from(OsStr::from_bytes(path)),
            whole_graphs: page.flags & WHOLE_GRAPHS != 0,
            memory: page.flags & MEMORY != 0,
            keep: (page.keep_nanos > 0).then(|| Duration::from_nanos(page.keep_nanos)),
            part_bytes: page.part_bytes,
            ring_bytes: page.ring_bytes,
            laps,
        }
    }

    /// The state that the recorder asks for now.
    pub fn mode(&self) -> RecordingMode {
        RecordingMode::from_number(self.page().mode.load(Ordering::Acquire))
    }

    /// How many processes have mapped the page.
    pub fn attached(&self) -> u32 {
        self.page().attached.load(Ordering::Relaxed)
    }

    /// Adds to what was recorded so far; `beats` are syncs, copies and NVTX ranges.
    pub fn add_recorded(&self, kernels: u64, beats: u64) {
        self.page().kernels.fetch_add(kernels, Ordering::Relaxed);
        self.page().beats.fetch_add(beats, Ordering::Relaxed);
    }

    /// Kernels and beats that all processes have recorded so far. Processes report once a second.
    pub fn recorded(&self) -> (u64, u64) {
        (self.page().kernels.load(Ordering::Relaxed), self.page().beats.load(Ordering::Relaxed))
    }

    /// A counter that changes with every request.
    pub fn epoch(&self) -> u32 {
        self.page().epoch.load(Ordering::Acquire)
    }

    /// Requests another state and wakes every process. Every process writes what it has recorded so far.
    pub fn request_mode(&self, mode: RecordingMode) {
        self.page().mode.store(mode.number(), Ordering::Release);
        self.wake();
    }

    /// Asks every process to write what it has recorded so far.
    pub fn wake(&self) {
        let epoch = &self.page().epoch;
        epoch.fetch_add(1, Ordering::AcqRel);
        // SAFETY: the address is that of a number in a mapping that stays.
        unsafe { libc::syscall(libc::SYS_futex, epoch.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
    }

    /// Waits until the epoch changes, for at most `longest`.
    pub fn wait(&self, epoch: u32, longest: Duration) {
        let time = libc::timespec {
            tv_sec: longest.as_secs() as libc::time_t,
            tv_nsec: longest.subsec_nanos() as libc::c_long,
        };
        let word = self.page().epoch.as_ptr();
        // SAFETY: as above; the time is valid during the call.
        unsafe { libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAIT, epoch, &raw const time) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Settings {
        Settings {
            parts: "/run/parts".into(),
            whole_graphs: true,
            memory: false,
            keep: Some(Duration::from_secs(30)),
            part_bytes: 1 << 20,
            ring_bytes: 64 << 20,
            laps: Some(LapSettings { name: "step".to_owned(), after: 3, during: None }),
        }
    }

    #[test]
    fn a_process_reads_the_requests_of_the_recorder() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(crate::CONTROL_FILE);
        let recorder = Control::create(&path, &settings(), RecordingMode::Nothing).unwrap();
        let process = Control::open(&path).unwrap();
        assert_eq!((process.settings(), process.mode(), recorder.attached()), (settings(), RecordingMode::Nothing, 1));
        let before = process.epoch();
        recorder.request_mode(RecordingMode::Everything);
        assert_eq!(process.mode(), RecordingMode::Everything);
        process.add_recorded(5, 2);
        assert_eq!(recorder.recorded(), (5, 2));
        assert_ne!(process.epoch(), before);
        // Returns at once, since the epoch has changed.
        process.wait(before, Duration::from_secs(3600));
    }

    #[test]
    fn a_file_that_is_not_a_control_page_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("control");
        std::fs::write(&path, vec![0; size_of::<Page>()]).unwrap();
        assert_eq!(Control::open(&path).unwrap_err().kind(), io::ErrorKind::InvalidData);
        std::fs::write(&path, b"short").unwrap();
        assert_eq!(Control::open(&path).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn the_rest_is_recorded_until_none_of_it_came_for_a_while() {
        let (mut resting, start) = (Resting::default(), Instant::now());
        let mut mode = |asked, had_work, seconds| resting.mode(asked, had_work, start + Duration::from_secs(seconds));
        use RecordingMode::{Everything, Nothing, Rest};
        assert_eq!(mode(Everything, true, 0), Everything);
        // A device that is ten seconds behind.
        assert!((1..10).all(|second| mode(Rest, true, second) == Rest));
        assert_eq!((mode(Rest, false, 10), mode(Rest, false, 11), mode(Rest, false, 12)), (Rest, Nothing, Nothing));
        assert_eq!((mode(Everything, false, 13), mode(Rest, false, 20)), (Everything, Rest));
    }
}
