"""The `laptime` command, run by the interpreter."""

from __future__ import annotations

import os
import signal
import sys

from laptime import _native

# How the command starts itself again: with this package, whatever the current folder contains.
_AGAIN = """\
import sys
sys.path[:] = [{folder!r}] + [path for path in sys.path if path]
from laptime._command import main
sys.exit(main())
"""


def main() -> int:
    """Runs the command with the arguments of this process, and returns the exit status."""
    # Python's handler would wait until Python code runs again. The command has its own.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    # Print buffered output before that of the command.
    sys.stdout.flush()
    words = ["laptime", *sys.argv[1:]]
    return _native.run_command(sys.executable, ["-c", _AGAIN.format(folder=folder)], _native.__file__, words)
