//! Whether a machine is fit for benchmarks.
//!
//! [`doctor`] evaluates facts and noise measurements of a machine. It returns a list of [`Check`]s, each with its
//! evidence, and the smallest difference between two runs that can be measured.

mod check;
mod figures;

use laptime_trace::run::{DeviceState, Environment, Noise};

pub use self::check::{Check, Level, PeaksState};

/// The smallest difference that a comparison can report.
const FINEST: f64 = 0.01;

/// Above this noise, a machine is not fit for comparing runs.
const COARSEST: f64 = 0.1;

/// The input: a machine, its noise, and the features of the program.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DoctorInput<'a> {
    /// The machine and the build.
    pub environment: &'a Environment,
    /// The noise measurement.
    pub noise: &'a Noise,
    /// The version of NVIDIA's driver, if one is loaded.
    pub driver: Option<&'a str>,
    /// Whether the program was built with CUDA.
    pub has_cuda: bool,
    /// The GPUs that can be used.
    pub gpus: &'a [GpuHealth],
    /// Why none can be used, if the program was built for it.
    pub no_gpu: Option<&'a str>,
    /// The state of the peaks of each device.
    pub peaks: &'a [(String, PeaksState)],
}

/// The state of a usable GPU; unknown values are none.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct GpuHealth {
    /// Its name for `--device`.
    pub device: String,
    /// Its model.
    pub name: String,
    /// The CUDA version of its driver.
    pub cuda: Option<String>,
    /// The highest clock of its processors, in MHz.
    pub clock_limit_mhz: Option<f64>,
    /// Its power limit, in watts.
    pub power_limit_watts: Option<f64>,
    /// Its clock, power and temperature.
    pub state: DeviceState,
    /// Why kernels cannot be recorded, if so.
    pub no_kernels: Option<String>,
}

/// The result of all checks.
#[derive(Debug, Clone, PartialEq)]
pub struct Doctor {
    /// The checks, in the order of the table.
    pub checks: Vec<Check>,
    /// The smallest difference between two runs that can be measured, as a share; none if the build is not optimised.
    ///
    /// It is the maximum of 1 % (the smallest difference that a comparison reports), the share of time in which threads
    /// were interrupted, and the spread of their speed, for one thread and for all threads. A program that is interrupted
    /// for a share of its time is slower by that share, which differs between runs.
    pub finest: Option<f64>,
}

impl Doctor {
    /// The worst level of all checks.
    pub fn level(&self) -> Level {
        self.checks.iter().map(|check| check.level).max().unwrap_or(Level::Good)
    }

    /// Whether runs can be compared here: the build is optimised, and noise stays below 10 %.
    pub fn is_fit(&self) -> bool {
        self.finest.is_some_and(|share| share <= COARSEST)
    }

    /// The answer in a sentence.
    pub fn verdict(&self) -> String {
        match self.finest {
            None => "This build is not optimised, so its timings are meaningless.".to_owned(),
            Some(share) if share > COARSEST => {
                let [share, limit] = [share, COARSEST].map(figures::rounded_up);
                format!("This machine is too noisy to compare runs: about {share} % noise (limit {limit} %).")
            }
            Some(share) => {
                let share = figures::rounded_up(share);
                format!("Differences of about {share} % and more can be measured on this machine.")
            }
        }
    }
}

/// Runs all checks.
pub fn doctor(input: &DoctorInput<'_>) -> Doctor {
    let Environment { machine, build, load, available_bytes } = input.environment;
    let noise = input.noise;
    let mut checks = vec![
        check::build(build),
        check::governor(machine.governor.as_deref(), machine.virtual_machine.is_some()),
        check::boost(machine.boost, machine.cpu.as_ref().is_some_and(|cpu| cpu.contains("Intel"))),
        check::virtual_machine(machine.virtual_machine.as_deref()),
        check::quota(machine.cpu_quota, machine.cpus),
        check::load(*load, machine.cpus),
    ];
    checks.extend(check::watched(&noise.alone));
    checks.extend(noise.together.iter().flat_map(check::watched));
    checks.extend([
        check::steal(noise.steal),
        check::clock_source(&noise.clock, machine.clock_source.as_deref()),
        check::clock(noise.clock.step_ns, noise.clock.reading_ns),
        check::memory(*available_bytes, machine.memory_bytes),
        check::gpu(machine, input.driver, input.has_cuda, input.no_gpu.filter(|_| input.has_cuda)),
    ]);
    for health in input.gpus {
        checks.push(check::gpu_state(health));
        checks.push(check::kernel_records(&health.device, health.no_kernels.as_deref()));
    }
    checks.extend(input.peaks.iter().map(|(device, state)| check::peaks(device, *state)));
    Doctor { checks, finest: (!build.is_unoptimised()).then(|| finest(noise)) }
}

