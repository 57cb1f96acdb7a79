"""`python -m mldb` is the command `mldb`."""

from __future__ import annotations

import sys

from mldb.cli import main

if __name__ == "__main__":
    sys.exit(main())
