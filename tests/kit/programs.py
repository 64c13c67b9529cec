"""Programs of others that tests run: of the path, or where `setup.sh` has put them. And whether a process has ended."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

_HOMES = ("/var/cache/binlog-test", "~/.cache/binlog-test")


def program(*names: str) -> str:
    """The path of the first of these that is here. Without one the test is skipped, and fails in CI."""
    homes = [home for home in (os.environ.get("BINLOG_TEST_HOME"), *_HOMES) if home]
    for name in names:
        made = [str(Path(home).expanduser() / name) for home in homes]
        found = shutil.which(name, path=os.pathsep.join([os.environ["PATH"], *made]))
        if found is not None:
            return found
    said = f"no {' or '.join(names)} here (make setup)"
    if os.environ.get("CI") == "true":
        pytest.fail(said, pytrace=False)
    pytest.skip(said)


def ended(pid: int) -> bool:
    """Whether a process is gone, or a zombie: in a container nobody may fetch what an orphan has left."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:  # none of that number, or it ended before it was read
        return True
    return stat.rpartition(")")[2].split()[0] == "Z"
