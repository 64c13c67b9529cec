"""A failover to a server that never got the last groups of the old one: nobody goes on with its history by numbers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from binlog_pipeline.belonging import has_passed, require_had
from binlog_pipeline.cli import main
from binlog_pipeline.errors import DataLost
from binlog_pipeline.sources.archive import ArchiveSource
from binlog_pipeline.sources.directory import DirectorySource
from binlog_pipeline.sources.opening import require_end
from binlog_pipeline.sources.source import LogSource
from binlog_pipeline.wanted import Wanted
from binlog_protocol.gtid import BinlogState, Gtid, SlavePosition
from binlog_storage.log.publication import PUBLICATION_NAME
from binlog_storage.log.ranges import GtidRange
from binlog_storage.redo.format import REDO_NAME

from tests.kit.fixtures import MakeMariaDB
from tests.pipeline.archives import run
from tests.pipeline.stores import failed_over, make_store
from tests.storage.groups import group

LOST = SlavePosition.parse("0-1-10")
"""The last group of the old server, of which the new one has the first eight."""


def store(folder: Path, ends: Sequence[tuple[int, int]]) -> Path:
    """One whose domain 0 has groups of these servers, up to these numbers."""
    groups, number = [], 0
    for server, last in ends:
        while number < last:
            number += 1
            groups.append(group(Gtid(0, server, number)))
    return make_store(folder, groups)


@pytest.fixture(params=["directory", "a MariaDB's directory", "archive"])
def new(request: pytest.FixtureRequest, tmp_path: Path) -> LogSource:
    """The new server, which has given the numbers 9 and 10, too."""
    source = DirectorySource(str(store(tmp_path / "new", [(1, 8), (2, 12)])))
    if request.param == "archive":
        run(source, tmp_path / "archive")
        return ArchiveSource(str(tmp_path / "archive"))
    if request.param != "directory":
        for name in (REDO_NAME, PUBLICATION_NAME):  # what a MariaDB does not have
            (tmp_path / "new" / name).unlink()
    return source


def test_another_history_is_not_gone_on_with(new: LogSource) -> None:
    with pytest.raises(
        DataLost, match=r"0-1-10 was read before, .* has another history, as behind a failover"
    ):
        new.slices(Wanted(GtidRange(LOST)), 1 << 20)
    with pytest.raises(DataLost, match="another history"):
        new.has_passed(LOST)
    feed = new.feed()
    with pytest.raises(DataLost, match="another history"):
        list(feed.after(LOST, 0))
    feed.close()


@pytest.mark.parametrize("kind", ["directory", "archive"])
def test_the_old_server_has_written_again(kind: str, tmp_path: Path) -> None:
    """Its last number in the binlog state is a later one then."""
    source: LogSource = DirectorySource(str(store(tmp_path / "new", [(1, 8), (2, 12), (1, 20)])))
    if kind == "archive":
        run(source, tmp_path / "archive", partition_bytes=1)
        source = ArchiveSource(str(tmp_path / "archive"))
    with pytest.raises(DataLost, match="another history"):
        source.has_passed(LOST)
    for position in ("0-1-8", "0-2-9", "0-2-12", "0-1-13", "0-1-20"):
        assert source.has_passed(SlavePosition.parse(position))


def test_a_range_ends_in_the_same_history(new: LogSource) -> None:
    with pytest.raises(DataLost, match="another --topic-prefix"):
        require_end(new, LOST)
    for end in ("0-2-10", "0-1-8,5-5-5", "5-5-5", "0-1-13", ""):
        require_end(new, SlavePosition.parse(end))
    require_end(new, None)


def test_the_same_history_is(new: LogSource) -> None:
    both = SlavePosition.parse("0-1-8")
    assert new.has_passed(both)
    found: list[Gtid] = []
    for part in new.slices(Wanted(GtidRange(both)), 1 << 20):
        for groups in part.read():
            found += map(groups.gtid, range(len(groups)))
    assert [gtid.seq_no for gtid in found] == [9, 10, 11, 12]
    assert not new.has_passed(SlavePosition.parse("0-1-13"))
    with pytest.raises(DataLost, match="it is another one, is behind"):
        new.slices(Wanted(GtidRange(SlavePosition.parse("0-1-13"))), 1 << 20)


STATE = BinlogState.parse("0-1-500,0-2-900,3-7-10")


@pytest.mark.parametrize("position", ["", "0-1-500", "0-2-3,3-7-1", "0-2-900,5-5-5"])
def test_positions_of_a_history(position: str) -> None:
    """A domain that is not in it may have been deleted there."""
    assert has_passed("s", "store", SlavePosition.parse(position), STATE)


@pytest.mark.parametrize(
    ("position", "said"),
    [
        ("5-5-5", "is behind"),
        ("0-2-901", "is behind"),
        ("0-1-501", "has another history"),
        ("0-3-1", "has another history"),
        ("3-7-11,0-1-501", "has another history"),
    ],
)
def test_positions_of_no_history(position: str, said: str) -> None:
    with pytest.raises(DataLost, match=said):
        require_had("s", "store", SlavePosition.parse(position), STATE)


@pytest.mark.parametrize("kind", ["directory", "archive"])
def test_jobs_behind_a_failover(
    kind: str, make_upstream: MakeMariaDB, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The old server's last row was never on the new one, which has another row under that number."""
    stores = failed_over(tmp_path, make_upstream)
    if kind == "archive":
        for number, made in enumerate(stores):
            stores[number] = made.with_name(f"{made.name}-archive")
            run(DirectorySource(str(made)), stores[number])
    state = ["--table", "d.t"]
    export = ["--tables", "d.*"]
    for command, more in (("state", state), ("export", export)):
        target = str(tmp_path / command)
        assert main([command, str(stores[0]), target, *more]) == 0
        capsys.readouterr()
        assert main(["stats", str(stores[1]), "--end-gtid", "0-1-4"]) == 1
        assert "has another history, as behind a failover" in capsys.readouterr().err
        for dry in ([], ["--dry-run"]):
            assert main([command, str(stores[1]), target, *more, *dry]) == 1
            assert "has another history, as behind a failover" in capsys.readouterr().err
