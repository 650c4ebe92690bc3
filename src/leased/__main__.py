"""`python -m leased`: the command line, nothing else."""

import sys

from leased.cli import main

if __name__ == "__main__":
    sys.argv[0] = "leased"  # this is how others see who holds a key
    sys.exit(main())
