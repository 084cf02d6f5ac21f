//! Waits of hand-made traces, with known answers.

use laptime_analyze::{
    Budget, Judged, LapSource, NoLaps, Spent, Syncs, WaitKind, laps as laps_of, overview, stage_figures, syncs,
};
use laptime_trace::{LAP, Nanos, SYNC, SpanEntry, TraceBuilder, TrackId, activity::category};
use proptest::prelude::*;

/// A trace in the making with a thread and a stream.
struct Fixture {
    builder: TraceBuilder,
    main: TrackId,
    stream: TrackId,
}

impl Fixture {
    fn new() -> Self {
        let mut builder = TraceBuilder::default();
        let main = builder.thread(1, 1, "main");
        let stream = builder.stream(1, 7, "stream 7");
        Self { builder, main, stream }
    }

    fn host(&mut self, start: u64, length: u64, name: &str, category: &str) -> SpanEntry {
        self.builder.span(self.main, Nanos(start), Nanos(length), name, category)
    }

    fn call(&mut self, start: u64, length: u64, name: &str) -> SpanEntry {
        self.host(start, length, name, category::RUNTIME)
    }

    fn device(&mut self, start: u64, length: u64, name: &str, category: &str) -> SpanEntry {
        self.builder.span(self.stream, Nanos(start), Nanos(length), name, category)
    }

    /// A kernel with the call that launched it, five long.
    fn kernel(&mut self, launch: u64, start: u64, length: u64) {
        let launch = self.call(launch, 5, "cudaLaunchKernel");
        let kernel = self.device(start, length, "gemm", category::KERNEL);
        self.builder.flow(launch, kernel);
    }

    /// A copy with the call that launched it.
    fn copy(&mut self, call: (u64, u64), copy: (u64, u64), name: &str) {
        let launch = self.call(call.0, call.1, "cudaMemcpyAsync");
        let copy = self.device(copy.0, copy.1, name, category::COPY);
        self.builder.flow(launch, copy);
    }

    fn answer(self) -> Syncs {
        syncs(&self.builder.build().unwrap(), None).unwrap()
    }
}

/// The call, the site, the kind and the number of each group.
fn shown(answer: &Syncs) -> Vec<(&str, &str, &str, u64)> {
    let groups = answer.groups.iter();
    groups.map(|group| (group.call.as_str(), group.site.as_str(), group.kind.word(), group.count)).collect()
}

fn spent(waits: u64, time: u64) -> Spent {
    Spent { waits, time: Nanos(time) }
}

#[test]
fn sync_calls_marked_spans_and_marks_are_syncs() {
    let mut made = Fixture::new();
    made.host(0, 100, "decode", "");
    made.call(10, 20, "cudaStreamSynchronize");
    made.host(40, 30, "read_token", SYNC);
    let main = made.main;
    made.builder.mark(main, Nanos(80), "flush", SYNC);
    made.call(90, 5, "cudaMalloc");
    let answer = made.answer();
    let expected = [
        ("read_token", "decode/read_token", "marked", 1),
        ("cudaStreamSynchronize", "decode", "call", 1),
        ("flush", "decode/flush", "marked", 1),
    ];
    assert_eq!(shown(&answer), expected);
    assert_eq!(answer.time(), Nanos(50));
    assert_eq!(answer.groups[2].total, None, "the length of a mark is not known");
    assert!(answer.groups.iter().all(|group| group.stage.as_deref() == Some("decode")));
}

#[test]
fn a_nested_sync_is_part_of_the_outer_one() {
    let mut made = Fixture::new();
    made.host(0, 50, "read_token", SYNC);
    made.call(5, 40, "cudaStreamSynchronize");
    made.host(10, 30, "cuStreamSynchronize", category::DRIVER);
    let main = made.main;
    made.builder.mark(main, Nanos(20), "flush", SYNC);
    made.builder.mark(main, Nanos(50), "flush", SYNC);
    made.call(50, 10, "cudaDeviceSynchronize");
    let answer = made.answer();
    let expected = [("read_token", "read_token", "marked", 1), ("cudaDeviceSynchronize", "", "call", 1)];
    assert_eq!(shown(&answer), expected);
}

