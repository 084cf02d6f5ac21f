import json
import pathlib
import subprocess
import sys
import tempfile

import laptime
from helpers import InFolder

STAND_IN = pathlib.Path(__file__).resolve().parents[3] / "tests" / "stand-in-cuda"

PROGRAM = """
import ctypes, json, sys, warnings
import laptime

def start():
    global cupti
    cuda = ctypes.CDLL("libcuda.so.1", mode=ctypes.RTLD_GLOBAL)
    cuda.cuInit(0)
    cupti = ctypes.CDLL("libcupti.so.13", mode=ctypes.RTLD_GLOBAL)
    cupti.stand_in_context()

def kernel():
    cupti.stand_in_kernel(ctypes.c_char_p(b"gemm"), 1, ctypes.c_uint64(1000))

is_late = sys.argv[1:] == ["late"]
if is_late:
    start()
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    kernels = []
    for name in ["first.pftrace", "second.pftrace"]:
        with laptime.record(name) as recording:
            if name == "first.pftrace" and not is_late:
                start()
            for _ in laptime.laps(range(3), "step"):
                with laptime.stage("forward"):
                    kernel()
        kernels.append(recording.kernels)
print(json.dumps([kernels, len(seen)]))
"""


class Gpu(InFolder):
    """The GPU work of this process, on a stand-in for CUDA."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.libraries = folder.name
        for source, library in [("cuda.c", "libcuda.so.1"), ("cupti.c", "libcupti.so.13")]:
            target = pathlib.Path(folder.name) / library
            words = ["cc", "-O1", "-fPIC", "-shared", f"-Wl,-soname,{library}", "-o", target, STAND_IN / source]
            subprocess.run([*words, "-ldl", "-lpthread"], check=True)

    def environment(self):
        return {"LD_LIBRARY_PATH": self.libraries, "XDG_RUNTIME_DIR": str(self.folder / "runtime")}

    def test_a_recording_has_the_kernels_of_its_own_time_under_the_stages_that_launched_them(self):
        kernels, warned = json.loads(self.python(PROGRAM, **self.environment()))
        self.assertEqual((kernels, warned), ([3, 3], 0))
        rows = {row["path"]: row for row in laptime.read("second.pftrace").stages()}
        self.assertEqual(rows["step/forward"]["count"], 3)
        self.assertEqual(rows["step/forward"]["device_ms"], 0.003)

    def test_a_recording_that_begins_after_cuda_has_the_kernels_under_their_stages_too(self):
        kernels, warned = json.loads(self.python(PROGRAM, "late", **self.environment()))
        self.assertEqual((kernels, warned), ([3, 3], 0))
        for name in ["first.pftrace", "second.pftrace"]:
            rows = {row["path"]: row for row in laptime.read(name).stages()}
            self.assertEqual(rows["step/forward"]["device_ms"], 0.003, name)

    def test_marks_and_kernels_are_together_inside_laptime_record(self):
        (self.folder / "train.py").write_text(PROGRAM)
        words = ["record", "--no-overhead", "--out", "run", "--", sys.executable, "train.py"]
        self.laptime(*words, **self.environment())
        rows = {row["path"]: row for row in laptime.read("run").stages()}
        self.assertEqual((rows["step/forward"]["count"], rows["step/forward"]["device_ms"]), (6, 0.006))
