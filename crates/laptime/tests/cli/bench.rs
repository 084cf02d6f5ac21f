//! `laptime bench`, through the program: cases, plans, formats, and what cannot be done.

use laptime_trace::run::{Outcome, Run, read_results};

use crate::common::{Place, assert_golden};

const SMALL: &str = "--size 8 --threads 1 --iterations 3 --warmup 0";

/// The words of a command line.
fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

#[test]
fn every_case_is_a_row_and_a_line_in_the_results() {
    let place = Place::new();
    let printed =
        place.laptime(words("bench matmul --size 4-16*2 --dtype f32,f64 --threads 1 --iterations 3 --out run"));
    assert_eq!(printed.status, Some(0), "{}", printed.err);
    let read = read_results(&place.path("run/results.jsonl")).unwrap();
    let cases: Vec<String> = read.results.iter().map(|result| result.case.to_string()).collect();
    assert_eq!(
        cases,
        [
            "size=4 dtype=f32",
            "size=4 dtype=f64",
            "size=8 dtype=f32",
            "size=8 dtype=f64",
            "size=16 dtype=f32",
            "size=16 dtype=f64"
        ]
        .map(|case| format!("{case} threads=1"))
    );
    assert_eq!(printed.out.lines().skip(2).take_while(|line| !line.is_empty()).count(), 6, "{}", printed.out);
    let run = Run::read(&place.path("run")).unwrap();
    assert_eq!((run.workload.as_str(), run.device.as_str()), ("matmul", "cpu"));
    assert!(read.results.iter().all(|result| result.environment == run.environment_fingerprint));
}

#[test]
fn a_machine_row_is_flat_and_has_the_documented_names() {
    let place = Place::new();
    let line = place.laptime(words(&format!("bench matmul {SMALL} --format jsonl"))).out;
    let row: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&line).unwrap();
    assert!(row.values().all(|value| !value.is_array() && !value.is_object()), "{line}");
    let keys: Vec<&str> = row.keys().map(String::as_str).collect();
    let csv = place.laptime(words(&format!("bench matmul {SMALL} --format csv"))).out;
    assert_eq!(csv.lines().next().unwrap().split(',').collect::<Vec<_>>(), keys);
    let first = ["workload", "size", "dtype", "threads", "device", "outcome", "n"];
    let then = ["median_ms", "median_lo_ms", "median_hi_ms", "mean_ms", "std_ms"];
    assert_eq!(keys[..12], [&first[..], &then].concat());
    assert!(["limit_ms", "x_limit", "mfu", "mbu", "peak_mib"].iter().all(|key| keys.contains(key)), "{keys:?}");
    assert!(row["peak_mib"].as_f64().unwrap() > 0.0, "the program counts its heap");
    assert!(row["mfu"].is_null(), "no peaks were measured, so there is no share of them");
}

#[test]
fn a_dry_run_shows_the_resolved_cases_and_measures_nothing() {
    let place = Place::new();
    let printed =
        place.laptime(words("bench copy --op read,copy --size 1 2 --threads 1-3+2 --runs 3 --dry-run")).done();
    assert_golden("bench/dry-run.txt", &printed);
    assert!(!place.path("runs").exists());
}

#[test]
fn a_plan_contains_flags_and_flags_override_it() {
    let place = Place::new();
    place.write("plan.toml", "workload = 'matmul'\ntakes = 3\nwarmup = 0\n[axes]\nsize = '4-8*2'\nthreads = 1\n");
    let printed = place.laptime(words("bench --plan plan.toml --dry-run --format csv")).done();
    assert_eq!(printed, "size,dtype,threads\n4,f32,1\n8,f32,1\n");
    let printed = place.laptime(words("bench matmul --plan plan.toml --size 32 --dry-run --format csv")).done();
    assert_eq!(printed, "size,dtype,threads\n32,f32,1\n");
    let printed = place.laptime(words("bench --plan plan.toml --out run --format csv"));
    assert_eq!(printed.status, Some(0), "{}", printed.err);
    let read = read_results(&place.path("run/results.jsonl")).unwrap();
    assert!(read.results.iter().all(|result| result.measured().unwrap().wall_ns.len() == 3));
}

