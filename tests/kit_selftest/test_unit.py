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


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("def test_it(tmp_path, rng): ...", True),
        ("from binlog_server import x\n# as backend does\ndef test_it(): ...", True),
        ("@pytest.mark.long\ndef test_it(): ...", False),
        ("pytestmark = [pytest.mark.spark]", False),
        ("def test_it(backend): ...", False),
        ("@pytest.fixture\ndef it(binlog_server: MakeBinlogServer) -> None: ...", False),
    ],
)
def test_which_files_have_nothing_else(
    text: str, expected: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unit, "TESTS", tmp_path)
    path = tmp_path / "storage" / "test_it.py"
    path.parent.mkdir()
    path.write_text(text)
    assert unit.has_units_alone(path) is expected


def test_what_would_be_run_by_nobody_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mark that its file's text does not show."""

    class Item:
        path = tmp_path / "storage" / "test_it.py"
        nodeid = "test_it.py::test_it"
        fixturenames = ("small_disk",)

        def get_closest_marker(self, name: str) -> bool:
            return False

    monkeypatch.setattr(unit, "TESTS", tmp_path)
    Item.path.parent.mkdir()
    Item.path.write_text("def test_it(a_fixture_of_conftest): ...")
    with pytest.raises(pytest.UsageError, match="is no unit"):
        unit.require_units_alone([Item()])  # type: ignore[list-item]


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
