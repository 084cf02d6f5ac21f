//! Traces with a known answer: a loop is recorded on a host and a device, with what holds it up planted.

use laptime_analyze::{AccountOptions, Cause, PartKind, Severity, accounts, diagnose, gaps, laps, syncs, waterfall};
use laptime_trace::{
    NameId, Nanos, PYTHON_SAMPLE, SpanEntry, Trace, TraceBuilder, Track, TrackId, TrackKind, activity::category,
};
use proptest::prelude::*;

/// A loop of training; times in microseconds.
#[derive(Debug, Clone, Copy)]
struct Loop {
    steps: u64,
    /// Loading the data of a step, 3 parts of 4 of it in `decode_jpeg`.
    loading: u64,
    /// Kernels of a step, and how long each runs.
    kernels: u64,
    kernel: u64,
    /// What the host does after the launches, and after the wait.
    python: u64,
    /// Every step ends in a wait.
    waits: bool,
    /// The recording ends in a wait.
    waits_at_end: bool,
    /// The first step loads its kernels so long.
    module: u64,
    /// Devices that do the same.
    devices: i64,
}

impl Loop {
    const fn new() -> Self {
        Self {
            steps: 10,
            loading: 0,
            kernels: 20,
            kernel: 500,
            python: 50,
            waits: false,
            waits_at_end: true,
            module: 0,
            devices: 1,
        }
    }
}

struct Player {
    builder: TraceBuilder,
    main: TrackId,
    streams: Vec<TrackId>,
    now: u64,
    /// When each device is done.
    free: Vec<u64>,
}

impl Player {
    fn host(&mut self, length: u64, name: &str, category: &str) -> SpanEntry {
        let span = self.builder.span(self.main, us(self.now), us(length), name, category);
        self.now += length;
        span
    }

    fn launch(&mut self, kernel: u64) {
        for device in 0..self.streams.len() {
            let launch = self.host(5, "cudaLaunchKernel", category::RUNTIME);
            let start = self.free[device].max(self.now + 3);
            let work = self.builder.span(self.streams[device], us(start), us(kernel), "gemm", category::KERNEL);
            self.builder.flow(launch, work);
            self.free[device] = start + kernel;
        }
    }

    fn wait(&mut self) {
        let done = self.free.iter().copied().max().unwrap_or(0).max(self.now) + 2;
        self.host(done - self.now, "cudaDeviceSynchronize", category::RUNTIME);
    }

    fn load(&mut self, time: u64) {
        let begin = self.now;
        let name = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__";
        self.builder.span(self.main, us(begin), us(time), name, category::USER);
        self.now += time / 8;
        self.host(time * 3 / 4, "decode_jpeg", category::PYTHON);
        self.now = begin + time;
    }
}

const fn us(micros: u64) -> Nanos {
    Nanos(1_000 * micros)
}

fn recorded(of: Loop) -> Trace {
    let mut builder = TraceBuilder::default();
    let main = builder.thread(1, 1, "main");
    let mut streams = Vec::new();
    for device in 0..of.devices {
        let stream = builder.stream(1, 7 + device, "stream");
        builder.track_mut(stream).device = Some(device);
        streams.push(stream);
    }
    let free = vec![0; streams.len()];
    let mut player = Player { builder, main, streams, now: 0, free };
    // The window of a device begins with its first work.
    player.launch(5);
    for step in 0..of.steps {
        let begin = player.now;
        if of.loading > 0 {
            player.load(of.loading);
        }
        if step == 0 && of.module > 0 {
            player.host(of.module, "cuModuleLoadData", category::DRIVER);
        }
        for _ in 0..of.kernels {
            player.launch(of.kernel);
        }
        if of.waits {
            player.wait();
        }
        player.host(of.python, "logging.py(3): log", category::PYTHON);
        let length = player.now - begin;
        player.builder.span(main, us(begin), us(length), &format!("ProfilerStep#{step}"), "Operator");
    }
    if of.waits_at_end {
        player.wait();
    }
    player.builder.build().expect("played spans nest")
}

fn idle(trace: &Trace) -> u64 {
    gaps(trace, None, 0).expect("there is a device").devices[0].idle().0
}

