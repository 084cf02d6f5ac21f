//! The CUPTI functions in use, looked up in the loaded library.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_void};
use std::ptr;

use libloading::Library;

use crate::error::{CudaError, Done};
use crate::library::{self, CUPTI};

pub(super) type BufferRequested = extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
pub(super) type BufferCompleted = extern "C" fn(*mut c_void, u32, *mut u8, usize, usize);

/// Another user of CUPTI is active in the process.
const MULTIPLE_SUBSCRIBERS: u32 = 39;

/// The kind under which our stages are pushed: the first that is free for custom use.
const CUSTOM: u32 = 3;

#[derive(Debug, Clone, Copy)]
pub(super) struct Functions {
    get_version: unsafe extern "C" fn(*mut u32) -> u32,
    get_timestamp: unsafe extern "C" fn(*mut u64) -> u32,
    get_result_string: unsafe extern "C" fn(u32, *mut *const c_char) -> u32,
    get_callback_name: unsafe extern "C" fn(u32, u32, *mut *const c_char) -> u32,
    set_thread_id_type: unsafe extern "C" fn(u32) -> u32,
    register: unsafe extern "C" fn(BufferRequested, BufferCompleted) -> u32,
    enable: unsafe extern "C" fn(u32) -> u32,
    disable: unsafe extern "C" fn(u32) -> u32,
    flush_all: unsafe extern "C" fn(u32) -> u32,
    next_record: unsafe extern "C" fn(*mut u8, usize, *mut *mut u8) -> u32,
    dropped: unsafe extern "C" fn(*mut c_void, u32, *mut usize) -> u32,
    push: unsafe extern "C" fn(u32, u64) -> u32,
    pop: unsafe extern "C" fn(u32, *mut u64) -> u32,
}

impl Functions {
    pub(super) fn load() -> Result<Self, CudaError> {
        let library = library::load(CUPTI)?;
        // SAFETY: the types are those of CUPTI's header, which are the same from CUDA 11 to 13.
        unsafe {
            Ok(Self {
                get_version: function(library, "cuptiGetVersion")?,
                get_timestamp: function(library, "cuptiGetTimestamp")?,
                get_result_string: function(library, "cuptiGetResultString")?,
                get_callback_name: function(library, "cuptiGetCallbackName")?,
                set_thread_id_type: function(library, "cuptiSetThreadIdType")?,
                register: function(library, "cuptiActivityRegisterCallbacks")?,
                enable: function(library, "cuptiActivityEnable")?,
                disable: function(library, "cuptiActivityDisable")?,
                flush_all: function(library, "cuptiActivityFlushAll")?,
                next_record: function(library, "cuptiActivityGetNextRecord")?,
                dropped: function(library, "cuptiActivityGetNumDroppedRecords")?,
                push: function(library, "cuptiActivityPushExternalCorrelationId")?,
                pop: function(library, "cuptiActivityPopExternalCorrelationId")?,
            })
        }
    }

    pub(super) fn version(&self) -> Result<u32, CudaError> {
        let mut version = 0;
        // SAFETY: the place is valid, here and in the calls below.
        self.check("asking CUPTI's version", unsafe { (self.get_version)(&mut version) })?;
        Ok(version)
    }

    pub(super) fn timestamp(&self) -> Result<u64, CudaError> {
        let mut nanos = 0;
        // SAFETY: as above.
        self.check("asking CUPTI's clock", unsafe { (self.get_timestamp)(&mut nanos) })?;
        Ok(nanos)
    }

    pub(super) fn register(&self, requested: BufferRequested, completed: BufferCompleted) -> Done {
        // SAFETY: both functions live as long as the program.
        self.check("starting CUPTI", unsafe { (self.register)(requested, completed) })
    }

    /// Makes CUPTI report system thread ids instead of those of the threading library.
    pub(super) fn use_system_thread_ids(&self) -> Done {
        const SYSTEM: u32 = 1;
        // SAFETY: a number is passed.
        self.check("starting CUPTI", unsafe { (self.set_thread_id_type)(SYSTEM) })
    }

    pub(super) fn enable(&self, kind: u32) -> Done {
        // SAFETY: a number is passed.
        self.check("starting CUPTI", unsafe { (self.enable)(kind) })
    }

