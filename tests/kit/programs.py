"""What tests use of others: programs of the path, and what `setup.sh` has made. And whether a process has ended."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import NoReturn

import pytest

_HOMES = ("/var/cache/binlog-test", "~/.cache/binlog-test")


def homes() -> list[Path]:
    """Where `setup.sh` puts things, or has put them for another user of this machine."""
    said = [home for home in (os.environ.get("BINLOG_TEST_HOME"), *_HOMES) if home]
    return [Path(home).expanduser() for home in said]


def installed(name: str) -> Path | None:
    """A file or folder of that name in one of the `homes`."""
    return next((path for home in homes() if (path := home / name).exists()), None)


def is_missing(what: str) -> NoReturn:
    """The test is skipped, and fails in CI."""
    if os.environ.get("CI") == "true":
        pytest.fail(what, pytrace=False)
    pytest.skip(what)


def program(*names: str) -> str:
    """The path of the first of these that is here. Without one the test is skipped, and fails in CI."""
    for name in names:
        made = [str(home / name) for home in homes()]
        found = shutil.which(name, path=os.pathsep.join([os.environ["PATH"], *made]))
        if found is not None:
            return found
    is_missing(f"no {' or '.join(names)} here (make setup)")


def ended(pid: int) -> bool:
    """Whether a process is gone, or a zombie: in a container nobody may fetch what an orphan has left."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:  # none of that number, or it ended before it was read
        return True
    return stat.rpartition(")")[2].split()[0] == "Z"
