//! NVTX ranges, received by a test tool. The tool is loaded once per process, so this file has one test.
#![allow(unsafe_code)]

use std::{env, process::Command, ptr};

use laptime_cuda::nvtx::{self, FreeRange, Range};
use libloading::Library;

#[test]
fn a_tool_hears_every_range_and_mark() {
    let folder = tempfile::tempdir().unwrap();
    let tool = folder.path().join("libcount_ranges.so");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/count_ranges.c");
    let mut compile = Command::new("cc");
    compile.args(["-shared", "-fPIC", "-Wall", "-Werror", "-o"]).arg(&tool).arg(source);
    assert!(compile.status().unwrap().success());
    // SAFETY: no other thread of this process reads the environment now.
    unsafe { env::set_var("NVTX_INJECTION64_PATH", &tool) };

    assert!(nvtx::is_on());
    let free = FreeRange::start("prefill");
    {
        let _outer = Range::push("decode");
        let _inner = Range::push("decode");
        nvtx::mark("first token");
    }
    drop(Range::push("decode"));
    drop(Range::push("a name\0that no tool can read"));
    std::thread::spawn(move || drop(free)).join().unwrap();

    // SAFETY: the tool is loaded, its counts are seven numbers, and nothing calls it now.
    let counts: [i32; 7] = unsafe {
        let library = Library::new(&tool).unwrap();
        ptr::read(*library.get::<*const [i32; 7]>(b"counts").unwrap())
    };
    let [pushed, popped, started, ended, marked, deepest, wrong_names] = counts;
    assert_eq!((pushed, popped), (3, 3));
    assert_eq!((started, ended, marked, deepest, wrong_names), (1, 1, 1, 2, 0));
}
