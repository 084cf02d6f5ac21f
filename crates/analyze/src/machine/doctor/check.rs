//! The checks of a machine: what was seen, whether it is good, and what to do about it.

use laptime_trace::run::{Build, HostClock, Machine, StallStats, Steal};

use super::GpuHealth;
use super::figures::{gib, per_cent, time};
use crate::note::plural;

laptime_trace::words! {
    /// The level of a result, best first.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Level: word {
        Good = "good",
        /// Neither good nor bad, or unknown; worth knowing.
        Note = "note",
        /// Timings may be off or noisy because of it.
        Warning = "warning",
        /// Timings are meaningless.
        Bad = "bad",
    }
}

/// One check, with its evidence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// The name of the check.
    pub word: &'static str,
    /// The level of the result.
    pub level: Level,
    /// What was seen.
    pub seen: String,
    /// The limit between good and doubtful, if it is a number.
    pub limit: Option<String>,
    /// The likely consequence, if the result is not good.
    pub meaning: Option<String>,
    /// What to try, if the result is not good and there is something.
    pub next: Option<String>,
}

impl Check {
    fn new(word: &'static str, level: Level, seen: impl Into<String>) -> Self {
        Self { word, level, seen: seen.into(), limit: None, meaning: None, next: None }
    }

    fn limit(self, limit: impl Into<Option<String>>) -> Self {
        Self { limit: limit.into(), ..self }
    }

    fn meaning(self, meaning: impl Into<String>) -> Self {
        Self { meaning: (self.level != Level::Good).then(|| meaning.into()), ..self }
    }

    fn next(self, next: impl Into<String>) -> Self {
        Self { next: (self.level != Level::Good).then(|| next.into()), ..self }
    }

    /// The same advice only in some cases.
    fn next_if(self, is_given: bool, next: &str) -> Self {
        if is_given { self.next(next) } else { self }
    }
}

/// The state of the peaks of a device.
#[derive(Debug, Clone, Copy, PartialEq)]
#[allow(missing_docs, reason = "the fields are named after what they hold")]
pub enum PeaksState {
    /// They were not measured.
    NotMeasured,
    /// They were measured, and a short test did not exceed them.
    Measured,
    /// A short test exceeded them by this factor, so they were measured on a busy machine.
    TooLow { times: f64 },
}

/// The load per CPU above which other processes interfere.
const LOAD: f64 = 0.1;

/// The share of interruptions, steal time and spread above which differences of 1 % cannot be measured.
const SHARE: f64 = 0.01;

/// A pause of 1 % of an iteration of 100 ms.
const GAP_NS: u64 = 1_000_000;

/// The step and cost of a clock that times a microsecond within 10 %.
const CLOCK_NS: f64 = 100.0;

/// The share of free memory below which the kernel starts to reclaim memory.
const MEMORY: f64 = 0.1;

const UNKNOWN: &str = "unknown";

/// How the program was built.
pub(super) fn build(build: &Build) -> Check {
    let assertions = if build.debug_assertions { ", assertions on" } else { "" };
    let seen = format!("{}, opt-level {}{assertions}", build.profile, build.opt_level);
    let (level, meaning) = if build.is_unoptimised() {
        (Level::Bad, "the build is not optimised, so its timings are meaningless")
    } else {
        (warn_if(build.debug_assertions), "debug assertions cost time that a release build does not need")
    };
    Check::new("build", level, seen).meaning(meaning).next("`cargo build --release`")
}

/// The CPU frequency governor, if known; a virtual machine rarely reports it.
pub(super) fn governor(governor: Option<&str>, is_virtual: bool) -> Check {
    let level = warn_if_known(governor, |governor| governor != "performance");
    let meaning = match governor {
        None if is_virtual => "unknown in a virtual machine; the hypervisor controls the clocks",
        None => "the CPU frequency policy is unknown",
        Some(_) => "the CPU clock follows the load, so the first iterations are slower",
    };
    Check::new("governor", level, governor.unwrap_or(UNKNOWN)).meaning(meaning).next_if(
        governor.is_some(),
        "`echo performance | sudo tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor`",
    )
}

