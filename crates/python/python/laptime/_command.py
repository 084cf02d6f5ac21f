"""The command `laptime`, as a program of the interpreter."""

from __future__ import annotations

import os
import signal
import sys

from laptime import _native

# A process that the command starts again. It finds this same package, whatever the current folder contains.
_AGAIN = """\
import sys
sys.path[:] = [{folder!r}] + [path for path in sys.path if path]
from laptime._command import main
sys.exit(main())
"""


def main() -> int:
    """Runs the command with the arguments of this process, and returns the exit status."""
    # Python's handler waits until Python code runs again; the command decides itself what Ctrl-C means.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    # Everything that was printed in Python comes before what the command prints.
    sys.stdout.flush()
    words = ["laptime", *sys.argv[1:]]
    return _native.run_command(sys.executable, ["-c", _AGAIN.format(folder=folder)], _native.__file__, words)