#[test]
fn concurrent_syncs_of_two_threads_are_two() {
    let mut made = Fixture::new();
    let worker = made.builder.thread(1, 2, "worker");
    made.call(0, 50, "cudaStreamSynchronize");
    made.builder.span(worker, Nanos(10), Nanos(20), "cudaStreamSynchronize", category::RUNTIME);
    let answer = made.answer();
    assert_eq!(shown(&answer), [("cudaStreamSynchronize", "", "call", 2)]);
    assert_eq!(answer.time(), Nanos(50), "time in which any thread waits");
    assert_eq!(answer.groups[0].total, Some(Nanos(70)), "what each waited");
}

#[test]
fn a_call_that_lasts_until_its_pageable_copy_ends_is_an_implicit_sync() {
    let implicit = |call, copy, name: &str, uncertainty: Option<u64>| {
        let mut made = Fixture::new();
        made.builder.clock_uncertainty = uncertainty.map(Nanos);
        made.copy(call, copy, name);
        let answer = made.answer();
        answer.groups.iter().filter(|group| group.kind == WaitKind::Implicit).count()
    };
    let pageable = "Memcpy DtoH (Device -> Pageable)";
    assert_eq!(implicit((0, 50), (10, 40), pageable, None), 1, "until the copy ends, to the nanosecond");
    assert_eq!(implicit((0, 49), (10, 40), pageable, None), 0, "one nanosecond short");
    assert_eq!(implicit((0, 52), (10, 40), pageable, Some(2)), 1, "as far as the clocks may be apart");
    assert_eq!(implicit((0, 51), (10, 40), pageable, Some(2)), 0, "not beyond the clock uncertainty");
    assert_eq!(implicit((100, 50), (10, 40), pageable, None), 0, "the copy was done before the call began");
    assert_eq!(implicit((0, 50), (10, 40), "Memcpy HtoD (Host -> Device)", None), 1);
    assert_eq!(implicit((0, 50), (10, 40), "Memcpy DtoH (Device -> Pinned)", None), 0);
    assert_eq!(implicit((0, 50), (10, 40), "Memcpy DtoD (Device -> Device)", None), 0);
}

/// The kinds of sync of a call that launches a copy or memset after a kernel.
fn kinds(call: (u64, u64, &str), work: (u64, u64, &str, &str), kernel: Option<(u64, u64)>) -> Vec<WaitKind> {
    let mut made = Fixture::new();
    if let Some((start, length)) = kernel {
        made.kernel(0, start, length);
    }
    let call = made.call(call.0, call.1, call.2);
    let work = made.device(work.0, work.1, work.2, work.3);
    made.builder.flow(call, work);
    made.answer().groups.iter().map(|group| group.kind).collect()
}

#[test]
fn a_copy_call_that_returns_early_is_not_a_sync() {
    let copied = |call_length, name| kinds((10, call_length, "cudaMemcpy"), (20, 40, name, category::COPY), None);
    for name in ["Memcpy DtoD (Device -> Device)", "Memcpy HtoD (Pageable -> Device)"] {
        assert_eq!(copied(49, name), [], "{name}");
        assert_eq!(copied(50, name), [WaitKind::Call], "{name}");
    }
}

#[test]
fn an_early_return_within_clock_uncertainty_is_still_a_sync() {
    let waits = |call_length| {
        let mut made = Fixture::new();
        made.builder.clock_uncertainty = Some(Nanos(5));
        let call = made.call(10, call_length, "cudaMemcpy");
        let copy = made.device(20, 40, "Memcpy DtoH (Device -> Pinned)", category::COPY);
        made.builder.flow(call, copy);
        made.answer().waits.len()
    };
    assert_eq!((waits(44), waits(45)), (0, 1));
}

#[test]
fn a_memset_syncs_only_if_it_lasted_until_earlier_work_ended() {
    let memset = |call_length, kernel| {
        kinds((10, call_length, "cudaMemset"), (60, 5, "Memset (Device)", category::MEMSET), kernel)
    };
    assert_eq!(memset(4, Some((5, 50))), []);
    assert_eq!(memset(54, Some((5, 50))), []);
    assert_eq!(memset(55, Some((5, 50))), [WaitKind::Implicit]);
    assert_eq!(memset(80, None), [], "nothing was before it");
    let mut made = Fixture::new();
    made.call(10, 80, "cudaMemset");
    assert_eq!(made.answer().waits, [], "by name it returns at once");
}

