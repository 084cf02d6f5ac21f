"""`python -m laptime`: the command."""

import sys

from laptime._command import main

if __name__ == "__main__":
    sys.exit(main())
