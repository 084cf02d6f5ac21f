import sys

import laptime
from helpers import InFolder


class Command(InFolder):
    def test_the_command_is_the_program(self):
        self.assertIn(f"laptime {laptime.__version__}", self.laptime("--version"))
        self.assertIn("hint: check the path", self.laptime("stages", "missing.json", status=2))

    def test_cases_run_in_fresh_processes_of_the_interpreter(self):
        words = ["bench", "matmul", "--size", "16,32", "--iterations", "2", "--warmup", "0"]
        self.laptime(*words, "--runs", "2", "--out", "runs")
        self.assertEqual(laptime.read("runs").cases()["processes"], [2, 2])
        self.laptime(*words, "--isolate", "--timeout", "1m", "--out", "isolated")
        self.assertEqual(laptime.read("isolated").cases()["outcome"], ["measured"] * 2)

    def test_a_fresh_process_finds_this_package_and_not_one_in_the_current_folder(self):
        (self.folder / "laptime.py").write_text("raise SystemExit('the wrong package')\n")
        program = self.folder / "elsewhere" / "run.py"
        program.parent.mkdir()
        program.write_text("import sys\nfrom laptime._command import main\nsys.exit(main())\n")
        words = ["bench", "matmul", "--size", "16", "--iterations", "2", "--warmup", "0", "--runs", "2", "--out", "run"]
        self.run_words([sys.executable, str(program), *words])

    def test_two_workloads_are_compared_in_fresh_processes(self):
        variant = "matmul --size 16 --iterations 2 --warmup 0"
        printed = self.run_words(
            [sys.executable, "-m", "laptime", "ab", "--a", variant, "--b", variant, "--runs", "2"]
        )
        self.assertIn("Unclear", printed)

    def test_a_recorded_command_names_the_words_of_the_user(self):
        self.laptime("bench", "matmul", "--size", "16", "--iterations", "2", "--out", "run")
        self.assertIn('"laptime",\n    "bench"', (self.folder / "run" / "run.json").read_text())
