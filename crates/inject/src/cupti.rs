//! The functions of CUPTI that are used, looked up in the library that the process uses.

use std::ffi::{CStr, c_char, c_void};

use laptime_capture::dl::Library;

pub type BufferRequested = extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
pub type BufferCompleted = extern "C" fn(*mut c_void, u32, *mut u8, usize, usize);
pub type Register = unsafe extern "C" fn(BufferRequested, BufferCompleted) -> u32;
type Switch = unsafe extern "C" fn(u32, u8) -> u32;
/// The callback that CUPTI calls around a function, with our data, the domain, the function and its call data.
pub type Callback = extern "C" fn(*mut c_void, u32, u32, *const CallbackData);
pub type Subscribe = unsafe extern "C" fn(*mut *mut c_void, Callback, *mut c_void) -> u32;

/// What CUPTI passes about a call (`CUpti_CallbackData`).
#[repr(C)]
#[derive(Debug)]
pub struct CallbackData {
    /// 0 before the call, 1 after it.
    pub site: u32,
    pub function_name: *const c_char,
    pub parameters: *const c_void,
    pub return_value: *mut c_void,
    pub symbol_name: *const c_char,
    pub context: *mut c_void,
    pub context_number: u32,
    /// Space for a number of ours, valid from before the call to after it.
    pub own: *mut u64,
    pub correlation: u32,
}

/// The numbers of CUPTI's callback domains.
const DRIVER: u32 = 1;
const RUNTIME: u32 = 2;

#[derive(Debug, Clone, Copy)]
pub struct Functions {
    get_version: unsafe extern "C" fn(*mut u32) -> u32,
    get_timestamp: unsafe extern "C" fn(*mut u64) -> u32,
    get_result_string: unsafe extern "C" fn(u32, *mut *const c_char) -> u32,
    get_callback_name: unsafe extern "C" fn(u32, u32, *mut *const c_char) -> u32,
    set_thread_id_type: unsafe extern "C" fn(u32) -> u32,
    register: Register,
    enable: unsafe extern "C" fn(u32) -> u32,
    disable: unsafe extern "C" fn(u32) -> u32,
    flush_all: unsafe extern "C" fn(u32) -> u32,
    next_record: unsafe extern "C" fn(*mut u8, usize, *mut *mut u8) -> u32,
    dropped: unsafe extern "C" fn(*mut c_void, u32, *mut usize) -> u32,
    /// Switches for single functions; CUPTI before 12.6 has none.
    switch_runtime: Option<Switch>,
    switch_driver: Option<Switch>,
    /// Callbacks around single functions, for a CUPTI without those switches.
    subscribe: Option<Subscribe>,
    unsubscribe: Option<unsafe extern "C" fn(*mut c_void) -> u32>,
    enable_callback: Option<unsafe extern "C" fn(u32, *mut c_void, u32, u32) -> u32>,
}

impl Functions {
    pub fn load(library: Library) -> Option<Self> {
        // SAFETY: the types are those of CUPTI's header, which are the same from CUDA 11 to 13.
        unsafe {
            Some(Self {
                get_version: library.function(c"cuptiGetVersion")?,
                get_timestamp: library.function(c"cuptiGetTimestamp")?,
                get_result_string: library.function(c"cuptiGetResultString")?,
                get_callback_name: library.function(c"cuptiGetCallbackName")?,
                set_thread_id_type: library.function(c"cuptiSetThreadIdType")?,
                register: library.function(c"cuptiActivityRegisterCallbacks")?,
                enable: library.function(c"cuptiActivityEnable")?,
                disable: library.function(c"cuptiActivityDisable")?,
                flush_all: library.function(c"cuptiActivityFlushAll")?,
                next_record: library.function(c"cuptiActivityGetNextRecord")?,
                dropped: library.function(c"cuptiActivityGetNumDroppedRecords")?,
                switch_runtime: library.function(c"cuptiActivityEnableRuntimeApi"),
                switch_driver: library.function(c"cuptiActivityEnableDriverApi"),
                subscribe: library.function(c"cuptiSubscribe"),
                unsubscribe: library.function(c"cuptiUnsubscribe"),
                enable_callback: library.function(c"cuptiEnableCallback"),
            })
        }
    }

    pub fn version(&self) -> u32 {
        let mut version = 0;
        // SAFETY: the place is valid, here and below.
        unsafe { (self.get_version)(&mut version) };
        version
    }

    pub fn timestamp(&self) -> Option<u64> {
        let mut nanos = 0;
        // SAFETY: as above.
        (unsafe { (self.get_timestamp)(&mut nanos) } == 0).then_some(nanos)
    }

    pub fn register(&self, requested: BufferRequested, completed: BufferCompleted) -> Result<(), String> {
        // SAFETY: both functions live as long as the process.
        self.check(unsafe { (self.register)(requested, completed) })
    }

