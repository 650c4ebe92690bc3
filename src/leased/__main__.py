"""`python -m leased`: the command line, nothing else."""

import sys

from leased.cli import main

if __name__ == "__main__":
    sys.exit(main())
