//! Real programs with a planted fault, recorded on an H200 by torch.profiler and by `laptime record`.

use std::{collections::BTreeMap, fs, path::Path};

use laptime_analyze::{Severity, diagnose};

/// The finding of a fault; none for a healthy program.
fn finding(fault: &str) -> Option<&'static str> {
    match fault {
        "item" | "synchronize" => Some("sync-in-loop"),
        "loading" => Some("data-loading"),
        "pageable" => Some("pageable-copy"),
        "tiny" => Some("tiny-kernels"),
        "allocation" => Some("allocation-in-loop"),
        "healthy" => None,
        other => panic!("`{other}` is not a fault of scripts/lib/diagnose/program.py"),
    }
}

#[test]
fn the_planted_fault_of_every_recorded_program_is_its_first_finding() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/diagnosed");
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut wrong = Vec::new();
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let name = entry.file_name().into_string().unwrap();
        let Some(program) = name.strip_suffix(".json.gz").or_else(|| name.strip_suffix(".pftrace")) else { continue };
        let (recorder, fault) = (program.split('-').next().unwrap(), program.rsplit('-').next().unwrap());
        *counts.entry(recorder.to_owned()).or_default() += 1;
        let trace = laptime_trace::read(entry.path()).unwrap();
        let found = diagnose(Some(&trace), &[], None).findings;
        let first = found.first().map(|first| first.finding.rule);
        let bad = found.iter().filter(|found| found.severity == Severity::Bad).count();
        let is_right = finding(fault).map_or(bad == 0, |wanted| first == Some(wanted));
        if !is_right {
            wrong.push((name, first));
        }
    }
    assert_eq!(wrong, []);
    assert_eq!(counts.into_iter().collect::<Vec<_>>(), [("record".to_owned(), 13), ("torch".to_owned(), 13)]);
}
