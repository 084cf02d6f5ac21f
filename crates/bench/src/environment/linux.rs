//! Machine information from `/proc` and `/sys`.

use std::path::{Path, PathBuf};
use std::{collections::BTreeSet, fs};

use laptime_trace::run::{Gpu, Machine, Steal};

use super::cgroup::Cgroups;

/// More CPUs than any kernel supports: a longer list is invalid.
const MOST_CPUS: u32 = 1 << 16;

/// Reads machine information below a root folder.
///
/// A missing or unreadable file, or one with unexpected content, means that the value is unknown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Linux {
    root: PathBuf,
}

impl Linux {
    /// This machine.
    pub fn here() -> Self {
        Self::below("/")
    }

    /// The machine whose `/proc` and `/sys` are below a folder.
    pub fn below(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Reads the properties that do not change. `otherwise` is the number of CPUs if the kernel does not list the
    /// allowed ones.
    pub fn machine(&self, otherwise: u32) -> Machine {
        let allowed = self.allowed_cpus();
        Machine {
            cpu: self.cpu_entry("model name"),
            cpus: allowed.as_ref().map_or(otherwise, |cpus| cpus.len() as u32),
            cores: allowed.as_deref().and_then(|cpus| self.cores(cpus)),
            cpu_quota: self.cgroups().cpu_quota(),
            cache_bytes: self.cache_bytes(),
            memory_bytes: least(self.memory("MemTotal"), self.cgroups().memory_limit()),
            governor: self.governor(allowed.as_deref().unwrap_or(&[0])),
            boost: self.boost(),
            virtual_machine: self.virtual_machine(),
            os: self.text("proc/sys/kernel/ostype").unwrap_or_else(|| std::env::consts::OS.to_owned()),
            kernel: self.text("proc/sys/kernel/osrelease"),
            clock_source: self.text("sys/devices/system/clocksource/clocksource0/current_clocksource"),
            gpus: self.gpus(),
            node: None,
        }
    }

    /// The load average over the last minute.
    pub fn load(&self) -> Option<f64> {
        let load: f64 = self.text("proc/loadavg")?.split_whitespace().next()?.parse().ok()?;
        (load.is_finite() && load >= 0.0).then_some(load)
    }

    /// Available memory, within the limit of the control group.
    pub fn available_bytes(&self) -> Option<u64> {
        least(self.memory("MemAvailable"), self.cgroups().memory_left())
    }

    /// The version of the NVIDIA driver, if it is loaded.
    pub fn nvidia_driver(&self) -> Option<String> {
        let text = self.text("proc/driver/nvidia/version")?;
        let line = text.lines().find(|line| line.starts_with("NVRM version"))?;
        line.split_whitespace().find(|word| is_version(word)).map(str::to_owned)
    }

    /// CPU ticks since boot, and the ticks stolen by the hypervisor.
    pub fn steal(&self) -> Option<Steal> {
        let text = self.text("proc/stat")?;
        let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
        // user nice system idle iowait irq softirq steal; the guest times that follow are included in user and nice.
        let ticks: Vec<u64> = line.split_whitespace().take(8).map_while(|word| word.parse().ok()).collect();
        let &[.., stolen] = ticks.as_slice() else { return None };
        let of_ticks = ticks.iter().try_fold(0_u64, |sum, &more| sum.checked_add(more))?;
        (ticks.len() == 8).then_some(Steal { ticks: stolen, of_ticks })
    }

    /// The content of a file without surrounding white space; none if it is empty.
    pub(super) fn text(&self, path: impl AsRef<Path>) -> Option<String> {
        let text = fs::read_to_string(self.root.join(path)).ok()?;
        let text = text.trim_matches(|letter: char| letter.is_whitespace() || letter == '\0');
        (!text.is_empty()).then(|| text.to_owned())
    }

    fn cgroups(&self) -> Cgroups<'_> {
        Cgroups::of(self)
    }

    /// The value of a `name : value` line for the first CPU.
    fn cpu_entry(&self, name: &str) -> Option<String> {
        entry(&self.text("proc/cpuinfo")?, name)
    }

    fn allowed_cpus(&self) -> Option<Vec<u32>> {
        parse_cpus(&entry(&self.text("proc/self/status")?, "Cpus_allowed_list")?)
    }

