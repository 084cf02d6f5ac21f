//! One check of a machine: the result, and whether it is good.

use laptime_trace::run::Steal;

use super::GpuHealth;

laptime_trace::words! {
    /// The level of a result, best first.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Level: word {
        Good = "good",
        /// Neither good nor bad, or unknown; worth knowing.
        Note = "note",
        /// Timings may be off or noisy because of it.
        Doubt = "warning",
        /// Timings are meaningless.
        Bad = "bad",
    }
}

/// One check, with its evidence.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the fields are named after what they hold")]
pub enum Check {
    /// How the program was built.
    Build { profile: String, opt_level: String, has_assertions: bool },
    /// The CPU frequency governor, if known; a virtual machine rarely reports it.
    Governor { governor: Option<String>, is_virtual: bool },
    /// Whether the CPU may boost its clock, if known; Intel has its own switch.
    Boost { is_on: Option<bool>, is_intel: bool },
    /// Whether other machines share the hardware: the kind of the virtual machine, if it is one.
    VirtualMachine { name: Option<String> },
    /// The CPU quota, if there is one, and the CPUs that the process may use.
    Quota { granted: Option<f64>, cpus: u32 },
    /// The load average of the last minute, if known.
    Load { load: Option<f64>, cpus: u32 },
    /// The share of their time in which spinning threads were interrupted, and how often.
    LostTime { threads: u32, share: f64, gaps: u64 },
    /// The longest interruption of such a thread.
    LongestGap { threads: u32, nanos: u64 },
    /// How even the speed of such threads was: its spread as a share of the median.
    Pace { threads: u32, spread: f64 },
    /// Time that a hypervisor gave to other machines.
    Steal { steal: Option<Steal> },
    /// The clock of all timings: `tsc` or `monotonic`, the clock source of the kernel, and whether the TSC has a constant rate.
    ClockSource { clock: String, kernel: Option<String>, is_invariant: Option<bool> },
    /// The smallest step of that clock, if there was one, and the cost of a reading.
    Clock { step_ns: Option<f64>, reading_ns: f64 },
    /// Free and total bytes, if known.
    Memory { available: Option<u64>, total: Option<u64> },
    /// The GPUs that the driver lists, and why none is usable, if so.
    Gpu { gpus: Vec<String>, driver: Option<String>, has_cuda: bool, unusable: Option<String> },
    /// The state of a GPU.
    GpuState { health: GpuHealth },
    /// Whether kernels of a GPU can be recorded, and why not.
    KernelRecords { device: String, reason: Option<String> },
    /// Whether the peaks of a device are known.
    Peaks { device: String, state: PeaksState },
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

impl Check {
    /// The load per CPU above which other processes interfere.
    pub const LOAD: f64 = 0.1;
    /// The share of interruptions, steal time and spread above which differences of 1 % cannot be measured.
    pub const SHARE: f64 = 0.01;
    /// A pause of 1 % of an iteration of 100 ms.
    pub const GAP_NS: u64 = 1_000_000;
    /// The step and cost of a clock that times a microsecond within 10 %.
    pub const CLOCK_NS: f64 = 100.0;
    /// The share of free memory below which the kernel starts to reclaim memory.
    pub const MEMORY: f64 = 0.1;

    /// The level of the result.
    pub fn level(&self) -> Level {
        match self {
            Self::Build { opt_level, .. } if opt_level == "0" => Level::Bad,
            Self::Build { has_assertions, .. } => doubt_if(*has_assertions),
            Self::Governor { governor, .. } => known(governor, |governor| governor != "performance"),
            Self::Boost { is_on, .. } if *is_on == Some(false) => Level::Good,
            Self::Boost { .. } => Level::Note,
            Self::VirtualMachine { name } => doubt_if(name.is_some()),
            Self::Quota { granted, cpus } => doubt_if(granted.is_some_and(|granted| granted < f64::from(*cpus))),
            Self::Load { load, cpus } => known(load, |load| *load > Self::LOAD * f64::from(*cpus)),
            Self::LostTime { share, .. } | Self::Pace { spread: share, .. } => doubt_if(*share > Self::SHARE),
            Self::LongestGap { nanos, .. } => doubt_if(*nanos > Self::GAP_NS),
            Self::Steal { steal } => known(&steal.and_then(Steal::share), |share| *share > Self::SHARE),
            Self::ClockSource { clock, is_invariant, .. } => doubt_if(clock != "tsc" && is_invariant.is_some()),
            Self::Clock { step_ns, reading_ns } => {
                doubt_if(step_ns.is_none_or(|step| step > Self::CLOCK_NS) || *reading_ns > Self::CLOCK_NS)
            }
            Self::Memory { available, total } => memory(*available, *total),
            Self::Gpu { unusable: Some(_), gpus, driver, .. } if !gpus.is_empty() || driver.is_some() => Level::Doubt,
            Self::GpuState { health } => doubt_if(!health.state.throttled.is_empty()),
            Self::KernelRecords { reason, .. } => {
                if reason.is_none() {
                    Level::Good
                } else {
                    Level::Note
                }
            }
            Self::Gpu { gpus, driver, has_cuda, .. } => match (gpus.is_empty(), driver.is_some() || *has_cuda) {
                (false, _) if *has_cuda => Level::Good,
                (true, false) => Level::Note,
                _ => Level::Doubt,
            },
            Self::Peaks { state, .. } => match state {
                PeaksState::NotMeasured => Level::Note,
                PeaksState::Measured => Level::Good,
                PeaksState::TooLow { .. } => Level::Doubt,
            },
        }
    }
}

fn doubt_if(is_doubtful: bool) -> Level {
    if is_doubtful { Level::Doubt } else { Level::Good }
}

fn known<T>(value: &Option<T>, is_doubtful: impl Fn(&T) -> bool) -> Level {
    value.as_ref().map_or(Level::Note, |value| doubt_if(is_doubtful(value)))
}

fn memory(available: Option<u64>, total: Option<u64>) -> Level {
    let share = available.zip(total).map(|(available, total)| available as f64 / total as f64);
    known(&share, |share| *share < Check::MEMORY)
}