#[test]
fn a_free_is_an_implicit_sync_if_it_lasted_until_earlier_work_ended() {
    let waits = |call: (u64, u64, &str), uncertainty: Option<u64>| {
        let mut made = Fixture::new();
        made.builder.clock_uncertainty = uncertainty.map(Nanos);
        made.kernel(0, 20, 30);
        made.kernel(6, 50, 50);
        made.call(call.0, call.1, call.2);
        made.answer().groups.iter().map(|group| group.kind).collect::<Vec<_>>()
    };
    for name in ["cudaFree", "cudaFreeHost", "cuMemFree_v2", "cuModuleUnload", "cudaHostRegister", "hipFree"] {
        assert_eq!(waits((30, 70, name), None), [WaitKind::Implicit], "{name}");
        assert_eq!(waits((30, 69, name), None), [], "{name} is back before the second kernel is done");
    }
    assert_eq!(waits((15, 85, "cudaFree"), None), [WaitKind::Implicit], "the work was given but had not begun");
    assert_eq!(waits((100, 70, "cudaFree"), None), [], "nothing was left to do");
    assert_eq!(waits((30, 74, "cudaFree"), Some(5)), [], "not beyond the clock uncertainty");
    for name in ["cudaFreeAsync", "cudaMalloc", "cudaEventRecord"] {
        assert_eq!(waits((30, 70, name), None), [], "{name}");
    }
}

#[test]
fn a_free_does_not_sync_with_another_process() {
    let mut made = Fixture::new();
    let other = made.builder.thread(2, 1, "other");
    made.kernel(0, 20, 30);
    made.builder.span(other, Nanos(30), Nanos(70), "cudaFree", category::RUNTIME);
    assert_eq!(made.answer().waits, []);
}

#[test]
fn a_launch_into_a_full_queue_is_an_implicit_sync() {
    let mut made = Fixture::new();
    made.host(0, 90, "aten::add", category::OPERATION);
    made.call(5, 80, "cudaLaunchKernel");
    made.host(10, 60, "Command Buffer Full", category::OVERHEAD);
    let answer = made.answer();
    assert_eq!(shown(&answer), [("Command Buffer Full", "aten::add", "implicit", 1)]);
    assert_eq!(answer.time(), Nanos(60));
}

/// Three steps with an implicit wait each, two threads that wait at one time, a marked wait around a call, a mark.
fn many_kinds() -> Fixture {
    let mut made = Fixture::new();
    let worker = made.builder.thread(1, 2, "worker");
    for step in 0..3 {
        let at = step * 1000;
        made.host(at, 900, "decode", LAP);
        made.kernel(at + 10, at + 20, 300);
        made.copy((at + 30, 400), (at + 320, 50), "Memcpy DtoH (Device -> Pageable)");
        made.host(at + 500, 100, "read_token", SYNC);
        made.call(at + 510, 80, "cudaStreamSynchronize");
        made.builder.span(worker, Nanos(at + 550), Nanos(600), "cudaStreamSynchronize", category::RUNTIME);
        let main = made.main;
        made.builder.mark(main, Nanos(at + 700), "flush", SYNC);
    }
    made
}

#[test]
fn every_analysis_counts_the_same_syncs() {
    let trace = many_kinds().builder.build().unwrap();
    let answer = syncs(&trace, None).unwrap();
    let whole = overview(&trace).waits.unwrap();
    let figures = stage_figures(&trace);
    // A step: 400 in the copy and 500 to 1150 on either thread; 120 of it overlap the next copy.
    assert_eq!((whole.count, whole.time), (12, Nanos(2910)));
    assert_eq!((answer.waits.len(), answer.time()), (12, Nanos(2910)));
    assert_eq!(figures[3..], [Some(12.0), Some(2910.0)]);
    assert_eq!(answer.values()[3], Some(2910.0 / 3150.0));
    let of_laps = laps_of(&trace, None).unwrap();
    assert_eq!(of_laps.overview.waits, Some(whole));
    let by_laps: Vec<Spent> = of_laps.laps.iter().map(|lap| spent(lap.waits, lap.waiting)).collect();
    let by_syncs: Vec<Spent> = answer.laps.unwrap().laps.iter().map(|lap| lap.spent).collect();
    assert_eq!((&by_laps, by_laps[1]), (&by_syncs, spent(4, 150 + 400 - 120 + 400)));
}

