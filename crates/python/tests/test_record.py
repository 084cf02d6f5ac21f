import json
import sys

import laptime
from helpers import InFolder


class Record(InFolder):
    def test_a_second_recording_is_refused(self):
        with laptime.record("a.pftrace"):
            with self.assertRaises(laptime.RecordError) as refused:
                laptime.record("b.pftrace").start()
        self.assertIn("already running", str(refused.exception))

    def test_a_name_that_is_no_trace_and_a_folder_that_is_missing_are_refused(self):
        for name in ["a.txt", "missing/a.pftrace"]:
            with self.assertRaises(laptime.RecordError), laptime.record(name):
                pass
        self.assertFalse(laptime.is_recording())

    def test_chrome_files_are_written(self):
        with laptime.record("trace.json"), laptime.stage("work"):
            pass
        self.assertIn("work", json.dumps(json.loads((self.folder / "trace.json").read_text())))

    def test_a_program_that_exits_inside_keeps_its_trace(self):
        self.python(
            "import laptime, sys\n"
            "recording = laptime.record('trace.pftrace'); recording.start()\n"
            "with laptime.stage('work'): pass\n"
            "sys.exit(0)\n"
        )
        self.assertEqual(self.names(laptime.read("trace.pftrace")), ["work"])

    def test_forked_workers_neither_hang_nor_write_into_the_trace(self):
        printed = self.python(
            "import laptime, multiprocessing, os, sys\n"
            "def work(number):\n"
            "    with laptime.stage('child'): return number\n"
            "with laptime.record('trace.pftrace'):\n"
            "    with laptime.stage('parent'):\n"
            "        with multiprocessing.get_context('fork').Pool(2) as pool:\n"
            "            print(pool.map(work, range(4)))\n"
            "        child = os.fork()\n"
            "        if child == 0:\n"
            "            with laptime.record('child.pftrace'), laptime.stage('own'): pass\n"
            "            sys.exit(3)\n"
            "        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
        )
        self.assertEqual(printed, "[0, 1, 2, 3]\n3\n")
        self.assertEqual(self.names(laptime.read("trace.pftrace")), ["parent"])
        self.assertEqual(self.names(laptime.read("child.pftrace")), ["own"])

    def test_marks_inside_laptime_record_go_into_that_recording(self):
        program = self.folder / "train.py"
        program.write_text(
            "import laptime, os, sys, warnings\n"
            "warnings.simplefilter('ignore')\n"
            "with laptime.record('own.pftrace'):\n"
            "    for step in laptime.laps(range(3), 'step'):\n"
            "        with laptime.stage('forward', step=step): sum(range(1000))\n"
            "child = os.fork()\n"
            "if child == 0:\n"
            "    with laptime.stage('child'): pass\n"
            "    sys.exit(0)\n"
            "os.waitpid(child, 0)\n"
        )
        self.laptime("record", "--out", "run", "--", sys.executable, str(program))
        rows = laptime.read("run").spans(["step"]).rows()
        self.assertFalse((self.folder / "own.pftrace").exists())
        self.assertEqual([row["step"] for row in rows if row["name"] == "forward"], [0, 1, 2])
        parents = [rows[row["parent"]]["name"] for row in rows if row["name"] == "forward"]
        self.assertEqual(parents, ["step"] * 3)
        self.assertEqual([row["parent"] for row in rows if row["name"] in ("step", "child")], [None] * 4)
