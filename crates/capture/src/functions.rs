//! The functions of CUPTI that are used, looked up in whichever library a process has loaded.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_void};
use std::fmt;

/// Asks for a buffer to fill.
pub type BufferRequested = extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
/// Hands a filled buffer back.
pub type BufferCompleted = extern "C" fn(*mut c_void, u32, *mut u8, usize, usize);
/// `cuptiActivityRegisterCallbacks`.
pub type Register = unsafe extern "C" fn(BufferRequested, BufferCompleted) -> u32;
type Switch = unsafe extern "C" fn(u32, u8) -> u32;
/// The callback that CUPTI calls around a function, with our data, the domain, the function and its call data.
pub type Callback = extern "C" fn(*mut c_void, u32, u32, *const CallbackData);
/// `cuptiSubscribe`.
pub type Subscribe = unsafe extern "C" fn(*mut *mut c_void, Callback, *mut c_void) -> u32;

/// What CUPTI passes about a call (`CUpti_CallbackData`).
#[repr(C)]
#[derive(Debug)]
pub struct CallbackData {
    /// 0 before the call, 1 after it.
    pub site: u32,
    function_name: *const c_char,
    parameters: *const c_void,
    return_value: *mut c_void,
    symbol_name: *const c_char,
    context: *mut c_void,
    context_number: u32,
    /// Space for a number of ours, valid from before the call to after it.
    pub own: *mut u64,
    /// The correlation id of the call.
    pub correlation: u32,
}

/// The numbers of CUPTI's callback domains.
const DRIVER: u32 = 1;
const RUNTIME: u32 = 2;

/// The kind under which stages are pushed: the first that is free for custom use.
const CUSTOM: u32 = 3;

/// A call that CUPTI refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Its status code.
    pub code: u32,
    /// CUPTI's name for the code.
    pub name: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// The outcome of a call.
pub type Done = Result<(), Refusal>;

