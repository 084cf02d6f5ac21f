//! `laptime record`, on a stand-in for CUDA and CUPTI.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod control;
mod odd;
mod python;
mod stand_in;

use laptime_trace::{Activity, TrackKind};

use self::stand_in::{Place, stand_in};

#[test]
fn kernels_calls_and_ranges_of_an_unchanged_program_are_in_the_trace() {
    let words = ["init", "push", "step", "kernels", "30", "copy", "sync", "pop", "say", "hello"];
    let recorded = Place::new().record(&[], &words).good();
    assert_eq!(recorded.out, "hello\n");
    let trace = recorded.trace();
    let count = |activity| stand_in::count(&trace, activity);
    assert_eq!((count(Activity::Kernel), count(Activity::Copy), count(Activity::DeviceSync)), (30, 1, 1));
    // Of the calls only those that matter, and those of the driver inside them are left out.
    assert_eq!((count(Activity::Launch), count(Activity::Wait), count(Activity::Call)), (31, 1, 0));
    assert_eq!(trace.flows().len(), 31);
    let step = trace.spans().find(|span| span.name == "step").unwrap();
    assert_eq!((step.category, trace.track(step.track).kind), ("nvtx", TrackKind::Thread));
    let mut launches = trace.spans().filter(|span| span.name == "cudaLaunchKernel");
    assert!(launches.all(|span| span.parent == Some(step.id)), "{}", trace.outline());
    let kernel = trace.spans().find(|span| span.activity() == Activity::Kernel).unwrap();
    assert!(kernel.start >= step.start && kernel.end() <= step.end().saturating_add(laptime_trace::Nanos(1_000_000)));
    assert!(["gemm(float*)", "_Z4gemmPf"].contains(&kernel.name), "{}", kernel.name);
    assert!(
        recorded.err.contains("Recorded ") && recorded.err.contains("1 process, 30 kernels, 0 dropped"),
        "{}",
        recorded.err
    );
    assert!(recorded.err.contains("laptime diagnose run"), "{}", recorded.err);
    let memory = &recorded.json()["processes"][0]["memory"];
    let bytes = |key: &str| memory[key].as_u64().unwrap();
    assert!((1..=96 << 20).contains(&bytes("buffers")) && bytes("resident_last") > bytes("buffers") / 2, "{memory}");
    assert!(bytes("resident_first") > 0, "{memory}");
}

#[test]
fn ranges_keep_their_domain_category_and_payload() {
    let recorded = Place::new().record(&[], &["init", "domain-range", "load", "push", "open", "kernels", "1"]).good();
    let trace = recorded.trace();
    let outline = trace.outline();
    let range = trace.spans().find(|span| span.name == "load").unwrap();
    assert_eq!(trace.track(range.track).kind, TrackKind::Lane, "{outline}");
    assert!(outline.contains("domain=loader  category=input  payload=-7"), "{outline}");
    assert!(trace.spans().any(|span| span.name == "registered"), "{outline}");
    // A range that was never closed ends with the recording.
    assert!(trace.spans().any(|span| span.name == "open" && span.is_open), "{outline}");
}

#[test]
fn the_exit_status_is_the_programs_own() {
    for (words, status) in [
        (&["init", "kernels", "1", "exit", "7"][..], 7),
        (&["init", "kernels", "1", "quick-exit", "9"], 9),
        (&["init", "kernels", "1", "kill"], 128 + 9),
        (&["init", "kernels", "1", "abort"], 128 + 6),
    ] {
        let recorded = Place::new().record(&[], words);
        assert_eq!(recorded.status, Some(status), "{words:?}: {}", recorded.err);
        assert_eq!(recorded.json()["exit_status"], status);
    }
}

#[test]
fn a_killed_program_keeps_what_was_flushed() {
    let recorded = Place::new().record(&[], &["init", "kernels", "50", "until-flushed", "kernels", "3", "kill"]);
    assert_eq!(recorded.status, Some(137));
    let kernels = recorded.count(Activity::Kernel);
    assert!((50..=53).contains(&kernels), "{kernels}");
    assert!(recorded.err.contains("ended by signal 9"), "{}", recorded.err);
}

#[test]
fn children_are_followed_through_spawn_and_exec_and_ranks_are_named() {
    let place = Place::new();
    let words = ["init", "kernels", "1", "spawn", "init", "kernels", "2", ".", "exec", "init", "kernels", "4"];
    let output = place.command(&[], &words).env("RANK", "3").env("WORLD_SIZE", "8").output().unwrap();
    let recorded = place.recorded(output).good();
    let json = recorded.json();
    let processes = json["processes"].as_array().unwrap();
    let mut kernels: Vec<u64> = processes.iter().map(|process| process["kernels"].as_u64().unwrap()).collect();
    kernels.sort_unstable();
    // The first process is replaced by `exec` before its end, with what it had not flushed.
    assert_eq!(kernels.iter().copied().filter(|&kernels| kernels > 1).collect::<Vec<_>>(), [2, 4]);
    assert!(processes.iter().all(|process| process["rank"] == 3), "{json}");
    let trace = recorded.trace();
    assert!(trace.processes().any(|(_, process)| trace.name(process.name).starts_with("rank 3: program")));
}

