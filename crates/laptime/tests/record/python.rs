//! Python stacks of a recorded program.

use crate::stand_in::Place;

/// A training loop whose data loading keeps the GPU waiting.
const PROGRAM: &str = "\
import ctypes, time
cuda = ctypes.CDLL('libcuda.so.1', mode=ctypes.RTLD_GLOBAL)
cuda.cuInit(0)
cupti = ctypes.CDLL('libcupti.so.13', mode=ctypes.RTLD_GLOBAL)
cupti.stand_in_context()

def load():
    time.sleep(0.02)

def step():
    cupti.stand_in_kernel(ctypes.c_char_p(b'gemm'), 1, ctypes.c_uint64(100000))

for _ in range(150):
    load()
    step()
";

#[test]
fn the_python_line_of_the_idle_time_is_named() {
    let place = Place::new();
    std::fs::write(place.path("train.py"), PROGRAM).unwrap();
    let mut command = place.laptime();
    command.args(["record", "--no-overhead", "--out", "run", "--", "python3", "train.py"]);
    let recorded = place.recorded(command.output().unwrap()).good();
    let output = place.laptime().args(["gaps", "run"]).output().unwrap();
    let told = String::from_utf8(output.stdout).unwrap();
    let named = told.lines().find(|line| line.contains("of the idle time of device 0: `train.py:8 in load`"));
    assert!(named.is_some(), "{told}\n{}", recorded.err);
    assert!(recorded.err.contains("`train.py:8 in load`"), "{}", recorded.err);
    assert!(recorded.err.trim().lines().count() <= 12, "{}", recorded.err);
    let samples = recorded.json()["python_samples"].as_u64().unwrap();
    assert!(samples >= 30, "{samples}");
    assert_eq!(recorded.trace().processes().len(), 1);
}