#[test]
fn the_share_of_wall_time_is_the_union_over_waiting_threads() {
    let mut made = Fixture::new();
    made.kernel(0, 10, 90);
    for number in 2..6 {
        let thread = made.builder.thread(1, number, "worker");
        made.builder.span(thread, Nanos(20), Nanos(80), "cudaStreamSynchronize", category::RUNTIME);
    }
    let trace = made.builder.build().unwrap();
    let waits = overview(&trace).waits.unwrap();
    assert_eq!((waits.count, waits.time), (4, Nanos(80)));
    assert_eq!(syncs(&trace, None).unwrap().share(), Some(0.8));
}

/// Ten repetitions of two kernels of 50 on a device, all launched at once, and one sync for all of them.
fn one_wait_for_many_laps() -> Syncs {
    let mut made = Fixture::new();
    for turn in 0..10 {
        for (at, name) in [(0, "a"), (50, "b")] {
            let launch = made.call(turn * 10 + at / 10, 5, "cudaLaunchKernel");
            let kernel = made.device(200 + turn * 100 + at, 45, name, category::KERNEL);
            made.builder.flow(launch, kernel);
        }
    }
    made.call(250, 900, "cudaDeviceSynchronize");
    made.answer()
}

#[test]
fn a_sync_longer_than_a_device_lap_is_split_by_time() {
    let answer = one_wait_for_many_laps();
    let laps = answer.laps.as_ref().unwrap();
    assert_eq!((laps.source, laps.laps.len()), (LapSource::Kernels, 9));
    let times: Vec<u64> = laps.laps.iter().map(|lap| lap.spent.time.0).collect();
    assert_eq!(times, [50, 100, 100, 100, 100, 100, 100, 100, 100]);
    assert_eq!(laps.laps.iter().map(|lap| lap.spent.waits).sum::<u64>(), 1);
    assert_eq!((answer.waits[0].lap, answer.waits[0].last_lap), (Some(0), Some(8)));
}

#[test]
fn a_time_budget_applies_to_the_sync_time_within_each_lap() {
    let answer = one_wait_for_many_laps();
    assert!(judged(&answer, "100ns/lap", &[]).is_kept());
    let judged = judged(&answer, "99ns/lap", &[]);
    assert_eq!((judged.over.len(), judged.over[0].spent), (8, spent(0, 100)));
    assert_eq!(judged.causes, [(0, spent(1, 800))]);
}

#[test]
fn the_site_is_the_path_of_stages_and_operations_without_driver_calls() {
    let mut made = Fixture::new();
    made.host(0, 100, "generate", "");
    made.host(5, 80, "aten::item", category::OPERATION);
    made.host(10, 70, "aten::_local_scalar_dense", category::OPERATION);
    made.call(15, 60, "cudaMemcpy");
    let answer = made.answer();
    assert_eq!(answer.groups[0].site, "generate/aten::item/aten::_local_scalar_dense");
    assert_eq!(answer.groups[0].stage.as_deref(), Some("generate"));
}

#[test]
fn the_site_is_the_innermost_python_function_outside_torch() {
    let site = |names: &[&str]| {
        let mut made = Fixture::new();
        for (at, name) in (0_u64..).zip(names) {
            made.host(at, 100 - 2 * at, name, category::PYTHON);
        }
        made.host(20, 50, "aten::item", category::OPERATION);
        made.call(25, 10, "cudaStreamSynchronize");
        made.answer().groups[0].site.clone()
    };
    let (sample, synchronize) = ("sampler.py(41): sample", "torch/cuda/__init__.py(783): synchronize");
    assert_eq!(site(&["main.py(3): main", sample, "<built-in method item of Tensor>"]), sample);
    assert_eq!(site(&["main.py(3): main", sample, synchronize]), sample);
    assert_eq!(site(&[synchronize]), synchronize);
    assert_eq!(site(&["nn.Module: Linear_0"]), "aten::item");
}

#[test]
fn a_stage_that_overlaps_without_nesting_also_contains_a_sync() {
    let mut made = Fixture::new();
    made.host(0, 60, "step.py(1): step", category::PYTHON);
    made.host(10, 90, "ProfilerStep#3", category::USER);
    made.call(20, 10, "cudaStreamSynchronize");
    let answer = made.answer();
    assert_eq!(answer.groups[0].site, "step.py(1): step");
    assert_eq!(answer.groups[0].stage.as_deref(), Some("ProfilerStep#*"));
}

