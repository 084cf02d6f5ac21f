//! CUPTI in this process: switches records on and off, and receives them.

use std::ffi::{CStr, c_char, c_void};
use std::slice;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use laptime_capture::cupti::{self, Record, WorkKind, kind};
use laptime_capture::functions::{CallbackData, Functions, Subscriber, is_driver};
use laptime_capture::part::{Anchor, Call, Kind, State as PartState};
use laptime_capture::{control::RecordingMode, modes::Modes, monotonic_nanos};

use crate::state::{self, State};
use crate::{buffers::BUFFER_BYTES, devices, guarded, hooks, library, locked, output::Output, ranges::Ranges, worker};

/// The recorded calls: prefixes of names without `cuda` or `cu`.
const CALLS: [&str; 22] = [
    "Launch",
    "GraphLaunch",
    "GraphInstantiate",
    "Memcpy",
    "Memset",
    "DeviceSynchronize",
    "StreamSynchronize",
    "EventSynchronize",
    "CtxSynchronize",
    "StreamWaitEvent",
    "Malloc",
    "Free",
    "HostAlloc",
    "HostRegister",
    "MemAlloc",
    "MemFree",
    "MemHostAlloc",
    "MemHostRegister",
    "MemCreate",
    "ModuleLoad",
    "LibraryLoad",
    "ThreadSynchronize",
];
/// Calls with such a prefix that are not recorded.
const NOT: [&str; 3] = ["MemcpyAttribute", "LaunchAttribute", "MemAllocPitchAttribute"];
/// A call that programs hardly make. Single calls can only be switched on later if one was on before the context was
/// made, and if the kind as a whole was never switched off.
const RARE: &str = "ProfilerStart";
/// CUPTI has about 530 functions of the runtime and 830 of the driver.
const MOST_FUNCTIONS: u32 = 4096;

/// Kinds of records that are on from the start to the end; those from pauses are left out when they come back. CUPTI
/// 13.0 reports no more kernels of a thread if one of these kinds is switched while the thread launches a kernel. Kernels
/// and calls can be switched at any time.
const LASTING: [u32; 4] = [kind::COPY, kind::PEER_COPY, kind::FILL, kind::WAIT];

/// CUPTI in this process.
#[derive(Debug)]
pub struct Session {
    pub functions: Functions,
    /// The mode that was last applied.
    applied: Mutex<RecordingMode>,
    modes: Modes,
    calls: Vec<CallOfInterest>,
    /// Single calls can be switched on: CUPTI supports it, and one was switched on before there was a context.
    switches_calls: bool,
    /// Callbacks around calls, where single ones cannot be switched on.
    callbacks: Mutex<Option<Subscriber>>,
    /// All calls are recorded.
    has_all_calls: AtomicBool,
    /// The highest correlation of the calls that were recorded.
    last_call: AtomicU32,
    /// Work launched by a recorded call arrived since the last query.
    has_launched_work: AtomicBool,
    whole_graphs: bool,
    memory: bool,
}

#[derive(Debug)]
struct CallOfInterest {
    is_driver: bool,
    function: u32,
    name: &'static str,
}

/// Finds CUPTI and registers with it. Problems are written to the part, and the recorder reports them.
pub fn start(state: &'static State) {
    if state.session.get().is_some() {
        return;
    }
    let Some(functions) = library::functions() else {
        let mut output = state.output();
        output.info("problem", "no-cupti");
        output.write();
        return;
    };
    state::write_at_exit();
    let settings = state.control.settings();
    let session = Session {
        functions,
        applied: Mutex::new(RecordingMode::Nothing),
        modes: Modes::default(),
        calls: calls_of_interest(&functions),
        switches_calls: functions.can_switch_functions() && !devices::have_context(),
        callbacks: Mutex::new(None),
        has_all_calls: AtomicBool::new(false),
        last_call: AtomicU32::new(0),
        has_launched_work: AtomicBool::new(false),
        whole_graphs: settings.whole_graphs,
        memory: settings.memory,
    };
    session.arm();
    let registered = functions.register(buffer_requested, buffer_completed);
    let mut output = state.output();
    output.info("cupti", &functions.version().unwrap_or_default().to_string());
    if let Err(problem) = registered {
        output.info("problem", &format!("cupti-refused {problem}"));
        output.write();
        return;
    }
    drop(output);
    if state.session.set(session).is_ok()
        && let Some(session) = state.session.get()
    {
        hooks::install();
        session.apply(state, state.control.mode());
        if let Some(anchor) = session.anchor() {
            state.output().encoder.anchor(anchor);
        }
        state.output().info("calls", if session.switches_calls { "one by one" } else { "by callbacks, or all" });
        state.output().write();
    }
}