/// Declares the functions by CUPTI's names; those that are `optional` are missing in some versions.
macro_rules! functions {
    (needed { $($needed:ident = $name:literal: $type:ty,)* }
     optional { $($(#[$doc:meta])* $optional:ident = $other:literal: $kind:ty,)* }) => {
        /// CUPTI's functions.
        #[derive(Debug, Clone, Copy)]
        pub struct Functions {
            $($needed: $type,)*
            $($(#[$doc])* $optional: Option<$kind>,)*
        }

        impl Functions {
            /// Looks all of them up. The error is the name of a needed function that the library does not have.
            ///
            /// # Safety
            ///
            /// `find` returns the address of a function by its name, in a library that stays loaded, or null.
            pub unsafe fn load(find: impl Fn(&CStr) -> *mut c_void) -> Result<Self, &'static CStr> {
                // SAFETY: the types are those of CUPTI's header, which are the same from CUDA 11 to 13.
                unsafe {
                    Ok(Self { $($needed: needed(&find, $name)?,)* $($optional: function(&find, $other),)* })
                }
            }
        }
    };
}

functions! {
    needed {
        get_version = c"cuptiGetVersion": unsafe extern "C" fn(*mut u32) -> u32,
        get_timestamp = c"cuptiGetTimestamp": unsafe extern "C" fn(*mut u64) -> u32,
        get_result_string = c"cuptiGetResultString": unsafe extern "C" fn(u32, *mut *const c_char) -> u32,
        get_callback_name = c"cuptiGetCallbackName": unsafe extern "C" fn(u32, u32, *mut *const c_char) -> u32,
        set_thread_id_type = c"cuptiSetThreadIdType": unsafe extern "C" fn(u32) -> u32,
        register = c"cuptiActivityRegisterCallbacks": Register,
        enable = c"cuptiActivityEnable": unsafe extern "C" fn(u32) -> u32,
        disable = c"cuptiActivityDisable": unsafe extern "C" fn(u32) -> u32,
        flush_all = c"cuptiActivityFlushAll": unsafe extern "C" fn(u32) -> u32,
        next_record = c"cuptiActivityGetNextRecord": unsafe extern "C" fn(*mut u8, usize, *mut *mut u8) -> u32,
        dropped = c"cuptiActivityGetNumDroppedRecords": unsafe extern "C" fn(*mut c_void, u32, *mut usize) -> u32,
    }
    optional {
        push = c"cuptiActivityPushExternalCorrelationId": unsafe extern "C" fn(u32, u64) -> u32,
        pop = c"cuptiActivityPopExternalCorrelationId": unsafe extern "C" fn(u32, *mut u64) -> u32,
        /// Switches for single functions; CUPTI before 12.6 has none.
        switch_runtime = c"cuptiActivityEnableRuntimeApi": Switch,
        switch_driver = c"cuptiActivityEnableDriverApi": Switch,
        /// Callbacks around single functions, for a CUPTI without those switches.
        subscribe = c"cuptiSubscribe": Subscribe,
        unsubscribe = c"cuptiUnsubscribe": unsafe extern "C" fn(*mut c_void) -> u32,
        enable_callback = c"cuptiEnableCallback": unsafe extern "C" fn(u32, *mut c_void, u32, u32) -> u32,
    }
}

impl Functions {
    /// The version: 130001 is 13.0.
    pub fn version(&self) -> Result<u32, Refusal> {
        let mut version = 0;
        // SAFETY: the place is valid, here and below.
        self.check(unsafe { (self.get_version)(&mut version) }).map(|()| version)
    }

    /// CUPTI's clock, in nanoseconds.
    pub fn timestamp(&self) -> Result<u64, Refusal> {
        let mut nanos = 0;
        // SAFETY: as above.
        self.check(unsafe { (self.get_timestamp)(&mut nanos) }).map(|()| nanos)
    }

    /// Registers the functions that give and take buffers.
    pub fn register(&self, requested: BufferRequested, completed: BufferCompleted) -> Done {
        // SAFETY: both functions live as long as the process.
        self.check(unsafe { (self.register)(requested, completed) })
    }

    /// The function that registers, to recognise others that call it.
    pub fn register_function(&self) -> Register {
        self.register
    }

    /// Makes records of calls contain the system thread id.
    pub fn use_system_threads(&self) {
        const SYSTEM: u32 = 1;
        // SAFETY: a number is passed, here and below.
        unsafe { (self.set_thread_id_type)(SYSTEM) };
    }

    /// Switches a kind of records on.
    pub fn enable(&self, kind: u32) -> Done {
        // SAFETY: as above.
        self.check(unsafe { (self.enable)(kind) })
    }

    /// Switches a kind of records off.
    pub fn disable(&self, kind: u32) {
        // SAFETY: as above.
        unsafe { (self.disable)(kind) };
    }

    /// Begins a stage with this number on this thread.
    pub fn push(&self, stage: u64) -> Done {
        // SAFETY: as above.
        self.push.map_or(Ok(()), |push| self.check(unsafe { push(CUSTOM, stage) }))
    }

    /// Ends the stage that began last on this thread.
    pub fn pop(&self) {
        let mut last = 0;
        if let Some(pop) = self.pop {
            // SAFETY: the place is valid.
            unsafe { pop(CUSTOM, &mut last) };
        }
    }

    /// Flushes the completed buffers, or all of them.
    pub fn flush(&self, is_forced: bool) -> Done {
        // SAFETY: as above.
        self.check(unsafe { (self.flush_all)(u32::from(is_forced)) })
    }

    /// Whether records of single functions can be switched.
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

    /// The function that subscribes, to recognise others that call it.
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

    /// Records that were dropped since the last call.
    ///
    /// # Safety
    ///
    /// `context` is one that CUPTI passed with a buffer.
    pub unsafe fn dropped(&self, context: *mut c_void, stream: u32) -> u64 {
        let mut dropped = 0;
        // SAFETY: the caller's.
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

    fn check(&self, code: u32) -> Done {
        if code == 0 {
            return Ok(());
        }
        let mut text = std::ptr::null();
        // SAFETY: the place is valid; the text is CUPTI's own and is never freed.
        let name = unsafe {
            match (self.get_result_string)(code, &mut text) {
                0 if !text.is_null() => CStr::from_ptr(text).to_string_lossy().into_owned(),
                _ => format!("CUPTI error {code}"),
            }
        };
        Err(Refusal { code, name })
    }
}

/// # Safety
///
/// `F` is the type of the function of that name.
unsafe fn function<F: Copy>(find: &impl Fn(&CStr) -> *mut c_void, name: &CStr) -> Option<F> {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    let found = find(name);
    // SAFETY: the caller's: a pointer to a function has the size of `F`.
    (!found.is_null()).then(|| unsafe { std::mem::transmute_copy(&found) })
}

/// # Safety
///
/// As for [`function`].
unsafe fn needed<F: Copy>(find: &impl Fn(&CStr) -> *mut c_void, name: &'static CStr) -> Result<F, &'static CStr> {
    // SAFETY: the caller's.
    unsafe { function(find, name) }.ok_or(name)
}

/// A subscription of ours.
#[derive(Debug, Clone, Copy)]
pub struct Subscriber(*mut c_void);

// SAFETY: CUPTI accepts the handle on any thread.
unsafe impl Send for Subscriber {}

/// Whether a callback's domain is the driver's.
pub fn is_driver(domain: u32) -> bool {
    domain == DRIVER
}
