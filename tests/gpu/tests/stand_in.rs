//! Tests of the GPU that need no arithmetic, on a stand-in for its libraries.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::process::Command;
use std::{fs, os::unix::fs::symlink, path::Path};

/// Runs the tests whose names contain one of the words on the stand-in, with variables that change it.
fn passes(variables: &[&str], words: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let library = folder.path().join("libcuda.so.1");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../stand-in-gpu/cuda.c");
    let mut compiler = Command::new("cc");
    compiler
        .args(["-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-o"])
        .arg(&library)
        .arg(source)
        .args(["-lpthread", "-ldl"]);
    assert!(compiler.status().unwrap().success(), "{compiler:?}");
    for name in ["libnvrtc.so.13", "libcublas.so.13"] {
        symlink(&library, folder.path().join(name)).unwrap();
    }
    let log = folder.path().join("log");
    let mut program = Command::new(env!("CARGO_BIN_EXE_laptime-gpu-test"));
    program.env("LD_LIBRARY_PATH", folder.path()).env("LAPTIME_CACHE", folder.path()).env("STAND_IN_LOG", &log);
    program.envs(variables.iter().map(|name| (name, "1")));
    let output = program.args(words).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{printed}{}", String::from_utf8_lossy(&output.stderr));
    assert!(fs::metadata(log).unwrap().len() > 0, "another GPU was used");
    assert!(words.iter().all(|test| printed.contains(test)), "{printed}");
}

#[test]
fn every_workload_and_model_uses_the_gpu_memory_that_was_predicted() {
    passes(
        &[],
        &[
            "memory: every workload uses what was predicted",
            "memory: decoders use what was predicted",
            "memory: training uses what was predicted",
            "memory: a fuser uses what was predicted",
            "tts: the predicted memory is used",
            "vibevoice: the predicted memory is used",
        ],
    );
}

#[test]
fn models_on_a_gpu_have_the_stages_of_the_cpu_and_refuse_what_they_cannot_do() {
    passes(
        &[],
        &[
            "stages of every model have the tree that the CPU's have",
            "what cannot be done is refused",
            "what cannot be fused is refused",
            "kernels are compiled once and then cached",
            "kernels are compiled ahead on several threads",
            "nn: block layouts that do not fit are refused",
            "offload: running out of memory in the middle is an error and breaks nothing else",
        ],
    );
}

#[test]
fn a_graph_that_cannot_be_captured_is_reported() {
    for variables in [&[][..], &["STAND_IN_NO_CAPTURE"]] {
        passes(variables, &["steps and prompts without a graph say so"]);
    }
}
