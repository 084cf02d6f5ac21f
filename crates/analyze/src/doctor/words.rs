//! What a check says: the one place with its words.

use std::fmt;

use super::{Check, GpuHealth, Level, PeaksState};

const NOT_KNOWN: &str = "not known";

impl Check {
    /// What was looked at.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Build { .. } => "build",
            Self::Governor { .. } => "governor",
            Self::Boost { .. } => "boost",
            Self::VirtualMachine { .. } => "virtual machine",
            Self::Quota { .. } => "CPU quota",
            Self::Load { .. } => "load",
            Self::LostTime { threads: 1, .. } => "lost time, 1 thread",
            Self::LostTime { .. } => "lost time, all threads",
            Self::LongestGap { threads: 1, .. } => "longest gap, 1 thread",
            Self::LongestGap { .. } => "longest gap, all threads",
            Self::Pace { threads: 1, .. } => "pace, 1 thread",
            Self::Pace { .. } => "pace, all threads",
            Self::Steal { .. } => "steal",
            Self::ClockSource { .. } => "clock",
            Self::Clock { .. } => "clock reading",
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
            Self::Load { load, cpus } => known(*load, |load| format!("{load:.2} on {}", counted(*cpus, "CPU"))),
            Self::LostTime { share, gaps, .. } => format!("{} % in {}", per_cent(*share), counted(*gaps, "gap")),
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
                format!("{device}: {}", if reason.is_none() { "CUPTI is found" } else { "none" })
            }
            Self::Peaks { device, state } => {
                let of = if device == "cpu" { String::new() } else { format!("{device}: ") };
                match state {
                    PeaksState::NotMeasured => format!("{of}not measured"),
                    PeaksState::Measured => format!("{of}measured"),
                    PeaksState::TooLow { times } => format!("{of}too low: a brief test reached {times:.2} x"),
                }
            }
        }
    }

    /// The limit between good and doubtful, where it is a number.
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

    /// What it likely means, where it is not good.
    pub fn meaning(&self) -> Option<String> {
        (self.level() != Level::Good).then(|| self.doubt())
    }

    fn doubt(&self) -> String {
        match self {
            Self::Build { .. } if self.level() == Level::Bad => "nothing was optimised: its times mean nothing",
            Self::Build { .. } => "assertions take time that a release build does not take",
            Self::Governor { governor: None, is_virtual: true } => {
                "a virtual machine does not say: the host chooses the clocks"
            }
            Self::Governor { governor: None, .. } => "the machine does not say how its clocks are chosen",
            Self::Governor { .. } => "clocks follow the load: the first takes run slower than the last",
            Self::Boost { is_on: None, .. } => "clocks may rise above the rated one, and fall again when it gets warm",
            Self::Boost { .. } => "clocks rise above the rated one until it gets warm: short runs look faster",
            Self::VirtualMachine { .. } => "others may share the hardware, and what they do is seen in times alone",
            Self::Quota { .. } => "threads are stopped when the quota of a period is spent",
            Self::Load { load: None, .. } | Self::Steal { steal: None } => "the kernel does not say",
            Self::Load { .. } => "other programs ran in the last minute",
            Self::LostTime { .. } => "threads were stopped: takes are longer by that share, some more than others",
            Self::LongestGap { nanos, .. } => {
                return format!("a take shorter than {} may be off by more than 1 %", time(*nanos as f64 * 100.0));
            }
            Self::Pace { .. } => "the same work took unequal time: clocks change, or a core is shared",
            Self::Steal { .. } => "the hypervisor gave this machine's time to others",
            Self::ClockSource { is_invariant: Some(false), .. } => "the counter's rate changes, so it is not used",
            Self::ClockSource { .. } => "the kernel does not trust the counter: a call reads the time instead",
            Self::Clock { .. } => "a span of less than a microsecond is timed with more than 10 % error",
            Self::Memory { available: Some(_), total: Some(_) } => "what does not fit is swapped or killed",
            Self::Memory { .. } => "the machine does not say how much is free",
            Self::Gpu { unusable: Some(reason), gpus, driver, .. } if !gpus.is_empty() || driver.is_some() => {
                return format!("it cannot be used: {reason}");
            }
            Self::GpuState { health } => {
                return format!("it holds its clock down: {}", health.state.throttled.join(", "));
            }
            Self::KernelRecords { reason, .. } => {
                return format!("`--timing kernels` needs CUPTI: {}", reason.as_deref().unwrap_or("it is found"));
            }
            Self::Gpu { gpus, driver, has_cuda, .. } => match (gpus.is_empty(), driver, has_cuda) {
                (false, ..) => "this build has no CUDA, and uses the CPU alone",
                (true, Some(_), _) => "the driver is loaded and tells of no GPU",
                (true, None, true) => "no driver is loaded: only the CPU can be measured",
                (true, None, false) => "no driver is loaded, and this build has no CUDA: only the CPU can be measured",
            },
            Self::Peaks { state: PeaksState::TooLow { .. }, .. } => {
                "they were measured while something else ran, so `mfu`, `mbu` and limits are wrong"
            }
            Self::Peaks { .. } => "how far a result is from the machine's limit cannot be told",
        }
        .into()
    }

    /// What to do about it, where there is something to do.
    pub fn next(&self) -> Option<String> {
        let step = match self {
            _ if self.level() == Level::Good => return None,
            Self::Build { .. } => "`cargo build --release`",
            Self::Governor { governor: Some(_), .. } => {
                "`echo performance | sudo tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor`"
            }
            Self::Boost { is_on: Some(true), is_intel: true } => {
                "`echo 1 | sudo tee /sys/devices/system/cpu/intel_pstate/no_turbo` forbids it"
            }
            Self::Boost { is_on: Some(true), .. } => {
                "`echo 0 | sudo tee /sys/devices/system/cpu/cpufreq/boost` forbids it"
            }
            Self::VirtualMachine { .. } => "measure both sides of a comparison in turns, and again at another hour",
            Self::Quota { granted, .. } => {
                let threads = granted.map_or(1.0, |granted| granted.floor().max(1.0));
                return Some(format!("run at most {}, or lift the quota", counted(threads as u64, "thread")));
            }
            Self::Load { load: Some(_), .. } | Self::LostTime { .. } => "`top` shows who runs; wait, or stop it",
            Self::LongestGap { .. } => "measure longer takes, or more of them, and read the median",
            Self::Steal { steal: Some(_) } => "measure at another hour, or on a machine of your own",
            Self::ClockSource { is_invariant: Some(true), .. } => "`sudo dmesg | grep -i tsc` shows why",
            Self::Memory { available: Some(_), .. } => "`ps aux --sort=-rss | head` shows who holds it",
            Self::GpuState { .. } => "let it rest, or `sudo nvidia-smi -lgc MHZ` a clock that it can hold",
            Self::KernelRecords { .. } => {
                "install the toolkit's CUPTI (`extras/CUPTI/lib64`) and put it on `LD_LIBRARY_PATH`"
            }
            Self::Gpu { unusable: Some(_), gpus, driver, .. } if !gpus.is_empty() || driver.is_some() => {
                "`laptime bench matmul --device cuda` says what to do"
            }
            Self::Gpu { gpus, .. } if !gpus.is_empty() => "`cargo build --release --features cuda`",
            Self::Gpu { driver: Some(_), .. } => "`nvidia-smi` shows what the driver sees",
            Self::Gpu { has_cuda: true, .. } => {
                "install NVIDIA's driver, or give the container its GPUs (`docker run --gpus all`)"
            }
            Self::Peaks { device, .. } if device != "cpu" => return Some(format!("`laptime peaks --device {device}`")),
            Self::Peaks { .. } => "`laptime peaks --device cpu`",
            _ => return None,
        };
        Some(step.to_owned())
    }
}