fn calls_of_interest(functions: &Functions) -> Vec<CallOfInterest> {
    let mut found = Vec::new();
    for is_driver in [false, true] {
        for function in 1..MOST_FUNCTIONS {
            let Some(name) = functions.function_name(is_driver, function) else { continue };
            let name = plain_name(name);
            let about = ["cuda", "cu"].iter().find_map(|prefix| name.strip_prefix(prefix)).unwrap_or(name);
            let is_on = CALLS.iter().any(|call| about.starts_with(call)) && !NOT.contains(&about);
            if is_on {
                found.push(CallOfInterest { is_driver, function, name });
            }
        }
    }
    found
}

/// The name as programs write it: `cudaLaunchKernel` for `__cudaLaunchKernel_ptsz_v13000`.
fn plain_name(name: &'static str) -> &'static str {
    let name = name.trim_start_matches('_');
    let is_version = |ending: &str| ending.len() > 3 && ending.bytes().all(|byte| byte.is_ascii_digit());
    let name = match name.rsplit_once("_v") {
        Some((before, ending)) if is_version(ending) => before,
        _ => name,
    };
    name.trim_end_matches("_ptsz").trim_end_matches("_ptds")
}

impl Session {
    /// Switches on what lasts, and a rare call, before there is a context. Whole graphs too must be on before a graph is
    /// made.
    fn arm(&self) {
        self.functions.use_system_threads();
        for kind in self.lasting_kinds() {
            let _ = self.functions.enable(kind);
        }
        for is_driver in [false, true] {
            let is_rare = |function: &u32| {
                let name = self.functions.function_name(is_driver, *function);
                name.is_some_and(|name| plain_name(name).ends_with(RARE))
            };
            if let Some(function) = (1..MOST_FUNCTIONS).find(is_rare) {
                self.functions.switch(is_driver, function, true);
            }
        }
    }

    fn lasting_kinds(&self) -> impl Iterator<Item = u32> {
        let graphs = self.whole_graphs.then_some(kind::GRAPH);
        LASTING.into_iter().chain(graphs).chain(self.memory.then_some(kind::MEMORY))
    }

    /// Enables the requested records and disables the others.
    pub fn apply(&self, state: &State, mode: RecordingMode) {
        let mut applied = locked(&self.applied);
        if *applied == mode || state.is_taken_over.load(Ordering::Acquire) {
            return;
        }
        let before = *applied;
        *applied = mode;
        let now = || (monotonic_nanos(), self.functions.timestamp().ok());
        let began = now();
        let problem = self.switch(before, mode);
        // Not everything is recorded while CUPTI is being switched.
        let (since, cupti_nanos) = if mode == RecordingMode::Everything { now() } else { began };
        if let Some(cupti_nanos) = cupti_nanos {
            self.modes.add(cupti_nanos, mode);
        }
        let mut output = state.output();
        if let Some(part_state) = worker::state_of(mode) {
            output.state(since, part_state);
        }
        if let Some(problem) = problem {
            output.info("problem", &format!("cupti-refused {problem}"));
        }
        if mode == RecordingMode::Everything && !self.has_calls() {
            output.info("problem", "no-calls");
        }
    }

    fn switch(&self, before: RecordingMode, mode: RecordingMode) -> Option<String> {
        let mut problem = None;
        if mode.has_kernels() != before.has_kernels() {
            match mode.has_kernels() {
                true => problem = self.functions.enable(kind::KERNEL).err().map(|refusal| refusal.name),
                false => self.functions.disable(kind::KERNEL),
            }
        }
        let is_full = mode == RecordingMode::Everything;
        if is_full != (before == RecordingMode::Everything) {
            self.switch_calls(is_full);
        }
        problem
    }

    fn switch_calls(&self, is_on: bool) {
        if self.switches_calls {
            for call in &self.calls {
                self.functions.switch(call.is_driver, call.function, is_on);
            }
            return;
        }
        let mut callbacks = locked(&self.callbacks);
        if is_on && callbacks.is_none() {
            *callbacks = self.functions.subscribe(around_call);
        }
        // Another profiler may be the only subscriber that CUPTI allows; then all calls are recorded, and ours are kept.
        let Some(subscriber) = *callbacks else { return self.switch_all_calls(is_on) };
        for call in &self.calls {
            self.functions.switch_callback(subscriber, call.is_driver, call.function, is_on);
        }
    }

    fn switch_all_calls(&self, is_on: bool) {
        for kind in [kind::RUNTIME, kind::DRIVER] {
            match is_on {
                true => self.has_all_calls.store(self.functions.enable(kind).is_ok(), Ordering::Release),
                false => self.functions.disable(kind),
            }
        }
    }

    /// Whether calls are recorded, by any way.
    fn has_calls(&self) -> bool {
        self.switches_calls || locked(&self.callbacks).is_some() || self.has_all_calls.load(Ordering::Acquire)
    }

    /// Ends the subscription; calls are no longer recorded.
    pub fn end_callbacks(&self) {
        if let Some(subscriber) = locked(&self.callbacks).take() {
            self.functions.unsubscribe(subscriber);
        }
    }

    /// Whether work of recorded calls arrived since the last query.
    pub fn had_launched_work(&self) -> bool {
        self.has_launched_work.swap(false, Ordering::Relaxed)
    }

    /// A call that ended, as CUPTI's callback saw it.
    fn add_call(&self, state: &'static State, call: &cupti::Call) {
        if let Some(name) = self.call_name(call.is_driver, call.function) {
            self.last_call.fetch_max(call.correlation, Ordering::Relaxed);
            Ranges::add_call(state, call, name);
        }
    }

    /// Another profiler takes over CUPTI: releases everything and stops recording.
    pub fn release_cupti(&self, state: &State) {
        let mut applied = locked(&self.applied);
        if state.is_taken_over.swap(true, Ordering::AcqRel) {
            return;
        }
        self.switch(*applied, RecordingMode::Nothing);
        self.end_callbacks();
        self.lasting_kinds().for_each(|kind| self.functions.disable(kind));
        *applied = RecordingMode::Nothing;
        let _ = self.functions.flush(true);
        let mut output = state.output();
        output.state(monotonic_nanos(), PartState::TakenOver);
        output.info("problem", "stepped-aside");
        output.write();
    }

    /// Reads both clocks several times, and keeps the closest pair.
    pub fn anchor(&self) -> Option<Anchor> {
        let read = || {
            let before = monotonic_nanos();
            let cupti_nanos = self.functions.timestamp().ok()?;
            let after = monotonic_nanos();
            Some(Anchor { host_nanos: before + (after - before) / 2, cupti_nanos, window_nanos: after - before })
        };
        (0..8).filter_map(|_| read()).min_by_key(|anchor| anchor.window_nanos)
    }

    /// # Safety
    ///
    /// `buffer` holds `valid` bytes of CUPTI's records.
    unsafe fn read(&self, buffer: *mut u8, valid: usize, output: &mut Output) {
        let mut record = std::ptr::null_mut();
        // SAFETY: the caller's; only CUPTI knows how long a record is.
        while let Some(next) = unsafe { self.functions.next_record(buffer, valid, record) } {
            record = next;
            let Some(at) = (next as usize).checked_sub(buffer as usize).filter(|at| *at < valid) else { return };
            // SAFETY: the bytes from the record to the end of what is valid are in the buffer.
            self.keep(unsafe { slice::from_raw_parts(next, valid - at) }, output);
        }
    }

    fn keep(&self, bytes: &[u8], output: &mut Output) {
        let encoder = &mut output.encoder;
        // SAFETY: the address in a record is that of a text of CUPTI's.
        let name = |address: u64| unsafe { text_at(address) };
        match cupti::decode(bytes, name) {
            Some(Record::Work(work)) => {
                let is_copy = matches!(work.kind, WorkKind::Copy { .. });
                let is_kernel = matches!(work.kind, WorkKind::Kernel { .. });
                // Kernels are switched themselves.
                let mode = if is_kernel { RecordingMode::Everything } else { self.modes.at(work.start_nanos) };
                let is_wanted = mode.has_kernels() || is_copy && mode != RecordingMode::Nothing;
                if !is_wanted {
                    return;
                }
                if work.correlation <= self.last_call.load(Ordering::Relaxed) {
                    self.has_launched_work.store(true, Ordering::Relaxed);
                }
                output.unreported.0 += u64::from(is_kernel || work.kind == WorkKind::Graph);
                output.unreported.1 += u64::from(is_copy);
                let work = work.map_name(|name| encoder.name(name));
                encoder.work(&work);
            }
            Some(Record::Wait(wait)) if !self.modes.at(wait.start_nanos).has_waits() => {}
            Some(Record::Wait(wait)) => {
                output.unreported.1 += 1;
                encoder.wait(&wait);
            }
            Some(Record::Memory(memory)) => encoder.memory(&memory),
            Some(Record::Call(call)) => {
                let Some(name) = self.call_name(call.is_driver, call.function) else { return };
                let name = encoder.name(name.as_bytes());
                self.last_call.fetch_max(call.correlation, Ordering::Relaxed);
                let cupti::Call { is_driver, start_nanos, end_nanos, thread, correlation, .. } = call;
                encoder.call(&Call { is_driver, name, start_nanos, end_nanos, thread, correlation });
            }
            Some(Record::Tie(_)) | None => {}
        }
        output.write_if_large();
    }

    fn call_name(&self, is_driver: bool, function: u32) -> Option<&'static str> {
        let at = self.calls.binary_search_by_key(&(is_driver, function), |call| (call.is_driver, call.function));
        Some(self.calls[at.ok()?].name)
    }
}

