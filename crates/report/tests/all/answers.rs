//! The answers of a benchmark as tables in every format, compared with the files in `tests/data`.
//!
//! `LAPTIME_BLESS=1 cargo test -p laptime-report` writes the files anew.

use crate::blessed::{compare_others, compare_text};
use laptime_analyze::{
    CompareOptions, RunResults, TimedStage, TimingFigures, Timings, against_text, cases, compare, crossovers, doubts,
    scaling, warmup, warmup_doubts, warmup_study,
};
use laptime_report::{Cell, Table, tables};
use laptime_stats::cost_of_first;
use laptime_trace::run::{Outcome, Timing};

fn compare_all(name: &str, table: &Table) {
    compare_text(name, table, 80);
    compare_text(name, table, 140);
    compare_others(name, table);
}

#[test]
fn a_sweep_in_five_processes_looks_right() {
    let found = cases(&crate::fixture::sweep(), Some(&crate::fixture::peaks()));
    let text = doubts(&found, &crate::fixture::settings(5, 2), &crate::fixture::environment("77c53e8"));
    compare_all("cases", &tables::cases(&found, &text));
}

#[test]
fn a_single_case_looks_right() {
    let found = cases(&crate::fixture::single(), None);
    let text = doubts(&found, &crate::fixture::settings(1, 0), &crate::fixture::environment("77c53e8"));
    compare_all("cases_single", &tables::cases(&found, &text));
}

#[test]
fn a_case_on_a_gpu_looks_right() {
    let found = cases(&crate::fixture::on_a_gpu(), None);
    let text = doubts(&found, &crate::fixture::settings(1, 0), &crate::fixture::environment("77c53e8"));
    compare_all("cases_gpu", &tables::cases(&found, &text));
}

#[test]
fn several_timings_look_right() {
    let stage = |name: &str, host: f64, device: Option<f64>, busy: Option<f64>| TimedStage {
        name: name.to_owned(),
        host_ns: Some(host),
        device_ns: device,
        busy_ns: busy,
    };
    let timing = |timing, cost: f64, device: Option<f64>, busy: Option<f64>| TimingFigures {
        timing,
        iterations: 40,
        iteration: stage("iteration", 4.1e6 * (1.0 + cost), device, busy),
        cost: cost_of_first(&[(1.0 + cost, 1.0); 40], 1),
        stages: vec![stage("small", 1.9e6, device.map(|all| all / 2.0), busy.map(|all| all / 3.0))],
    };
    let timings = vec![
        timing(Timing::Host, 0.001, None, None),
        timing(Timing::Events, 0.012, Some(4.0e6), None),
        timing(Timing::Sync, 0.082, None, None),
        timing(Timing::Kernels, 0.34, None, Some(2.5e6)),
    ];
    let answer = Timings { unrecorded_ns: Some(4.1e6), timings };
    compare_all("timings", &tables::timings(&answer));
}

#[test]
fn a_comparison_looks_right() {
    let (before, after) = (crate::fixture::sweep(), crate::fixture::changed_sweep());
    let (a, b) = (crate::fixture::run("77c53e8", "powersave"), crate::fixture::run("93cf373", "performance"));
    let sides = [(&a, &before), (&b, &after)].map(|(run, results)| RunResults { run: Some(run), results });
    compare_all("compare", &tables::compare(&compare(&sides[0], &sides[1], &CompareOptions::default())));
}

#[test]
fn a_comparison_of_a_rate_looks_right() {
    let (before, after) = (crate::fixture::sweep(), crate::fixture::changed_sweep());
    let sides = [&before, &after].map(|results| RunResults { run: None, results });
    let how = CompareOptions { metric: Some("tok_s".into()), ..CompareOptions::default() };
    compare_all("compare_rate", &tables::compare(&compare(&sides[0], &sides[1], &how)));
}

