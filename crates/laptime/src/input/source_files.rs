//! Finds source files in folders and audits them in parallel.

use std::path::{Path, PathBuf};
use std::{collections::HashSet, io};

use anyhow::Context;
use laptime_audit::{Audited, AuditedFile, Language, Problem, Rules, RulesFile};
use laptime_trace::small_file;
use rayon::prelude::*;

use crate::{
    failure::{Hinted, refuse},
    output::warn,
};

/// Folders with third-party code or build output. Hidden folders are skipped too.
const SKIPPED: [&str; 5] = ["__pycache__", "node_modules", "site-packages", "target", "venv"];

/// Marks a folder as a Python virtual environment.
const ENVIRONMENT: &str = "pyvenv.cfg";

/// Larger files are not written by hand.
const MOST_BYTES: u64 = 16 << 20;

/// Finds Rust and Python files, sorted; links are not followed.
pub fn find(paths: &[PathBuf], rules_files: &[RulesFile]) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in paths {
        let kind = std::fs::metadata(path).map_err(|error| missing(path, error))?;
        if kind.is_dir() {
            walk(path, rules_files, &mut files)?;
        } else if Language::of(&shown(path)).is_some() {
            files.push(path.clone());
        } else {
            let reason = format!("`{}` is not a Rust or Python file", path.display());
            return refuse(reason, "name a `.rs` or `.py` file, or a folder of them");
        }
    }
    files.sort();
    files.dedup();
    if files.is_empty() {
        let names: Vec<String> = paths.iter().map(|path| format!("`{}`", path.display())).collect();
        let hint = format!("name a folder with source files; {} and hidden folders are skipped", SKIPPED.join(", "));
        return refuse(format!("there are no Rust or Python files in {}", names.join(", ")), hint);
    }
    Ok(files)
}

fn missing(path: &Path, error: io::Error) -> anyhow::Error {
    let hint = match error.kind() {
        io::ErrorKind::NotFound => "check the name; `laptime audit syncs .` searches the current folder",
        _ => "name a folder or file that you may read",
    };
    Hinted::wrap(anyhow::Error::new(error).context(format!("cannot read `{}`", path.display())), hint)
}

fn walk(root: &Path, rules_files: &[RulesFile], files: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    let entries = std::fs::read_dir(root).with_context(|| format!("cannot read the folder `{}`", root.display()))?;
    let mut open = vec![entries];
    while let Some(entries) = open.last_mut() {
        let Some(entry) = entries.next() else {
            open.pop();
            continue;
        };
        let Ok((path, kind)) = entry.and_then(|entry| Ok((entry.path(), entry.file_type()?))) else { continue };
        if rules_files.iter().any(|rules| rules.skips(&shown(&path))) {
            continue;
        }
        if kind.is_dir() && !is_skipped(&path) {
            match std::fs::read_dir(&path) {
                Ok(entries) => open.push(entries),
                Err(error) => warn(&format!("cannot read the folder `{}`: {error}", path.display())),
            }
        } else if kind.is_file() && Language::of(&shown(&path)).is_some() {
            files.push(path);
        }
    }
    Ok(())
}

fn is_skipped(folder: &Path) -> bool {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    name.starts_with('.') || SKIPPED.contains(&&*name) || folder.join(ENVIRONMENT).is_file()
}

/// A path for display: separated by `/`, without a leading `./`.
pub fn shown(path: &Path) -> String {
    let text = path.to_string_lossy().replace('\\', "/");
    text.strip_prefix("./").map_or_else(|| text.clone(), |rest| rest.trim_start_matches('/').to_owned())
}

/// Audits files in parallel; the result has their order.
pub fn audit(files: &[PathBuf], rules: &Rules) -> Vec<AuditedFile> {
    let mut files: Vec<AuditedFile> = files.par_iter().filter_map(|path| audit_file(path, rules)).collect();
    mark_tests(&mut files);
    files
}

fn audit_file(path: &Path, rules: &Rules) -> Option<AuditedFile> {
    let shown = shown(path);
    let language = Language::of(&shown)?;
    let audited = match read(path) {
        Ok(text) if !rules.may_occur(&text, language) => Audited::default(),
        Ok(text) if language == Language::Rust => laptime_audit::audit_rust(&text, rules),
        Ok(text) => laptime_audit::audit_python(&text, rules),
        Err(reason) => Audited { problem: Some(Problem { line: None, reason }), ..Audited::default() },
    };
    Some(AuditedFile { is_test: laptime_audit::is_test_path(&shown), path: shown, language, audited })
}

/// The text of a file. Invalid UTF-8, which cannot be part of a name, is replaced.
fn read(path: &Path) -> Result<String, String> {
    let bytes = small_file::read_bytes(path, MOST_BYTES).map_err(|error| error.to_string())?;
    Ok(String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
}

/// Marks the files that others declare as test modules.
fn mark_tests(files: &mut [AuditedFile]) {
    let of_file = |file: &AuditedFile| -> Vec<String> {
        let modules = file.audited.test_modules.iter();
        modules.flat_map(|module| laptime_audit::test_files(&file.path, module)).collect()
    };
    let named: HashSet<String> = files.iter().flat_map(of_file).collect();
    for file in files.iter_mut().filter(|file| named.contains(&file.path)) {
        file.is_test = true;
    }
}
