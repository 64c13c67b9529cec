"""See `command`, which is a module of its own so that worker processes find it by its name."""

import sys

from tests.fuzz.command import main

if __name__ == "__main__":
    sys.exit(main())
