//! Finds CUDA libraries at run time: in the loader's path, in toolkits, and in Python wheels.
//!
//! cudarc panics when a library is missing, so every entry point of this crate checks here first. A library outside the
//! loader's path is loaded by its full path and stays loaded; the loader then finds it by name for all other users.
#![allow(unsafe_code)]

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::{collections::BTreeMap, env};

use laptime_probe::stage;
use libloading::Library;

use crate::error::CudaError;

/// A CUDA library with its file names, in order of preference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LibrarySpec {
    /// The name shown in messages.
    pub name: &'static str,
    /// The file names.
    pub files: &'static [&'static str],
    /// Prefixes of files that it loads by name, and that the loader only finds if they are already loaded.
    pub companions: &'static [&'static str],
}

/// The driver.
pub const DRIVER: LibrarySpec =
    LibrarySpec { name: "libcuda.so.1", files: &["libcuda.so.1", "libcuda.so"], companions: &[] };
/// The kernel compiler.
pub const NVRTC: LibrarySpec = LibrarySpec {
    name: "libnvrtc.so.13",
    files: &["libnvrtc.so.13", "libnvrtc.so"],
    companions: &["libnvrtc-builtins.so."],
};
/// GEMMs.
pub const CUBLAS: LibrarySpec = LibrarySpec {
    name: "libcublas.so.13",
    files: &["libcublas.so.13", "libcublas.so"],
    companions: &["libcublasLt.so.13"],
};
/// Activity records.
pub const CUPTI: LibrarySpec =
    LibrarySpec { name: "libcupti.so.13", files: &["libcupti.so.13", "libcupti.so"], companions: &[] };

static LOADED: Mutex<BTreeMap<&'static str, &'static Library>> = Mutex::new(BTreeMap::new());

/// Loads a library for the rest of the process.
pub fn load(spec: LibrarySpec) -> Result<&'static Library, CudaError> {
    let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(library) = loaded.get(spec.name) {
        return Ok(library);
    }
    let _stage = stage!("load_library", library = spec.name);
    let folders = SearchPaths::here().folders();
    let found = candidates(spec, &folders).find_map(|path| open(spec, &path));
    let library: &'static Library = Box::leak(Box::new(found.ok_or_else(|| missing(spec, &folders))?));
    loaded.insert(spec.name, library);
    Ok(library)
}

/// Whether the driver can be loaded.
pub fn has_driver() -> bool {
    load(DRIVER).is_ok()
}

fn missing(spec: LibrarySpec, folders: &[PathBuf]) -> CudaError {
    let searched = folders.iter().map(|folder| folder.display().to_string()).collect();
    CudaError::Missing { library: spec.name.to_owned(), searched }
}

fn open(spec: LibrarySpec, path: &Path) -> Option<Library> {
    for companion in companions(spec, path) {
        // SAFETY: as below.
        let loaded = unsafe { Library::new(companion) };
        // It stays loaded, so that the loader knows its name.
        std::mem::forget(loaded);
    }
    // SAFETY: the libraries of CUDA may be loaded at any time, and are never unloaded here.
    unsafe { Library::new(path) }.ok()
}

/// The files next to a library that it will load by name.
fn companions(spec: LibrarySpec, path: &Path) -> Vec<PathBuf> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let begins = |name: &str| spec.companions.iter().any(|start| name.starts_with(start));
    folder.map_or(Vec::new(), |folder| entries(folder, begins))
}

/// The bare names, which the loader resolves, then full paths.
fn candidates<'a>(spec: LibrarySpec, folders: &'a [PathBuf]) -> impl Iterator<Item = PathBuf> + 'a {
    let names = spec.files.iter().map(PathBuf::from);
    let paths = folders.iter().flat_map(move |folder| spec.files.iter().map(move |file| folder.join(file)));
    names.chain(paths.filter(|path| path.is_file()))
}

#[derive(Debug, Default, Clone)]
struct SearchPaths {
    cuda_home: Option<PathBuf>,
    /// Folders with toolkits: `/usr/local`.
    toolkits: Option<PathBuf>,
    environments: Vec<PathBuf>,
}

impl SearchPaths {
    fn here() -> Self {
        let path = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        Self {
            cuda_home: path("CUDA_HOME").or_else(|| path("CUDA_PATH")),
            toolkits: Some(PathBuf::from("/usr/local")),
            environments: ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(path).collect(),
        }
    }