fn finest(noise: &Noise) -> f64 {
    let watches = [Some(&noise.alone), noise.together.as_ref()];
    let shares = watches.into_iter().flatten().flat_map(|watch| [watch.lost_share(), watch.pace_spread]);
    shares.flatten().fold(FINEST, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use laptime_trace::run::{Build, Gpu, HostClock, Machine, StallStats, Steal};
    use proptest::prelude::*;

    fn quiet() -> (Environment, Noise) {
        let watch =
            |threads| StallStats { threads, watched_ns: 1_000, pace_spread: Some(0.001), ..StallStats::default() };
        let machine = Machine {
            cpu: Some("AMD EPYC".into()),
            cpus: 2,
            memory_bytes: Some(16 << 30),
            governor: Some("performance".into()),
            boost: Some(false),
            clock_source: Some("tsc".into()),
            gpus: vec![Gpu { name: "NVIDIA H200".into(), driver: Some("580.65".into()) }],
            ..Machine::default()
        };
        let build = Build { profile: "release".into(), opt_level: "3".into(), ..Build::default() };
        let environment = Environment { machine, build, load: Some(0.05), available_bytes: Some(12 << 30) };
        let clock = HostClock { name: "tsc".into(), is_invariant: Some(true), step_ns: Some(10.0), reading_ns: 12.0 };
        let noise =
            Noise { alone: watch(1), together: Some(watch(2)), steal: Some(Steal { ticks: 0, of_ticks: 40 }), clock };
        (environment, noise)
    }

    fn examined(environment: &Environment, noise: &Noise) -> Doctor {
        doctor(&DoctorInput {
            environment,
            noise,
            driver: Some("580.65"),
            has_cuda: true,
            gpus: &[],
            no_gpu: None,
            peaks: &[("cpu".to_owned(), PeaksState::Measured)],
        })
    }

    /// The checks that are not good.
    fn failed(doctor: &Doctor) -> Vec<(&'static str, Level)> {
        let checks = doctor.checks.iter().filter(|check| check.level != Level::Good);
        checks.map(|check| (check.word, check.level)).collect()
    }

    #[test]
    fn a_quiet_machine_passes_all_checks_without_advice() {
        let (environment, noise) = quiet();
        let doctor = examined(&environment, &noise);
        assert_eq!((failed(&doctor), doctor.level()), (vec![], Level::Good));
        assert!(doctor.checks.iter().all(|check| check.next.is_none() && check.meaning.is_none()));
        assert_eq!(doctor.verdict(), "Differences of about 1 % and more can be measured on this machine.");
    }

    #[test]
    fn an_unoptimised_build_fails_and_has_no_finest_difference() {
        let (mut environment, noise) = quiet();
        environment.build = Build { profile: "debug".into(), opt_level: "0".into(), ..Build::default() };
        let doctor = examined(&environment, &noise);
        assert_eq!((failed(&doctor), doctor.finest), (vec![("build", Level::Bad)], None));
        assert_eq!(doctor.verdict(), "This build is not optimised, so its timings are meaningless.");
        assert!(!doctor.is_fit());
    }

    #[test]
    fn lost_time_and_uneven_speed_limit_the_finest_difference() {
        let (environment, mut noise) = quiet();
        noise.alone.pace_spread = Some(0.0231);
        assert_eq!(examined(&environment, &noise).finest, Some(0.0231));
        noise.together =
            Some(StallStats { threads: 2, watched_ns: 1_000, lost_ns: 45, gaps: 1, ..StallStats::default() });
        let doctor = examined(&environment, &noise);
        assert_eq!(doctor.verdict(), "Differences of about 4.5 % and more can be measured on this machine.");
        assert_eq!(
            failed(&doctor),
            [("speed, 1 thread", Level::Warning), ("interruptions, all threads", Level::Warning)]
        );
    }

    #[test]
    fn a_machine_beyond_the_limits_is_not_fit() {
        let (environment, mut noise) = quiet();
        noise.alone.lost_ns = 310;
        let doctor = examined(&environment, &noise);
        assert!(!doctor.is_fit() && examined(&environment, &quiet().1).is_fit());
        let verdict = doctor.verdict();
        assert_eq!(verdict, "This machine is too noisy to compare runs: about 31 % noise (limit 10 %).");
    }

    #[test]
    fn unknown_machine_properties_give_no_claims() {
        let nothing = Environment::default();
        let noise = Noise::default();
        let input = DoctorInput {
            environment: &nothing,
            noise: &noise,
            driver: None,
            has_cuda: false,
            gpus: &[],
            no_gpu: None,
            peaks: &[("cpu".to_owned(), PeaksState::NotMeasured)],
        };
        let doctor = doctor(&input);
        let notes =
            ["governor", "boost", "load", "steal time", "memory", "GPU", "peaks"].map(|word| (word, Level::Note));
        let failed = failed(&doctor);
        for note in notes {
            assert!(failed.contains(&note), "{note:?} is missing in {failed:?}");
        }
        assert!(doctor.checks.iter().all(|check| !check.seen.is_empty()));
    }

    #[test]
    fn a_throttled_gpu_fails_and_a_gpu_without_records_gets_a_note() {
        let (environment, noise) = quiet();
        let state = DeviceState {
            clock_mhz: Some(1410.0),
            power_watts: Some(699.0),
            temperature_c: Some(71.0),
            throttled: vec!["it draws as much power as it may".into()],
        };
        let health = GpuHealth {
            device: "cuda:0".into(),
            name: "NVIDIA H200".into(),
            cuda: Some("13.0".into()),
            clock_limit_mhz: Some(1980.0),
            power_limit_watts: Some(700.0),
            state,
            no_kernels: Some("cannot load `libcupti.so.13`".into()),
        };
        let input = DoctorInput {
            environment: &environment,
            noise: &noise,
            driver: Some("580.65"),
            has_cuda: true,
            gpus: std::slice::from_ref(&health),
            no_gpu: None,
            peaks: &[("cpu".to_owned(), PeaksState::Measured)],
        };
        let doctor = doctor(&input);
        assert_eq!(failed(&doctor), [("GPU state", Level::Warning), ("kernel records", Level::Note)]);
        let seen: Vec<String> =
            doctor.checks.iter().filter(|check| check.level != Level::Good).map(|check| check.seen.clone()).collect();
        assert_eq!(seen, ["cuda:0: 1410 of 1980 MHz, 699 of 700 W, 71 °C, CUDA 13.0", "cuda:0: no CUPTI"]);
    }

    #[test]
    fn an_unusable_gpu_is_reported_with_its_reason() {
        let (environment, noise) = quiet();
        let input = DoctorInput {
            environment: &environment,
            noise: &noise,
            driver: Some("550.1"),
            has_cuda: true,
            gpus: &[],
            no_gpu: Some("the NVIDIA driver knows CUDA 12.4, and CUDA 13.0 is needed"),
            peaks: &[("cpu".to_owned(), PeaksState::Measured)],
        };
        let doctor = doctor(&input);
        assert_eq!(failed(&doctor), [("GPU", Level::Warning)]);
        let meaning = doctor.checks.iter().find_map(|check| check.meaning.clone());
        assert_eq!(
            meaning.as_deref(),
            Some("no usable GPU: the NVIDIA driver knows CUDA 12.4, and CUDA 13.0 is needed")
        );
    }

    proptest! {
        #[test]
        fn more_noise_never_improves_the_finest_difference(
            lost_ns in 0_u64..1_000,
            more in 0_u64..1_000,
            spread in prop::option::of(0.0..3.0_f64),
        ) {
            let (environment, mut noise) = quiet();
            noise.alone = StallStats { lost_ns, pace_spread: spread, ..noise.alone };
            let less = examined(&environment, &noise).finest.unwrap();
            noise.alone.lost_ns += more;
            let doctor = examined(&environment, &noise);
            prop_assert!(doctor.finest.unwrap() >= less && less >= FINEST);
            // Failed checks state what they mean; passed ones do not.
            for check in &doctor.checks {
                prop_assert_eq!(check.meaning.is_some(), check.level != Level::Good);
            }
        }
    }
}
