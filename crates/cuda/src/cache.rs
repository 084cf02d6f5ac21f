//! A disk cache of compiled kernels, so that only the first process compiles.
//!
//! A file is named by a hash of its key and begins with the whole key: source, options, architecture, compiler and
//! driver. A truncated or damaged file, or one with another key, counts as missing. Files are written under a temporary
//! name and renamed, so that processes do not interfere.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::{env, fs, io, process};

/// The first bytes of every file, with a format version.
const MAGIC: &[u8] = b"laptime kernel 1\n";

/// Everything that a compiled kernel depends on.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Key {
    /// The source text.
    pub source: String,
    /// The compiler's options, in order.
    pub options: Vec<String>,
    /// The device's architecture: `sm_90`.
    pub architecture: String,
    /// The compiler's version.
    pub compiler: String,
    /// The driver's version.
    pub driver: String,
}

/// A folder of compiled kernels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cache {
    folder: Option<PathBuf>,
}

impl Cache {
    /// The cache of the user: `$LAPTIME_CACHE`, or `laptime` in the system's cache folder.
    pub fn of_user() -> Self {
        let path = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        Self { folder: folder(path("LAPTIME_CACHE"), path("XDG_CACHE_HOME"), path("HOME")) }
    }

    /// A cache in this folder, which is created when something is first stored.
    pub fn at(folder: impl Into<PathBuf>) -> Self {
        Self { folder: Some(folder.into()) }
    }

    /// A cache that stores nothing.
    pub fn none() -> Self {
        Self { folder: None }
    }

    /// The folder.
    pub fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    /// The stored kernel for the key.
    pub fn find(&self, key: &Key) -> Option<Vec<u8>> {
        unpack(&fs::read(self.path(key)?).ok()?, &key.bytes())
    }

    /// Whether there is a file for the key; it may be damaged.
    pub fn has(&self, key: &Key) -> bool {
        self.path(key).is_some_and(|path| path.is_file())
    }

    /// Stores a compiled kernel. If the folder cannot be written, the next process compiles again.
    pub fn keep(&self, key: &Key, compiled: &[u8]) -> io::Result<()> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let Some((path, folder)) = self.path(key).zip(self.folder.as_deref()) else { return Ok(()) };
        fs::create_dir_all(folder)?;
        let temporary = path.with_extension(format!("{}-{}.part", process::id(), NEXT.fetch_add(1, Relaxed)));
        let written = fs::write(&temporary, pack(&key.bytes(), compiled)).and_then(|()| fs::rename(&temporary, &path));
        if written.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        written
    }

    fn path(&self, key: &Key) -> Option<PathBuf> {
        Some(self.folder.as_ref()?.join(format!("{:016x}.kernel", hash(&key.bytes()))))
    }
}

fn folder(chosen: Option<PathBuf>, caches: Option<PathBuf>, home: Option<PathBuf>) -> Option<PathBuf> {
    let caches = caches.filter(|path| path.is_absolute()).or_else(|| home.map(|home| home.join(".cache")));
    chosen.or_else(|| caches.map(|caches| caches.join("laptime"))).map(|folder| folder.join("kernels"))
}

impl Key {
    /// Every part is preceded by its length, so that no two keys have the same bytes.
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let parts = [&self.architecture, &self.compiler, &self.driver, &self.source].into_iter().chain(&self.options);
        for part in parts {
            bytes.extend((part.len() as u64).to_le_bytes());
            bytes.extend(part.as_bytes());
        }
        bytes
    }
}

fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}

fn pack(key: &[u8], compiled: &[u8]) -> Vec<u8> {
    let mut file = MAGIC.to_vec();
    file.extend((key.len() as u64).to_le_bytes());
    file.extend(hash(compiled).to_le_bytes());
    file.extend(key);
    file.extend(compiled);
    file
}

fn unpack(file: &[u8], key: &[u8]) -> Option<Vec<u8>> {
    let rest = file.strip_prefix(MAGIC)?;
    let (length, rest) = rest.split_first_chunk()?;
    let (sum, rest) = rest.split_first_chunk()?;
    let compiled = (u64::from_le_bytes(*length) == key.len() as u64).then(|| rest.strip_prefix(key))??;
    (u64::from_le_bytes(*sum) == hash(compiled)).then(|| compiled.to_vec())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key() -> Key {
        Key {
            source: "void fill()".to_owned(),
            options: vec!["--std=c++17".to_owned()],
            architecture: "sm_90".to_owned(),
            compiler: "13.0".to_owned(),
            driver: "13000".to_owned(),
        }
    }

    #[test]
    fn stored_kernels_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path().join("deep"));
        assert_eq!(cache.find(&key()), None);
        cache.keep(&key(), b"cubin").unwrap();
        assert_eq!(cache.find(&key()).as_deref(), Some(&b"cubin"[..]));
        let names: Vec<_> = fs::read_dir(cache.folder().unwrap()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(names.len(), 1, "{names:?}");
    }

    #[test]
    fn every_part_of_the_key_matters() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path());
        cache.keep(&key(), b"cubin").unwrap();
        let other = "x".to_owned();
        for changed in [
            Key { source: other.clone(), ..key() },
            Key { options: vec![], ..key() },
            Key { architecture: other.clone(), ..key() },
            Key { compiler: other.clone(), ..key() },
            Key { driver: other.clone(), ..key() },
        ] {
            assert_eq!(cache.find(&changed), None, "{changed:?}");
        }
    }

    #[test]
    fn a_cache_without_a_folder_finds_nothing() {
        Cache::none().keep(&key(), b"cubin").unwrap();
        assert_eq!(Cache::none().find(&key()), None);
    }

    #[test]
    fn laptime_cache_overrides_the_cache_folder() {
        let path = |text: &str| Some(PathBuf::from(text));
        assert_eq!(folder(path("/mine"), path("/xdg"), path("/me")), path("/mine/kernels"));
        assert_eq!(folder(None, path("/xdg"), path("/me")), path("/xdg/laptime/kernels"));
        assert_eq!(folder(None, path("relative"), path("/me")), path("/me/.cache/laptime/kernels"));
        assert_eq!(folder(None, None, None), None);
    }

    proptest! {
        #[test]
        fn a_damaged_file_counts_as_missing(cut in 0_usize..80, flip in any::<prop::sample::Index>()) {
            let (key, compiled) = (key().bytes(), b"a compiled kernel".to_vec());
            let whole = pack(&key, &compiled);
            prop_assert_eq!(unpack(&whole, &key), Some(compiled));
            prop_assert_eq!(unpack(&whole[..cut.min(whole.len() - 1)], &key), None);
            let mut flipped = whole.clone();
            let at = flip.index(whole.len());
            flipped[at] ^= 1;
            prop_assert_eq!(unpack(&flipped, &key), None);
        }
    }
}