#[test]
fn repetitions_of_the_lap_unit_are_one_site() {
    let mut made = Fixture::new();
    for step in 0..3 {
        made.host(step * 100, 100, &format!("iteration {step}"), category::NVTX);
        made.call(step * 100 + 10, 20, "cudaStreamSynchronize");
    }
    let answer = made.answer();
    assert_eq!(shown(&answer), [("cudaStreamSynchronize", "iteration *", "call", 3)]);
    assert_eq!(answer.stages, ["iteration *"]);
}

#[test]
fn nvtx_ranges_that_differ_only_in_a_counter_are_one_site() {
    let mut made = Fixture::new();
    for (at, start) in [(4711, 0), (4712, 100)] {
        made.host(start, 50, &format!("aten::item, op_id = {at}"), category::NVTX);
        made.host(start + 5, 40, &format!("aten::add, seq = {at}, op_id = {at}"), category::NVTX);
        made.call(start + 10, 20, "cudaStreamSynchronize");
    }
    assert_eq!(shown(&made.answer()), [("cudaStreamSynchronize", "aten::item/aten::add", "call", 2)]);
}

#[test]
fn a_long_path_is_shortened_to_its_innermost_names() {
    let mut made = Fixture::new();
    for depth in 0..12 {
        made.host(depth, 100 - 2 * depth, &format!("s{depth}"), "");
    }
    made.call(20, 10, "cudaStreamSynchronize");
    assert_eq!(made.answer().groups[0].site, "…/s4/s5/s6/s7/s8/s9/s10/s11");
}

#[test]
fn a_sync_reports_the_activity_of_the_busiest_device() {
    let mut made = Fixture::new();
    let other = made.builder.stream(2, 9, "stream 9");
    made.builder.track_mut(other).device = Some(1);
    let stream = made.stream;
    made.builder.track_mut(stream).device = Some(0);
    made.device(0, 30, "gemm", category::KERNEL);
    made.builder.span(other, Nanos(0), Nanos(70), "gemm", category::KERNEL);
    made.call(20, 100, "cudaDeviceSynchronize");
    let answer = made.answer();
    assert_eq!((answer.waits[0].busy, answer.waits[0].idle()), (Some(Nanos(50)), Some(Nanos(50))));
    assert_eq!(answer.groups[0].busy_share, Some(0.5));
    assert_eq!(answer.devices, 2);
}

#[test]
fn without_a_device_device_figures_are_missing() {
    let mut made = Fixture::new();
    made.host(20, 100, "read_token", SYNC);
    let answer = made.answer();
    assert_eq!((answer.waits[0].busy, answer.waits[0].cost, answer.devices), (None, None, 0));
    assert_eq!((answer.groups[0].busy_share, answer.groups[0].cost), (None, None));
}

/// What a wait from 20 to 50 costs, while the first kernel runs from 10 to 40.
fn cost(then: impl FnOnce(&mut Fixture)) -> Option<u64> {
    let mut made = Fixture::new();
    made.kernel(0, 10, 30);
    made.call(20, 30, "cudaStreamSynchronize");
    then(&mut made);
    made.answer().waits[0].cost.map(|cost| cost.0)
}

#[test]
fn the_cost_of_a_sync_is_the_idle_time_saved_without_it() {
    assert_eq!(cost(|made| made.kernel(60, 70, 10)), Some(30), "all of the gap from 40 to 70");
    assert_eq!(cost(|made| made.kernel(160, 170, 10)), Some(30), "no more than the wait lasted");
}

#[test]
fn a_sync_without_a_later_delay_costs_nothing() {
    assert_eq!(cost(|made| made.kernel(12, 70, 10)), Some(0));
    assert_eq!(cost(|made| made.kernel(12, 45, 10)), Some(0), "the device is busy");
    assert_eq!(cost(|_| ()), Some(0), "nothing follows");
    let orphan = |made: &mut Fixture| {
        made.device(70, 10, "gemm", category::KERNEL);
    };
    assert_eq!(cost(orphan), Some(0), "the launch is not known");
}

