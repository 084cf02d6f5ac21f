//! Demangles kernel names.
#![allow(unsafe_code)]

use std::{
    collections::HashMap,
    ffi::{CStr, CString, c_char, c_int, c_void},
    ptr,
    sync::{Arc, OnceLock},
};

use libloading::Library;

type Demangle = unsafe extern "C" fn(*const c_char, *mut c_char, *mut usize, *mut c_int) -> *mut c_char;
type Free = unsafe extern "C" fn(*mut c_void);

/// Readable names by the address of CUPTI's text: each is demangled once.
#[derive(Debug, Default)]
pub(super) struct Names(HashMap<u64, Arc<str>>);

impl Names {
    /// # Safety
    ///
    /// `address` is zero or that of a text that ends in a zero and stays.
    pub(super) unsafe fn at(&mut self, address: u64) -> Arc<str> {
        // SAFETY: the caller's.
        Arc::clone(self.0.entry(address).or_insert_with(|| unsafe { read(address) }.into()))
    }
}

unsafe fn read(address: u64) -> String {
    if address == 0 {
        return String::new();
    }
    // SAFETY: the caller's.
    readable(&unsafe { CStr::from_ptr(address as *const c_char) }.to_string_lossy())
}

/// The demangled name, if a C++ library is available; otherwise the name as it is.
pub(super) fn readable(name: &str) -> String {
    if !name.starts_with("_Z") {
        return name.to_owned();
    }
    demangled(name).unwrap_or_else(|| name.to_owned())
}

fn demangled(name: &str) -> Option<String> {
    let (demangle, free) = (*functions())?;
    let text = CString::new(name).ok()?;
    let mut status = 0;
    // SAFETY: the text lives during the call, and the library allocates the answer, which is freed as it asks.
    unsafe {
        let answer = demangle(text.as_ptr(), ptr::null_mut(), ptr::null_mut(), &mut status);
        if answer.is_null() {
            return None;
        }
        let name = CStr::from_ptr(answer).to_string_lossy().into_owned();
        free(answer.cast());
        (status == 0).then_some(name)
    }
}

/// The demangler of the C++ library, and the matching `free`.
fn functions() -> &'static Option<(Demangle, Free)> {
    static FOUND: OnceLock<Option<(Demangle, Free)>> = OnceLock::new();
    FOUND.get_or_init(|| {
        // SAFETY: the library may be loaded at any time, stays, and its functions have these types.
        unsafe {
            let library: &'static Library = Box::leak(Box::new(Library::new("libstdc++.so.6").ok()?));
            let demangle = *library.get::<Demangle>(b"__cxa_demangle").ok()?;
            let free = *library.get::<Free>(b"free").ok()?;
            Some((demangle, free))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_name_stays() {
        assert_eq!(readable("spin_nanos"), "spin_nanos");
        assert_eq!(readable("_Znonsense"), "_Znonsense");
    }

    #[test]
    fn a_mangled_name_is_reported_as_c_plus_plus_has_it_or_stays() {
        let name = readable("_Z4fillIfEvPT_");
        assert!(["void fill<float>(float*)", "_Z4fillIfEvPT_"].contains(&name.as_str()), "{name}");
    }
}