#[test]
fn invalid_cases_are_refused_before_anything_runs() {
    let place = Place::new();
    place.write("typo.toml", "workload = 'matmul'\nwarmpu = 3\n");
    place.write("axis.toml", "workload = 'matmul'\n[axes]\nsise = 3\n");
    place.write("cut.toml", "workload = 'mat");
    place.write("file", "");
    place.laptime(words(&format!("bench matmul {SMALL} --out taken")));
    for (line, error, hint) in [
        ("bench matmull", "unknown workload `matmull`", "did you mean `matmul`?"),
        ("bench matmul --layers 3", "workload `matmul` has no axis `layers`", "its axes are size, dtype, threads"),
        ("bench matmul --sise 3", "has no axis `sise`", "did you mean `size`?"),
        ("bench matmul --size 8-1+1", "the range `8-1+1` ends before it starts", "the smaller end comes first"),
        (
            "bench matmul --size 1-5000+1 --threads 1-1000+1 --dtype f32,f64",
            "the plan has 10000000 cases",
            "fewer values",
        ),
        ("bench matmul --size 0-10*2", "starts at 0", "start at 1"),
        ("bench matmul --min-time 10s --max-time 1s", "`min-time` (10s) is longer than `max-time` (1s)", "--max-time"),
        ("bench matmul --size 0", "takes whole numbers of at least 1, not `0`", "laptime list"),
        ("bench matmul --dtype f8", "takes one of f32, f64, bf16, f16, not `f8`", "laptime list"),
        ("bench --plan typo.toml", "line 2: unknown field `warmpu`", "did you mean `warmup`?"),
        ("bench --plan axis.toml", "has no axis `sise`", "did you mean `size`?"),
        ("bench --plan cut.toml", "plan file `cut.toml`, line 1", "docs/bench.md"),
        ("bench --plan none.toml", "cannot read the plan file `none.toml`", "check the name"),
        ("bench copy --plan typo.toml", "line 2", "did you mean"),
        ("bench matmul --iterations 3 --within 2%", "conflicting stop rules", "not both"),
        ("bench matmul --iterations 0", "`iterations` must be at least 1", "--iterations 1"),
        ("bench matmul --device cuda:99", "device `cuda:99` is not available", "--device c"),
        (
            "bench matmul --device cpu --timing events",
            "device `cpu` does not support timing `events`",
            "`--timing host`",
        ),
        ("bench matmul --device cpu --l2 cold", "cannot empty its L2 cache", "leave out `--l2`"),
        ("bench matmul --device tpu", "there is no device `tpu`", "--device cpu"),
        ("bench matmul --out file/run", "cannot create the folder `file/run`", "--out DIR"),
        ("bench matmul --out taken", "`taken` already contains a run", "another folder"),
        ("bench --resume none", "cannot read `none/run.json`", "name the folder of a run"),
        ("profile matmul --size 8,16", "a profile records one case, not 2", "these have several: size"),
        ("warmup matmul --warmup 3", "`--warmup` cannot be given", "leave it out"),
        ("list matmull", "unknown workload `matmull`", "did you mean `matmul`?"),
        ("peaks --show", "were not measured on this machine", "`laptime peaks` measures them"),
    ] {
        let message = place.laptime(words(line)).failed();
        assert!(message.contains(error), "{line}: {message}");
        let (_, told_hint) = message.split_once("\nhint: ").unwrap();
        assert!(told_hint.contains(hint), "{line}: {message}");
    }
    assert!(!place.path("runs").exists(), "nothing ran");
}

#[test]
fn invalid_quantities_are_errors_with_an_example() {
    let place = Place::new();
    for (line, expected) in [
        ("bench matmul --timing fast", "`fast` is not a timing; use `host`, `events`, `sync` or `kernels`"),
        ("bench matmul --l2 hot", "`hot` is not an L2 cache state; use `cold` or `warm`"),
        ("bench matmul --within much", "`much` is not a share; examples: `2%` or `0.02`"),
        ("bench matmul --max-time soon", "`soon` is not a duration; examples: `10s`, `500ms` or `2m`"),
        ("bench matmul --warmup some", "`some` is not a warm-up; examples: `auto` or `3`"),
        ("benhc matmul", "bench"),
        ("bench matmul --takse 3", "takse"),
    ] {
        let printed = place.laptime(words(line));
        assert_eq!((printed.out.as_str(), printed.status), ("", Some(2)));
        assert!(printed.err.contains(expected), "{line}: {}", printed.err);
    }
}

#[test]
fn a_case_that_cannot_fit_is_a_row_with_needed_and_available_bytes() {
    let place = Place::new();
    let printed =
        place.laptime(words("bench matmul --size 1000000,9223372036854775807,8 --iterations 2 --warmup 0 --out run"));
    assert_eq!(printed.status, Some(0), "{}", printed.err);
    let outcomes: Vec<Outcome> = read_results(&place.path("run/results.jsonl"))
        .unwrap()
        .results
        .into_iter()
        .map(|result| result.outcome)
        .collect();
    let Outcome::OutOfMemory { needed_bytes: Some(needed), available_bytes: Some(available) } = outcomes[0] else {
        panic!("{outcomes:?}")
    };
    assert!(needed >= 12_000_000_000_000 && available < needed);
    assert!(matches!(outcomes[1], Outcome::OutOfMemory { .. }) && matches!(outcomes[2], Outcome::Measured(_)));
    assert!(printed.out.to_lowercase().contains("out of memory: needs 10.9"), "{}", printed.out);
}

#[test]
fn a_complete_run_has_nothing_to_resume() {
    let place = Place::new();
    place.laptime(words(&format!("bench matmul {SMALL} --out run")));
    let before = place.read("run/results.jsonl");
    let printed = place.laptime(words("bench --resume run"));
    assert_eq!(printed.status, Some(0), "{}", printed.err);
    assert_eq!(place.read("run/results.jsonl"), before);
}

#[test]
fn underscores_work_like_dashes() {
    let place = Place::new();
    let printed = place.laptime(words("bench matmul --size 8 --max_time 10ms --dry_run"));
    assert_eq!(printed.status, Some(0), "{}", printed.err);
}