/// What was seen with its limit, what it means and the next step, each on a line.
impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.word(), self.seen())?;
        if let Some(limit) = self.limit() {
            write!(f, " (limit {limit})")?;
        }
        if let Some(meaning) = self.meaning() {
            write!(f, "\n  {meaning}")?;
        }
        self.next().map_or(Ok(()), |next| write!(f, "\n  next: {next}"))
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

/// Per cent, rounded up to two figures: what is promised must hold.
pub(super) fn rounded_up(share: f64) -> String {
    let percent = 100.0 * share;
    let step = if percent < 10.0 { 10.0 } else { 1.0 };
    // What is a step but for the last bits stays that step.
    format!("{}", (percent * step - 1e-9).ceil() / step)
}

fn known<T>(value: Option<T>, told: impl Fn(T) -> String) -> String {
    value.map_or_else(|| NOT_KNOWN.to_owned(), told)
}

fn counted(count: impl Into<u64>, what: &str) -> String {
    match count.into() {
        1 => format!("1 {what}"),
        count => format!("{count} {what}s"),
    }
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

    fn told(check: Check) -> String {
        check.to_string()
    }

    #[test]
    fn a_doubt_says_what_was_seen_its_limit_its_meaning_and_the_next_step() {
        let busy = Check::Load { load: Some(3.5), cpus: 2 };
        assert_eq!(
            told(busy),
            "load: 3.50 on 2 CPUs (limit 0.20)\n  other programs ran in the last minute\n  \
             next: `top` shows who runs; wait, or stop it"
        );
        assert_eq!(told(Check::Load { load: Some(0.2), cpus: 2 }), "load: 0.20 on 2 CPUs (limit 0.20)");
    }

    #[test]
    fn a_governor_that_is_not_known_in_a_guest_is_said_plainly_and_without_advice() {
        let check = Check::Governor { governor: None, is_virtual: true };
        assert_eq!(
            (check.level(), check.to_string()),
            (
                Level::Note,
                "governor: not known\n  a virtual machine does not say: the host chooses the clocks".to_owned()
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
            (Level::Doubt, "cuda:0: too low: a brief test reached 3.09 x", Some("`laptime peaks --device cuda:0`"))
        );
        assert_eq!(check("cpu", PeaksState::Measured).level(), Level::Good);
        assert_eq!(check("cpu", PeaksState::NotMeasured).seen(), "not measured");
    }

    #[test]
    fn a_quota_names_the_threads_it_allows() {
        let quota = |granted| Check::Quota { granted: Some(granted), cpus: 4 };
        assert_eq!(quota(0.5).next().unwrap(), "run at most 1 thread, or lift the quota");
        assert_eq!(quota(2.5).next().unwrap(), "run at most 2 threads, or lift the quota");
        assert_eq!((quota(4.0).level(), quota(4.0).next()), (Level::Good, None));
    }

    #[test]
    fn a_long_gap_says_how_long_takes_must_be() {
        let gap = Check::LongestGap { threads: 1, nanos: 4_100_000 };
        assert_eq!(gap.meaning().unwrap(), "a take shorter than 410 ms may be off by more than 1 %");
        assert_eq!(Check::LongestGap { threads: 1, nanos: 1_000_000 }.level(), Level::Good);
    }

    #[test]
    fn a_counter_that_is_not_used_is_a_doubt_and_none_at_all_is_not() {
        let clock = |clock: &str, is_invariant| Check::ClockSource {
            clock: clock.into(),
            kernel: Some("hpet".into()),
            is_invariant,
        };
        assert_eq!(clock("monotonic", Some(true)).next().unwrap(), "`sudo dmesg | grep -i tsc` shows why");
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