#[test]
fn a_forked_child_that_marks_ranges_does_not_hang() {
    let recorded = Place::new().record(&[], &["init", "push", "a", "fork", "kernels", "2", "fork", "pop"]).good();
    assert_eq!(recorded.count(Activity::Kernel), 2);
}

#[test]
fn ranges_of_a_forked_child_are_recorded_with_the_names_of_its_parent() {
    let recorded = Place::new().record(&[], &["init", "domain-range", "load", "kernels", "2", "fork-marks"]).good();
    let trace = recorded.trace();
    let outline = trace.outline();
    let process_of =
        |name: &str| trace.spans().find(|span| span.name == name).map(|span| trace.track(span.track).process);
    assert!(process_of("in child").is_some() && process_of("in child") != process_of("load"), "{outline}");
    assert!(outline.contains("of child") && outline.matches("registered").count() == 2, "{outline}");
}

#[test]
fn graphs_are_recorded_by_node_or_whole_and_memory_is_a_curve() {
    let words = ["init", "graph", "5", "graph", "5", "allocate", "allocate", "release"];
    let nodes = Place::new().record(&["--memory"], &words).good();
    let trace = nodes.trace();
    assert_eq!(stand_in::count(&trace, Activity::Kernel), 10);
    let kernel = trace.spans().find(|span| span.activity() == Activity::Kernel).unwrap();
    assert!(kernel.fields.get("graph node id").is_some(), "{}", trace.outline());
    let bytes: Vec<i64> = trace
        .values()
        .map(|point| if let laptime_trace::Number::Int(bytes) = point.number { bytes } else { -1 })
        .collect();
    assert_eq!(bytes, [1 << 20, 2 << 20, 1 << 20]);
    let whole = Place::new().record(&["--graphs", "whole"], &words).good();
    assert_eq!((whole.count(Activity::Graph), whole.count(Activity::Kernel)), (2, 0));
    let paused = Place::new().record(&["--graphs", "whole", "--paused"], &words).good();
    assert_eq!(paused.count(Activity::Graph), 0);
}

#[test]
fn devices_of_processes_are_identified_by_bus_address() {
    let place = Place::new();
    let program = stand_in().program.to_str().unwrap();
    let both = format!(
        "STAND_IN_BUS=0000:01:00.0 {program} init kernels 1 && STAND_IN_BUS=0000:02:00.0 {program} init kernels 2"
    );
    let mut command = place.laptime();
    let output = command.args(["record", "--out", "run", "--", "sh", "-c", &both]).output().unwrap();
    let trace = place.recorded(output).good().trace();
    let mut devices: Vec<Option<i64>> = trace.tracks().map(|(_, track)| track.device).filter(Option::is_some).collect();
    devices.sort_unstable();
    assert_eq!(devices, [Some(0), Some(1)]);
    assert_eq!(trace.metadata.devices().len(), 2);
}

#[test]
fn secrets_on_the_command_line_are_hidden_in_the_record() {
    let place = Place::new();
    let output = place.command(&[], &["say", "hf_0123456789abcdef"]).env("OMP_NUM_THREADS", "3").output().unwrap();
    let recorded = place.recorded(output).good();
    let text = recorded.json().to_string();
    assert!(text.contains("***") && !text.contains("hf_0123"), "{text}");
    assert_eq!(recorded.json()["environment"]["OMP_NUM_THREADS"], "3");
    assert_eq!(recorded.out, "hf_0123456789abcdef\n");
}

#[test]
fn stages_that_a_program_records_itself_are_merged() {
    let place = Place::new();
    let own = env!("CARGO_BIN_EXE_laptime");
    let mut command = place.laptime();
    // Laptime itself wants more of a driver than the stand-in has.
    command.env_remove("LD_LIBRARY_PATH");
    command.args(["record", "--out", "run", "--", own, "profile", "matmul", "--size", "16", "--device", "cpu"]);
    let recorded = place.recorded(command.args(["--max-time", "0.1s", "--out", "own"]).output().unwrap()).good();
    let trace = recorded.trace();
    let alone = laptime_trace::read(place.path("own/trace.pftrace")).unwrap();
    assert!(alone.span_count() > 0);
    assert_eq!(trace.span_count(), alone.span_count(), "{}", recorded.err);
    assert!(recorded.err.contains("the stages that it recorded itself"), "{}", recorded.err);
}
