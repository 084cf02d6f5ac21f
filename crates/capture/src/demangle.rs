//! Readable names of C++ functions.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::{ptr, sync::OnceLock};

#[cfg(unix)]
use crate::dl::Library;

type Demangle = unsafe extern "C" fn(*const c_char, *mut c_char, *mut usize, *mut c_int) -> *mut c_char;
type Free = unsafe extern "C" fn(*mut c_void);

/// The name as C++ writes it, if the C++ library is installed; otherwise the name as it is.
pub fn readable(name: &str) -> String {
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
        let readable = CStr::from_ptr(answer).to_string_lossy().into_owned();
        free(answer.cast());
        (status == 0).then_some(readable)
    }
}

/// The C++ library's own demangler, and the `free` that goes with it.
fn functions() -> &'static Option<(Demangle, Free)> {
    static FOUND: OnceLock<Option<(Demangle, Free)>> = OnceLock::new();
    FOUND.get_or_init(find)
}

#[cfg(unix)]
fn find() -> Option<(Demangle, Free)> {
    let library = Library::open("libstdc++.so.6")?;
    // SAFETY: the functions have these types.
    unsafe { Some((library.function(c"__cxa_demangle")?, library.function(c"free")?)) }
}

#[cfg(not(unix))]
fn find() -> Option<(Demangle, Free)> {
    None
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
    fn a_mangled_name_becomes_readable_or_stays() {
        let name = readable("_Z4fillIfEvPT_");
        assert!(["void fill<float>(float*)", "_Z4fillIfEvPT_"].contains(&name.as_str()), "{name}");
    }
}
