//! Runs the Python tests on the module that cargo built, without a wheel.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap).filter(|entry| entry.path().is_file()) {
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

/// The library lies next to this test.
fn library() -> PathBuf {
    let program = env::current_exe().unwrap();
    let places = program.ancestors().skip(1).take(2).map(|folder| folder.join("lib_native.so"));
    places.into_iter().find(|path| path.is_file()).expect("cargo built the module")
}

#[test]
fn the_python_tests_pass() {
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = tempfile::tempdir().unwrap();
    let package = folder.path().join("laptime");
    copy(&crate_folder.join("python/laptime"), &package);
    std::os::unix::fs::symlink(library(), package.join("_native.abi3.so")).unwrap();
    let output = Command::new("python3")
        .args(["-m", "unittest", "discover", "-s"])
        .arg(crate_folder.join("tests"))
        .env("PYTHONPATH", folder.path())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
