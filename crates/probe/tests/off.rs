//! Proves that without the feature `on` a marked function compiles to the plain function, and nothing else is built.
//!
//! The proofs run cargo on `tests/off-proof`, which depends on the probe without features, in a separate target folder.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

const PACKAGE: &str = "laptime-off-proof";
const FUNCTION: &str = "laptime_off_proof";

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A folder below the target folder of this build; two tests that build must not share one.
fn target_folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("off-proof").join(name)
}

/// Runs cargo in the workspace and returns its output.
///
/// The environment of this test's own build is hidden from the inner one, whose flags must be those of the release
/// profile.
fn cargo(arguments: &[&str]) -> String {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for name in ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "CARGO_BUILD_RUSTFLAGS", "CARGO_TARGET_DIR"] {
        command.env_remove(name);
    }
    // `--locked --offline` comes first: `cargo rustc` passes the last arguments to the compiler.
    let output = command.current_dir(workspace()).args(["--locked", "--offline"]).args(arguments).output();
    let output = output.expect("cargo starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cargo {arguments:?} failed:\n{errors}");
    String::from_utf8(output.stdout).expect("cargo prints text")
}

/// Compiles the function and returns its instructions.
fn instructions(features: &str) -> Vec<String> {
    let name = if features.is_empty() { "plain" } else { features };
    let target = target_folder(&name.replace([',', '/'], "-"));
    let assembly = target.join("proof.s");
    let emit = format!("--emit=asm={}", assembly.display());
    cargo(&[
        "rustc",
        "--release",
        "--package",
        PACKAGE,
        "--features",
        features,
        "--target-dir",
        target.to_str().expect("the path is text"),
        "--",
        &emit,
        "-Copt-level=3",
        "-Ccodegen-units=1",
    ]);
    body(&fs::read_to_string(assembly).expect("the assembly was written"))
}

/// Extracts the function from assembly text: its instructions, with labels numbered in order of appearance.
fn body(assembly: &str) -> Vec<String> {
    let lines = assembly.lines().map(str::trim);
    let inside = lines.skip_while(|line| *line != format!("{FUNCTION}:")).skip(1);
    let until_end = inside.take_while(|line| !line.starts_with(".Lfunc_end") && !line.starts_with(".cfi_endproc"));
    let kept = until_end.filter(|line| !line.is_empty() && !line.starts_with('#') && !is_directive(line));
    let mut labels = Vec::new();
    kept.map(|line| with_numbered_labels(line, &mut labels)).collect()
}

fn is_directive(line: &str) -> bool {
    line.starts_with('.') && !line.ends_with(':')
}

fn with_numbered_labels(line: &str, labels: &mut Vec<String>) -> String {
    let words = line.split_inclusive(|c: char| !(c.is_alphanumeric() || c == '_' || c == '.'));
    words.map(|word| numbered(word, labels)).collect()
}

fn numbered(word: &str, labels: &mut Vec<String>) -> String {
    let label = word.trim_end_matches(|c: char| !(c.is_alphanumeric() || c == '_'));
    if !label.starts_with(".L") {
        return word.to_owned();
    }
    let at = labels.iter().position(|known| known == label).unwrap_or_else(|| {
        labels.push(label.to_owned());
        labels.len() - 1
    });
    word.replacen(label, &format!("label{at}"), 1)
}

#[test]
fn a_marked_function_compiles_to_the_plain_one_when_off() {
    let (plain, marked) = (instructions(""), instructions("marked"));
    assert!(plain.len() > 10, "the function was found: {plain:#?}");
    assert_eq!(marked, plain);
}

#[test]
fn a_marked_function_differs_from_the_plain_one_when_on() {
    let (plain, recording) = (instructions(""), instructions("marked,laptime-probe/on"));
    assert_ne!(recording, plain, "the comparison sees a difference where there is one");
}

#[test]
fn nothing_but_the_probe_is_built_when_off() {
    let tree = cargo(&["tree", "--package", PACKAGE, "--features", "marked", "--edges", "normal", "--prefix", "none"]);
    let crates: Vec<&str> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(crates, [PACKAGE, "laptime-probe"]);
}

#[test]
fn the_tests_of_the_off_state_pass() {
    let target = target_folder("tests");
    let target = target.to_str().expect("the path is text");
    let printed = cargo(&["test", "--package", PACKAGE, "--features", "marked", "--lib", "--target-dir", target]);
    assert!(printed.contains("2 passed"), "{printed}");
}

#[test]
fn labels_are_numbered_by_their_order() {
    let normalised =
        |name: &str| body(&format!("{FUNCTION}:\n\t.cfi_startproc\n{name}:\n\tjne {name}\n\tret\n.Lfunc_end0:"));
    assert_eq!(normalised(".LBB0_3"), ["label0:", "jne label0", "ret"]);
    assert_eq!(normalised(".LBB0_3"), normalised(".LBB7_12"));
}
