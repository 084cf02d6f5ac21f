//! Any trace has an answer to every question, and what must add up adds up.

use laptime_analyze::{
    AccountOptions, By, Changes, EntryKind, OffloadFacts, Thresholds, accounts, critical_path, diagnose, gaps, laps,
    offload, overlap, stages, syncs, top, waterfall,
};
use laptime_trace::{LAP, Nanos, SYNC, Trace, TraceBuilder, activity::category};
use proptest::prelude::*;

/// Names and categories of the host.
const HOST: [(&str, &str); 12] = [
    ("generate", ""),
    ("token", LAP),
    ("read_token", SYNC),
    ("ProfilerStep#1", category::USER),
    ("iteration 3", category::NVTX),
    ("aten::linear", category::OPERATION),
    ("model.py(7): forward", category::PYTHON),
    ("cudaLaunchKernel", category::RUNTIME),
    ("cudaGraphLaunch", category::RUNTIME),
    ("cudaMemcpyAsync", category::RUNTIME),
    ("cudaStreamSynchronize", category::RUNTIME),
    ("cudaStreamWaitEvent", category::RUNTIME),
];

/// Names and categories of a device.
const DEVICE: [(&str, &str); 10] = [
    ("sm90_xmma_gemm", category::KERNEL),
    ("flash_fwd_kernel", category::KERNEL),
    ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", category::KERNEL),
    ("elementwise", category::KERNEL),
    ("Memcpy HtoD (Pageable -> Device)", category::COPY),
    ("Memcpy DtoH (Device -> Pinned)", category::COPY),
    ("Memset (Device)", category::MEMSET),
    ("graph 1", category::GRAPH),
    ("ProfilerStep#1", category::DEVICE_STAGE),
    ("Stream Sync", category::DEVICE_SYNC),
];

/// A span of some thread or stream: place, name, start, length, and the earlier spans it is tied to.
type Given = (usize, usize, u64, u64, usize);

fn built(given: &[Given], scale: u64, uncertainty: Option<u64>) -> Trace {
    let mut builder = TraceBuilder::default();
    builder.clock_uncertainty = uncertainty.map(Nanos);
    let threads = [builder.thread(1, 1, "main"), builder.thread(1, 2, "worker")];
    let streams =
        [builder.stream(1, 7, "stream 7"), builder.stream(1, 8, "stream 8"), builder.stream(2, 7, "stream 7")];
    let (mut calls, mut work) = (Vec::new(), Vec::new());
    for &(place, name, start, length, tie) in given {
        let (start, length) = (Nanos(start.saturating_mul(scale)), Nanos(length.saturating_mul(scale)));
        if place < threads.len() {
            let (name, category) = HOST[name % HOST.len()];
            calls.push(builder.span(threads[place], start, length, name, category));
        } else {
            let (name, category) = DEVICE[name % DEVICE.len()];
            let span = builder.span(streams[place - threads.len()], start, length, name, category);
            work.push((span, tie));
        }
    }
    for (span, tie) in work {
        if let Some(call) = calls.get(tie) {
            builder.flow(*call, span);
        }
    }
    builder.build().unwrap()
}

fn any_trace() -> impl Strategy<Value = Trace> {
    let span = (0_usize..5, 0_usize..12, 0_u64..400, 0_u64..60, 0_usize..40);
    // Small steps, microseconds, and so large that times reach the end of what a trace can hold.
    let scale = prop::sample::select(vec![1, 1_000, 40_000, i64::MAX as u64 / 500]);
    let uncertainty = prop::sample::select(vec![None, Some(0), Some(2_000)]);
    (prop::collection::vec(span, 0..60), scale, uncertainty)
        .prop_map(|(given, scale, uncertainty)| built(&given, scale, uncertainty))
}

proptest! {
    #[test]
    fn every_question_has_an_answer(trace in any_trace()) {
        stages(&trace);
        top(&trace);
        overlap(&trace);
        diagnose(Some(&trace), &[], None);
        let changes = [
            Changes::default(),
            Changes { without_sync: true, without_loading: true, without_allocation: true, ..Changes::default() },
            Changes { faster: vec![("matmul".to_owned(), 2.0)], hide_copies: true, ..Changes::default() },
        ];
        changes.iter().for_each(|changes| drop(critical_path(&trace, changes)));
        offload(&trace, OffloadFacts::default(), Thresholds::default());
        for lap in [None, Some("token")] {
            let _ = gaps(&trace, lap, 5);
            let _ = syncs(&trace, lap);
            let _ = laps(&trace, lap);
        }
        for by in [By::Kernel, By::Group, By::Operation, By::Stage] {
            if let Ok(found) = accounts(&trace, &AccountOptions { by, ..AccountOptions::default() }) {
                waterfall(&found, &found).shortened(3);
            }
        }
    }

    #[test]
    fn the_parts_of_any_trace_add_up_to_its_time(trace in any_trace()) {
        let Ok(found) = accounts(&trace, &AccountOptions::default()) else { return Ok(()) };
        for account in std::iter::once(&found.whole).chain(&found.of_laps) {
            let sum: u64 = account.entries.iter().map(|part| part.time).sum();
            prop_assert_eq!(sum, account.total);
        }
        let same = waterfall(&found, &found);
        prop_assert!(same.steps.iter().all(|step| step.change() == 0.0));
        prop_assert!(same.kinds.iter().all(|(kind, change)| *change == 0.0 || *kind == EntryKind::Nothing));
    }
}
