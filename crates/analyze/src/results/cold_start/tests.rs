use laptime_trace::{LAP, Nanos, Number, TraceBuilder};
use proptest::prelude::*;

use super::*;

/// A thread to which spans are added one by one, and the counter of page faults.
struct Fixture {
    builder: TraceBuilder,
    main: TrackId,
    faults: TrackId,
}

impl Fixture {
    fn new() -> Self {
        let mut builder = TraceBuilder::default();
        let main = builder.thread(1, 1, "main");
        let faults = builder.counter(1, "page_faults", "");
        Self { builder, main, faults }
    }

    fn stage(&mut self, name: &str, start: u64, nanos: u64) {
        self.builder.span(self.main, Nanos(start), Nanos(nanos), name, "");
    }

    fn take(&mut self, start: u64, nanos: u64) {
        self.builder.span(self.main, Nanos(start), Nanos(nanos), "iteration", LAP);
    }

    fn faults(&mut self, time: u64, count: i64) {
        self.builder.value(self.faults, Nanos(time), Number::Int(count));
    }

    fn answer(self) -> ColdStart {
        cold_start(&self.builder.build().unwrap()).unwrap()
    }
}

/// A start of 1,000, a first iteration of 400, and further iterations of 100.
fn started() -> Fixture {
    let mut fixture = Fixture::new();
    fixture.stage("open_device", 0, 300);
    fixture.stage("context", 50, 200);
    fixture.stage("prepare", 310, 640);
    fixture.stage("load_weights", 320, 600);
    fixture.stage("compile", 330, 100);
    fixture.stage("load", 430, 20);
    fixture.stage("load_kernel", 450, 10);
    fixture.stage("compile", 460, 100);
    fixture.stage("allocate", 600, 50);
    fixture.take(1_000, 400);
    for iteration in 1..10 {
        fixture.take(1_000 + 1_000 * iteration, 100);
    }
    fixture
}

fn parts_of(parts: &[ColdPart]) -> Vec<(&'static str, i64, u64)> {
    parts.iter().map(|part| (part.work.word(), part.nanos, part.count)).collect()
}

#[test]
fn time_before_the_first_iteration_belongs_to_the_innermost_known_stage() {
    let start = started().answer();
    assert_eq!(start.before_ns, 1_000);
    assert_eq!(
        parts_of(&start.before),
        [
            ("context", 300, 1),
            ("compile", 200, 2),
            ("load", 30, 1),
            ("weights", 320, 0),
            ("allocate", 50, 1),
            ("rest", 100, 0)
        ]
    );
}

#[test]
fn the_first_iteration_is_compared_with_the_second_half() {
    let mut fixture = started();
    fixture.stage("forward", 1_000, 250);
    fixture.stage("first_product", 1_010, 60);
    fixture.stage("first_product", 1_100, 30);
    fixture.stage("backward", 1_260, 130);
    for iteration in 1..10 {
        fixture.stage("forward", 1_000 + 1_000 * iteration, 30);
        fixture.stage("backward", 1_040 + 1_000 * iteration, 50);
    }
    let start = fixture.answer();
    assert_eq!((start.first_ns, start.steady_ns, start.beyond_ns()), (400, Some(100), Some(300)));
    assert_eq!(parts_of(&start.beyond), [("first_products", 90, 2), ("rest", 210, 0)]);
    let stages: Vec<_> = start.rest_in.iter().map(|shift| (shift.stage.as_deref(), shift.nanos)).collect();
    assert_eq!(stages, [(Some("forward"), 130), (Some("backward"), 80)], "outside of them it was no slower");
}

#[test]
fn work_of_every_iteration_is_not_part_of_the_cold_start() {
    let mut fixture = started();
    fixture.stage("allocate", 1_000, 45);
    for iteration in 1..10 {
        fixture.stage("allocate", 1_000 + 1_000 * iteration, 40);
    }
    assert_eq!(parts_of(&fixture.answer().beyond), [("allocate", 5, 1), ("rest", 295, 0)]);
}

#[test]
fn first_touch_time_is_estimated_from_the_cost_of_a_page_fault() {
    let mut fixture = started();
    let counts = [(990, 500), (1_410, 600), (1_990, 600), (2_110, 601)];
    counts.into_iter().for_each(|(time, count)| fixture.faults(time, count));
    for iteration in 2..10 {
        fixture.faults(990 + 1_000 * iteration, 600);
        fixture.faults(1_110 + 1_000 * iteration, 600);
    }
    fixture.stage("touch_memory", 20_000, 4_000);
    fixture.faults(19_990, 600);
    fixture.faults(24_010, 2_600);
    assert_eq!(parts_of(&fixture.answer().beyond), [("first_touch", 200, 100), ("rest", 100, 0)]);
}

#[test]
fn first_touch_time_is_limited_to_the_rest_and_divided_by_threads() {
    let fixture = |page: u64, threads: i64| {
        let mut fixture = started();
        let crew = fixture.builder.span(fixture.main, Nanos(960), Nanos(5), "start_threads", "");
        fixture.builder.span_field(crew, "threads", threads);
        for (time, count) in [(990, 0), (1_410, 100), (19_990, 100), (30_010, 200)] {
            fixture.faults(time, count);
        }
        fixture.stage("touch_memory", 20_000, 100 * page);
        parts_of(&fixture.answer().beyond)[0]
    };
    assert_eq!(fixture(2, 1), ("first_touch", 200, 100));
    assert_eq!(fixture(2, 2), ("first_touch", 100, 100));
    assert_eq!(fixture(100, 1), ("first_touch", 300, 100));
}

#[test]
fn few_iterations_have_no_steady_state_to_compare_with() {
    let mut fixture = Fixture::new();
    for iteration in 0..5 {
        fixture.take(1_000 * iteration, 100);
    }
    let start = fixture.answer();
    assert_eq!((start.steady_ns, start.beyond_ns(), start.beyond.len()), (None, None, 0));
    assert_eq!((start.before_ns, parts_of(&start.before)), (0, vec![("rest", 0, 0)]));
}

#[test]
fn a_trace_without_iterations_has_no_cold_start() {
    let mut fixture = Fixture::new();
    fixture.stage("prepare", 0, 10);
    assert_eq!(cold_start(&fixture.builder.build().unwrap()), None);
    assert_eq!(middle_start(Vec::new()), None);
}

proptest! {
    #[test]
    fn parts_add_up_to_the_whole(
        stages in prop::collection::vec((0_u64..12_000, 0_u64..2_000, 0_usize..6), 0..40),
        points in prop::collection::vec((0_u64..40_000, 0_i64..5_000), 0..20),
    ) {
        let mut fixture = started();
        let names = ["compile", "allocate", "forward", "first_product", "iteration", "touch_memory"];
        for (start, nanos, name) in stages {
            fixture.stage(names[name], start, nanos);
        }
        points.into_iter().for_each(|(time, count)| fixture.faults(time, count));
        let start = fixture.answer();
        let sum = |parts: &[ColdPart]| parts.iter().map(|part| part.nanos).sum::<i64>();
        prop_assert_eq!(sum(&start.before), start.before_ns as i64);
        prop_assert_eq!(Some(sum(&start.beyond)), start.beyond_ns());
        prop_assert!(start.rest_in.is_sorted_by_key(|shift| -shift.nanos));
    }
}