fn part(trace: &Trace, cause: Cause) -> u64 {
    let answer = gaps(trace, None, 0).expect("there is a device");
    let parts = answer.devices[0].parts.iter().filter(|part| part.kind == PartKind::Gap(cause));
    parts.map(|part| part.time.0).sum()
}

fn rules(trace: &Trace) -> Vec<(&'static str, Severity)> {
    let found = diagnose(Some(trace), &[], None);
    found.findings.iter().map(|found| (found.finding.rule, found.severity)).collect()
}

#[test]
fn a_slow_data_loader_is_found_with_its_location() {
    let trace = recorded(Loop { loading: 20_000, kernel: 100, ..Loop::new() });
    let found = diagnose(Some(&trace), &[], None);
    let first = &found.findings[0];
    assert_eq!((first.finding.rule, first.severity), ("data-loading", Severity::Bad), "{found:?}");
    let evidence = &first.finding.evidence;
    assert!(evidence.contains("_SingleProcessDataLoaderIter.__next__`, of which"), "{evidence}");
    assert!(evidence.contains("in `decode_jpeg`"), "{evidence}");
    assert!(!rules(&trace).iter().any(|(rule, _)| *rule == "sync-in-loop"));
    let place = gaps(&trace, None, 0).unwrap().devices[0].verdict.host.loading_place.clone().unwrap();
    let (inside, time) = place.inside.unwrap();
    // Of each load of 20 ms about 2 ms of the device's work of the step before hide the beginning.
    assert_eq!((inside.as_str(), place.time.0 / 1_000_000 >= 9 * 17), ("decode_jpeg", true), "{}", place.time.0);
    assert!(time < place.time && time.0 > place.time.0 / 2);
}

#[test]
fn a_sync_before_slow_loading_is_charged_at_most_its_length() {
    let trace = recorded(Loop { loading: 20_000, kernel: 100, waits: true, ..Loop::new() });
    assert_eq!(rules(&trace)[0].0, "data-loading");
    // Twenty kernels of 100 µs are launched within 100 µs, so that a wait lasts about 1.9 ms of the 20 ms.
    let (sync, idle) = (part(&trace, Cause::Sync), idle(&trace));
    assert!((5..12).contains(&(100 * sync / idle)), "{sync} of {idle}");
}

#[test]
fn a_sync_that_delays_the_next_launch_is_the_bottleneck_with_its_location() {
    let trace = recorded(Loop { kernel: 100, python: 1_000, waits: true, ..Loop::new() });
    let found = diagnose(Some(&trace), &[], None);
    assert_eq!(found.findings[0].finding.rule, "sync-in-loop", "{found:?}");
    let first = &found.findings[0];
    assert!(first.finding.evidence.contains("`cudaDeviceSynchronize` (9 times)"), "{found:?}");
    let span = &first.evidence[0];
    assert_eq!((span.track.as_str(), span.name.as_str()), ("main", "cudaDeviceSynchronize"));
    assert!(span.start_ns < span.end_ns, "{span:?}");
    let cost = syncs(&trace, None).unwrap().cost.unwrap().0;
    assert_eq!(cost, part(&trace, Cause::Sync), "`syncs` and `gaps` say the same");
    assert!((found.findings[0].gain_ns.unwrap() - cost as f64).abs() < 1.0, "and so does `diagnose`");
}

#[test]
fn syncs_while_the_device_is_busy_without_later_work_are_harmless() {
    for waits in [false, true] {
        let trace = recorded(Loop { waits, kernel: 2_000, python: 10, ..Loop::new() });
        assert_eq!(rules(&trace), [], "{waits}");
    }
    let trace = recorded(Loop { loading: 20_000, kernel: 300, ..Loop::new() });
    assert!(!rules(&trace).iter().any(|(rule, _)| *rule == "sync-in-loop"), "{:?}", rules(&trace));
    assert_eq!(part(&trace, Cause::Sync), 0);
}

