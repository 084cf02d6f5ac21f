//! CUPTI in process: records of every kernel, copy and sync.
//!
//! The library is found at run time and shared with other users. Recording costs host time, so it is a separate pass
//! without timing samples. CUPTI delivers records through callbacks on its own threads, without a user pointer: hence
//! one [`Session`] per process, and the global state here.
#![allow(unsafe_code)]

use std::alloc::{self, Layout};
use std::ffi::{CStr, c_void};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{collections::HashMap, ptr, slice};

use laptime_capture::cupti::{self, kind};
pub use laptime_capture::cupti::{Call, GraphNode, MemoryKind, Tie, Wait, WaitKind};
use laptime_capture::demangle::readable;
use laptime_capture::functions::{Functions, Refusal};
pub use laptime_capture::kernels::{device_wait, device_work};
use laptime_probe::{DeviceAnchor, DeviceMoment};

use crate::error::{CudaError, Done};
use crate::library::{self, CUPTI};

/// A record of CUPTI.
pub type Record = cupti::Record<Arc<str>>;
/// A kernel, a copy or a fill.
pub type Work = cupti::Work<Arc<str>>;
/// What the device did.
pub type WorkKind = cupti::WorkKind<Arc<str>>;

/// Bytes of a buffer that CUPTI fills: some ten thousand records.
const BUFFER_BYTES: usize = 4 << 20;
const BUFFER_ALIGN: usize = 8;
/// The maximum number of stored records, about three gigabytes; further records are counted as dropped.
const MOST_RECORDS: usize = 30_000_000;

/// The code for another user of CUPTI in the process.
const MULTIPLE_SUBSCRIBERS: u32 = 39;

/// The recorded kinds: all work, all syncs, the calls, and the stage of each call.
const KINDS: [u32; 8] =
    [kind::KERNEL, kind::COPY, kind::PEER_COPY, kind::FILL, kind::WAIT, kind::DRIVER, kind::RUNTIME, kind::TIE];

static RECORDING: Mutex<Option<Recording>> = Mutex::new(None);

#[derive(Debug)]
struct Recording {
    functions: Functions,
    names: Names,
    records: Vec<Record>,
    lost: u64,
}

fn recording() -> MutexGuard<'static, Option<Recording>> {
    RECORDING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A CUPTI recording that is active until it is finished or dropped.
#[derive(Debug)]
pub struct Session {
    functions: Functions,
    anchor: CuptiAnchor,
}

/// What was recorded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recorded {
    /// In no particular order.
    pub records: Vec<Record>,
    /// The number of dropped records.
    pub lost: u64,
    /// Moments known on both clocks: the start and the end of the recording.
    pub anchors: Vec<CuptiAnchor>,
}

/// A moment on CUPTI's clock with its host time range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CuptiAnchor {
    /// Host clock before and after.
    pub host: DeviceAnchor,
    /// CUPTI's clock, in nanoseconds.
    pub nanos: u64,
}

impl CuptiAnchor {
    /// Reads both clocks several times, and keeps the pair with the shortest time between the host's readings.
    fn take(functions: &Functions) -> Result<Self, CudaError> {
        let read = || -> Result<Self, CudaError> {
            let before = laptime_probe::now();
            let nanos = functions.timestamp().map_err(refused("reading the clock of CUPTI"))?;
            Ok(Self { host: DeviceAnchor { before, after: laptime_probe::now() }, nanos })
        };
        let mut best = read()?;
        for _ in 0..15 {
            let next = read()?;
            if next.window() < best.window() {
                best = next;
            }
        }
        Ok(best)
    }

    fn window(&self) -> u64 {
        self.host.after.0.saturating_sub(self.host.before.0)
    }

    /// A CUPTI time relative to this anchor.
    pub fn moment(&self, nanos: u64) -> DeviceMoment {
        DeviceMoment { anchor: self.host, nanos: nanos.wrapping_sub(self.nanos) as i64 }
    }
}

/// The version of the installed CUPTI: 130001 is 13.0.
pub fn version() -> Result<u32, CudaError> {
    functions()?.version().map_err(refused("querying the version of CUPTI"))
}

