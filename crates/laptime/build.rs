//! Keeps the commit and the build profile for `--version`.

use std::process::Command;

fn main() {
    let commit = git(&["rev-parse", "--short=12", "HEAD"]).unwrap_or_else(|| "unknown commit".to_owned());
    let changed = git(&["status", "--porcelain", "--untracked-files=no"]).is_some_and(|changes| !changes.is_empty());
    let profile = std::env::var("PROFILE").unwrap_or_default();
    let target = std::env::var("TARGET").unwrap_or_default();
    println!("cargo::rustc-env=LAPTIME_COMMIT={commit}{}", if changed { "+changes" } else { "" });
    println!("cargo::rustc-env=LAPTIME_PROFILE={profile}");
    println!("cargo::rustc-env=LAPTIME_TARGET={target}");
    println!("cargo::rustc-env=LAPTIME_OPT_LEVEL={}", std::env::var("OPT_LEVEL").unwrap_or_default());
    for watched in ["HEAD", "index"] {
        if let Some(path) = git(&["rev-parse", "--git-path", watched]) {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    println!("cargo::rerun-if-changed=build.rs");
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
