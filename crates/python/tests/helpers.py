"""What the tests share."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest


class InFolder(unittest.TestCase):
    """Tests in an empty folder of their own."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.folder)

    def python(self, text, *words, **environment):
        """Runs a program of its own, and returns what it printed."""
        file = self.folder / "program.py"
        file.write_text(text)
        return self.run_words([sys.executable, str(file), *words], **environment)

    def laptime(self, *words, status=0, **environment):
        """Runs the command."""
        return self.run_words([sys.executable, "-m", "laptime", *words], status, **environment)

    def run_words(self, words, status=0, **environment):
        places = [path for path in sys.path if path and (pathlib.Path(path) / "laptime").is_dir()]
        known = {**os.environ, "PYTHONPATH": os.pathsep.join(places), "LAPTIME_HOME": str(self.folder / "home"), **environment}
        done = subprocess.run(words, capture_output=True, text=True, env=known, timeout=300, cwd=self.folder)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def names(self, trace):
        return trace.spans()["name"]