/// The name of a called function: `cuLaunchKernel`.
pub fn function_name(call: &Call) -> Option<String> {
    functions().ok()?.function_name(call.is_driver, call.function).map(str::to_owned)
}

fn functions() -> Result<Functions, CudaError> {
    let library = library::load(CUPTI)?;
    // SAFETY: the addresses are those of the library's functions, and it is never unloaded.
    let found = unsafe {
        Functions::load(|name| {
            library.get::<*mut c_void>(name.to_bytes_with_nul()).map_or(ptr::null_mut(), |found| *found)
        })
    };
    found.map_err(|name| {
        CudaError::refused("starting CUPTI", 0, format!("the library has no `{}`", name.to_string_lossy()))
    })
}

fn refused(doing: &str) -> impl Fn(Refusal) -> CudaError {
    move |Refusal { code, name }| CudaError::refused(doing, code.into(), reason(code, &name))
}

/// The description of a status code.
fn reason(code: u32, name: &str) -> String {
    match code {
        MULTIPLE_SUBSCRIBERS => format!(
            "another profiler is in this process (Nsight, compute-sanitizer or torch.profiler), \
             and CUPTI supports one at a time; run without it, or use `--timing events` ({name})"
        ),
        33 | 40 => format!("the virtual machine does not give CUPTI access to the device ({name})"),
        35 => format!("the driver restricts profiling to administrators ({name})"),
        _ => name.to_owned(),
    }
}

impl Session {
    /// Starts recording. Fails while another session or another profiler is active in the process.
    pub fn start() -> Result<Self, CudaError> {
        let functions = functions()?;
        begin(functions)?;
        // From here on, dropping the value turns everything off.
        let mut session = Self { functions, anchor: CuptiAnchor { host: no_time(), nanos: 0 } };
        // Without it, calls appear on separate tracks.
        functions.use_system_threads();
        let started = functions.register(buffer_requested, buffer_completed);
        let started = started.and_then(|()| KINDS.into_iter().try_for_each(|kind| functions.enable(kind)));
        started.map_err(refused("starting CUPTI"))?;
        session.anchor = CuptiAnchor::take(&functions)?;
        Ok(session)
    }

    /// Runs `work` as a stage with this number: calls of this thread are associated with the number.
    pub fn stage<T>(&self, number: u64, work: impl FnOnce() -> T) -> Result<T, CudaError> {
        self.functions.push(number).map_err(refused("pushing a stage to CUPTI"))?;
        let popped = Popped(&self.functions);
        let done = work();
        drop(popped);
        Ok(done)
    }

    /// Ends the recording. Synchronise first: unfinished work is not recorded.
    pub fn finish(self) -> Result<Recorded, CudaError> {
        self.functions.flush(true).map_err(refused("reading the records of CUPTI"))?;
        let anchors = vec![self.anchor, CuptiAnchor::take(&self.functions)?];
        let taken = recording().take();
        let (records, lost) = taken.map_or((Vec::new(), 0), |taken| (taken.records, taken.lost));
        Ok(Recorded { records, lost, anchors })
    }
}

/// Ends a stage, however its work ends.
struct Popped<'a>(&'a Functions);

impl Drop for Popped<'_> {
    fn drop(&mut self) {
        self.0.pop();
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        for kind in KINDS {
            self.functions.disable(kind);
        }
        // CUPTI returns its remaining buffers, which are freed; their records are discarded.
        let _ = self.functions.flush(true);
        *recording() = None;
    }
}

fn begin(functions: Functions) -> Done {
    let mut on = recording();
    if on.is_some() {
        return Err(CudaError::refused("starting CUPTI", 0, "another session is active in this process"));
    }
    *on = Some(Recording { functions, names: Names::default(), records: Vec::new(), lost: 0 });
    Ok(())
}

fn no_time() -> DeviceAnchor {
    DeviceAnchor { before: laptime_probe::Ticks(0), after: laptime_probe::Ticks(0) }
}

fn layout(bytes: usize) -> Option<Layout> {
    Layout::from_size_align(bytes, BUFFER_ALIGN).ok().filter(|layout| layout.size() > 0)
}

