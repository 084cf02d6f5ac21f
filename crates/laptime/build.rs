//! Keeps the commit and the build profile for `--version`, and builds and compresses the library that `laptime record`
//! injects.

use std::{
    env, fs,
    io::Write,
    path::{Path, PathBuf},
    process::Command,
};

use flate2::{Compression, write::ZlibEncoder};

/// The crates that the injected library is made of.
const INJECTED: [&str; 2] = ["inject", "capture"];
const LIBRARY: &str = "liblaptime_inject.so";

fn main() {
    let commit = git(&["rev-parse", "--short=12", "HEAD"]).unwrap_or_else(|| "unknown commit".to_owned());
    let changed = git(&["status", "--porcelain", "--untracked-files=no"]).is_some_and(|changes| !changes.is_empty());
    let profile = env::var("PROFILE").unwrap_or_default();
    let target = env::var("TARGET").unwrap_or_default();
    println!("cargo::rustc-env=LAPTIME_COMMIT={commit}{}", if changed { "+changes" } else { "" });
    println!("cargo::rustc-env=LAPTIME_PROFILE={profile}");
    println!("cargo::rustc-env=LAPTIME_TARGET={target}");
    println!("cargo::rustc-env=LAPTIME_OPT_LEVEL={}", env::var("OPT_LEVEL").unwrap_or_default());
    for watched in ["HEAD", "index"] {
        if let Some(path) = git(&["rev-parse", "--git-path", watched]) {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    println!("cargo::rerun-if-changed=build.rs");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    fold_identical_functions(&out);
    let library = if env::var("CARGO_CFG_TARGET_OS").is_ok_and(|system| system == "linux") {
        fs::read(injected(&out)).expect("the injected library was built")
    } else {
        Vec::new()
    };
    let mut packed = ZlibEncoder::new(Vec::new(), Compression::best());
    let packed = packed.write_all(&library).and_then(|()| packed.finish()).expect("memory takes every byte");
    fs::write(out.join(LIBRARY), packed).expect("OUT_DIR is writable");
}

/// Folds identical functions in profile `gpu`: one instance of a generic function for several types saves a megabyte.
/// Only the default linker of this target is known to be able to.
fn fold_identical_functions(out: &Path) {
    let is_usual =
        ["RUSTC_LINKER", "CARGO_ENCODED_RUSTFLAGS"].iter().all(|name| env::var(name).unwrap_or_default().is_empty());
    let is_target = env::var("TARGET").is_ok_and(|target| target == "x86_64-unknown-linux-gnu");
    if is_usual && is_target && out.ancestors().nth(3).is_some_and(|folder| folder.ends_with("gpu")) {
        println!("cargo::rustc-link-arg-bins=-Wl,--icf=all");
    }
}

/// Builds the injected library in a target folder of its own: this build holds the lock on the other one. The folder
/// lies beside it, so that every profile shares what is built.
fn injected(out: &Path) -> PathBuf {
    let crates = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR")).join("..");
    for name in INJECTED {
        println!("cargo::rerun-if-changed={}", crates.join(name).join("src").display());
        println!("cargo::rerun-if-changed={}", crates.join(name).join("Cargo.toml").display());
    }
    let target = env::var("TARGET").expect("cargo sets TARGET");
    let folder = out.ancestors().nth(4).unwrap_or(out).join("inject");
    let built = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["build", "--quiet", "--release", "--lib", "--target", &target, "--manifest-path"])
        .arg(crates.join("inject/Cargo.toml"))
        .arg("--target-dir")
        .arg(&folder)
        // It is loaded into programs of others: small, and a panic is caught at its borders.
        .env("CARGO_PROFILE_RELEASE_LTO", "thin")
        .env("CARGO_PROFILE_RELEASE_PANIC", "unwind")
        .env("CARGO_PROFILE_RELEASE_STRIP", "symbols")
        .env("CARGO_PROFILE_RELEASE_DEBUG", "false")
        // What checks this build (clippy) has no part in that one.
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .status();
    assert!(built.is_ok_and(|status| status.success()), "building the injected library failed");
    folder.join(target).join("release").join(LIBRARY)
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
