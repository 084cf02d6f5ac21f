//! The answers of a benchmark as tables in every format, compared with the files in `tests/data`.
//!
//! `LAPTIME_BLESS=1 cargo test -p laptime-report` writes the files anew.

mod blessed;
mod made;

use blessed::{compare_others, compare_text};
use laptime_analyze::{Comparing, RunResults, cases, compare, doubts, warmup};
use laptime_report::{Table, tables};

fn compare_all(name: &str, table: &Table) {
    compare_text(name, table, 80);
    compare_text(name, table, 140);
    compare_others(name, table);
}

#[test]
fn a_sweep_in_five_processes_looks_right() {
    let found = cases(&made::sweep(), Some(&made::peaks()));
    let told = doubts(&found, &made::settings(5, 2), &made::environment("77c53e8"));
    compare_all("cases", &tables::cases(&found, &told));
}

#[test]
fn a_single_case_looks_right() {
    let found = cases(&made::single(), None);
    let told = doubts(&found, &made::settings(1, 0), &made::environment("77c53e8"));
    compare_all("cases_single", &tables::cases(&found, &told));
}

#[test]
fn a_comparison_looks_right() {
    let (before, after) = (made::sweep(), made::changed_sweep());
    let (a, b) = (made::run("77c53e8", "powersave"), made::run("93cf373", "performance"));
    let sides = [(&a, &before), (&b, &after)].map(|(run, results)| RunResults { run: Some(run), results });
    compare_all("compare", &tables::compare(&compare(&sides[0], &sides[1], &Comparing::default())));
}

#[test]
fn a_comparison_of_a_rate_looks_right() {
    let (before, after) = (made::sweep(), made::changed_sweep());
    let sides = [&before, &after].map(|results| RunResults { run: None, results });
    let how = Comparing { metric: Some("tok_s".into()), ..Comparing::default() };
    compare_all("compare_rate", &tables::compare(&compare(&sides[0], &sides[1], &how)));
}

#[test]
fn warm_ups_look_right() {
    compare_all("warmup", &tables::warmup(&warmup(&made::cold())));
}

#[test]
fn the_docs_show_the_tables_as_they_are() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    for (page, file) in [("bench", "cases"), ("compare", "compare"), ("warmup", "warmup")] {
        let text = std::fs::read_to_string(root.join(format!("../../docs/{page}.md"))).unwrap();
        let shown = std::fs::read_to_string(root.join(format!("tests/data/{file}_80.txt"))).unwrap();
        assert!(text.contains(&shown), "docs/{page}.md does not show {file}_80.txt");
    }
}