extern "C" fn buffer_requested(buffer: *mut *mut u8, size: *mut usize, most_records: *mut usize) {
    // SAFETY: the layout has a size; CUPTI passes three valid places. A null buffer lets CUPTI drop and count.
    unsafe {
        let made = layout(BUFFER_BYTES).map_or(ptr::null_mut(), |layout| alloc::alloc_zeroed(layout));
        *buffer = made;
        *size = if made.is_null() { 0 } else { BUFFER_BYTES };
        // Zero: as many as fit.
        *most_records = 0;
    }
}

extern "C" fn buffer_completed(context: *mut c_void, stream: u32, buffer: *mut u8, size: usize, valid: usize) {
    if buffer.is_null() {
        return;
    }
    if let Some(on) = recording().as_mut() {
        // SAFETY: CUPTI gives back a buffer of ours with so many valid bytes.
        unsafe { on.take_in(buffer, valid.min(size)) };
        // SAFETY: CUPTI passed this context with the buffer.
        on.lost = on.lost.saturating_add(unsafe { on.functions.dropped(context, stream) });
    }
    if let Some(layout) = layout(size) {
        // SAFETY: the buffer was made by `buffer_requested` with this size and alignment.
        unsafe { alloc::dealloc(buffer, layout) };
    }
}

/// Readable names by the address of CUPTI's text: each is read once.
#[derive(Debug, Default)]
struct Names(HashMap<u64, Arc<str>>);

impl Names {
    /// # Safety
    ///
    /// `address` is zero or that of a text that ends in a zero and stays.
    unsafe fn at(&mut self, address: u64) -> Arc<str> {
        let read = || match address {
            0 => String::new(),
            // SAFETY: the caller's.
            _ => readable(&unsafe { CStr::from_ptr(address as *const _) }.to_string_lossy()),
        };
        Arc::clone(self.0.entry(address).or_insert_with(|| read().into()))
    }
}

impl Recording {
    /// # Safety
    ///
    /// `buffer` holds `valid` bytes of records.
    unsafe fn take_in(&mut self, buffer: *mut u8, valid: usize) {
        let mut record = ptr::null_mut();
        // SAFETY: the caller's; the library walks its own records, whose sizes only it knows.
        while let Some(next) = unsafe { self.functions.next_record(buffer, valid, record) } {
            record = next;
            let Some(at) = (next as usize).checked_sub(buffer as usize).filter(|at| *at < valid) else { return };
            // SAFETY: the bytes from the record to the end of what is valid are in the buffer.
            let bytes = unsafe { slice::from_raw_parts(next, valid - at) };
            self.keep(bytes);
        }
    }

    fn keep(&mut self, bytes: &[u8]) {
        if self.records.len() >= MOST_RECORDS {
            self.lost = self.lost.saturating_add(1);
            return;
        }
        let names = &mut self.names;
        // SAFETY: the address in a record is that of a text of CUPTI's, which stays.
        let record = cupti::decode(bytes, |address| unsafe { names.at(address) });
        self.records.extend(record);
    }
}

#[cfg(test)]
mod tests {
    use laptime_probe::Ticks;

    use super::*;

    #[test]
    fn cupti_times_are_relative_to_the_anchor() {
        let host = DeviceAnchor { before: Ticks(10), after: Ticks(30) };
        let anchor = CuptiAnchor { host, nanos: 5_000 };
        assert_eq!(anchor.moment(4_000), DeviceMoment { anchor: host, nanos: -1_000 });
        assert_eq!(anchor.window(), 20);
    }

    #[test]
    fn another_profiler_in_the_process_is_named() {
        let words = reason(MULTIPLE_SUBSCRIBERS, "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED");
        assert!(words.starts_with("another profiler is in this process"), "{words}");
    }

    #[test]
    fn an_unknown_code_keeps_its_name() {
        assert_eq!(reason(1, "CUPTI_ERROR_INVALID_PARAMETER"), "CUPTI_ERROR_INVALID_PARAMETER");
    }
}
