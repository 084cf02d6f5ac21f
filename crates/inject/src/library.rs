//! Finds the CUPTI that the process uses.

use std::ffi::{CStr, OsStr, c_int, c_void};
use std::path::{Path, PathBuf};
use std::{env, os::unix::ffi::OsStrExt};

use laptime_capture::{dl::Library, functions::Functions};

/// Names of the library, the newest first.
const NAMES: [&str; 4] = ["libcupti.so.13", "libcupti.so.12", "libcupti.so", "libcupti.so.11.8"];

/// The functions of the CUPTI that the process uses.
pub fn functions() -> Option<Functions> {
    // SAFETY: the addresses are those of the library's functions, and it is never unloaded.
    candidates().find_map(|library| unsafe { Functions::load(|name| library.address(name)) }.ok())
}

/// Libraries that may be the CUPTI of this process: the one that is loaded, then those next to the CUDA libraries that
/// are loaded, then those that the loader finds, then those of toolkits and Python environments.
fn candidates() -> impl Iterator<Item = Library> {
    let loaded = loaded_objects();
    let is_cupti = |path: &&PathBuf| file_name(path).starts_with("libcupti.so");
    let in_use: Vec<Library> =
        loaded.iter().filter(is_cupti).filter_map(|path| Library::loaded(path.to_str()?)).collect();
    // A second CUPTI in a process that has one would see nothing.
    let others: Box<dyn Iterator<Item = Library>> = if in_use.is_empty() {
        let runtimes = loaded.into_iter().filter(|path| file_name(path).starts_with("libcudart.so"));
        let in_near = runtimes.flat_map(|path| near(&path)).flat_map(open_in);
        let of_loader = NAMES.into_iter().filter_map(Library::open);
        Box::new(in_near.chain(of_loader).chain(installed().into_iter().flat_map(open_in)))
    } else {
        Box::new(std::iter::empty())
    };
    in_use.into_iter().chain(others)
}

fn open_in(folder: PathBuf) -> Vec<Library> {
    let files = NAMES.into_iter().map(|name| folder.join(name)).filter(|path| path.is_file());
    files.filter_map(|path| Library::open(path.to_str()?)).collect()
}

/// Where CUPTI is if this runtime library belongs to a toolkit or a Python wheel.
fn near(runtime: &Path) -> Vec<PathBuf> {
    let Some(folder) = runtime.parent() else { return Vec::new() };
    ["", "../extras/CUPTI/lib64", "../../../extras/CUPTI/lib64", "../../cuda_cupti/lib", "../../cupti/lib"]
        .iter()
        .map(|relative| folder.join(relative))
        .collect()
}

fn installed() -> Vec<PathBuf> {
    let path = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let homes = path("CUDA_HOME").into_iter().chain(path("CUDA_PATH")).chain([PathBuf::from("/usr/local/cuda")]);
    let mut folders: Vec<PathBuf> =
        homes.flat_map(|home| ["extras/CUPTI/lib64", "lib64"].map(|folder| home.join(folder))).collect();
    for root in ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(path) {
        let pythons = root.join("lib").read_dir().into_iter().flatten().flatten().map(|entry| entry.path());
        for packages in pythons.map(|python| python.join("site-packages/nvidia")) {
            folders.extend(["cu13/lib", "cuda_cupti/lib"].map(|folder| packages.join(folder)));
        }
    }
    folders
}

fn file_name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// The paths of the libraries that are loaded.
fn loaded_objects() -> Vec<PathBuf> {
    unsafe extern "C" fn add(info: *mut libc::dl_phdr_info, _: usize, into: *mut c_void) -> c_int {
        // SAFETY: the loader passes a valid description, and the vector that was handed to it below.
        unsafe {
            let into = &mut *into.cast::<Vec<PathBuf>>();
            if !(*info).dlpi_name.is_null() {
                let name = CStr::from_ptr((*info).dlpi_name);
                into.push(PathBuf::from(OsStr::from_bytes(name.to_bytes())));
            }
        }
        0
    }
    let mut found: Vec<PathBuf> = Vec::new();
    // SAFETY: the function and the vector live during the call.
    unsafe { libc::dl_iterate_phdr(Some(add), (&raw mut found).cast()) };
    found
}