#[test]
fn a_launch_within_clock_uncertainty_is_not_late() {
    let apart = |uncertainty| {
        cost(|made| {
            made.builder.clock_uncertainty = Some(Nanos(uncertainty));
            made.kernel(60, 70, 10);
        })
    };
    assert_eq!((apart(21), apart(40)), (Some(30), Some(0)));
}

#[test]
fn syncs_do_not_delay_work_of_another_process() {
    let other = |made: &mut Fixture| {
        let other = made.builder.thread(2, 1, "other");
        let launch = made.builder.span(other, Nanos(60), Nanos(5), "cudaLaunchKernel", category::RUNTIME);
        let kernel = made.device(70, 10, "gemm", category::KERNEL);
        made.builder.flow(launch, kernel);
    };
    assert_eq!(cost(other), Some(0));
}

#[test]
fn idle_time_is_charged_only_once() {
    let mut made = Fixture::new();
    made.kernel(0, 10, 30);
    made.call(20, 30, "cudaStreamSynchronize");
    made.call(56, 4, "cudaStreamSynchronize");
    made.kernel(65, 70, 10);
    let answer = made.answer();
    let costs: Vec<_> = answer.waits.iter().map(|wait| wait.cost).collect();
    assert_eq!(costs, [Some(Nanos(26)), Some(Nanos(4))]);
    assert_eq!((answer.cost, answer.groups[0].cost), (Some(Nanos(30)), Some(Nanos(30))));
}

#[test]
fn a_copy_that_ends_after_its_sync_is_within_clock_uncertainty() {
    // A call of 100 µs whose copy ends later by this much.
    let waits = |name: &str, path: &str, call: u64, late: u64| {
        let mut made = Fixture::new();
        let launch = made.host(1_000, call, name, category::RUNTIME);
        let copy = made.device(1_000 + call / 2, call / 2 + late, path, category::COPY);
        made.builder.flow(launch, copy);
        made.answer().waits.len()
    };
    for late in [0, 2_000, 4_000] {
        assert_eq!(waits("hipMemcpyWithStream", "CopyDeviceToHost", 100_000, late), 1, "{late}");
        let path = "Memcpy DtoH (Device -> Pageable)";
        assert_eq!(waits("cudaMemcpyAsync", path, 100_000, late), 1, "{late}");
    }
    assert_eq!(waits("hipMemcpyWithStream", "CopyDeviceToHost", 100_000, 6_000), 0, "it was back before");
    assert_eq!(waits("hipMemcpyWithStream", "CopyDeviceToHost", 8_000, 4_000), 0, "so short a call was back before");
}

#[test]
fn the_launching_thread_with_most_sync_time_is_reported() {
    let mut made = Fixture::new();
    let backward = made.builder.thread(1, 3, "backward");
    for start in [100, 200] {
        let launch = made.builder.span(backward, Nanos(start), Nanos(5), "cudaLaunchKernel", category::RUNTIME);
        let kernel = made.device(start + 10, 10, "gemm", category::KERNEL);
        made.builder.flow(launch, kernel);
    }
    let worker = made.builder.thread(1, 2, "worker");
    made.builder.span(worker, Nanos(0), Nanos(500), "cudaStreamSynchronize", category::RUNTIME);
    made.kernel(0, 10, 30);
    made.call(20, 60, "cudaStreamSynchronize");
    made.host(90, 10, "end", "");
    let thread = made.answer().thread.unwrap();
    assert_eq!((thread.name.as_str(), thread.wall, thread.waited), ("main", Nanos(100), Nanos(60)));
    assert_eq!((thread.is_launching, thread.share()), (true, Some(0.6)));
}

/// Four laps of 100: no wait, one of 10, two of 10 and 20, one of 60; and one wait of 5 outside.
fn laps() -> Syncs {
    let mut made = Fixture::new();
    for lap in 0..4 {
        made.host(lap * 100, 90, "decode", LAP);
    }
    made.call(110, 10, "cudaStreamSynchronize");
    made.call(210, 10, "cudaStreamSynchronize");
    made.host(230, 20, "read_token", SYNC);
    made.call(310, 60, "cudaStreamSynchronize");
    made.call(395, 5, "cudaDeviceSynchronize");
    made.answer()
}

