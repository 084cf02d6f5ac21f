//! What the path of a file says about it.

/// A supported language.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Language {
    /// Rust, `.rs`.
    Rust,
    /// Python, `.py`.
    Python,
}

impl Language {
    /// The language of a file, by its extension.
    pub fn of(path: &str) -> Option<Self> {
        match path.rsplit('/').next()?.rsplit_once('.')?.1 {
            "rs" => Some(Self::Rust),
            "py" => Some(Self::Python),
            _ => None,
        }
    }
}

/// Whether a file contains tests or benchmarks, by its path.
///
/// Folders named `tests`, `test` and `benches`; files named `tests.rs`, `test.rs`, `test_*.py`, `*_test.py` and
/// `conftest.py`.
pub fn is_test_path(path: &str) -> bool {
    let (folders, file) = path.rsplit_once('/').unwrap_or(("", path));
    let in_folder = folders.split('/').any(|folder| matches!(folder, "tests" | "test" | "benches"));
    let (stem, ending) = file.rsplit_once('.').unwrap_or((file, ""));
    in_folder
        || match ending {
            "rs" => matches!(stem, "tests" | "test"),
            "py" => stem.starts_with("test_") || stem.ends_with("_test") || stem == "conftest",
            _ => false,
        }
}

/// The possible files of a test module that the file at a path declares: `#[cfg(test)] mod cases;`.
pub fn test_files(path: &str, module: &str) -> Vec<String> {
    let (folder, file) = path.rsplit_once('/').map_or(("", path), |(folder, file)| (folder, file));
    let stem = file.strip_suffix(".rs").unwrap_or(file);
    let inside = match stem {
        "lib" | "main" | "mod" => folder.to_owned(),
        _ if folder.is_empty() => stem.to_owned(),
        _ => format!("{folder}/{stem}"),
    };
    let base = if inside.is_empty() { String::new() } else { format!("{inside}/") };
    vec![format!("{base}{module}.rs"), format!("{base}{module}/mod.rs")]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_recognised_by_their_path() {
        for path in ["tests/a.rs", "a/benches/b.rs", "src/tests.rs", "test_a.py", "a/b_test.py", "x/test/y.py"] {
            assert!(is_test_path(path), "{path}");
        }
        for path in ["src/main.rs", "examples/a.rs", "testing_utils.py", "contest.py", "src/latest.rs", "tests.py"] {
            assert!(!is_test_path(path), "{path}");
        }
    }

    #[test]
    fn a_test_module_is_next_to_or_inside_the_folder_of_its_parent() {
        assert_eq!(test_files("src/lib.rs", "cases"), ["src/cases.rs", "src/cases/mod.rs"]);
        assert_eq!(test_files("src/a.rs", "cases"), ["src/a/cases.rs", "src/a/cases/mod.rs"]);
        assert_eq!(test_files("main.rs", "cases"), ["cases.rs", "cases/mod.rs"]);
    }
}
