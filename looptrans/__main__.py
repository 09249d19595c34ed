"""Lets ``python -m looptrans`` stand for the console script."""

import sys

from looptrans.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