/// Whether the CPU may boost its clock, if known; Intel has its own switch.
pub(super) fn boost(is_on: Option<bool>, is_intel: bool) -> Check {
    let level = if is_on == Some(false) { Level::Good } else { Level::Note };
    let meaning = match is_on {
        None => "the CPU may boost its clock and lower it again when it gets warm",
        Some(_) => "the CPU boosts its clock until it gets warm, so short runs look faster",
    };
    let next = if is_intel {
        "turn it off with `echo 1 | sudo tee /sys/devices/system/cpu/intel_pstate/no_turbo`"
    } else {
        "turn it off with `echo 0 | sudo tee /sys/devices/system/cpu/cpufreq/boost`"
    };
    let seen = is_on.map_or(UNKNOWN, |on| if on { "on" } else { "off" });
    Check::new("boost", level, seen).meaning(meaning).next_if(is_on.is_some(), next)
}

/// Whether other machines share the hardware: the kind of the virtual machine, if it is one.
pub(super) fn virtual_machine(name: Option<&str>) -> Check {
    Check::new("virtual machine", warn_if(name.is_some()), name.unwrap_or("no"))
        .meaning("other virtual machines may share the hardware and affect timings")
        .next("compare with `laptime ab`, which interleaves both sides")
}

/// The CPU quota, if there is one, and the CPUs that the process may use.
pub(super) fn quota(granted: Option<f64>, cpus: u32) -> Check {
    let level = warn_if(granted.is_some_and(|granted| granted < f64::from(cpus)));
    let seen = granted.map_or_else(|| "none".to_owned(), |granted| format!("{granted} of {cpus} CPUs"));
    let threads = plural(granted.map_or(1.0, |granted| granted.floor().max(1.0)) as u64, "thread", "threads");
    Check::new("CPU quota", level, seen)
        .meaning("threads are paused when the quota of a period is used up")
        .next(format!("use at most {threads}, or raise the quota"))
}

/// What to do about other programs.
const STOP_OTHERS: &str = "stop other programs (`top` shows them) or wait";

/// The load average of the last minute, if known.
pub(super) fn load(load: Option<f64>, cpus: u32) -> Check {
    let limit = LOAD * f64::from(cpus);
    let seen = or_unknown(load, |load| format!("{load:.2} on {}", plural(cpus, "CPU", "CPUs")));
    let meaning =
        if load.is_some() { "other programs were running in the last minute" } else { "the kernel does not report it" };
    Check::new("load", warn_if_known(load, |load| load > limit), seen)
        .limit(format!("{limit:.2}"))
        .meaning(meaning)
        .next_if(load.is_some(), STOP_OTHERS)
}

/// The share of their time in which spinning threads were interrupted, and how often.
pub(super) fn lost_time(threads: u32, share: f64, gaps: u64) -> Check {
    let word = if threads == 1 { "interruptions, 1 thread" } else { "interruptions, all threads" };
    let seen = format!("{} % in {}", per_cent(share), plural(gaps, "pause", "pauses"));
    Check::new(word, warn_if(share > SHARE), seen)
        .limit(share_limit())
        .meaning("threads were interrupted, so iterations take longer by up to this share")
        .next(STOP_OTHERS)
}

/// The longest interruption of such a thread.
pub(super) fn longest_gap(threads: u32, nanos: u64) -> Check {
    let word = if threads == 1 { "longest pause, 1 thread" } else { "longest pause, all threads" };
    let shorter = time(nanos as f64 * 100.0);
    Check::new(word, warn_if(nanos > GAP_NS), time(nanos as f64))
        .limit(time(GAP_NS as f64))
        .meaning(format!("a single iteration shorter than {shorter} may be off by more than 1 %"))
        .next("measure longer or more iterations, and use the median")
}

/// How even the speed of such threads was: its spread as a share of the median.
fn pace(threads: u32, spread: f64) -> Check {
    let word = if threads == 1 { "speed, 1 thread" } else { "speed, all threads" };
    Check::new(word, warn_if(spread > SHARE), format!("± {} %", per_cent(spread)))
        .limit(share_limit())
        .meaning("equal work took different times: clocks change, or a core is shared")
}

/// What spinning threads saw.
pub(super) fn watched(watch: &StallStats) -> impl Iterator<Item = Check> {
    let threads = watch.threads;
    let lost = watch.lost_share().map(|share| lost_time(threads, share, watch.gaps));
    let gap = watch.lost_share().map(|_| longest_gap(threads, watch.longest_gap_ns));
    let pace = watch.pace_spread.map(|spread| pace(threads, spread));
    [lost, gap, pace].into_iter().flatten()
}

