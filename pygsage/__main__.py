"""`python -m pygsage`, as torchrun starts it."""

import sys

from pygsage.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