#[test]
fn module_loading_in_the_first_step_is_a_cold_start() {
    let trace = recorded(Loop { module: 500_000, kernel: 1_000, ..Loop::new() });
    let found = diagnose(Some(&trace), &[], None);
    assert_eq!(rules(&trace)[0], ("cold-start", Severity::Notable), "{found:?}");
    assert!(found.findings[0].finding.next.contains("record after the warm-up"), "{found:?}");
}

#[test]
fn steps_are_recognised_whatever_their_category() {
    let found = laps(&recorded(Loop::new()), None).unwrap();
    assert_eq!((found.name.as_str(), found.laps.len()), ("ProfilerStep#*", 10));
    assert_eq!(laps(&recorded(Loop::new()), Some("ProfilerStep#*")).unwrap().laps.len(), 10);
}

#[test]
fn every_device_is_judged_and_compared() {
    let of = |kernel| recorded(Loop { devices: 2, kernel, python: 2_000, kernels: 4, ..Loop::new() });
    let (a, b) = (of(100), of(300));
    let first = diagnose(Some(&a), &[], None);
    assert!(first.findings[0].finding.evidence.starts_with("Each of 2 devices loses"), "{first:?}");
    let [a, b] = [&a, &b].map(|trace| accounts(trace, &AccountOptions::default()).unwrap());
    assert_eq!((a.other_devices, a.whole.devices), (0, 2));
    let answer = waterfall(&a, &b);
    let gemm = answer.steps.iter().find(|step| step.name == "gemm").unwrap();
    // Four kernels a step on each device.
    assert_eq!(gemm.times.map(|time| time.unwrap().round()), [400_000.0, 1_200_000.0], "a lap, on average");
    assert_eq!(gemm.counts, [4.0, 4.0]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// The same loop is recorded with its waits and without them: what disappears is what they cost.
    #[test]
    fn the_cost_of_syncs_is_the_time_saved_without_them(
        kernels in 1_u64..30, kernel in 10_u64..800, python in 0_u64..5_000, loading in 0_u64..5_000,
    ) {
        let of = Loop { kernels, kernel, python, loading, ..Loop::new() };
        let (with, without) = (recorded(Loop { waits: true, ..of }), recorded(of));
        let disappears = idle(&with).saturating_sub(idle(&without));
        let charged = part(&with, Cause::Sync);
        // A launch that comes early takes up to 10 µs of its own from each gap.
        let slack = 20_000 * of.steps;
        prop_assert!(charged <= disappears + slack, "{charged} of {disappears}");
        prop_assert!(charged + slack >= disappears, "{charged} of {disappears}");
        let cost = syncs(&with, None).unwrap().cost.unwrap().0;
        prop_assert_eq!(cost, charged);
        prop_assert_eq!(part(&without, Cause::Sync), 0, "the wait at the end holds nothing up");
    }
}

#[test]
fn samples_in_a_data_loader_attribute_unrecorded_host_time_to_data_loading() {
    let of = |stack: &str| {
        let mut builder = TraceBuilder::default();
        let main = builder.thread(5, 11, "main");
        let stream = builder.stream(5, 7, "stream 7");
        builder.track_mut(stream).device = Some(0);
        let (process, name) = (builder.process(5), builder.name("Python, sampled"));
        let (kind, unit) = (TrackKind::Lane, NameId::EMPTY);
        let lane = builder.track(Track { process, kind, name, number: Some(11), device: None, unit });
        for step in 0..20 {
            let call = builder.span(main, us(10_000 * step), us(5), "cudaLaunchKernel", category::RUNTIME);
            let kernel = builder.span(stream, us(10_000 * step + 8), us(4_000), "gemm", category::KERNEL);
            builder.flow(call, kernel);
            let mark = builder.mark(lane, us(10_000 * step + 7_000), "train.py:9 in __getitem__", PYTHON_SAMPLE);
            builder.mark_field(mark, "stack", stack);
        }
        rules(&builder.build().unwrap())
    };
    let loader = "train.py:30 in main;torch/utils/data/dataloader.py:633 in __next__;train.py:9 in __getitem__";
    assert_eq!(of(loader), [("data-loading", Severity::Bad)]);
    assert_eq!(of("train.py:30 in main;train.py:9 in tokenize"), [("host-starved", Severity::Bad)]);
}
