//! Synthetic machines, each described by a few files.

use laptime_trace::run::{Build, Environment, Gpu, Machine, Steal};

use super::Linux;

/// A folder with the files of a machine, given as paths and contents.
fn machine<'a>(files: impl IntoIterator<Item = (&'a str, &'a str)>) -> (tempfile::TempDir, Linux) {
    let folder = tempfile::tempdir().unwrap();
    for (path, content) in files {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
    let linux = Linux::below(folder.path());
    (folder, linux)
}

/// A desktop with two cores and two threads per core.
const BARE_METAL: [(&str, &str); 20] = [
    ("proc/cpuinfo", "processor\t: 0\nmodel name\t: AMD Ryzen 7\nflags\t\t: fpu tsc nonstop_tsc\n\nprocessor\t: 1\n"),
    ("proc/self/status", "Name:\tlaptime\nCpus_allowed:\tf\nCpus_allowed_list:\t0-1,2,3\n"),
    ("sys/devices/system/cpu/cpu0/topology/core_cpus_list", "0,2\n"),
    ("sys/devices/system/cpu/cpu1/topology/core_cpus_list", "1,3\n"),
    ("sys/devices/system/cpu/cpu2/topology/core_cpus_list", "0,2\n"),
    ("sys/devices/system/cpu/cpu3/topology/thread_siblings_list", "1,3\n"),
    ("sys/devices/system/cpu/cpu0/cache/index0/size", "32K\n"),
    ("sys/devices/system/cpu/cpu0/cache/index1/size", "64M\n"),
    ("sys/devices/system/cpu/cpu0/cache/index1/type", "Instruction\n"),
    ("sys/devices/system/cpu/cpu0/cache/index3/size", "32768K\n"),
    ("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n"),
    ("sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "powersave\n"),
    ("sys/devices/system/cpu/cpufreq/boost", "1\n"),
    ("sys/class/dmi/id/sys_vendor", "A Maker\n"),
    ("proc/meminfo", "MemTotal:       1000 kB\nMemFree:  1 kB\nMemAvailable:    600 kB\n"),
    ("proc/loadavg", "0.25 0.35 0.98 1/85 18587\n"),
    ("proc/sys/kernel/ostype", "Linux\n"),
    ("proc/sys/kernel/osrelease", "6.18.1\n"),
    ("sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc\n"),
    ("proc/stat", "cpu  10 1 20 60 2 0 3 4 5 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n"),
];

#[test]
fn a_physical_machine_is_described() {
    let (_folder, linux) = machine(BARE_METAL);
    let expected = Machine {
        cpu: Some("AMD Ryzen 7".into()),
        cpus: 4,
        cores: Some(2),
        cache_bytes: Some(32 << 20),
        memory_bytes: Some(1000 << 10),
        governor: Some("powersave".into()),
        boost: Some(true),
        os: "Linux".into(),
        kernel: Some("6.18.1".into()),
        clock_source: Some("tsc".into()),
        ..Machine::default()
    };
    assert_eq!(linux.machine(99), expected);
    assert_eq!((linux.load(), linux.available_bytes()), (Some(0.25), Some(600 << 10)));
    assert_eq!(linux.steal(), Some(Steal { ticks: 4, of_ticks: 100 }));
}

#[test]
fn different_governors_of_allowed_cpus_are_mixed() {
    let other = ("sys/devices/system/cpu/cpu2/cpufreq/scaling_governor", "performance\n");
    let narrow = ("proc/self/status", "Cpus_allowed_list:\t2\n");
    let governor = |more: &[(&'static str, &'static str)]| {
        let (_folder, linux) = machine(BARE_METAL.into_iter().chain(more.iter().copied()));
        linux.machine(1).governor
    };
    assert_eq!(governor(&[other]).as_deref(), Some("mixed"));
    assert_eq!(governor(&[other, narrow]).as_deref(), Some("performance"));
}

#[test]
fn disabled_turbo_is_no_boost() {
    let boost = |no_turbo| {
        let (_folder, linux) = machine([("sys/devices/system/cpu/intel_pstate/no_turbo", no_turbo)]);
        linux.machine(1).boost
    };
    assert_eq!((boost("1\n"), boost("0\n"), boost("maybe")), (Some(false), Some(true), None));
}

#[test]
fn a_virtual_machine_is_named_by_its_firmware_or_by_xen() {
    let flags = ("proc/cpuinfo", "flags\t\t: fpu hypervisor\n");
    let named = |files: &[(&str, &str)]| {
        let (_folder, linux) = machine(files.iter().copied());
        linux.machine(1).virtual_machine
    };
    let maker = ("sys/class/dmi/id/sys_vendor", "QEMU\n");
    let model = ("sys/class/dmi/id/product_name", "Standard PC\n");
    assert_eq!(named(&[flags]).as_deref(), Some("yes"));
    assert_eq!(named(&[flags, maker, model]).as_deref(), Some("QEMU Standard PC"));
    assert_eq!(named(&[flags, ("sys/hypervisor/type", "xen\n")]).as_deref(), Some("xen"));
    assert_eq!(named(&[maker, model]), None, "firmware alone does not mean a virtual machine");
}

#[test]
fn the_lowest_limit_of_nested_control_groups_applies() {
    let (_folder, linux) = machine([
        ("proc/self/cgroup", "0::/pod/box\n"),
        ("proc/meminfo", "MemTotal: 4000 kB\nMemAvailable: 3000 kB\n"),
        ("sys/fs/cgroup/pod/box/cpu.max", "max 100000\n"),
        ("sys/fs/cgroup/pod/cpu.max", "150000 100000\n"),
        ("sys/fs/cgroup/pod/box/memory.max", "2048000\n"),
        ("sys/fs/cgroup/pod/box/memory.current", "1500000\n"),
        ("sys/fs/cgroup/pod/box/memory.stat", "anon 7\ninactive_file 500000\n"),
        ("sys/fs/cgroup/pod/memory.max", "max\n"),
    ]);
    let found = linux.machine(2);
    assert_eq!((found.cpu_quota, found.memory_bytes), (Some(1.5), Some(2_048_000)));
    assert_eq!(linux.available_bytes(), Some(1_048_000));
}

#[test]
fn limits_of_control_groups_version_1_apply() {
    let (_folder, linux) = machine([
        ("proc/self/cgroup", "4:memory:/not/seen/here\n3:cpu,cpuacct:/\n0::/\n"),
        ("proc/meminfo", "MemTotal: 4000 kB\n"),
        ("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "50000\n"),
        ("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"),
        ("sys/fs/cgroup/memory/memory.limit_in_bytes", "1024000\n"),
        ("sys/fs/cgroup/memory/memory.usage_in_bytes", "1000000\n"),
    ]);
    let found = linux.machine(2);
    assert_eq!((found.cpu_quota, found.memory_bytes), (Some(0.5), Some(1_024_000)));
    assert_eq!(linux.available_bytes(), Some(24_000));
}

#[test]
fn no_limit_is_none() {
    let (_folder, linux) = machine([
        ("proc/self/cgroup", "4:memory:/\n3:cpu:/\n"),
        ("proc/meminfo", "MemTotal: 4000 kB\n"),
        ("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n"),
        ("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"),
        ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
    ]);
    let found = linux.machine(2);
    assert_eq!((found.cpu_quota, found.memory_bytes), (None, Some(4000 << 10)));
}

#[test]
fn the_nvidia_driver_reports_gpus() {
    let version =
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build  (dvs)\nGCC version:\n";
    let (_folder, linux) = machine([
        ("proc/driver/nvidia/version", version),
        ("proc/driver/nvidia/gpus/0000:02:00.0/information", "Model: \t\t NVIDIA L4\nIRQ:   \t\t 18\n"),
        ("proc/driver/nvidia/gpus/0000:01:00.0/information", "Model: \t\t NVIDIA H200\n"),
    ]);
    let gpu = |name: &str| Gpu { name: name.into(), driver: Some("580.65.06".into()) };
    assert_eq!(linux.machine(1).gpus, [gpu("NVIDIA H200"), gpu("NVIDIA L4")]);
}

#[test]
fn without_files_everything_is_unknown() {
    let (_folder, linux) = machine([]);
    let nothing = Machine { cpus: 3, os: std::env::consts::OS.into(), ..Machine::default() };
    assert_eq!(linux.machine(3), nothing);
    assert_eq!((linux.load(), linux.available_bytes(), linux.steal()), (None, None, None));
}

/// Every file that is read, except those in folders with unknown names.
const READ: [&str; 22] = [
    "proc/cpuinfo",
    "proc/self/status",
    "proc/self/cgroup",
    "proc/meminfo",
    "proc/loadavg",
    "proc/stat",
    "proc/driver/nvidia/version",
    "proc/driver/nvidia/gpus/0/information",
    "sys/fs/cgroup/cpu.max",
    "sys/fs/cgroup/memory.max",
    "sys/fs/cgroup/memory.current",
    "sys/fs/cgroup/cpu/cpu.cfs_quota_us",
    "sys/fs/cgroup/cpu/cpu.cfs_period_us",
    "sys/fs/cgroup/memory/memory.limit_in_bytes",
    "sys/fs/cgroup/memory/memory.usage_in_bytes",
    "sys/devices/system/cpu/cpu0/cache/index0/size",
    "sys/devices/system/cpu/cpufreq/boost",
    "sys/devices/system/cpu/intel_pstate/no_turbo",
    "proc/sys/kernel/osrelease",
    "sys/devices/system/clocksource/clocksource0/current_clocksource",
    "sys/class/dmi/id/sys_vendor",
    "sys/devices/system/cpu/cpu0/topology/core_cpus_list",
];

#[test]
fn unexpected_content_is_unknown() {
    for garbage in
        ["", "\n", "\0\0", ":", "-", "::::\n0::/../..\n", "99999999999999999999K", "nan inf -1", "cpu  1 2\n"]
    {
        let (_folder, linux) = machine(READ.map(|path| (path, garbage)));
        let found = linux.machine(1);
        let numbers = (found.cores, found.cpu_quota, found.cache_bytes, found.memory_bytes, found.boost);
        assert_eq!(numbers, (None, None, None, None, None), "{garbage:?}");
        assert_eq!((linux.load(), linux.available_bytes(), linux.steal()), (None, None, None), "{garbage:?}");
        assert!(found.gpus.is_empty() && found.cpus == 1, "{garbage:?}");
        assert_ne!(found.kernel.as_deref(), Some(""), "{garbage:?}");
    }
}

#[test]
fn files_that_are_not_utf8_are_unknown() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(folder.path().join("proc/sys/kernel")).unwrap();
    std::fs::write(folder.path().join("proc/sys/kernel/osrelease"), [0xff, 0xfe]).unwrap();
    assert_eq!(Linux::below(folder.path()).machine(1).kernel, None);
}

#[test]
fn impossible_cpu_lists_are_refused() {
    for list in ["0-4294967295", "5-2", "0-", "a", "0,,1"] {
        let status = format!("Cpus_allowed_list:\t{list}\n");
        let (_folder, linux) = machine([("proc/self/status", status.as_str())]);
        assert_eq!(linux.machine(7).cpus, 7, "{list}");
    }
}

#[test]
fn this_machine_and_this_program_are_described() {
    let build = Build { binary: super::binary_fingerprint(), ..Build::default() };
    assert_eq!(build.binary.as_ref().map(String::len), Some(16));
    let gathered: Environment = super::gather(build.clone());
    assert!(gathered.machine.cpus >= 1);
    assert_eq!(gathered.build, build);
}