    pub fn register_function(&self) -> Register {
        self.register
    }

    /// Makes records of calls contain the system thread id.
    pub fn use_system_threads(&self) {
        const SYSTEM: u32 = 1;
        // SAFETY: a number is passed, here and below.
        unsafe { (self.set_thread_id_type)(SYSTEM) };
    }

    pub fn enable(&self, kind: u32) -> Result<(), String> {
        // SAFETY: as above.
        self.check(unsafe { (self.enable)(kind) })
    }

    pub fn disable(&self, kind: u32) {
        // SAFETY: as above.
        unsafe { (self.disable)(kind) };
    }

    /// Flushes the completed buffers, or all of them.
    pub fn flush(&self, is_forced: bool) {
        // SAFETY: as above.
        unsafe { (self.flush_all)(u32::from(is_forced)) };
    }

    pub fn can_switch_functions(&self) -> bool {
        self.switch_runtime.is_some() && self.switch_driver.is_some()
    }

    /// Switches the records of one function on or off.
    pub fn switch(&self, is_driver: bool, function: u32, is_on: bool) {
        if let Some(switch) = if is_driver { self.switch_driver } else { self.switch_runtime } {
            // SAFETY: as above.
            unsafe { switch(function, u8::from(is_on)) };
        }
    }

    /// Becomes CUPTI's only subscriber; `None` if there is another one, or if this CUPTI has no callbacks.
    pub fn subscribe(&self, callback: Callback) -> Option<Subscriber> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: the place is valid and the function lives as long as the process.
        let code = unsafe { (self.subscribe?)(&mut handle, callback, std::ptr::null_mut()) };
        (code == 0 && self.enable_callback.is_some()).then_some(Subscriber(handle))
    }

    /// Ends a subscription.
    pub fn unsubscribe(&self, subscriber: Subscriber) {
        if let Some(unsubscribe) = self.unsubscribe {
            // SAFETY: the handle is CUPTI's own.
            unsafe { unsubscribe(subscriber.0) };
        }
    }

    /// Switches the callback around one function on or off.
    pub fn switch_callback(&self, subscriber: Subscriber, is_driver: bool, function: u32, is_on: bool) {
        if let Some(enable) = self.enable_callback {
            let domain = if is_driver { DRIVER } else { RUNTIME };
            // SAFETY: the handle is CUPTI's own.
            unsafe { enable(u32::from(is_on), subscriber.0, domain, function) };
        }
    }

    pub fn subscribe_function(&self) -> Option<Subscribe> {
        self.subscribe
    }

    /// The record after `record` in a buffer, or the first if that is null.
    ///
    /// # Safety
    ///
    /// `buffer` holds `valid` bytes of records, and `record` is null or one of them.
    pub unsafe fn next_record(&self, buffer: *mut u8, valid: usize, record: *mut u8) -> Option<*mut u8> {
        let mut next = record;
        // SAFETY: the caller's.
        let code = unsafe { (self.next_record)(buffer, valid, &mut next) };
        (code == 0 && !next.is_null()).then_some(next)
    }

    pub fn dropped(&self, context: *mut c_void, stream: u32) -> u64 {
        let mut dropped = 0;
        // SAFETY: the context is CUPTI's own, as it was passed to us.
        let code = unsafe { (self.dropped)(context, stream, &mut dropped) };
        if code == 0 { dropped as u64 } else { 0 }
    }

    /// The name of a function: `cudaLaunchKernel_v7000`.
    pub fn function_name(&self, is_driver: bool, function: u32) -> Option<&'static str> {
        let mut name = std::ptr::null();
        let domain = if is_driver { DRIVER } else { RUNTIME };
        // SAFETY: the place is valid; the text is CUPTI's own and is never freed.
        let code = unsafe { (self.get_callback_name)(domain, function, &mut name) };
        if code != 0 || name.is_null() {
            return None;
        }
        // SAFETY: as above.
        unsafe { CStr::from_ptr(name) }.to_str().ok()
    }

    fn check(&self, code: u32) -> Result<(), String> {
        if code == 0 {
            return Ok(());
        }
        let mut text = std::ptr::null();
        // SAFETY: the place is valid; the text is CUPTI's own and is never freed.
        unsafe {
            match (self.get_result_string)(code, &mut text) {
                0 if !text.is_null() => Err(CStr::from_ptr(text).to_string_lossy().into_owned()),
                _ => Err(format!("CUPTI error {code}")),
            }
        }
    }
}

/// A subscription of ours.
#[derive(Debug, Clone, Copy)]
pub struct Subscriber(*mut c_void);

// SAFETY: the handle is a number to CUPTI, which takes it on any thread.
unsafe impl Send for Subscriber {}

/// Whether a callback's domain is the driver's.
pub fn is_driver(domain: u32) -> bool {
    domain == DRIVER
}