/// Time that a hypervisor gave to other machines.
pub(super) fn steal(steal: Option<Steal>) -> Check {
    let meaning = match steal {
        Some(_) => "the hypervisor gave CPU time to other virtual machines",
        None => "the kernel does not report it",
    };
    let seen = or_unknown(steal, |steal| format!("{} of {} ticks", steal.ticks, steal.of_ticks));
    Check::new("steal time", warn_if_known(steal.and_then(Steal::share), |share| share > SHARE), seen)
        .limit(share_limit())
        .meaning(meaning)
        .next_if(steal.is_some(), "measure at another time, or on a dedicated machine")
}

/// The clock of all timings, the clock source of the kernel, and whether the TSC has a constant rate.
pub(super) fn clock_source(clock: &HostClock, kernel: Option<&str>) -> Check {
    let is_invariant = clock.is_invariant;
    let steady = is_invariant.map_or("", |yes| if yes { ", invariant" } else { ", not invariant" });
    let meaning = match is_invariant {
        Some(false) => "the TSC rate changes, so it is not used",
        _ => "the kernel considers the TSC unstable, so a slower clock is used",
    };
    let level = warn_if(clock.name != "tsc" && is_invariant.is_some());
    Check::new("clock", level, format!("{}{steady}; kernel: {}", clock.name, kernel.unwrap_or(UNKNOWN)))
        .meaning(meaning)
        .next_if(is_invariant == Some(true), "see why with `sudo dmesg | grep -i tsc`")
}

/// The resolution of that clock, if it could be measured, and the cost of a reading.
pub(super) fn clock(step_ns: Option<f64>, reading_ns: f64) -> Check {
    let is_coarse = step_ns.is_none_or(|step| step > CLOCK_NS) || reading_ns > CLOCK_NS;
    let seen = format!("step {}, cost {}", or_unknown(step_ns, time), time(reading_ns));
    Check::new("clock resolution", warn_if(is_coarse), seen)
        .limit(time(CLOCK_NS))
        .meaning("spans shorter than 1 µs have an error of more than 10 %")
}

/// Free and total bytes, if known.
pub(super) fn memory(available: Option<u64>, total: Option<u64>) -> Check {
    let both = available.zip(total);
    let level = warn_if_known(both, |(available, total)| (available as f64 / total as f64) < MEMORY);
    let seen = or_unknown(both, |(available, total)| format!("{} of {} GiB free", gib(available), gib(total)));
    let meaning =
        if both.is_some() { "large cases may be swapped out or killed" } else { "the free memory is unknown" };
    Check::new("memory", level, seen)
        .limit(total.map(|total| format!("{} GiB", gib((total as f64 * MEMORY) as u64))))
        .meaning(meaning)
        .next_if(available.is_some(), "see what uses it with `ps aux --sort=-rss | head`")
}

/// The GPUs that the driver lists, and why none is usable, if so.
pub(super) fn gpu(machine: &Machine, driver: Option<&str>, has_cuda: bool, unusable: Option<&str>) -> Check {
    let gpus: Vec<&str> = machine.gpus.iter().map(|gpu| gpu.name.as_str()).collect();
    let seen = listed(&gpus, driver);
    if let Some(reason) = unusable.filter(|_| !gpus.is_empty() || driver.is_some()) {
        return Check::new("GPU", Level::Warning, seen)
            .meaning(format!("no usable GPU: {reason}"))
            .next("run `laptime bench matmul --device cuda`, which prints a hint");
    }
    let doubt = |meaning: &str, next: &str| Check::new("GPU", Level::Warning, seen.clone()).meaning(meaning).next(next);
    match (gpus.is_empty(), driver, has_cuda) {
        (false, _, true) => Check::new("GPU", Level::Good, seen),
        (false, _, false) => doubt(
            "this build has no CUDA support, so only the CPU can be used",
            "`cargo build --release --features cuda`",
        ),
        (true, Some(_), _) => {
            doubt("the driver is loaded but reports no GPU", "run `nvidia-smi` to see which GPUs the driver finds")
        }
        (true, None, true) => doubt(
            "no NVIDIA driver is loaded, so only the CPU can be measured",
            "install the NVIDIA driver, or start the container with `docker run --gpus all`",
        ),
        (true, None, false) => Check::new("GPU", Level::Note, seen)
            .meaning("no NVIDIA driver is loaded and this build has no CUDA support, so only the CPU can be measured"),
    }
}

