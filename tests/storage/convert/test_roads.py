"""From one format to the other and back: the same groups, markers, states and prepared transactions."""

from __future__ import annotations

import contextlib
import random
import re
from pathlib import Path

import pytest
from binlog_protocol.events.format_description import FormatDescription
from binlog_protocol.gtid import BinlogState, Gtid
from binlog_storage.classic.event_reader import CLASSIC_MAGIC
from binlog_storage.convert.compare import compare
from binlog_storage.convert.stores import store_source
from binlog_storage.errors import NotAStore, StorageError
from binlog_storage.ibb.xa import Xid
from binlog_storage.testing.memory_disk import MemoryDisk
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.storage.classic import binlog_files
from tests.storage.convert.histories import (
    FORMATS,
    OTHER,
    History,
    Interrupted,
    opened,
    source_of,
    take,
)
from tests.storage.groups import Group, marker

DATA = Path(__file__).parent.parent / "data" / "classic"
SAMPLES = sorted(path.name for path in DATA.iterdir())


def history_of(format_: str, seed: int, steps: int) -> MemoryDisk:
    disk = MemoryDisk()
    engine = opened(format_, disk)
    History(engine, random.Random(seed)).run(steps)
    engine.close()
    return disk


def same(one: MemoryDisk, other: MemoryDisk) -> bool:
    with source_of(one) as source, source_of(other) as target:
        found = compare(source, target)
    assert (found.difference, found.missing, found.more) == ("", "", "")
    return True


@pytest.mark.parametrize("format_", FORMATS)
@given(st.integers(0, 1 << 30), st.integers(0, 40), st.integers(1, 60))
@settings(max_examples=5, phases=(Phase.explicit, Phase.reuse, Phase.generate))
def test_there_and_back(format_: str, seed: int, steps: int, kill_at: int) -> None:
    """Killed on both ways, by power too; what comes back is what there was."""
    rng = random.Random(seed)
    began = here = history_of(format_, seed, steps)
    for to in (OTHER[format_], format_):
        target = MemoryDisk()
        with source_of(here) as source:
            try:
                take(to, source, target, kill_at)
            except (Interrupted, StorageError):
                target.crash(rng)
            take(to, source, target)
            again = take(to, source, target)
            assert (again.groups, again.size) == (0, 0)
        assert same(here, target)
        here = target
    assert same(began, here)


@pytest.mark.parametrize("name", SAMPLES)
def test_binlogs_of_mariadb(name: str) -> None:
    """As real servers wrote them: to .ibb files, and back. They are left as they are."""
    before = {path: path.read_bytes() for path in (DATA / name).iterdir()}
    ibb, back = MemoryDisk(), MemoryDisk()
    with contextlib.closing(store_source(DATA / name)) as source:
        take("ibb", source, ibb)
        with source_of(ibb) as there:
            assert compare(source, there).is_same
            take("classic", there, back)
        with source_of(back) as again:
            found = compare(source, again)
    assert found.is_same
    assert not found.more
    assert found.groups > 3
    assert {path: path.read_bytes() for path in (DATA / name).iterdir()} == before


def test_differences() -> None:
    """Each is told."""
    groups = binlog_files.simple(6)

    def store(*there: Group, state: BinlogState | None = None, prepared: bytes = b"") -> MemoryDisk:
        disk = MemoryDisk()
        engine = opened("classic", disk)
        if state is not None:
            engine.reset(state)
        for group in there:
            engine.append(*group)
        if prepared:
            writer = engine.begin()
            writer.spill(prepared)
            writer.prepare(Xid(1, b"x"))
        engine.close()
        return disk

    other = binlog_files.group(Gtid(0, 1, 3), 9)
    begun = BinlogState([Gtid(0, 1, 1)])
    cases = {
        "": store(*groups, prepared=b"abc"),
        "is missing group 0-1-6": store(*groups[:5], prepared=b"abc"),
        "behind 2 groups and 0 start markers that are the same, group 0-1-3 has other bytes": store(
            *groups[:2], other, *groups[3:]
        ),
        "the source has group 0-1-2, the target a start marker": store(
            groups[0], marker(), *groups[1:]
        ),
        "the source has group 0-1-2, the target group 0-1-3": store(groups[0], *groups[2:]),
        "the source begins at '', the target at '0-1-1'": store(*groups[1:], state=begun),
        "the source has 'x', the target None": store(*groups),
        "the prepared XA transaction 'x' has other bytes": store(*groups, prepared=b"abd"),
    }
    for said, disk in cases.items():
        with source_of(cases[""]) as source, source_of(disk) as target:
            found = compare(source, target)
        assert said in (found.difference or f"is missing {found.missing}" * bool(found.missing))
        assert found.is_same == (not said)
    with source_of(store(*groups[:4])) as source, source_of(cases[""]) as target:
        found = compare(source, target)
    assert (found.is_same, found.more) == (True, "group 0-1-5")


def test_which_binlog(tmp_path: Path) -> None:
    """A relay log is none; of several an index is named; a directory has one format."""
    paths = binlog_files.write_chain(tmp_path, binlog_files.simple(3))
    index = tmp_path / "m-bin.index"
    index.write_text("./m-bin.000001\n")
    relay_log = CLASSIC_MAGIC + FormatDescription("10.11.6", 1, flags=0x40).build()
    (tmp_path / "relay.000001").write_bytes(relay_log)
    (tmp_path / "relay.index").write_text("./relay.000001\n")
    with contextlib.closing(store_source(tmp_path)) as source:
        assert source.names == (str(paths[0]), str(paths[0]))
    (tmp_path / "other.index").write_text("./m-bin.000001\n")
    with pytest.raises(NotAStore, match=re.escape("several binlogs: m-bin.index, other.index")):
        store_source(tmp_path)
    store_source(index).close()
    (tmp_path / "other.index").unlink()
    (tmp_path / "binlog-000000.ibb").write_bytes(b"")
    with pytest.raises(NotAStore, match=re.escape(".ibb files and a traditional binlog")):
        store_source(tmp_path)
    with pytest.raises(NotAStore, match=re.escape("neither .ibb files nor the index")):
        store_source(tmp_path.parent)


def test_a_source_that_was_purged_since() -> None:
    """What it has is compared; the target has more in front of it."""
    groups = [*binlog_files.simple(4), marker(1), *binlog_files.simple(4, first=5)]
    disk = MemoryDisk()
    engine = opened("classic", disk)
    for group in groups:
        engine.append(*group)
        engine.flush()
    engine.close()
    target = MemoryDisk()
    with source_of(disk) as source:
        take("ibb", source, target)
    for file in range(len(groups)):
        engine = opened("classic", disk)
        engine.purge_to(engine.files()[min(file, 1)].number)
        engine.close()
        with source_of(disk) as source, source_of(target) as there:
            found = compare(source, there)
            assert (found.difference, found.missing, found.more) == ("", "", "")
        with source_of(disk) as source, source_of(target) as there:
            assert compare(there, source).is_same == (file == 0)
    assert found.groups < 3
