//! Shared libraries of the process, by name or path.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_void};
use std::ptr::NonNull;

/// A loaded library. It stays loaded.
#[derive(Debug, Clone, Copy)]
pub struct Library(NonNull<c_void>);

// SAFETY: a handle of the loader may be used on any thread.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

impl Library {
    /// Loads a library, or finds it if it is loaded.
    pub fn open(name: &str) -> Option<Self> {
        Self::with_flags(name, libc::RTLD_NOW | libc::RTLD_LOCAL)
    }

    /// Finds a library that is already loaded, by its name or path.
    pub fn loaded(name: &str) -> Option<Self> {
        Self::with_flags(name, libc::RTLD_NOW | libc::RTLD_LOCAL | libc::RTLD_NOLOAD)
    }

    fn with_flags(name: &str, flags: i32) -> Option<Self> {
        let name = CString::new(name).ok()?;
        // SAFETY: the name is valid during the call; the library is never unloaded.
        NonNull::new(unsafe { libc::dlopen(name.as_ptr(), flags) }).map(Self)
    }

    /// The address of a function; null if the library has none of this name.
    pub fn address(self, name: &CStr) -> *mut c_void {
        // SAFETY: the handle is valid, the name ends in a zero.
        unsafe { libc::dlsym(self.0.as_ptr(), name.as_ptr()) }
    }

    /// Looks a function up.
    ///
    /// # Safety
    ///
    /// `F` is a function pointer of the type that the function has.
    pub unsafe fn function<F: Copy>(self, name: &CStr) -> Option<F> {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        let found = self.address(name);
        // SAFETY: the caller's: a pointer to a function has the size of `F`.
        (!found.is_null()).then(|| unsafe { std::mem::transmute_copy(&found) })
    }
}
