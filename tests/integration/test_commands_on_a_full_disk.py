"""Each command that makes something, on a disk without room: it says which target, and leaves nothing that would be
taken for its work. With room the same command does that.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.kit.every_command import CALLS, DONE, call, run, sources
from tests.kit.fixtures import MakeSmallDisk

MAKES = [name for name in DONE if " TO" in CALLS[name]]
MORE = {
    "binlog-spark state delta": "binlog-spark state @store TO --table shop.t --sink delta",
    "binlog-spark state changes": "binlog-spark state @store TO --table shop.t --sink changes",
    "binlog-spark schema": "binlog-spark schema @store --seed-from-ddl TO --workers 1",
    "binlog-spark stats": "binlog-spark stats @store --plot TO.png --workers 1",
    "binlog-server events": "binlog-server events @store --local-load TO",
}
OTHERS = {"binlog-spark state delta", "binlog-server events"}
"""The first: a library of others has said more, in front. The second has made a folder, and needs no room for it."""


@pytest.fixture(scope="module")
def at(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sources(tmp_path_factory.mktemp("full_disk"))


def said_of_room(err: str, program: str, to: Path) -> None:
    line = err.splitlines()[-1]
    assert line.startswith(f"{program}: ")
    assert str(to) in line
    assert re.search("No space left on device|there is no room for a new store", line)
    assert re.search(r"give the command again; free there: |\d+ are free", line)


@pytest.mark.parametrize("left", [0, 12 << 10, 200 << 10])
@pytest.mark.parametrize("name", [*MAKES, *MORE])
def test_it_names_the_target(name: str, left: int, at: Path, small_disk: MakeSmallDisk) -> None:
    disk = small_disk(size_mb=200)
    line, to = MORE.get(name) or call(name), disk.path / "to"
    line = line.replace("TO.png", f"{to}.png")
    disk.fill(leave=left)
    ran = run(line, at, to)
    if ran.code:
        assert ran.code == 1
        assert name in OTHERS or ran.err.count("\n") == 1, ran.err
        said_of_room(ran.err, line.split()[0], to)
        assert ran.out == ""
        found = [path for path in disk.path.rglob("*") if path.is_file() and path.stat().st_size]
        mine = [path.name for path in found if "ballast" not in path.name]
        assert not mine or mine in (["_manifest.json"], ["_archive.json"]), "an empty one, sound"
    disk.empty()
    again = run(line, at, to)
    assert again.code == 0, (ran, again)
