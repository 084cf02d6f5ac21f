//! The memory available to this process, considering the system and its control groups, and the caches of the CPUs.

use std::collections::{HashMap, HashSet};
use std::{fs, path::Path, sync::OnceLock};

use laptime_bench::environment::Linux;

/// The fraction of the available memory that is reserved for the system, as a divisor.
const RESERVE_DIVISOR: u64 = 20;
const MOST_RESERVE: u64 = 512 << 20;

/// Memory that a case may use; none if unknown.
///
/// A twentieth, at most 512 MiB, is held back: a process that takes the last page is killed, not refused.
pub fn available_bytes() -> Option<u64> {
    available_under(Path::new("/"))
}

fn available_under(root: &Path) -> Option<u64> {
    let left = Linux::below(root).available_bytes()?;
    Some(left - (left / RESERVE_DIVISOR).min(MOST_RESERVE))
}

const MIB: u64 = 1 << 20;

/// The size of a buffer for memory traffic in MiB, if the caches are unknown.
const UNKNOWN_MIB: u32 = 256;

/// How many times larger than the caches a buffer for memory traffic is.
const TIMES: u64 = 4;

/// The size of a buffer that exceeds the caches, in MiB: four times the largest, rounded up to a power of two.
pub fn beyond_caches_mib() -> u32 {
    static KNOWN: OnceLock<u32> = OnceLock::new();
    *KNOWN.get_or_init(|| match largest_under(Path::new("/sys/devices/system/cpu")) {
        Some(bytes) => u32::try_from((TIMES * bytes).div_ceil(MIB).next_power_of_two()).unwrap_or(UNKNOWN_MIB),
        None => UNKNOWN_MIB,
    })
}

/// The size of the largest cache level, summed over its instances: threads on several sockets use them all.
fn largest_under(cpus: &Path) -> Option<u64> {
    let mut known = HashSet::new();
    let mut levels: HashMap<String, u64> = HashMap::new();
    for cpu in fs::read_dir(cpus).ok()?.flatten().filter(|cpu| cpu.file_name().as_encoded_bytes().starts_with(b"cpu")) {
        for index in fs::read_dir(cpu.path().join("cache")).into_iter().flatten().flatten() {
            // A cache shared by several CPUs is counted once.
            let shared = text(&index.path(), "shared_cpu_list");
            if shared.is_some_and(|shared| known.insert((index.file_name(), shared))) {
                let (level, bytes) = instance(&index.path()).unwrap_or_default();
                *levels.entry(level).or_default() += bytes;
            }
        }
    }
    levels.into_values().max().filter(|bytes| *bytes > 0)
}

fn text(index: &Path, name: &str) -> Option<String> {
    fs::read_to_string(index.join(name)).ok().map(|text| text.trim().to_owned())
}

/// The level and size of a cache; none for an instruction cache.
fn instance(index: &Path) -> Option<(String, u64)> {
    if text(index, "type")? == "Instruction" {
        return None;
    }
    let kib: u64 = text(index, "size")?.strip_suffix('K')?.parse().ok()?;
    Some((text(index, "level")?, kib.checked_mul(1024)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    /// A system with these files.
    fn system(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    fn available(files: &[(&str, &str)]) -> Option<u64> {
        available_under(system(files).path())
    }

    const EIGHT_GIB: (&str, &str) = ("proc/meminfo", "MemTotal: 9000000 kB\nMemAvailable:    8388608 kB\n");

    #[test]
    fn without_a_control_group_it_is_the_available_memory_less_a_reserve() {
        assert_eq!(available(&[EIGHT_GIB]), Some(8 * GIB - 8 * GIB / 20));
        let large = ("proc/meminfo", "MemAvailable: 1073741824 kB\n");
        assert_eq!(available(&[large]), Some(1024 * GIB - GIB / 2));
    }

    #[test]
    fn a_group_of_version_2_has_its_limit_less_unreclaimable_memory() {
        let files = [
            EIGHT_GIB,
            ("proc/self/cgroup", "0::/jobs/a\n"),
            ("sys/fs/cgroup/jobs/a/memory.max", "2000\n"),
            ("sys/fs/cgroup/jobs/a/memory.current", "1500\n"),
            ("sys/fs/cgroup/jobs/a/memory.stat", "anon 1000\ninactive_file 500\n"),
        ];
        assert_eq!(available(&files), Some(950));
    }

    #[test]
    fn a_limit_of_an_outer_group_applies() {
        let files = [
            EIGHT_GIB,
            ("proc/self/cgroup", "0::/jobs/a\n"),
            ("sys/fs/cgroup/jobs/a/memory.max", "max\n"),
            ("sys/fs/cgroup/jobs/a/memory.current", "1500\n"),
            ("sys/fs/cgroup/jobs/memory.max", "3500\n"),
            ("sys/fs/cgroup/jobs/memory.current", "1500\n"),
        ];
        assert_eq!(available(&files), Some(1900));
        assert_eq!(available(&files[..4]), Some(8 * GIB - 8 * GIB / 20));
    }

    #[test]
    fn a_group_of_version_1_is_found_at_the_root_of_a_container() {
        let files = [
            EIGHT_GIB,
            ("proc/self/cgroup", "9:name=systemd:/\n4:memory:/host/path\n0::/\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "1000\n"),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "5000\n"),
            ("sys/fs/cgroup/memory/memory.stat", "total_inactive_file 4500\n"),
        ];
        assert_eq!(available(&files), Some(475));
    }

    #[test]
    fn a_group_that_uses_more_than_its_limit_leaves_nothing() {
        let files = [
            ("proc/self/cgroup", "0::/\n"),
            ("sys/fs/cgroup/memory.max", "10\n"),
            ("sys/fs/cgroup/memory.current", "11\n"),
        ];
        assert_eq!(available(&files), Some(0));
    }

    #[test]
    fn without_meminfo_the_memory_is_unknown() {
        assert_eq!(available(&[]), None);
        assert_eq!(available(&[("proc/meminfo", "MemAvailable: much\n")]), None);
    }
}

#[cfg(test)]
mod caches_tests {
    use super::*;

    fn add(cpus: &Path, cpu: &str, index: &str, files: [&str; 4]) {
        let folder = cpus.join(cpu).join("cache").join(index);
        fs::create_dir_all(&folder).unwrap();
        for (name, text) in ["type", "level", "size", "shared_cpu_list"].into_iter().zip(files) {
            fs::write(folder.join(name), format!("{text}\n")).unwrap();
        }
    }

    #[test]
    fn a_shared_cache_counts_once_per_socket() {
        let cpus = tempfile::tempdir().unwrap();
        for (cpu, share) in [("cpu0", "0-1"), ("cpu1", "0-1"), ("cpu2", "2")] {
            add(cpus.path(), cpu, "index0", ["Data", "1", "32K", &cpu[3..]]);
            add(cpus.path(), cpu, "index1", ["Instruction", "1", "900000K", &cpu[3..]]);
            add(cpus.path(), cpu, "index3", ["Unified", "3", "32768K", share]);
        }
        assert_eq!(largest_under(cpus.path()), Some(64 * MIB));
    }

    #[test]
    fn without_cache_files_the_caches_are_unknown() {
        let cpus = tempfile::tempdir().unwrap();
        assert_eq!(largest_under(cpus.path()), None);
        assert_eq!(largest_under(&cpus.path().join("none")), None);
    }

    #[test]
    fn the_buffer_size_is_a_power_of_two() {
        assert!(beyond_caches_mib().is_power_of_two());
    }
}