#[test]
fn syncs_are_counted_in_the_lap_they_start_in() {
    let answer = laps();
    let of_laps = answer.laps.as_ref().unwrap();
    let counted: Vec<_> = of_laps.laps.iter().map(|lap| (lap.label.as_str(), lap.spent)).collect();
    let expected =
        [("decode 0", spent(0, 0)), ("decode 1", spent(1, 10)), ("decode 2", spent(2, 30)), ("decode 3", spent(1, 60))];
    assert_eq!((counted, of_laps.outside), (expected.to_vec(), 1));
    let counts = of_laps.counts().unwrap();
    let times = of_laps.times().unwrap();
    assert_eq!((counts.min, counts.median, counts.max), (0, 1.0, 2));
    assert_eq!((times.min, times.median, times.max), (0, 20.0, 60));
    let a_lap: Vec<_> = answer.groups.iter().map(|group| (group.call.as_str(), group.a_lap)).collect();
    let expected =
        [("cudaStreamSynchronize", Some(1.0)), ("read_token", Some(0.0)), ("cudaDeviceSynchronize", Some(0.0))];
    assert_eq!(a_lap, expected);
}

fn judged(answer: &Syncs, budget: &str, allow: &[&str]) -> Judged {
    let allow: Vec<String> = allow.iter().map(|&pattern| pattern.to_owned()).collect();
    answer.judge(budget.parse::<Budget>().unwrap(), &allow).unwrap()
}

/// Laps or calls with what was spent in them.
type Named = Vec<(String, Spent)>;

/// What is over, and what causes it.
fn over(judged: &Judged, answer: &Syncs) -> (Named, Named) {
    let over = judged.over.iter().map(|over| (over.lap.clone().unwrap_or_default(), over.spent)).collect();
    let causes = judged.causes.iter().map(|(group, spent)| (answer.groups[*group].call.clone(), *spent)).collect();
    (over, causes)
}

#[test]
fn laps_over_budget_are_listed_with_the_cause() {
    let answer = laps();
    let of = |name: &str, spent| (name.to_owned(), spent);
    // A usual lap has none of the first and one of the second.
    let causes = vec![of("read_token", spent(1, 20)), of("cudaStreamSynchronize", spent(1, 10))];
    assert_eq!(over(&judged(&answer, "1/lap", &[]), &answer), (vec![of("decode 2", spent(2, 30))], causes));
    let causes = vec![of("cudaStreamSynchronize", spent(1, 60))];
    assert_eq!(over(&judged(&answer, "30ns/lap", &[]), &answer), (vec![of("decode 3", spent(1, 60))], causes));
    assert!(judged(&answer, "2/lap", &[]).is_kept() && judged(&answer, "60ns/lap", &[]).is_kept());
    assert_eq!(judged(&answer, "60ns/lap", &[]).most, spent(1, 60));
}

#[test]
fn a_budget_for_the_whole_trace_counts_every_sync() {
    let answer = laps();
    assert!(judged(&answer, "5", &[]).is_kept() && judged(&answer, "105ns", &[]).is_kept());
    for budget in ["4", "104ns"] {
        let judged = judged(&answer, budget, &[]);
        assert_eq!((judged.over.len(), judged.over[0].lap.as_deref(), judged.most), (1, None, spent(5, 105)));
        assert_eq!(judged.causes.len(), 3);
    }
}

#[test]
fn allowed_syncs_are_left_out_and_counted() {
    let answer = laps();
    let by_call = judged(&answer, "1/lap", &["read_*"]);
    assert_eq!((by_call.is_kept(), by_call.allowed, by_call.unused), (true, 1, vec![]));
    let by_site = judged(&answer, "1/lap", &["decode/read_token", "hip*"]);
    assert_eq!((by_site.is_kept(), by_site.allowed, by_site.unused), (true, 1, vec!["hip*".to_owned()]));
}

#[test]
fn a_lap_budget_needs_laps() {
    let mut made = Fixture::new();
    made.host(0, 10, "load", "");
    made.host(20, 10, "load", "");
    made.call(40, 1000, "cudaStreamSynchronize");
    let answer = made.answer();
    assert_eq!(answer.judge("1/lap".parse().unwrap(), &[]), None);
    assert_eq!(answer.lap_names, [("load".to_owned(), 2)]);
}