fn listed(gpus: &[&str], driver: Option<&str>) -> String {
    let driver = driver.map(|driver| format!(", driver {driver}"));
    match (gpus, driver) {
        ([], None) => "none: no `/proc/driver/nvidia`".to_owned(),
        ([], Some(driver)) => format!("none{driver}"),
        ([one], driver) => format!("{one}{}", driver.unwrap_or_default()),
        ([first, ..], driver) => format!("{} x {first}{}", gpus.len(), driver.unwrap_or_default()),
    }
}

/// The state of a GPU.
pub(super) fn gpu_state(health: &GpuHealth) -> Check {
    let state = &health.state;
    let of = |value: Option<f64>, limit: Option<f64>, unit: &str| {
        let limit = limit.map_or_else(String::new, |limit| format!(" of {limit:.0}"));
        value.map(|value| format!("{value:.0}{limit} {unit}"))
    };
    let parts = [
        of(state.clock_mhz, health.clock_limit_mhz, "MHz"),
        of(state.power_watts, health.power_limit_watts, "W"),
        of(state.temperature_c, None, "°C"),
        health.cuda.as_ref().map(|version| format!("CUDA {version}")),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    let seen = if parts.is_empty() { UNKNOWN.to_owned() } else { parts.join(", ") };
    Check::new("GPU state", warn_if(!state.throttled.is_empty()), format!("{}: {seen}", health.device))
        .meaning(format!("the GPU is throttled: {}", state.throttled.join(", ")))
        .next("let it cool, or lock a lower clock with `sudo nvidia-smi -lgc MHZ`")
}

/// Whether kernels of a GPU can be recorded, and why not.
pub(super) fn kernel_records(device: &str, reason: Option<&str>) -> Check {
    let (level, found) = if reason.is_none() { (Level::Good, "CUPTI found") } else { (Level::Note, "no CUPTI") };
    Check::new("kernel records", level, format!("{device}: {found}"))
        .meaning(format!("`--timing kernels` needs CUPTI: {}", reason.unwrap_or_default()))
        .next("install CUPTI from the CUDA toolkit (`extras/CUPTI/lib64`) and add it to `LD_LIBRARY_PATH`")
}

/// Whether the peaks of a device are known.
pub(super) fn peaks(device: &str, state: PeaksState) -> Check {
    let none = "results cannot be compared with the hardware limit";
    let (level, seen, meaning) = match state {
        PeaksState::NotMeasured => (Level::Note, "not measured".to_owned(), none),
        PeaksState::Measured => (Level::Good, "measured".to_owned(), none),
        PeaksState::TooLow { times } => (
            Level::Warning,
            format!("too low: a short test reached {times:.2}x"),
            "they were measured on a busy machine, so `mfu`, `mbu` and `x limit` are wrong",
        ),
    };
    let of = if device == "cpu" { String::new() } else { format!("{device}: ") };
    Check::new("peaks", level, of + &seen).meaning(meaning).next(format!("`laptime peaks --device {device}`"))
}

fn share_limit() -> String {
    format!("{} %", per_cent(SHARE))
}

fn warn_if(is_bad: bool) -> Level {
    if is_bad { Level::Warning } else { Level::Good }
}

fn warn_if_known<T>(value: Option<T>, is_bad: impl Fn(T) -> bool) -> Level {
    value.map_or(Level::Note, |value| warn_if(is_bad(value)))
}

fn or_unknown<T>(value: Option<T>, write: impl Fn(T) -> String) -> String {
    value.map_or_else(|| UNKNOWN.to_owned(), write)
}

#[cfg(test)]
mod tests {
    use super::*;
    use laptime_trace::run::Gpu;

    #[test]
    fn a_failed_check_has_a_value_a_limit_a_meaning_and_a_next_step() {
        let busy = load(Some(3.5), 2);
        assert_eq!((busy.word, busy.seen.as_str(), busy.limit.as_deref()), ("load", "3.50 on 2 CPUs", Some("0.20")));
        assert_eq!(busy.meaning.unwrap(), "other programs were running in the last minute");
        assert_eq!(busy.next.unwrap(), "stop other programs (`top` shows them) or wait");
        let idle = load(Some(0.2), 2);
        assert_eq!((idle.seen.as_str(), idle.meaning, idle.next), ("0.20 on 2 CPUs", None, None));
    }

    #[test]
    fn an_unknown_governor_in_a_virtual_machine_gets_no_advice() {
        let check = governor(None, true);
        assert_eq!((check.level, check.seen.as_str(), check.next), (Level::Note, "unknown", None));
        assert_eq!(check.meaning.unwrap(), "unknown in a virtual machine; the hypervisor controls the clocks");
        let check = governor(Some("powersave"), true);
        assert!(check.next.unwrap().starts_with("`echo performance | sudo tee "));
    }

    #[test]
    fn the_reason_for_a_missing_gpu_is_reported_without_redundant_advice() {
        let gpu = |gpus: &[&str], driver: Option<&str>, has_cuda| {
            let gpus = gpus.iter().map(|&name| Gpu { name: name.to_owned(), ..Gpu::default() }).collect();
            let check = gpu(&Machine { gpus, ..Machine::default() }, driver, has_cuda, None);
            (check.level, check.seen, check.next.is_some())
        };
        let none = "none: no `/proc/driver/nvidia`".to_owned();
        assert_eq!(gpu(&["L4"], Some("580"), true), (Level::Good, "L4, driver 580".into(), false));
        assert_eq!(gpu(&["L4", "L4"], None, false), (Level::Warning, "2 x L4".into(), true));
        assert_eq!(gpu(&[], Some("580"), true), (Level::Warning, "none, driver 580".into(), true));
        assert_eq!(gpu(&[], None, true), (Level::Warning, none.clone(), true));
        assert_eq!(gpu(&[], None, false), (Level::Note, none, false));
    }

    #[test]
    fn peaks_below_the_rate_of_a_short_test_fail_the_check() {
        let poisoned = peaks("cuda:0", PeaksState::TooLow { times: 3.094 });
        assert_eq!(
            (poisoned.level, poisoned.seen.as_str(), poisoned.next.as_deref()),
            (Level::Warning, "cuda:0: too low: a short test reached 3.09x", Some("`laptime peaks --device cuda:0`"))
        );
        assert_eq!(peaks("cpu", PeaksState::Measured).level, Level::Good);
        assert_eq!(peaks("cpu", PeaksState::NotMeasured).seen, "not measured");
    }

    #[test]
    fn a_cpu_quota_names_the_allowed_threads() {
        let quota = |granted| quota(Some(granted), 4);
        assert_eq!(quota(0.5).next.unwrap(), "use at most 1 thread, or raise the quota");
        assert_eq!(quota(2.5).next.unwrap(), "use at most 2 threads, or raise the quota");
        assert_eq!((quota(4.0).level, quota(4.0).next), (Level::Good, None));
    }

    #[test]
    fn a_long_interruption_names_the_minimum_iteration_time() {
        let gap = longest_gap(1, 4_100_000);
        assert_eq!(gap.meaning.unwrap(), "a single iteration shorter than 410 ms may be off by more than 1 %");
        assert_eq!(longest_gap(1, 1_000_000).level, Level::Good);
    }

    #[test]
    fn an_unused_clock_counter_is_a_note_and_a_missing_one_is_not() {
        let clock = |name: &str, is_invariant| {
            let clock = HostClock { name: name.into(), is_invariant, ..HostClock::default() };
            clock_source(&clock, Some("hpet"))
        };
        assert_eq!(clock("monotonic", Some(true)).next.unwrap(), "see why with `sudo dmesg | grep -i tsc`");
        assert_eq!(clock("monotonic", Some(false)).level, Level::Warning);
        assert_eq!(clock("monotonic", None).level, Level::Good);
        assert_eq!(clock("tsc", Some(true)).seen, "tsc, invariant; kernel: hpet");
    }

    #[test]
    fn check_levels_change_at_their_limits() {
        let level = |check: Check| check.level;
        assert_eq!(level(lost_time(1, 0.01, 1)), Level::Good);
        assert_eq!(level(lost_time(1, 0.0101, 1)), Level::Warning);
        assert_eq!(level(steal(Some(Steal { ticks: 1, of_ticks: 100 }))), Level::Good);
        assert_eq!(level(steal(Some(Steal { ticks: 1, of_ticks: 50 }))), Level::Warning);
        assert_eq!(level(clock(Some(100.0), 100.0)), Level::Good);
        assert_eq!(level(clock(Some(1.0), 101.0)), Level::Warning);
        assert_eq!(level(memory(Some(10), Some(100))), Level::Good);
        assert_eq!(level(memory(Some(9), Some(100))), Level::Warning);
        assert_eq!(level(boost(Some(true), false)), Level::Note);
    }
}
