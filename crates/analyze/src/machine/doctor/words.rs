//! The texts of the checks.

use std::fmt;

use super::{Check, GpuHealth, Level, PeaksState};
use crate::note::plural;

const NOT_KNOWN: &str = "unknown";

impl Check {
    /// The name of the check.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Build { .. } => "build",
            Self::Governor { .. } => "governor",
            Self::Boost { .. } => "boost",
            Self::VirtualMachine { .. } => "virtual machine",
            Self::Quota { .. } => "CPU quota",
            Self::Load { .. } => "load",
            Self::LostTime { threads: 1, .. } => "interruptions, 1 thread",
            Self::LostTime { .. } => "interruptions, all threads",
            Self::LongestGap { threads: 1, .. } => "longest pause, 1 thread",
            Self::LongestGap { .. } => "longest pause, all threads",
            Self::Pace { threads: 1, .. } => "speed, 1 thread",
            Self::Pace { .. } => "speed, all threads",
            Self::Steal { .. } => "steal time",
            Self::ClockSource { .. } => "clock",
            Self::Clock { .. } => "clock resolution",
            Self::Memory { .. } => "memory",
            Self::Gpu { .. } => "GPU",
            Self::GpuState { .. } => "GPU state",
            Self::KernelRecords { .. } => "kernel records",
            Self::Peaks { .. } => "peaks",
        }
    }

    /// What was seen.
    pub fn seen(&self) -> String {
        match self {
            Self::Build { profile, opt_level, has_assertions } => {
                let assertions = if *has_assertions { ", assertions on" } else { "" };
                format!("{profile}, opt-level {opt_level}{assertions}")
            }
            Self::Governor { governor, .. } => governor.clone().unwrap_or_else(|| NOT_KNOWN.into()),
            Self::Boost { is_on, .. } => is_on.map_or(NOT_KNOWN, |on| if on { "on" } else { "off" }).into(),
            Self::VirtualMachine { name } => name.clone().unwrap_or_else(|| "no".into()),
            Self::Quota { granted: Some(granted), cpus } => format!("{granted} of {cpus} CPUs"),
            Self::Quota { granted: None, .. } => "none".into(),
            Self::Load { load, cpus } => known(*load, |load| format!("{load:.2} on {}", plural(*cpus, "CPU", "CPUs"))),
            Self::LostTime { share, gaps, .. } => {
                format!("{} % in {}", per_cent(*share), plural(*gaps, "pause", "pauses"))
            }
            Self::LongestGap { nanos, .. } => time(*nanos as f64),
            Self::Pace { spread, .. } => format!("± {} %", per_cent(*spread)),
            Self::Steal { steal } => known(*steal, |steal| format!("{} of {} ticks", steal.ticks, steal.of_ticks)),
            Self::ClockSource { clock, kernel, is_invariant } => {
                let kernel = kernel.as_deref().unwrap_or(NOT_KNOWN);
                let steady = is_invariant.map_or("", |yes| if yes { ", invariant" } else { ", not invariant" });
                format!("{clock}{steady}; kernel: {kernel}")
            }
            Self::Clock { step_ns, reading_ns } => {
                format!("step {}, cost {}", known(*step_ns, time), time(*reading_ns))
            }
            Self::Memory { available: Some(available), total: Some(total) } => {
                format!("{} of {} GiB free", gib(*available), gib(*total))
            }
            Self::Memory { .. } => NOT_KNOWN.into(),
            Self::Gpu { gpus, driver, .. } => gpu(gpus, driver.as_deref()),
            Self::GpuState { health } => gpu_state(health),
            Self::KernelRecords { device, reason } => {
                format!("{device}: {}", if reason.is_none() { "CUPTI found" } else { "no CUPTI" })
            }
            Self::Peaks { device, state } => {
                let of = if device == "cpu" { String::new() } else { format!("{device}: ") };
                match state {
                    PeaksState::NotMeasured => format!("{of}not measured"),
                    PeaksState::Measured => format!("{of}measured"),
                    PeaksState::TooLow { times } => format!("{of}too low: a short test reached {times:.2}x"),
                }
            }
        }
    }

    /// The limit between good and doubtful, if it is a number.
    pub fn limit(&self) -> Option<String> {
        match self {
            Self::Load { cpus, .. } => Some(format!("{:.2}", Self::LOAD * f64::from(*cpus))),
            Self::LostTime { .. } | Self::Pace { .. } | Self::Steal { .. } => {
                Some(format!("{} %", per_cent(Self::SHARE)))
            }
            Self::LongestGap { .. } => Some(time(Self::GAP_NS as f64)),
            Self::Clock { .. } => Some(time(Self::CLOCK_NS)),
            Self::Memory { total: Some(total), .. } => {
                Some(format!("{} GiB", gib((*total as f64 * Self::MEMORY) as u64)))
            }
            _ => None,
        }
    }

    /// The likely consequence, if the result is not good.
    pub fn meaning(&self) -> Option<String> {
        (self.level() != Level::Good).then(|| self.doubt())
    }

    fn doubt(&self) -> String {
        match self {
            Self::Build { .. } if self.level() == Level::Bad => {
                "the build is not optimised, so its timings are meaningless"
            }
            Self::Build { .. } => "debug assertions cost time that a release build does not need",
            Self::Governor { governor: None, is_virtual: true } => {
                "unknown in a virtual machine; the hypervisor controls the clocks"
            }
            Self::Governor { governor: None, .. } => "the CPU frequency policy is unknown",
            Self::Governor { .. } => "the CPU clock follows the load, so the first iterations are slower",
            Self::Boost { is_on: None, .. } => "the CPU may boost its clock and lower it again when it gets warm",
            Self::Boost { .. } => "the CPU boosts its clock until it gets warm, so short runs look faster",
            Self::VirtualMachine { .. } => "other virtual machines may share the hardware and affect timings",
            Self::Quota { .. } => "threads are paused when the quota of a period is used up",
            Self::Load { load: None, .. } | Self::Steal { steal: None } => "the kernel does not report it",
            Self::Load { .. } => "other programs were running in the last minute",
            Self::LostTime { .. } => "threads were interrupted, so iterations take longer by up to this share",
            Self::LongestGap { nanos, .. } => {
                return format!(
                    "a single iteration shorter than {} may be off by more than 1 %",
                    time(*nanos as f64 * 100.0)
                );
            }
            Self::Pace { .. } => "equal work took different times: clocks change, or a core is shared",
            Self::Steal { .. } => "the hypervisor gave CPU time to other virtual machines",
            Self::ClockSource { is_invariant: Some(false), .. } => "the TSC rate changes, so it is not used",
            Self::ClockSource { .. } => "the kernel considers the TSC unstable, so a slower clock is used",
            Self::Clock { .. } => "spans shorter than 1 µs have an error of more than 10 %",
            Self::Memory { available: Some(_), total: Some(_) } => "large cases may be swapped out or killed",
            Self::Memory { .. } => "the free memory is unknown",
            Self::Gpu { unusable: Some(reason), gpus, driver, .. } if !gpus.is_empty() || driver.is_some() => {
                return format!("no usable GPU: {reason}");
            }
            Self::GpuState { health } => {
                return format!("the GPU is throttled: {}", health.state.throttled.join(", "));
            }
            Self::KernelRecords { reason, .. } => {
                return format!("`--timing kernels` needs CUPTI: {}", reason.as_deref().unwrap_or("found"));
            }
            Self::Gpu { gpus, driver, has_cuda, .. } => match (gpus.is_empty(), driver, has_cuda) {
                (false, ..) => "this build has no CUDA support, so only the CPU can be used",
                (true, Some(_), _) => "the driver is loaded but reports no GPU",
                (true, None, true) => "no NVIDIA driver is loaded, so only the CPU can be measured",
                (true, None, false) => {
                    "no NVIDIA driver is loaded and this build has no CUDA support, so only the CPU can be measured"
                }
            },
            Self::Peaks { state: PeaksState::TooLow { .. }, .. } => {
                "they were measured on a busy machine, so `mfu`, `mbu` and `x limit` are wrong"
            }
            Self::Peaks { .. } => "results cannot be compared with the hardware limit",
        }
        .into()
    }

    /// What to try, if there is something.
    pub fn next(&self) -> Option<String> {
        let step = match self {
            _ if self.level() == Level::Good => return None,
            Self::Build { .. } => "`cargo build --release`",
            Self::Governor { governor: Some(_), .. } => {
                "`echo performance | sudo tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor`"
            }
            Self::Boost { is_on: Some(true), is_intel: true } => {
                "turn it off with `echo 1 | sudo tee /sys/devices/system/cpu/intel_pstate/no_turbo`"
            }
            Self::Boost { is_on: Some(true), .. } => {
                "turn it off with `echo 0 | sudo tee /sys/devices/system/cpu/cpufreq/boost`"
            }
            Self::VirtualMachine { .. } => "compare with `laptime ab`, which interleaves both sides",
            Self::Quota { granted, .. } => {
                let threads = granted.map_or(1.0, |granted| granted.floor().max(1.0));
                return Some(format!(
                    "use at most {}, or raise the quota",
                    plural(threads as u64, "thread", "threads")
                ));
            }
            Self::Load { load: Some(_), .. } | Self::LostTime { .. } => {
                "stop other programs (`top` shows them) or wait"
            }
            Self::LongestGap { .. } => "measure longer or more iterations, and use the median",
            Self::Steal { steal: Some(_) } => "measure at another time, or on a dedicated machine",
            Self::ClockSource { is_invariant: Some(true), .. } => "see why with `sudo dmesg | grep -i tsc`",
            Self::Memory { available: Some(_), .. } => "see what uses it with `ps aux --sort=-rss | head`",
            Self::GpuState { .. } => "let it cool, or lock a lower clock with `sudo nvidia-smi -lgc MHZ`",
            Self::KernelRecords { .. } => {
                "install CUPTI from the CUDA toolkit (`extras/CUPTI/lib64`) and add it to `LD_LIBRARY_PATH`"
            }
            Self::Gpu { unusable: Some(_), gpus, driver, .. } if !gpus.is_empty() || driver.is_some() => {
                "run `laptime bench matmul --device cuda`, which prints a hint"
            }
            Self::Gpu { gpus, .. } if !gpus.is_empty() => "`cargo build --release --features cuda`",
            Self::Gpu { driver: Some(_), .. } => "check with `nvidia-smi` what the driver sees",
            Self::Gpu { has_cuda: true, .. } => {
                "install the NVIDIA driver, or start the container with `docker run --gpus all`"
            }
            Self::Peaks { device, .. } if device != "cpu" => return Some(format!("`laptime peaks --device {device}`")),
            Self::Peaks { .. } => "`laptime peaks --device cpu`",
            _ => return None,
        };
        Some(step.to_owned())
    }
}

