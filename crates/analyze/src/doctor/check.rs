//! One look at a machine: what was seen, and whether it is good.

use laptime_trace::run::Steal;

use super::GpuHealth;

/// How good what was seen is, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// As it should be.
    Good,
    /// Neither good nor bad, or not known; worth knowing.
    Note,
    /// Times may be off or uneven because of it.
    Doubt,
    /// Times mean nothing.
    Bad,
}

impl Level {
    /// The level in a word.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Note => "note",
            Self::Doubt => "doubt",
            Self::Bad => "bad",
        }
    }
}

/// One look at a machine, with its evidence.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Check {
    /// How the program was built.
    Build {
        /// The profile.
        profile: String,
        /// The level of optimisation.
        opt_level: String,
        /// Whether debug assertions are checked.
        has_assertions: bool,
    },
    /// The rule by which clocks are chosen.
    Governor {
        /// The rule, if the machine says.
        governor: Option<String>,
        /// Whether it is a virtual machine, which seldom says.
        is_virtual: bool,
    },
    /// Whether clocks may rise above the rated one.
    Boost {
        /// Whether they may, if the machine says.
        is_on: Option<bool>,
        /// Whether the processor is Intel's, which has a switch of its own.
        is_intel: bool,
    },
    /// Whether others share the hardware.
    VirtualMachine {
        /// Its kind, if it is one.
        name: Option<String>,
    },
    /// Whether processor time is limited.
    Quota {
        /// Processors' worth of time that is granted, if it is limited.
        granted: Option<f64>,
        /// Processors that the process may run on.
        cpus: u32,
    },
    /// Whether others want to run.
    Load {
        /// Processes that wanted to run over the last minute, if the machine says.
        load: Option<f64>,
        /// Processors that the process may run on.
        cpus: u32,
    },
    /// Time in which threads that watched the clock did not run.
    LostTime {
        /// The threads that watched.
        threads: u32,
        /// The share of their time.
        share: f64,
        /// In how many gaps.
        gaps: u64,
    },
    /// The longest time in which such a thread did not run.
    LongestGap {
        /// The threads that watched.
        threads: u32,
        /// How long.
        nanos: u64,
    },
    /// How evenly such threads got on.
    Pace {
        /// The threads that watched.
        threads: u32,
        /// The spread of the pace, as a share of the median.
        spread: f64,
    },
    /// Time that a hypervisor gave to others.
    Steal {
        /// The ticks, if the kernel says.
        steal: Option<Steal>,
    },
    /// The clock that times come from.
    ClockSource {
        /// The clock of the probe: `tsc` or `monotonic`.
        clock: String,
        /// The clock source of the kernel, if it says.
        kernel: Option<String>,
        /// Whether the processor's counter runs at one rate; none if it has no such counter.
        is_invariant: Option<bool>,
    },
    /// How fine that clock is, and what it costs.
    Clock {
        /// The smallest step, if it ever stepped.
        step_ns: Option<f64>,
        /// The cost of a reading.
        reading_ns: f64,
    },
    /// Whether there is room.
    Memory {
        /// Bytes that are free to use, if the machine says.
        available: Option<u64>,
        /// Bytes in all, if the machine says.
        total: Option<u64>,
    },
    /// Whether a GPU can be used.
    Gpu {
        /// The GPUs that the driver tells of.
        gpus: Vec<String>,
        /// The driver's version, if it is loaded.
        driver: Option<String>,
        /// Whether the program was built with CUDA.
        has_cuda: bool,
        /// Why none can be used, if none can.
        unusable: Option<String>,
    },
    /// How a GPU is doing.
    GpuState {
        /// What it says.
        health: GpuHealth,
    },
    /// Whether every kernel of a GPU can be told.
    KernelRecords {
        /// The GPU.
        device: String,
        /// Why not, if not.
        reason: Option<String>,
    },
    /// Whether it is known what a device can do at most.
    Peaks {
        /// The device.
        device: String,
        /// What is known.
        state: PeaksState,
    },
}

/// What is known of the peaks of a device.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum PeaksState {
    /// They were not measured.
    NotMeasured,
    /// They were measured, and a brief test did not exceed them.
    Measured,
    /// A brief test exceeded them, so they were measured while something else ran.
    TooLow {
        /// How many times the kept peak it reached.
        times: f64,
    },
}

impl Check {
    /// Load on each processor above which others are in the way.
    pub const LOAD: f64 = 0.1;
    /// Share of lost time, of stolen time and of spread above which a comparison's floor of 1 % does not hold.
    pub const SHARE: f64 = 0.01;
    /// The gap that is 1 % of a take of 100 ms.
    pub const GAP_NS: u64 = 1_000_000;
    /// Step and cost of a clock that still times a microsecond within 10 %.
    pub const CLOCK_NS: f64 = 100.0;
    /// Share of memory below which the kernel begins to take from others.
    pub const MEMORY: f64 = 0.1;

    /// How good what was seen is.
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