#[test]
fn many_cases_that_are_all_slower_are_regressions() {
    let sizes = |around: f64| {
        let process = |size: i64, run: u32| {
            let measured =
                crate::fixture::measured(crate::fixture::takes(around, run, 20, 0.01), 1.0, crate::fixture::work(1));
            crate::fixture::result(crate::fixture::case("dense", size), run, Outcome::Measured(measured))
        };
        (1..=20).flat_map(|size| (0..5).map(move |run| process(size, run))).collect::<Vec<_>>()
    };
    let (before, after) = (sizes(1e6), sizes(1.2e6));
    let sides = [&before, &after].map(|results| RunResults { run: None, results });
    let table = tables::compare(&compare(&sides[0], &sides[1], &CompareOptions::default()));
    assert_eq!(table.notes[0], "b compared with a, 20 cases: 0 faster, 20 slower, 0 same, 0 unclear.");
    assert_eq!(table.notes.len(), 1, "{:?}", table.notes);
}

#[test]
fn only_the_first_reasons_are_listed() {
    let skipped = |size: i64| Outcome::Skipped { reason: format!("size {size} is odd") };
    let results: Vec<_> =
        (0..11).map(|size| crate::fixture::result(crate::fixture::case("dense", size), 0, skipped(size))).collect();
    let notes = tables::cases(&cases(&results, None), &[]).notes;
    assert_eq!((notes.len(), notes[0].as_str()), (9, "`seq_len=0`: skipped: size 0 is odd."));
    assert_eq!(notes[8], "3 more reasons are in the column `reason` of `--format csv` and `json`.");
}

#[test]
fn cases_with_the_same_reason_share_a_sentence() {
    let skipped = || Outcome::Skipped { reason: "no GPU".into() };
    let results: Vec<_> =
        (0..5).map(|size| crate::fixture::result(crate::fixture::case("dense", size), 0, skipped())).collect();
    let notes = tables::cases(&cases(&results, None), &[]).notes;
    assert_eq!(notes, ["`seq_len=0`, `seq_len=1`, `seq_len=2` and 2 more: skipped: no GPU."]);
}

#[test]
fn warm_ups_look_right() {
    compare_all("warmup", &tables::warmup(&warmup(&crate::fixture::cold())));
}

#[test]
fn a_study_of_warm_ups_looks_right() {
    let (by_number, cold) = crate::fixture::study();
    let answer = warmup_study(&by_number, &cold);
    let text = warmup_doubts(&by_number, &crate::fixture::settings(2, 0), &crate::fixture::environment("77c53e8"));
    compare_all("warmup_study", &tables::warmup_study(&answer, &text));
    compare_all("cold_start", &tables::cold_start(&answer).unwrap());
}

#[test]
fn a_study_without_traces_has_no_cold_start() {
    let (by_number, _) = crate::fixture::study();
    let answer = warmup_study(&by_number, &[]);
    assert_eq!(tables::cold_start(&answer), None);
    let table = tables::warmup_study(&answer, &[]);
    assert!(!table.columns.iter().any(|column| column.key.starts_with("cold")), "{:?}", table.columns);
}

#[test]
fn a_study_lists_every_iteration_of_every_process() {
    let (by_number, _) = crate::fixture::study();
    let table = tables::warmup_laps(&warmup_study(&by_number, &[]));
    assert_eq!(table.rows.len(), 2 * (10 + 11 + 15 + 20));
    let cells = |row: usize| table.rows[row][..5].to_vec();
    let (five, first) = (Cell::Count(5), Cell::Nanos(412_000_000));
    assert_eq!(cells(42), [five.clone(), Cell::Count(0), Cell::Count(0), first, Cell::Bool(false)]);
    assert_eq!((&cells(47)[2], &cells(47)[4]), (&five, &Cell::Bool(true)), "the sixth step counts");
}

#[test]
fn growth_over_lengths_looks_right() {
    compare_all("scaling", &tables::scaling(&scaling(&crate::fixture::kinds_over_lengths())).unwrap());
}

#[test]
fn crossovers_look_right() {
    compare_all("crossover", &tables::crossovers(&crossovers(&crate::fixture::kinds_over_lengths())).unwrap());
}

#[test]
fn c2c_compared_with_text_looks_right() {
    compare_all("against", &tables::against_text(&against_text(&crate::fixture::caches_against_texts())).unwrap());
    assert_eq!(tables::against_text(&against_text(&crate::fixture::single())), None);
}

#[test]
fn cases_of_one_length_have_no_scaling_table() {
    let found = crate::fixture::single();
    assert_eq!((tables::scaling(&scaling(&found)), tables::crossovers(&crossovers(&found))), (None, None));
}