/// The result with its limit, the consequence and what to try, each on a line.
impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.word(), self.seen())?;
        if let Some(limit) = self.limit() {
            write!(f, " (limit {limit})")?;
        }
        if let Some(meaning) = self.meaning() {
            write!(f, "\n  {meaning}")?;
        }
        self.next().map_or(Ok(()), |next| write!(f, "\n  try: {next}"))
    }
}

fn gpu(gpus: &[String], driver: Option<&str>) -> String {
    let driver = driver.map(|driver| format!(", driver {driver}"));
    match (gpus, driver) {
        ([], None) => "none: no `/proc/driver/nvidia`".to_owned(),
        ([], Some(driver)) => format!("none{driver}"),
        ([one], driver) => one.clone() + &driver.unwrap_or_default(),
        ([first, ..], driver) => format!("{} x {first}{}", gpus.len(), driver.unwrap_or_default()),
    }
}

fn gpu_state(health: &GpuHealth) -> String {
    let of = |value: Option<f64>, limit: Option<f64>, unit: &str| {
        let limit = limit.map_or_else(String::new, |limit| format!(" of {limit:.0}"));
        value.map(|value| format!("{value:.0}{limit} {unit}"))
    };
    let parts = [
        of(health.state.clock_mhz, health.clock_limit_mhz, "MHz"),
        of(health.state.power_watts, health.power_limit_watts, "W"),
        of(health.state.temperature_c, None, "°C"),
        health.cuda.as_ref().map(|version| format!("CUDA {version}")),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    format!("{}: {}", health.device, if parts.is_empty() { NOT_KNOWN.to_owned() } else { parts.join(", ") })
}

/// Per cent, rounded up to two figures.
pub(super) fn rounded_up(share: f64) -> String {
    let percent = 100.0 * share;
    let step = if percent < 10.0 { 10.0 } else { 1.0 };
    // Ignore rounding errors in the last bits.
    format!("{}", (percent * step - 1e-9).ceil() / step)
}

fn known<T>(value: Option<T>, write: impl Fn(T) -> String) -> String {
    value.map_or_else(|| NOT_KNOWN.to_owned(), write)
}

fn per_cent(share: f64) -> String {
    let percent = 100.0 * share;
    if percent > 0.0 && percent < 0.01 { "<0.01".to_owned() } else { figures(percent) }
}

fn time(nanos: f64) -> String {
    let units = [(1e9, "s"), (1e6, "ms"), (1e3, "µs")];
    let unit = units.into_iter().find(|(size, _)| nanos >= *size).unwrap_or((1.0, "ns"));
    format!("{} {}", figures(nanos / unit.0), unit.1)
}

fn gib(bytes: u64) -> String {
    figures(bytes as f64 / f64::from(1 << 30))
}

/// Three figures at most, without zeros at the end.
fn figures(value: f64) -> String {
    let decimals = if value >= 100.0 {
        0
    } else if value >= 10.0 {
        1
    } else {
        2
    };
    let text = format!("{value:.decimals$}");
    if decimals == 0 { text } else { text.trim_end_matches('0').trim_end_matches('.').to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use laptime_trace::run::Steal;

    fn text(check: Check) -> String {
        check.to_string()
    }

    #[test]
    fn a_doubt_says_what_was_seen_its_limit_its_meaning_and_the_next_step() {
        let busy = Check::Load { load: Some(3.5), cpus: 2 };
        assert_eq!(
            text(busy),
            "load: 3.50 on 2 CPUs (limit 0.20)\n  other programs were running in the last minute\n  \
             try: stop other programs (`top` shows them) or wait"
        );
        assert_eq!(text(Check::Load { load: Some(0.2), cpus: 2 }), "load: 0.20 on 2 CPUs (limit 0.20)");
    }

    #[test]
    fn a_governor_that_is_not_known_in_a_guest_is_said_plainly_and_without_advice() {
        let check = Check::Governor { governor: None, is_virtual: true };
        assert_eq!(
            (check.level(), check.to_string()),
            (
                Level::Note,
                "governor: unknown\n  unknown in a virtual machine; the hypervisor controls the clocks".to_owned()
            )
        );
        let check = Check::Governor { governor: Some("powersave".into()), is_virtual: true };
        assert!(check.next().unwrap().starts_with("`echo performance | sudo tee "));
    }

    #[test]
    fn why_there_is_no_gpu_is_told_and_what_is_done_is_not_advised() {
        let gpu = |gpus: &[&str], driver: Option<&str>, has_cuda| {
            let gpus = gpus.iter().map(|&gpu| gpu.to_owned()).collect();
            let check = Check::Gpu { gpus, driver: driver.map(str::to_owned), has_cuda, unusable: None };
            (check.level(), check.seen(), check.next().is_some())
        };
        let none = "none: no `/proc/driver/nvidia`".to_owned();
        assert_eq!(gpu(&["L4"], Some("580"), true), (Level::Good, "L4, driver 580".into(), false));
        assert_eq!(gpu(&["L4", "L4"], None, false), (Level::Doubt, "2 x L4".into(), true));
        assert_eq!(gpu(&[], Some("580"), true), (Level::Doubt, "none, driver 580".into(), true));
        assert_eq!(gpu(&[], None, true), (Level::Doubt, none.clone(), true));
        assert_eq!(gpu(&[], None, false), (Level::Note, none, false));
    }

    #[test]
    fn peaks_that_a_brief_test_exceeds_are_not_good() {
        let check = |device: &str, state| Check::Peaks { device: device.to_owned(), state };
        let poisoned = check("cuda:0", PeaksState::TooLow { times: 3.094 });
        assert_eq!(
            (poisoned.level(), poisoned.seen().as_str(), poisoned.next().as_deref()),
            (Level::Doubt, "cuda:0: too low: a short test reached 3.09x", Some("`laptime peaks --device cuda:0`"))
        );
        assert_eq!(check("cpu", PeaksState::Measured).level(), Level::Good);
        assert_eq!(check("cpu", PeaksState::NotMeasured).seen(), "not measured");
    }

    #[test]
    fn a_quota_names_the_threads_it_allows() {
        let quota = |granted| Check::Quota { granted: Some(granted), cpus: 4 };
        assert_eq!(quota(0.5).next().unwrap(), "use at most 1 thread, or raise the quota");
        assert_eq!(quota(2.5).next().unwrap(), "use at most 2 threads, or raise the quota");
        assert_eq!((quota(4.0).level(), quota(4.0).next()), (Level::Good, None));
    }

    #[test]
    fn a_long_gap_says_how_long_takes_must_be() {
        let gap = Check::LongestGap { threads: 1, nanos: 4_100_000 };
        assert_eq!(gap.meaning().unwrap(), "a single iteration shorter than 410 ms may be off by more than 1 %");
        assert_eq!(Check::LongestGap { threads: 1, nanos: 1_000_000 }.level(), Level::Good);
    }

    #[test]
    fn a_counter_that_is_not_used_is_a_doubt_and_none_at_all_is_not() {
        let clock = |clock: &str, is_invariant| Check::ClockSource {
            clock: clock.into(),
            kernel: Some("hpet".into()),
            is_invariant,
        };
        assert_eq!(clock("monotonic", Some(true)).next().unwrap(), "see why with `sudo dmesg | grep -i tsc`");
        assert_eq!(clock("monotonic", Some(false)).level(), Level::Doubt);
        assert_eq!(clock("monotonic", None).level(), Level::Good);
        assert_eq!(clock("tsc", Some(true)).seen(), "tsc, invariant; kernel: hpet");
    }

    #[test]
    fn levels_change_at_their_limits() {
        let level = |check: Check| check.level();
        assert_eq!(level(Check::LostTime { threads: 1, share: 0.01, gaps: 1 }), Level::Good);
        assert_eq!(level(Check::LostTime { threads: 1, share: 0.0101, gaps: 1 }), Level::Doubt);
        assert_eq!(level(Check::Steal { steal: Some(Steal { ticks: 1, of_ticks: 100 }) }), Level::Good);
        assert_eq!(level(Check::Steal { steal: Some(Steal { ticks: 1, of_ticks: 50 }) }), Level::Doubt);
        assert_eq!(level(Check::Clock { step_ns: Some(100.0), reading_ns: 100.0 }), Level::Good);
        assert_eq!(level(Check::Clock { step_ns: Some(1.0), reading_ns: 101.0 }), Level::Doubt);
        assert_eq!(level(Check::Memory { available: Some(10), total: Some(100) }), Level::Good);
        assert_eq!(level(Check::Memory { available: Some(9), total: Some(100) }), Level::Doubt);
        assert_eq!(level(Check::Boost { is_on: Some(true), is_intel: false }), Level::Note);
    }

    #[test]
    fn what_is_promised_is_rounded_up() {
        assert_eq!([0.01, 0.0101, 0.045, 0.0999, 0.1001, 0.31].map(rounded_up), ["1", "1.1", "4.5", "10", "11", "31"]);
    }

    #[test]
    fn figures_are_short() {
        assert_eq!(
            [950.0, 1_240.0, 61_500.0, 8_041_010.0, 2e9].map(time),
            ["950 ns", "1.24 µs", "61.5 µs", "8.04 ms", "2 s"]
        );
        assert_eq!([0.0, 0.000_01, 0.0025, 0.522].map(per_cent), ["0", "<0.01", "0.25", "52.2"]);
    }
}
