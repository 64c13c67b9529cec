"""Faults of a process's own calls: each as ordered, while it runs."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.faults import Faults

PROGRAM = """
import os, sys
from pathlib import Path
from tests.kit.faults import VARIABLE, Injector
from tests.kit import os_calls
os_calls.watch(Injector(Path(os.environ[VARIABLE])))
directory = sys.argv[1]
files = {name: os.open(f"{directory}/{name}", os.O_CREAT | os.O_RDWR) for name in ("a", "b")}
for order in sys.stdin:
    name, call = order.split()
    arguments = {"pwrite": (b"x", 0), "fdatasync": (), "ftruncate": (100,)}[call]
    try:
        print("ok", getattr(os, call)(files[name], *arguments), flush=True)
    except OSError as error:
        print(error.errno, flush=True)
"""


class Child:
    def __init__(self, faults: Faults, directory: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(directory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **faults.environment},
        )

    def does(self, order: str) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(order + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()


@pytest.fixture
def faults() -> Faults:
    return Faults()


@pytest.fixture
def child(faults: Faults, tmp_path: Path) -> Iterator[Child]:
    child = Child(faults, tmp_path)
    yield child
    child.process.communicate()


def test_faults_while_it_runs(faults: Faults, child: Child, tmp_path: Path) -> None:
    assert child.does("a fdatasync") == "ok None"
    faults.inject("fdatasync", file="a", error=errno.EIO, after=1)
    assert child.does("b fdatasync") == "ok None"
    assert child.does("a fdatasync") == "ok None"
    assert child.does("a fdatasync") == str(errno.EIO)
    assert child.does("a pwrite") == "ok 1"
    faults.clear()
    faults.inject("fdatasync", error=errno.EIO, times=1, written=True)
    assert child.does("b fdatasync") == "ok None", "it has no data"
    assert child.does("a fdatasync") == str(errno.EIO)
    assert child.does("a fdatasync") == "ok None", "once"
    faults.clear()
    assert child.does("a fdatasync") == "ok None"
    faults.inject("ftruncate")
    assert child.does("a ftruncate") == "ok None", "says that all is well"
    assert (tmp_path / "a").read_bytes() == b"x"
