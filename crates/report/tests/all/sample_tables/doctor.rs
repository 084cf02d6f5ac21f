//! A guest with a quota that somebody else keeps busy, and a GPU that the build cannot use.

use laptime_analyze::DoctorInput;
use laptime_report::Table;
use laptime_trace::run::{Build, Environment, Gpu, HostClock, Machine, Noise, StallStats, Steal};

pub fn doctor() -> Table {
    let (environment, noise) = (environment(), noise());
    let input = DoctorInput {
        environment: &environment,
        noise: &noise,
        driver: Some("580.65.06"),
        has_cuda: false,
        gpus: &[],
        no_gpu: None,
        peaks: &[("cpu".to_owned(), laptime_analyze::PeaksState::NotMeasured)],
    };
    laptime_report::tables::doctor(&laptime_analyze::doctor(&input))
}

fn environment() -> Environment {
    let machine = Machine {
        cpu: Some("Intel Xeon".into()),
        cpus: 8,
        cores: Some(4),
        cpu_quota: Some(2.5),
        memory_bytes: Some(64 << 30),
        governor: Some("schedutil".into()),
        boost: Some(true),
        virtual_machine: Some("QEMU Standard PC (Q35 + ICH9, 2009)".into()),
        clock_source: Some("hpet".into()),
        gpus: vec![Gpu { name: "NVIDIA H200".into(), driver: Some("580.65.06".into()) }; 2],
        ..Machine::default()
    };
    let build = Build { profile: "release".into(), opt_level: "3".into(), debug_assertions: true, ..Build::default() };
    Environment { machine, build, load: Some(3.5), available_bytes: Some(4 << 30) }
}

fn noise() -> Noise {
    let watched_ns = 100_000_000;
    let alone = StallStats {
        threads: 1,
        watched_ns,
        gaps: 41,
        lost_ns: 250_000,
        longest_gap_ns: 61_500,
        pace_spread: Some(0.0021),
    };
    let together = StallStats {
        threads: 2,
        gaps: 97,
        lost_ns: 6_310_000,
        longest_gap_ns: 4_100_000,
        pace_spread: Some(0.0312),
        ..alone
    };
    let clock =
        HostClock { name: "monotonic".into(), is_invariant: Some(true), step_ns: Some(69.8), reading_ns: 1240.0 };
    Noise { alone, together: Some(together), steal: Some(Steal { ticks: 2, of_ticks: 180 }), clock }
}
