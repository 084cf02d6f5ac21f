//! The sizes of the CPU caches, to choose a buffer that does not fit into them.

use std::{
    collections::{HashMap, HashSet},
    fs,
    path::Path,
    sync::OnceLock,
};

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

/// The bytes of the largest level of caches, all its instances together: threads on several sockets fill them all.
fn largest_under(cpus: &Path) -> Option<u64> {
    let mut known = HashSet::new();
    let mut levels: HashMap<String, u64> = HashMap::new();
    for cpu in fs::read_dir(cpus).ok()?.flatten().filter(|cpu| cpu.file_name().as_encoded_bytes().starts_with(b"cpu")) {
        for index in fs::read_dir(cpu.path().join("cache")).into_iter().flatten().flatten() {
            // Most processors share their caches with others, whose files are not read again.
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

/// The level of a cache and its size; none for instructions.
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

    fn add(cpus: &Path, cpu: &str, index: &str, files: [&str; 4]) {
        let folder = cpus.join(cpu).join("cache").join(index);
        fs::create_dir_all(&folder).unwrap();
        for (name, text) in ["type", "level", "size", "shared_cpu_list"].into_iter().zip(files) {
            fs::write(folder.join(name), format!("{text}\n")).unwrap();
        }
    }

    #[test]
    fn a_cache_that_processors_share_counts_once_and_those_of_two_sockets_count_twice() {
        let cpus = tempfile::tempdir().unwrap();
        for (cpu, share) in [("cpu0", "0-1"), ("cpu1", "0-1"), ("cpu2", "2")] {
            add(cpus.path(), cpu, "index0", ["Data", "1", "32K", &cpu[3..]]);
            add(cpus.path(), cpu, "index1", ["Instruction", "1", "900000K", &cpu[3..]]);
            add(cpus.path(), cpu, "index3", ["Unified", "3", "32768K", share]);
        }
        assert_eq!(largest_under(cpus.path()), Some(64 * MIB));
    }

    #[test]
    fn a_machine_that_does_not_tell_its_caches_is_not_guessed_at() {
        let cpus = tempfile::tempdir().unwrap();
        assert_eq!(largest_under(cpus.path()), None);
        assert_eq!(largest_under(&cpus.path().join("none")), None);
    }

    #[test]
    fn a_buffer_is_a_power_of_two() {
        assert!(beyond_caches_mib().is_power_of_two());
    }
}
