//! Source files: finds them in folders, reads them, and audits them on all CPUs.

use std::path::{Path, PathBuf};
use std::sync::{
    Mutex,
    atomic::{AtomicUsize, Ordering::Relaxed},
};
use std::{collections::HashSet, io};

use anyhow::Context;
use laptime_audit::{Audited, AuditedFile, Language, Problem, Rules, RulesFile};
use laptime_trace::small_file;

use crate::{
    failure::{Hinted, refuse},
    output::warn,
};

/// Folders with third-party code or build output. Folders whose name begins with a dot are skipped too.
const PASSED_OVER: [&str; 5] = ["__pycache__", "node_modules", "site-packages", "target", "venv"];

/// A file that marks a folder as a Python virtual environment.
const ENVIRONMENT: &str = "pyvenv.cfg";

/// The maximum size of a file. Nobody writes a larger one by hand.
const MOST_BYTES: u64 = 16 << 20;

/// Finds the files of Rust and Python at these paths, in order; links are not followed.
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
        let hint =
            format!("name a folder with source files; {} and hidden folders are skipped", PASSED_OVER.join(", "));
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
        if kind.is_dir() && !is_passed_over(&path) {
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

fn is_passed_over(folder: &Path) -> bool {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    name.starts_with('.') || PASSED_OVER.contains(&&*name) || folder.join(ENVIRONMENT).is_file()
}

/// A path as people see it: parts divided by `/`, without `./` before it.
pub fn shown(path: &Path) -> String {
    let text = path.to_string_lossy().replace('\\', "/");
    text.strip_prefix("./").map_or_else(|| text.clone(), |rest| rest.trim_start_matches('/').to_owned())
}

/// Audits files on all CPUs, in the order of the files.
pub fn audit(files: &[PathBuf], rules: &Rules) -> Vec<AuditedFile> {
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, AuditedFile)>> = Mutex::new(Vec::with_capacity(files.len()));
    let work = || {
        let mut own = Vec::new();
        while let Some((at, path)) = Some(next.fetch_add(1, Relaxed)).and_then(|at| Some((at, files.get(at)?))) {
            own.extend(audit_file(path, rules).map(|file| (at, file)));
        }
        done.lock().unwrap_or_else(std::sync::PoisonError::into_inner).append(&mut own);
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(files.len());
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(work);
        }
        work();
    });
    let mut audited = done.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    audited.sort_by_key(|(at, _)| *at);
    let mut files: Vec<AuditedFile> = audited.into_iter().map(|(_, file)| file).collect();
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

/// The text of a file. Invalid UTF-8 is replaced; it cannot be part of a name.
fn read(path: &Path) -> Result<String, String> {
    let message = |error: io::Error| error.to_string();
    let bytes = small_file::read_bytes(path, MOST_BYTES).map_err(message)?;
    Ok(String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
}

/// Marks the files that others name as modules of tests.
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