#[test]
fn an_unknown_lap_unit_is_an_error() {
    let trace = TraceBuilder::default().build().unwrap();
    assert_eq!(syncs(&trace, Some("token")), Err(NoLaps::NoSuchName { name: "token".to_owned(), known: vec![] }));
}

#[test]
fn a_trace_without_syncs_has_no_groups() {
    let mut made = Fixture::new();
    made.kernel(0, 10, 30);
    let answer = made.answer();
    assert_eq!((answer.waits.len(), answer.time(), answer.cost), (0, Nanos(0), None));
    assert_eq!(answer.thread.unwrap().waited, Nanos(0));
    assert_eq!(answer.groups, []);
}

proptest! {
    #[test]
    fn groups_and_laps_contain_every_sync_once(
        spans in prop::collection::vec((0_u64..2000, 0_u64..200, 0_usize..5, 0_i64..2), 0..60),
        kernels in prop::collection::vec((0_u64..2000, 0_u64..100), 0..20),
        uncertainty in prop::option::of(0_u64..30),
    ) {
        let mut made = Fixture::new();
        made.builder.clock_uncertainty = uncertainty.map(Nanos);
        let threads = [made.main, made.builder.thread(1, 2, "worker")];
        for (start, length, what, thread) in spans {
            let (name, kind) = [
                ("cudaStreamSynchronize", category::RUNTIME), ("read", SYNC), ("decode", LAP),
                ("aten::item", category::OPERATION), ("a.py(1): f", category::PYTHON),
            ][what];
            made.builder.span(threads[thread as usize], Nanos(start), Nanos(length), name, kind);
        }
        for (start, length) in kernels {
            made.kernel(start, start + 20, length);
        }
        let answer = made.answer();
        let count = answer.waits.len() as u64;
        prop_assert_eq!(answer.groups.iter().map(|group| group.count).sum::<u64>(), count);
        let total: u64 = answer.groups.iter().filter_map(|group| group.total).map(|total| total.0).sum();
        prop_assert!(answer.time().0 <= total);
        prop_assert!(answer.share().is_none_or(|share| share <= 1.0));
        if let Some(laps) = &answer.laps {
            let inside: u64 = laps.laps.iter().map(|lap| lap.spent.waits).sum();
            prop_assert_eq!(inside + laps.outside, count);
        }
        for wait in &answer.waits {
            prop_assert!(wait.busy <= wait.length);
        }
        let judged = answer.judge("0".parse().unwrap(), &["*".to_owned()]).unwrap();
        prop_assert!(judged.is_kept() && judged.allowed == count);
    }
}

#[test]
fn syncs_are_located_by_the_line_or_function_in_the_trace() {
    let mut builder = TraceBuilder::default();
    let main = builder.thread(1, 1, "main");
    let mut span =
        |start, length, name: &str, category: &str| builder.span(main, Nanos(start), Nanos(length), name, category);
    let marked = span(0, 10, "read_token", SYNC);
    for start in [100, 200] {
        span(start, 50, "train.py(5): step", category::PYTHON);
        span(start + 5, 30, &format!("<built-in method item of Tensor object at 0x{start}>"), category::PYTHON);
        span(start + 10, 20, "cudaStreamSynchronize", category::RUNTIME);
    }
    span(300, 50, "train.py(9): log", category::PYTHON);
    span(305, 40, "torch/cuda/__init__.py(975): synchronize", category::PYTHON);
    span(310, 30, "cudaDeviceSynchronize", category::RUNTIME);
    span(400, 5, "cudaDeviceSynchronize", category::RUNTIME);
    builder.span_field(marked, "file", "src/main.rs");
    builder.span_field(marked, "line", 29_i64);
    let places = laptime_analyze::wait_places(&builder.build().unwrap(), None).unwrap().places;
    let text: Vec<_> = places
        .iter()
        .map(|place| {
            let (function, method) = (place.function.as_deref(), place.method.as_deref());
            (place.file.as_str(), place.line, function, method, place.count, place.total.map(|total| total.0))
        })
        .collect();
    let expected = [
        ("train.py", 5, Some("step"), Some("item"), 2, Some(40)),
        ("train.py", 9, Some("log"), Some("synchronize"), 1, Some(30)),
        ("src/main.rs", 29, None, None, 1, Some(10)),
        ("", 0, None, None, 1, Some(5)),
    ];
    assert_eq!(text, expected);
}
