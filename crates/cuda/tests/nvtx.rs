//! NVTX ranges, received by a test tool. The tool is loaded once per process, so this file has one test.
#![allow(unsafe_code)]

use std::{env, process::Command, ptr};

use laptime_cuda::nvtx::{self, Range};
use libloading::Library;

#[test]
fn a_tool_receives_every_range() {
    let folder = tempfile::tempdir().unwrap();
    let tool = folder.path().join("libcount_ranges.so");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/count_ranges.c");
    let mut compile = Command::new("cc");
    compile.args(["-shared", "-fPIC", "-Wall", "-Werror", "-o"]).arg(&tool).arg(source);
    assert!(compile.status().unwrap().success());
    // SAFETY: no other thread of this process reads the environment now.
    unsafe { env::set_var("NVTX_INJECTION64_PATH", &tool) };

    assert!(nvtx::is_on());
    {
        let _outer = Range::push("decode");
        let _inner = Range::push("decode");
    }
    drop(Range::push("decode"));
    drop(Range::push("a name\0that no tool can read"));

    // SAFETY: the tool is loaded, its counts are four numbers, and nothing calls it now.
    let counts: [i32; 4] = unsafe {
        let library = Library::new(&tool).unwrap();
        ptr::read(*library.get::<*const [i32; 4]>(b"counts").unwrap())
    };
    let [pushed, popped, deepest, wrong_names] = counts;
    assert_eq!((pushed, popped), (3, 3));
    assert_eq!((deepest, wrong_names), (2, 0));
}
