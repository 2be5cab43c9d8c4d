"""`python -m coevo`."""

import os
import sys

# Python looks for modules in the working folder first, which may be a stranger's: its `json.py` is not to be run.
if not sys.flags.safe_path and sys.path and sys.path[0] in ("", os.getcwd()):
    del sys.path[0]

from coevo.cli import main

if __name__ == "__main__":
    sys.exit(main())
