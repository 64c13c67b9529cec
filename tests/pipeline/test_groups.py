"""Groups of a store as arrays: the same places and GTIDs that a dump tells, and the start markers among them."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
from binlog_pipeline.groups import Groups
from binlog_pipeline.sources.directory import DirectorySource
from binlog_pipeline.sources.source import MarkedSlice
from binlog_pipeline.wanted import Wanted
from binlog_protocol.groups.stored_group import group_gtid
from binlog_protocol.gtid import SlavePosition
from binlog_storage.binlog.options import StoreOptions
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.disk.disk import OsDisk
from binlog_storage.log.ranges import GtidRange

from tests.pipeline.stores import make_store
from tests.storage.groups import beginning, history, marker, simple

_SMALL_FILES = StoreOptions(max_binlog_size=1 << 20)


def test_groups_have_the_places_that_a_dump_tells(tmp_path: Path) -> None:
    made = history(random.Random(7), 400, size_max=60_000)
    make_store(tmp_path / "store", made, _SMALL_FILES)
    engine = IbbEngine(OsDisk(tmp_path / "store"), _SMALL_FILES)
    try:
        placed = []
        at = beginning(engine)
        while (batch := engine.read_placed(at)).end != at:
            placed += [group for group in batch.groups if group_gtid(group.payload) is not None]
            at = batch.end
    finally:
        engine.close()

    found = [
        (groups.payloads[i], groups.place(i), groups.gtid(i))
        for part in DirectorySource(str(tmp_path / "store")).slices(Wanted(), 1 << 18)
        for groups in part.read()
        for i in range(len(groups))
    ]
    assert found == [(payload, end, group_gtid(payload)) for payload, end in placed]
    assert len(found) == sum(gtid is not None for _, gtid in made)


def test_markers_are_given_to_who_keeps_them_each_at_its_place(tmp_path: Path) -> None:
    groups = simple(6)
    made = [*groups[:2], marker(1), *groups[2:4], marker(2), marker(3), *groups[4:], marker(4)]
    make_store(tmp_path / "store", made)
    (part,) = DirectorySource(str(tmp_path / "store")).slices(Wanted(), 1 << 20)
    assert isinstance(part, MarkedSlice)

    found = []
    for some in part.read_marked():
        markers = dict.fromkeys(range(len(some) + 1), b"")
        for i, payload in some.markers:
            markers[i] += payload
        for i, payload in enumerate(some.payloads):
            found += [markers[i], payload]
        found.append(markers[len(some)])
    assert b"".join(found) == b"".join(payload for payload, _ in made)
    assert sum(map(len, part.read())) == 6


def test_of_some_groups_the_markers_in_front_are_kept() -> None:
    made = simple(4)
    payloads = [payload for payload, _ in made]
    markers = [(1, b"before 1"), (2, b"before 2"), (4, b"behind")]
    groups = Groups(payloads, np.arange(4), np.arange(4), None, markers)
    kept = groups.some(np.array([False, False, True, True]))
    assert list(kept.markers) == [(0, b"before 2"), (2, b"behind")]
    assert [kept.gtid(i).seq_no for i in range(2)] == [3, 4]


def test_markers_in_front_of_what_is_not_wanted_are_left_out(tmp_path: Path) -> None:
    groups = simple(4)
    make_store(tmp_path / "store", [groups[0], marker(1), *groups[1:3], marker(2), groups[3]])
    wanted = Wanted(GtidRange(start=SlavePosition([groups[2].gtid] if groups[2].gtid else [])))
    (part,) = DirectorySource(str(tmp_path / "store")).slices(wanted, 1 << 20)
    (found,) = part.read_marked()
    assert [payload for _, payload in found.markers] == [marker(2).payload]
    assert list(found.payloads) == [groups[3].payload]
