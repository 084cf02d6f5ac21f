//! NVTX ranges, which Nsight and other tools show as the program's stages.
//!
//! A tool sets `NVTX_INJECTION64_PATH` to its library. This module loads it and passes it a table with a slot for each
//! function, which the tool fills. Without a tool every call here is one load. NVIDIA's headers do the same in C; this
//! is the part of that interface for ranges.
#![allow(unsafe_code)]

use std::ffi::{CString, OsStr, c_char, c_int, c_uint, c_void};
use std::sync::{
    OnceLock,
    atomic::{AtomicPtr, Ordering::Acquire},
};
use std::{env, marker::PhantomData, mem, ptr};

use libloading::Library;

const VARIABLE: &str = "NVTX_INJECTION64_PATH";
const ENTRY: &[u8] = b"InitializeInjectionNvtx2";

/// Numbers of the tables that a tool asks for.
const CALLBACKS: u32 = 1;
const VERSION_INFO: u32 = 3;
/// Modules with a table here. The functions of the second take a domain and are not called.
const CORE: c_int = 1;
const CORE_WITH_DOMAINS: c_int = 5;
/// Both modules have fifteen functions, counted from one.
const FUNCTIONS: usize = 15;

const RANGE_PUSH: usize = 9;
const RANGE_POP: usize = 11;

/// A slot that a tool writes a function to.
type Slot = AtomicPtr<c_void>;
/// The table of a module: pointers to slots, null at index 0 and at the end.
type Table = [*const Slot; FUNCTIONS + 2];

static CORE_SLOTS: [Slot; FUNCTIONS] = [const { AtomicPtr::new(ptr::null_mut()) }; FUNCTIONS];
static DOMAIN_SLOTS: [Slot; FUNCTIONS] = [const { AtomicPtr::new(ptr::null_mut()) }; FUNCTIONS];
static CORE_TABLE: Shared<Table> = Shared(table(&CORE_SLOTS));
static DOMAIN_TABLE: Shared<Table> = Shared(table(&DOMAIN_SLOTS));

/// A value with pointers to statics.
struct Shared<T>(T);
// SAFETY: the pointers are to statics of atomics, and are never changed.
unsafe impl<T> Sync for Shared<T> {}

const fn table(slots: &'static [Slot; FUNCTIONS]) -> Table {
    let mut table = [ptr::null(); FUNCTIONS + 2];
    let mut at = 0;
    while at < FUNCTIONS {
        table[at + 1] = &raw const slots[at];
        at += 1;
    }
    table
}

#[repr(C)]
struct Callbacks {
    size: usize,
    module_table: extern "C" fn(c_int, *mut *const *const Slot, *mut c_uint) -> c_int,
}

#[repr(C)]
struct VersionInfo {
    size: usize,
    version: u32,
    reserved: u32,
    set_tool_version: extern "C" fn(u32),
}

static CALLBACK_TABLE: Callbacks = Callbacks { size: size_of::<Callbacks>(), module_table };
static VERSION_TABLE: VersionInfo =
    VersionInfo { size: size_of::<VersionInfo>(), version: 3, reserved: 0, set_tool_version };

extern "C" fn export_table(number: u32) -> *const c_void {
    match number {
        CALLBACKS => (&raw const CALLBACK_TABLE).cast(),
        VERSION_INFO => (&raw const VERSION_TABLE).cast(),
        _ => ptr::null(),
    }
}

extern "C" fn module_table(module: c_int, table: *mut *const *const Slot, size: *mut c_uint) -> c_int {
    let found = match module {
        CORE => &CORE_TABLE.0,
        CORE_WITH_DOMAINS => &DOMAIN_TABLE.0,
        _ => return 0,
    };
    // SAFETY: the tool passes null or valid pointers.
    unsafe {
        if !table.is_null() {
            *table = found.as_ptr();
        }
        if !size.is_null() {
            // The null at the end is not counted.
            *size = (FUNCTIONS + 1) as c_uint;
        }
    }
    1
}

extern "C" fn set_tool_version(_version: u32) {}

/// Whether a tool is attached. The first call looks for one.
pub fn is_on() -> bool {
    static ON: OnceLock<bool> = OnceLock::new();
    *ON.get_or_init(|| env::var_os(VARIABLE).is_some_and(|path| attach(&path)))
}

fn attach(path: &OsStr) -> bool {
    type Entry = unsafe extern "C" fn(extern "C" fn(u32) -> *const c_void) -> c_int;
    // SAFETY: the user named the library for this; it stays, and its entry has this type.
    unsafe {
        let Ok(library) = Library::new(path) else { return false };
        let library: &'static Library = Box::leak(Box::new(library));
        library.get::<Entry>(ENTRY).is_ok_and(|entry| entry(export_table) != 0)
    }
}

fn function(number: usize) -> Option<*mut c_void> {
    if !is_on() {
        return None;
    }
    Some(CORE_SLOTS[number - 1].load(Acquire)).filter(|found| !found.is_null())
}

fn text(name: &str) -> Option<CString> {
    CString::new(name).ok()
}

/// A range of this thread, which ends when this is dropped. Ranges nest.
#[derive(Debug)]
#[must_use = "the range ends when this is dropped"]
pub struct Range {
    was_begun: bool,
    /// A range belongs to its thread.
    of_thread: PhantomData<*const ()>,
}

impl Range {
    /// Begins a range.
    pub fn push(name: &str) -> Self {
        let begun = function(RANGE_PUSH).zip(text(name)).map(|(function, name)| {
            // SAFETY: a tool puts a function of this type there; the text lives during the call.
            unsafe { mem::transmute::<*mut c_void, extern "C" fn(*const c_char) -> c_int>(function)(name.as_ptr()) }
        });
        Self { was_begun: begun.is_some(), of_thread: PhantomData }
    }
}

impl Drop for Range {
    fn drop(&mut self) {
        if let Some(function) = function(RANGE_POP).filter(|_| self.was_begun) {
            // SAFETY: as above.
            unsafe { mem::transmute::<*mut c_void, extern "C" fn() -> c_int>(function)() };
        }
    }
}