/// # Safety
///
/// `address` is zero or that of a text that ends in a zero.
unsafe fn text_at<'a>(address: u64) -> &'a [u8] {
    if address == 0 {
        return b"";
    }
    // SAFETY: the caller's.
    unsafe { CStr::from_ptr(address as *const c_char) }.to_bytes()
}

extern "C" fn buffer_requested(buffer: *mut *mut u8, size: *mut usize, most_records: *mut usize) {
    let mut found = std::ptr::null_mut();
    guarded(|| found = state::current().map_or(std::ptr::null_mut(), |state| state.pool.take()));
    // SAFETY: CUPTI passes three valid places. A null buffer has CUPTI drop and count; zero means as many as fit.
    unsafe {
        *buffer = found;
        *size = if found.is_null() { 0 } else { BUFFER_BYTES };
        *most_records = 0;
    }
}

extern "C" fn buffer_completed(context: *mut c_void, stream: u32, buffer: *mut u8, size: usize, valid: usize) {
    guarded(|| {
        let Some(state) = state::current() else { return };
        if let Some(session) = state.session.get() {
            // SAFETY: CUPTI passed this context with the buffer.
            let dropped = unsafe { session.functions.dropped(context, stream) };
            let mut output = state.output();
            if !buffer.is_null() {
                // SAFETY: CUPTI gives back a buffer of ours with so many valid bytes.
                unsafe { session.read(buffer, valid.min(size), &mut output) };
            }
            output.encoder.dropped(Kind::Cupti, dropped);
            state.report(&mut output);
            output.write();
        }
        if !buffer.is_null() {
            state.pool.put(buffer);
        }
    });
}

/// Around a call, where single ones cannot be switched on: the time before it is kept in CUPTI's place for us.
extern "C" fn around_call(_: *mut c_void, domain: u32, function: u32, data: *const CallbackData) {
    const ENTER: u32 = 0;
    guarded(|| {
        // SAFETY: CUPTI passes a valid description, whose place for us stays from before the call to after it.
        let Some(data) = (unsafe { data.as_ref() }).filter(|data| !data.own.is_null()) else { return };
        let Some((state, session)) = state::current().and_then(|state| Some((state, state.session.get()?))) else {
            return;
        };
        let Ok(now) = session.functions.timestamp() else { return };
        // SAFETY: as above.
        unsafe {
            if data.site == ENTER {
                *data.own = now;
                return;
            }
            let call = cupti::Call {
                is_driver: is_driver(domain),
                function,
                start_nanos: *data.own,
                end_nanos: now,
                thread: libc::gettid() as u32,
                correlation: data.correlation,
            };
            session.add_call(state, &call);
        }
    });
}