    pub(super) fn disable(&self, kind: u32) -> Done {
        // SAFETY: a number is passed.
        self.check("stopping CUPTI", unsafe { (self.disable)(kind) })
    }

    /// Requests all buffers, including those that are not full.
    pub(super) fn flush(&self) -> Done {
        const FORCED: u32 = 1;
        // SAFETY: a number is passed.
        self.check("reading CUPTI's records", unsafe { (self.flush_all)(FORCED) })
    }

    pub(super) fn push(&self, stage: u64) -> Done {
        // SAFETY: numbers are passed.
        self.check("telling CUPTI of a stage", unsafe { (self.push)(CUSTOM, stage) })
    }

    pub(super) fn pop(&self) -> Done {
        let mut last = 0;
        // SAFETY: as above.
        self.check("telling CUPTI of a stage", unsafe { (self.pop)(CUSTOM, &mut last) })
    }

    /// The record after `record` in a buffer, or the first if that is null.
    ///
    /// # Safety
    ///
    /// `buffer` holds `valid` bytes of records, and `record` is null or one of them.
    pub(super) unsafe fn next_record(&self, buffer: *mut u8, valid: usize, record: *mut u8) -> Option<*mut u8> {
        let mut next = record;
        // SAFETY: the caller's.
        let code = unsafe { (self.next_record)(buffer, valid, &mut next) };
        (code == 0 && !next.is_null()).then_some(next)
    }

    pub(super) fn dropped(&self, context: *mut c_void, stream: u32) -> u64 {
        let mut dropped = 0;
        // SAFETY: the context is CUPTI's own, as it was passed to us.
        let code = unsafe { (self.dropped)(context, stream, &mut dropped) };
        if code == 0 { dropped as u64 } else { 0 }
    }

    /// The name of a function of the driver or the runtime.
    pub(super) fn function_name(&self, is_driver: bool, number: u32) -> Option<String> {
        let mut name = ptr::null();
        // SAFETY: the place is valid; the text is CUPTI's own and is never freed.
        let code = unsafe { (self.get_callback_name)(if is_driver { 1 } else { 2 }, number, &mut name) };
        if code != 0 || name.is_null() {
            return None;
        }
        // SAFETY: as above.
        Some(unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned())
    }

    fn check(&self, doing: &str, code: u32) -> Done {
        if code == 0 {
            return Ok(());
        }
        let mut text = ptr::null();
        // SAFETY: the place is valid; the text is CUPTI's own and is never freed.
        let name = unsafe {
            match (self.get_result_string)(code, &mut text) {
                0 if !text.is_null() => CStr::from_ptr(text).to_string_lossy().into_owned(),
                _ => format!("CUPTI's error {code}"),
            }
        };
        Err(CudaError::refused(doing, code.into(), reason(code, &name)))
    }
}

/// The error for a CUPTI status code.
pub(super) fn reason(code: u32, name: &str) -> String {
    match code {
        MULTIPLE_SUBSCRIBERS => format!(
            "another profiler is in this process (Nsight, compute-sanitizer or torch.profiler), \
             and CUPTI serves one at a time; run without it, or take `--timing events` ({name})"
        ),
        33 | 40 => format!("the virtual machine does not let CUPTI see the device ({name})"),
        35 => format!("the driver keeps profiling to administrators ({name})"),
        _ => name.to_owned(),
    }
}

/// # Safety
///
/// `F` is the type of the function of that name.
unsafe fn function<F: Copy>(library: &Library, name: &str) -> Result<F, CudaError> {
    // SAFETY: the caller's.
    match unsafe { library.get::<F>(name.as_bytes()) } {
        Ok(found) => Ok(*found),
        Err(_) => Err(CudaError::refused("starting CUPTI", 0, format!("the library has no `{name}`"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_profiler_in_the_process_is_said_plainly() {
        let words = reason(MULTIPLE_SUBSCRIBERS, "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED");
        assert!(words.starts_with("another profiler is in this process"), "{words}");
    }

    #[test]
    fn a_code_without_words_of_ours_keeps_its_name() {
        assert_eq!(reason(1, "CUPTI_ERROR_INVALID_PARAMETER"), "CUPTI_ERROR_INVALID_PARAMETER");
    }
}
