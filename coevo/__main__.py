"""`python -m coevo`."""

import sys

from coevo.cli import main

if __name__ == "__main__":
    sys.exit(main())
