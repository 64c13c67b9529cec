"""What `make test-unit` runs, and that a unit test is alone."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit import unit


@pytest.mark.parametrize(
    ("folder", "marks", "fixtures", "expected"),
    [
        ("storage", (), ("tmp_path", "rng"), True),
        ("binlog_server/sql", ("parametrize",), (), True),
        ("storage", ("slow",), (), False),
        ("pipeline/spark", ("spark",), (), False),
        ("storage/crash", ("long",), (), False),
        ("pipeline", (), ("make_upstream",), False),
        ("storage", (), ("small_disk",), False),
        ("integration", (), (), False),
        ("fuzz", (), (), False),
    ],
)
def test_which_they_are(
    folder: str, marks: tuple[str, ...], fixtures: tuple[str, ...], expected: bool
) -> None:
    class Item:
        path = unit.TESTS / folder / "test_it.py"
        fixturenames = fixtures

        def get_closest_marker(self, name: str) -> bool:
            return name in marks

    assert unit.is_unit(Item()) is expected  # type: ignore[arg-type]


def test_long_modules_are_there() -> None:
    """So that none is left out for a name that has gone."""
    for folder, names in unit.LONG.items():
        for name in names.split():
            assert (unit.TESTS / folder / f"test_{name}.py").is_file(), f"{folder}/test_{name}.py"


def test_no_process_and_no_other_machine(tmp_path: Path) -> None:
    with unit.alone(True):
        with pytest.raises(RuntimeError, match="starts a process"):
            subprocess.run([sys.executable, "-c", ""], check=True)
        with pytest.raises(RuntimeError, match="starts a process"):
            os.fork()
        with (
            socket.socket() as other,
            pytest.raises(RuntimeError, match=r"connects to 192\.0\.2\.1"),
        ):
            other.connect(("192.0.2.1", 9))
        with socket.socket() as own, pytest.raises(ConnectionRefusedError):
            own.connect(("127.0.0.1", 1))
    subprocess.run([sys.executable, "-c", ""], check=True)
