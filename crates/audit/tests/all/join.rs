//! Sites joined with recorded host syncs.

use laptime_audit::{
    Allow, Answer, AuditedFile, Language, Limits, Recorded, Rules, RulesFile, Seen, audit_python, audit_rust, join,
};
use proptest::prelude::*;

fn file(path: &str, text: &str) -> AuditedFile {
    let (language, rules) = (Language::of(path).unwrap_or(Language::Python), Rules::built_in());
    let audited = match language {
        Language::Rust => audit_rust(text, &rules),
        Language::Python => audit_python(text, &rules),
    };
    AuditedFile { path: path.to_owned(), language, is_test: false, audited }
}

fn answer(files: &[(&str, &str)]) -> Answer {
    let files = files.iter().map(|(path, text)| file(path, text)).collect();
    Answer::of(files, &[], Limits::default(), false)
}

fn recorded(file: &str, line: u32, function: Option<&str>, method: Option<&str>, count: u64) -> Recorded {
    Recorded {
        file: file.to_owned(),
        line,
        function: function.map(str::to_owned),
        method: method.map(str::to_owned),
        call: "cudaStreamSynchronize".to_owned(),
        seen: Seen { count, total: Some(10 * count), a_lap: Some(1.0), reported_at: None },
    }
}

/// For every site: its line, its count, and the line it is reported at.
fn seen(answer: &Answer) -> Vec<(u32, u64, Option<u32>)> {
    let mut seen: Vec<_> = answer
        .sites
        .iter()
        .map(|placed| {
            let seen = placed.seen.clone().unwrap_or_default();
            (placed.site.line, seen.count, seen.reported_at)
        })
        .collect();
    seen.sort_unstable();
    seen
}

fn unplaced(answer: &Answer) -> Vec<&str> {
    answer.unplaced.iter().flatten().map(|wait| wait.place.as_str()).collect()
}

const TRAIN: &str = "def step(x):\n    a = x.item()\n    b = x.cpu()\n    c = x.item()\ndef log(x):\n    x.item()\n";

#[test]
fn a_line_of_rust_is_matched_by_the_end_of_its_path() {
    let mut answer = answer(&[("../a/src/main.rs", "fn f() {\n  sync_point!(\"x\", y());\n  x.to_vec1();\n}")]);
    join(&mut answer, vec![recorded("src/main.rs", 2, None, None, 3), recorded("src/main.rs", 9, None, None, 1)]);
    assert_eq!(seen(&answer), [(2, 3, None), (3, 0, None)]);
    assert_eq!(unplaced(&answer), ["src/main.rs:9"]);
}

#[test]
fn a_python_function_is_matched_by_the_call_inside() {
    let mut answer = answer(&[("train.py", TRAIN)]);
    join(&mut answer, vec![recorded("/project/train.py", 1, Some("step"), Some("cpu"), 4)]);
    assert_eq!(seen(&answer), [(2, 0, None), (3, 4, None), (4, 0, None), (6, 0, None)]);
}

#[test]
fn sites_that_a_trace_cannot_distinguish_are_reported_at_the_first() {
    let mut answer = answer(&[("train.py", TRAIN)]);
    let waits =
        vec![recorded("train.py", 1, Some("step"), Some("item"), 4), recorded("train.py", 5, Some("log"), None, 1)];
    join(&mut answer, waits);
    assert_eq!(seen(&answer), [(2, 4, None), (3, 0, None), (4, 0, Some(2)), (6, 1, None)]);
}

#[test]
fn a_moved_function_is_found_by_its_name_if_that_is_unique() {
    let mut moved = answer(&[("train.py", TRAIN)]);
    join(&mut moved, vec![recorded("train.py", 90, Some("log"), Some("item"), 4)]);
    assert_eq!(seen(&moved)[3], (6, 4, None));
    let two = "class A:\n  def f(x): x.item()\nclass B:\n  def f(x): x.item()\n";
    let mut moved = answer(&[("train.py", two)]);
    join(&mut moved, vec![recorded("train.py", 90, Some("f"), Some("item"), 4)]);
    assert_eq!(unplaced(&moved), ["train.py(90): f"]);
}

#[test]
fn another_function_another_call_and_another_file_are_no_match() {
    let mut answer = answer(&[("a/train.py", TRAIN), ("b/train.py", TRAIN)]);
    let waits = vec![
        recorded("a/train.py", 1, Some("other"), None, 1),
        recorded("a/train.py", 1, Some("step"), Some("tolist"), 1),
        recorded("train.py", 5, Some("log"), None, 1),
        recorded("c/train.py", 5, Some("log"), None, 1),
    ];
    join(&mut answer, waits);
    assert_eq!(unplaced(&answer).len(), 4, "two files of one name are ambiguous");
}

#[test]
fn syncs_of_several_calls_at_one_site_add_up() {
    let mut answer = answer(&[("train.py", TRAIN)]);
    join(
        &mut answer,
        vec![recorded("train.py", 6, Some("log"), None, 2), recorded("train.py", 5, Some("log"), None, 1)],
    );
    let first = answer.sites[0].seen.clone().unwrap_or_default();
    assert_eq!((first.count, first.total, first.a_lap), (3, Some(30), Some(2.0)));
}

#[test]
fn a_comment_comes_before_the_rules_and_an_entry_without_a_site_is_reported() {
    let allow =
        |path: &str| Allow { path: Some(path.to_owned()), function: None, call: None, reason: "rule".to_owned() };
    let rules = RulesFile { allow: vec![allow("train.py"), allow("other.py")], ..RulesFile::default() };
    let file = file("train.py", "x.item()  # sync: allowed, comment\ny.item()\n");
    let answer = Answer::of(vec![file], &[rules], Limits { budget: Some(0), loop_depth: None }, false);
    let reasons: Vec<_> = answer.sites.iter().map(|placed| placed.site.allowed.as_deref()).collect();
    assert_eq!(reasons, [Some("comment"), Some("rule")]);
    assert_eq!((answer.unused.len(), answer.is_kept(), answer.allowed()), (1, true, 2));
}

proptest! {
    #[test]
    fn every_recorded_wait_is_at_a_site_or_listed_separately(
        waits in prop::collection::vec((0..3_usize, 0..8_u32, 0..3_usize, 0..3_usize, 0..9_u64), 0..20),
    ) {
        let mut answer = answer(&[("train.py", TRAIN), ("a/main.rs", "fn f() {\n x.to_vec1(); y.to_vec2();\n}")]);
        let waits: Vec<Recorded> = waits.into_iter().map(|(file, line, function, method, count)| {
            let file = ["train.py", "main.rs", "none.py"][file];
            recorded(file, line, [None, Some("step"), Some("f")][function], [None, Some("item"), Some("cpu")][method], count)
        }).collect();
        let all: u64 = waits.iter().map(|wait| wait.seen.count).sum();
        join(&mut answer, waits);
        let at_sites: u64 = answer.sites.iter().filter_map(|placed| Some(placed.seen.as_ref()?.count)).sum();
        let others: u64 = answer.unplaced.iter().flatten().map(|wait| wait.seen.count).sum();
        prop_assert_eq!(at_sites + others, all);
    }
}