    fn cores(&self, cpus: &[u32]) -> Option<u32> {
        let siblings = |cpu: &u32| {
            let topology = PathBuf::from(format!("sys/devices/system/cpu/cpu{cpu}/topology"));
            let newer = self.text(topology.join("core_cpus_list"));
            newer.or_else(|| self.text(topology.join("thread_siblings_list")))
        };
        let cores: Option<BTreeSet<String>> = cpus.iter().map(siblings).collect();
        cores.map(|cores| cores.len() as u32)
    }

    fn cache_bytes(&self) -> Option<u64> {
        let cache = Path::new("sys/devices/system/cpu/cpu0/cache");
        let indices = self.folders(cache);
        let data = indices.iter().filter(|index| self.text(index.join("type")).as_deref() != Some("Instruction"));
        data.filter_map(|index| parse_size(&self.text(index.join("size"))?)).max()
    }

    fn memory(&self, name: &str) -> Option<u64> {
        let kib: u64 = entry(&self.text("proc/meminfo")?, name)?.strip_suffix("kB")?.trim().parse().ok()?;
        kib.checked_mul(1024)
    }

    fn governor(&self, cpus: &[u32]) -> Option<String> {
        let path = |cpu| format!("sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor");
        let found: BTreeSet<String> = cpus.iter().filter_map(|cpu| self.text(path(cpu))).collect();
        if found.len() > 1 { Some("mixed".to_owned()) } else { found.into_iter().next() }
    }

    fn boost(&self) -> Option<bool> {
        let switch = |path| match self.text(path)?.as_str() {
            "0" => Some(false),
            "1" => Some(true),
            _ => None,
        };
        let no_turbo = || switch("sys/devices/system/cpu/intel_pstate/no_turbo").map(|off| !off);
        switch("sys/devices/system/cpu/cpufreq/boost").or_else(no_turbo)
    }

    fn virtual_machine(&self) -> Option<String> {
        let xen = self.text("sys/hypervisor/type");
        let flags = self.cpu_entry("flags").unwrap_or_default();
        let is_guest = flags.split_whitespace().any(|flag| flag == "hypervisor");
        (is_guest || xen.is_some()).then(|| self.product().or(xen).unwrap_or_else(|| "yes".to_owned()))
    }

    /// Vendor and model of the machine, as reported by its firmware.
    fn product(&self) -> Option<String> {
        let maker = self.text("sys/class/dmi/id/sys_vendor");
        match (maker, self.text("sys/class/dmi/id/product_name")) {
            (Some(maker), Some(model)) if !model.starts_with(&maker) => Some(format!("{maker} {model}")),
            (maker, model) => model.or(maker),
        }
    }

    fn gpus(&self) -> Vec<Gpu> {
        let driver = self.nvidia_driver();
        let folders = self.folders("proc/driver/nvidia/gpus");
        let names = folders.iter().filter_map(|folder| entry(&self.text(folder.join("information"))?, "Model"));
        names.map(|name| Gpu { name, driver: driver.clone() }).collect()
    }

    /// The subfolders of a folder, sorted by name.
    fn folders(&self, path: impl AsRef<Path>) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(self.root.join(path.as_ref())) else { return Vec::new() };
        let mut names: Vec<_> = entries.flatten().map(|entry| entry.file_name()).collect();
        names.sort();
        names.iter().map(|name| path.as_ref().join(name)).collect()
    }
}

/// The smaller of two values, or the one that is known.
pub(super) fn least(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    one.into_iter().chain(other).min()
}

fn entry(text: &str, name: &str) -> Option<String> {
    let mut entries = text.lines().filter_map(|line| line.split_once(':'));
    let (_, value) = entries.find(|(key, _)| key.trim() == name)?;
    let value = value.trim();
    (!value.is_empty()).then(|| value.to_owned())
}

/// Parses a CPU list such as `0-3,8`.
fn parse_cpus(list: &str) -> Option<Vec<u32>> {
    let mut cpus = BTreeSet::new();
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        if first > last || last >= MOST_CPUS {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus.into_iter().collect())
}

/// Parses a size such as `32768K`.
fn parse_size(text: &str) -> Option<u64> {
    let units = [("K", 1 << 10), ("M", 1 << 20), ("G", 1 << 30)];
    let known = units.iter().find_map(|&(unit, bytes)| Some((text.strip_suffix(unit)?, bytes)));
    let (digits, bytes) = known.unwrap_or((text, 1));
    digits.parse::<u64>().ok()?.checked_mul(bytes).filter(|&size| size > 0)
}

fn is_version(word: &str) -> bool {
    let numbers: Vec<&str> = word.split('.').collect();
    let is_number = |part: &&str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    numbers.len() > 1 && numbers.iter().all(is_number)
}