    /// Folders to search, the user's choice first.
    fn folders(&self) -> Vec<PathBuf> {
        let mut folders: Vec<PathBuf> = self.cuda_home.iter().flat_map(|home| toolkit_folders(home)).collect();
        for toolkit in self.toolkits.iter().flat_map(|folder| toolkits(folder)) {
            folders.extend(toolkit_folders(&toolkit));
        }
        folders.extend(self.environments.iter().flat_map(|root| wheel_folders(root)));
        folders.retain(|folder| folder.is_dir());
        folders
    }
}

fn toolkit_folders(home: &Path) -> [PathBuf; 4] {
    ["lib64", "extras/CUPTI/lib64", "targets/x86_64-linux/lib", "lib"].map(|folder| home.join(folder))
}

/// `cuda` first, which is the default, then `cuda-13.1` before `cuda-13.0`.
fn toolkits(folder: &Path) -> Vec<PathBuf> {
    let mut found = entries(folder, |name| name == "cuda" || name.starts_with("cuda-"));
    found.sort_by_key(|path| {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let version: Vec<u32> = name.trim_start_matches("cuda-").split('.').flat_map(str::parse).collect();
        (name != "cuda", std::cmp::Reverse(version))
    });
    found
}

fn wheel_folders(root: &Path) -> Vec<PathBuf> {
    let pythons = entries(&root.join("lib"), |name| name.starts_with("python"));
    let packages = pythons.iter().map(|python| python.join("site-packages/nvidia"));
    packages
        .flat_map(|nvidia| {
            let older = ["cuda_nvrtc", "cublas", "cuda_cupti"].map(|package| nvidia.join(package).join("lib"));
            [nvidia.join("cu13/lib")].into_iter().chain(older)
        })
        .collect()
}

fn entries(folder: &Path, library: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let Ok(listing) = folder.read_dir() else { return Vec::new() };
    let mut found: Vec<PathBuf> =
        listing.flatten().filter(|entry| entry.file_name().to_str().is_some_and(&library)).map(|e| e.path()).collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn relative(root: &Path, found: &[PathBuf]) -> Vec<String> {
        found.iter().map(|path| path.strip_prefix(root).unwrap().display().to_string()).collect()
    }

    #[test]
    fn cuda_home_comes_before_toolkits_and_toolkits_before_wheels() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        for made in [
            "mine/lib64",
            "local/cuda-13.0/lib64",
            "local/cuda-13.10/extras/CUPTI/lib64",
            "local/cuda/lib64",
            "local/other/lib64",
            "venv/lib/python3.12/site-packages/nvidia/cu13/lib",
        ] {
            fs::create_dir_all(root.join(made)).unwrap();
        }
        let search = SearchPaths {
            cuda_home: Some(root.join("mine")),
            toolkits: Some(root.join("local")),
            environments: vec![root.join("venv")],
        };
        assert_eq!(
            relative(root, &search.folders()),
            [
                "mine/lib64",
                "local/cuda/lib64",
                "local/cuda-13.10/extras/CUPTI/lib64",
                "local/cuda-13.0/lib64",
                "venv/lib/python3.12/site-packages/nvidia/cu13/lib",
            ]
        );
    }

    #[test]
    fn the_bare_name_is_tried_before_any_path() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("libnvrtc.so.13"), "").unwrap();
        let folders = [folder.path().to_owned()];
        let found: Vec<PathBuf> = candidates(NVRTC, &folders).collect();
        assert_eq!(found, [Path::new("libnvrtc.so.13"), Path::new("libnvrtc.so"), &folders[0].join("libnvrtc.so.13")]);
    }

    #[test]
    fn libraries_that_are_loaded_by_name_are_found_next_to_it() {
        let folder = tempfile::tempdir().unwrap();
        for file in ["libnvrtc.so.13", "libnvrtc-builtins.so.13.0", "libother.so"] {
            fs::write(folder.path().join(file), "").unwrap();
        }
        let found = companions(NVRTC, &folder.path().join("libnvrtc.so.13"));
        assert_eq!(found, [folder.path().join("libnvrtc-builtins.so.13.0")]);
        assert_eq!(companions(NVRTC, Path::new("libnvrtc.so.13")), [] as [&Path; 0]);
    }

    #[test]
    fn a_missing_library_is_named() {
        let nowhere = LibrarySpec { name: "libnowhere.so.1", files: &["libnowhere.so.1"], companions: &[] };
        let error = load(nowhere).unwrap_err();
        assert_eq!(error.to_string(), "cannot load `libnowhere.so.1`");
        assert!(error.hint().unwrap().starts_with("put the folder of `libnowhere.so.1` on `LD_LIBRARY_PATH`"));
    }
}
