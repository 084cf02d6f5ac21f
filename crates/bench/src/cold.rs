//! Cold starts: empty caches for a fresh process, and page faults on its trace.

use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::{fs, io};

use laptime_probe::{recording, stage, value};

/// Bytes touched to measure the cost of a page fault; enough that the pages are new whatever was freed before.
const TOUCHED_BYTES: usize = 40 << 20;

/// The smallest page size.
const PAGE_BYTES: usize = 4096;

/// An empty folder for caches that are normally shared between processes; it is deleted on drop.
pub(crate) struct EmptyCaches {
    folder: PathBuf,
}

impl EmptyCaches {
    /// Creates the folder. If the name exists, it tries another one.
    pub(crate) fn new() -> io::Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        loop {
            let name = format!("laptime-cold-{}-{}", process::id(), NEXT.fetch_add(1, Relaxed));
            let folder = std::env::temp_dir().join(name);
            match fs::create_dir(&folder) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                made => return made.map(|()| Self { folder }),
            }
        }
    }

    /// Hides kernels compiled by other processes: those of laptime and those of the driver.
    pub(crate) fn give_to(&self, command: &mut Command) {
        command.env("LAPTIME_CACHE", self.folder.join("laptime")).env("CUDA_CACHE_PATH", self.folder.join("driver"));
    }
}

impl Drop for EmptyCaches {
    fn drop(&mut self) {
        // If the folder cannot be removed, the system cleans it up later.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Adds the number of page faults so far to the trace, if a recording is running.
pub(crate) fn mark_page_faults() {
    if recording()
        && let Some(faults) = page_faults()
    {
        value!("page_faults", faults);
    }
}

/// Measures the cost of a page fault and adds it to the trace.
pub(crate) fn touch_memory() {
    if !recording() {
        return;
    }
    let mut memory: Vec<u8> = Vec::new();
    if memory.try_reserve_exact(TOUCHED_BYTES).is_err() {
        return;
    }
    mark_page_faults();
    {
        let _stage = stage!("touch_memory", bytes = TOUCHED_BYTES);
        for page in memory.spare_capacity_mut().chunks_mut(PAGE_BYTES) {
            page[0].write(1);
        }
        std::hint::black_box(&mut memory);
    }
    mark_page_faults();
}

/// Minor page faults of all threads of this process; none if the system does not count them.
fn page_faults() -> Option<u64> {
    minor_faults(&fs::read_to_string(Path::new("/proc/self/stat")).ok()?)
}

/// Parses the tenth field of `/proc/self/stat`. The second field is the program's name in brackets and may contain
/// anything.
fn minor_faults(stat: &str) -> Option<u64> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(7)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_faults_are_found_after_any_program_name() {
        let stat = "17 (a) b (c) R 1 17 17 0 -1 4194304 2345 99 1 0 5 6";
        assert_eq!(minor_faults(stat), Some(2345));
        assert_eq!(minor_faults("17 (cut"), None);
        assert_eq!(minor_faults("17 (cut) R 1"), None);
    }

    #[test]
    fn a_cold_process_gets_empty_temporary_folders() {
        let caches = EmptyCaches::new().unwrap();
        let folder = caches.folder.clone();
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
        let mut command = Command::new("true");
        caches.give_to(&mut command);
        let given: Vec<_> = command.get_envs().filter_map(|(_, value)| value).map(Path::new).collect();
        assert!(given.len() == 2 && given.iter().all(|path| path.starts_with(&folder) && !path.exists()));
        fs::write(folder.join("kept"), "by another").unwrap();
        let other = EmptyCaches::new().unwrap();
        assert_ne!(other.folder, folder);
        drop(caches);
        assert!(!folder.exists() && other.folder.exists());
    }
}
