//! Unpacks the injected library where the program can load it.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use anyhow::Context;
use flate2::read::ZlibDecoder;
use laptime_capture::process;

use crate::failure::refuse;

/// The library, built and compressed by the build script.
static LIBRARY: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut library = Vec::new();
    let packed = &include_bytes!(concat!(env!("OUT_DIR"), "/liblaptime_inject.so"))[..];
    ZlibDecoder::new(packed).read_to_end(&mut library).expect("the library that the program was built with is whole");
    library
});

/// Unpacks the library to a private folder and returns its path. The folder `run` is tried last.
pub fn unpack(run: &Path) -> anyhow::Result<PathBuf> {
    if LIBRARY.is_empty() {
        return refuse(
            "`laptime record` works on Linux only",
            "record with torch.profiler there, and read its trace with `laptime diagnose`",
        );
    }
    unpack_in(&places(run), process::is_executable)
}

/// Unpacks the library to the first folder from which it can be loaded.
fn unpack_in(places: &[PathBuf], is_executable: impl Fn(&File) -> bool) -> anyhow::Result<PathBuf> {
    if let Some(found) = places.iter().find_map(|folder| unpack_to(folder, &is_executable)) {
        return Ok(found);
    }
    let tried: Vec<String> = places.iter().map(|folder| format!("`{}`", folder.display())).collect();
    let reason = format!("no folder was found that a library can be loaded from; tried {}", tried.join(", "));
    refuse(reason, "set LAPTIME_HOME to a folder of yours on a file system that is not mounted noexec")
}

fn places(run: &Path) -> Vec<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = variable("XDG_CACHE_HOME").or_else(|| Some(variable("HOME")?.join(".cache")));
    let folders = [
        variable("LAPTIME_HOME").map(|folder| folder.join("inject")),
        cache.map(|folder| folder.join("laptime/inject")),
        Some(runtime_folder().join("inject")),
        Some(run.join("inject")),
    ];
    folders.into_iter().flatten().filter_map(|folder| std::path::absolute(folder).ok()).collect()
}

/// The folder for sockets and control pages.
pub fn runtime_folder() -> PathBuf {
    match std::env::var_os("XDG_RUNTIME_DIR").filter(|value| !value.is_empty()) {
        Some(folder) => PathBuf::from(folder).join("laptime"),
        None => std::env::temp_dir().join(format!("laptime-{}", process::user())),
    }
}

/// Creates a folder with mode 0700. Refuses a folder of another user.
pub fn private_folder(path: &Path) -> anyhow::Result<()> {
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.with_context(|| format!("cannot create `{}`", path.display()))?;
    let found = fs::symlink_metadata(path).with_context(|| format!("cannot read `{}`", path.display()))?;
    if !found.is_dir() || found.uid() != process::user() {
        anyhow::bail!("`{}` belongs to another user", path.display());
    }
    if found.mode() & 0o077 != 0 {
        fs::set_permissions(path, fs::Permissions::from_mode(0o700))?;
    }
    Ok(())
}

fn unpack_to(folder: &Path, is_executable: impl Fn(&File) -> bool) -> Option<PathBuf> {
    private_folder(folder).ok()?;
    let path = folder.join(format!("liblaptime_inject-{:016x}.so", checksum(&LIBRARY)));
    // An existing file may be truncated or changed, so all of it is compared.
    if fs::read(&path).ok().as_deref() != Some(LIBRARY.as_slice()) {
        write(&path).ok()?;
    }
    let file = File::open(&path).ok()?;
    is_executable(&file).then_some(path)
}

/// Writes atomically, since another recorder may do the same at the same time.
fn write(path: &Path) -> std::io::Result<()> {
    let unfinished = path.with_extension(std::process::id().to_string());
    let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o700).open(&unfinished)?;
    let written = file.write_all(&LIBRARY).and_then(|()| fs::rename(&unfinished, path));
    if written.is_err() {
        let _ = fs::remove_file(&unfinished);
    }
    written
}

fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xCBF2_9CE4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_library_is_written_again_and_the_folder_is_private() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("inject");
        let path = unpack_to(&place, process::is_executable).unwrap();
        assert_eq!(fs::metadata(&place).unwrap().mode() & 0o777, 0o700);
        fs::write(&path, b"something else").unwrap();
        assert_eq!(unpack_to(&place, process::is_executable), Some(path.clone()));
        assert_eq!(fs::read(&path).unwrap(), *LIBRARY);
    }

    #[test]
    fn a_folder_mounted_noexec_is_skipped() {
        let folder = tempfile::tempdir().unwrap();
        let places = ["first", "second"].map(|name| folder.path().join(name));
        let in_first = |file: &File| {
            let mut entries = fs::read_dir(&places[0]).unwrap();
            entries.any(|entry| entry.unwrap().metadata().unwrap().ino() == file.metadata().unwrap().ino())
        };
        assert!(unpack_in(&places, |file| !in_first(file)).unwrap().starts_with(&places[1]));
        let error = unpack_in(&places[..1], |file| !in_first(file)).unwrap_err();
        assert!(error.to_string().starts_with("no folder was found that a library can be loaded from"), "{error}");
    }
}
