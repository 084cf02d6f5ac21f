//! `laptime export`, through the program. `scripts/fleet/check` compares the tables with our own answers in DuckDB.

use std::path::Path;

use laptime_trace::{Nanos, TraceBuilder, metadata::DISTRIBUTED};

use crate::common::{Place, small_trace};

/// A rank of a job: one kernel and the call that launched it.
fn rank(number: u64, world_size: u64) -> String {
    format!(
        r#"{{"distributedInfo": {{"rank": {number}, "world_size": {world_size}}}, "traceEvents": [
            {{"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 10, "dur": {length}, "args": {{"device": 0, "stream": 7, "correlation": 1}}}},
            {{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": 1, "dur": 2, "args": {{"correlation": 1}}}}]}}"#,
        length = 5 + number
    )
}

fn place_with_job() -> Place {
    let place = Place::new();
    std::fs::create_dir(place.path("job")).unwrap();
    place
}

fn is_table(place: &Place, table: &str, run: &str, rank: u64) -> bool {
    place.path(&format!("ds/{table}/run={run}/rank={rank}/part-0.parquet")).is_file()
}

#[test]
fn the_ranks_of_a_folder_become_partitions_and_missing_ranks_are_named() {
    let place = place_with_job();
    for number in [0, 2] {
        place.write(&format!("job/rank{number}.json"), rank(number, 4));
    }
    let printed = place.laptime(["export", "job", "--to", "ds", "--format", "csv"]);
    assert_eq!(printed.status, Some(0), "{}", printed.err);
    assert_eq!(printed.out, "run,rank,source,spans,results\njob,0,rank0.json,2,\njob,2,rank2.json,2,\n");
    assert!(printed.err.contains("run `job`: 2 of 4 ranks are not in the dataset: 1, 3"), "{}", printed.err);
    for (table, number) in ["spans", "flows", "summary"].into_iter().flat_map(|table| [(table, 0), (table, 2)]) {
        assert!(is_table(&place, table, "job", number), "{table} of rank {number}");
    }
    assert!(!place.path("ds/values").exists(), "a table without rows has no file");
    // The other ranks are added later.
    place.write("job/rank1.json", rank(1, 4));
    place.write("job/rank3.json", rank(3, 4));
    let printed = place.laptime(["export", "job/rank1.json", "job/rank3.json", "--to", "ds"]);
    assert_eq!((printed.status, printed.err.as_str()), (Some(0), ""));
}

#[test]
fn a_trace_replaces_its_own_rows_and_another_one_is_refused() {
    let place = place_with_job();
    place.write("job/rank0.json", rank(0, 1));
    let export = |more: &[&str]| place.laptime(["export", "job", "--to", "ds"].iter().chain(more));
    assert_eq!(export(&[]).status, Some(0));
    assert_eq!(export(&[]).status, Some(0), "the same trace again");
    place.write("job/rank0.json", rank(0, 1).replace("\"dur\": 5", "\"dur\": 7"));
    let message = export(&[]).failed();
    assert!(message.contains("already has rank 0 of run `job` from something else"), "{message}");
    assert_eq!(export(&["--run", "other"]).status, Some(0));
    assert_eq!(export(&["--replace"]).status, Some(0));
    assert!(is_table(&place, "summary", "other", 0));
}

#[test]
fn a_recording_of_several_ranks_is_divided_by_rank() {
    let place = Place::new();
    let mut builder = TraceBuilder::default();
    for (pid, title, kernels) in [(4, "torchrun", 0), (5, "rank 0: python", 2), (6, "rank 1: python", 3)] {
        let process = builder.process(pid);
        builder.name_process(process, title);
        let (main, stream) = (builder.thread(pid, 1, "main"), builder.stream(pid, 7, "stream 7"));
        builder.span(main, Nanos(0), Nanos(900), "work", "");
        for at in 0..kernels {
            builder.span(stream, Nanos(100 * at), Nanos(50), "gemm", "kernel");
        }
    }
    builder.metadata.set(DISTRIBUTED, r#"{"world_size": 2}"#);
    std::fs::create_dir(place.path("record-1")).unwrap();
    laptime_trace::write(&builder.build().unwrap(), place.path("record-1/trace.pftrace")).unwrap();
    let printed = place.laptime(["export", "record-1", "--to", "ds", "--format", "csv"]);
    assert_eq!((printed.status, printed.err.as_str()), (Some(0), ""));
    let rows = "record-1,0,trace.pftrace,4,\nrecord-1,1,trace.pftrace,4,\n";
    assert_eq!(printed.out, format!("run,rank,source,spans,results\n{rows}"));
    assert!([0, 1].into_iter().all(|rank| is_table(&place, "summary", "record-1", rank)));
}

#[test]
fn one_bad_rank_does_not_end_an_export() {
    let place = place_with_job();
    place.write("job/rank0.json", rank(0, 3));
    place.write("job/rank1.json", "{\"traceEvents\": [");
    place.write("job/rank2.json", "not a trace");
    place.write("job/rank7.json", rank(0, 3));
    place.write("job/rank9.json", rank(9, 2));
    let printed = place.laptime(["export", "job", "--to", "ds"]);
    assert_eq!(printed.status, Some(2));
    let expected = [
        "rank2.json`: cannot read it: this is not a trace",
        "rank7.json` contains rank 0, although its name says 7",
        "run `job` already has a trace of rank 0",
        "run `job` has traces of jobs with different numbers of ranks: 2, 3",
        "run `job` has 3 ranks, but there are traces of rank 9",
        "of 5 inputs could not be exported",
    ];
    for text in expected {
        assert!(printed.err.replace('\n', " ").contains(text), "{text}\n{}", printed.err);
    }
    assert!(is_table(&place, "summary", "job", 0) && is_table(&place, "summary", "job", 9));
}

#[test]
fn a_run_is_exported_with_its_results_and_samples() {
    let place = Place::new();
    let bench = ["bench", "matmul", "--size", "16", "--iterations", "3", "--warmup", "1", "--quiet", "--out", "runs/a"];
    assert_eq!(place.laptime(bench).status, Some(0));
    let printed = place.laptime(["export", "runs/a", "--to", "ds", "--format", "csv"]);
    assert_eq!(printed.out, "run,rank,source,spans,results\na,0,a,,1\n", "{}", printed.err);
    assert!(is_table(&place, "results", "a", 0) && is_table(&place, "samples", "a", 0));
}

#[test]
fn invalid_export_input_is_an_error_with_a_hint() {
    let place = Place::new();
    laptime_trace::write(&small_trace(), place.path("a.json")).unwrap();
    std::fs::create_dir(place.path("empty")).unwrap();
    place.write("file", "");
    let refused = |words: &[&str], expected: &str| {
        let message = place.laptime(words.iter().copied()).failed();
        assert!(message.contains(expected) && message.contains("hint:"), "{message}");
    };
    refused(&["export", "nothing.json", "--to", "ds"], "there is no `nothing.json`");
    refused(&["export", "empty", "--to", "ds"], "`empty` contains neither a trace nor the results of a run");
    refused(&["export", "a.json", "--to", "ds", "--run", ""], "the name of the run is empty");
    refused(&["export", "a.json", "--to", "file"], "`file` is not a folder");
    assert!(!Path::new(&place.path("ds")).exists());
}

#[test]
fn collectives_of_a_rank_are_a_table() {
    let place = place_with_job();
    let reduction = r#""name": "ncclDevKernel_AllReduce_Sum_f32_RING_LL""#;
    place.write("job/rank0.json", rank(0, 1).replace(r#""name": "gemm""#, reduction));
    assert_eq!(place.laptime(["export", "job", "--to", "ds"]).status, Some(0));
    assert!(is_table(&place, "collectives", "job", 0));
}
