"""A file that is cut anywhere gives a beginning of its groups; one with wrong bytes never gives a wrong group."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from binlog_protocol.errors import ProtocolError
from binlog_protocol.events.header import split_events
from binlog_storage.classic.binlog import read_head
from binlog_storage.classic.errors import DamagedBinlog, UnreadableBinlog
from binlog_storage.classic.event_reader import CLASSIC_MAGIC
from binlog_storage.errors import StorageError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.storage.classic import binlog_files
from tests.storage.groups import Group

GROUPS = binlog_files.simple(7)
CHANGES = settings(
    max_examples=120,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.mark.by_turns(2)
@pytest.mark.parametrize("checksums", [True, False])
@pytest.mark.parametrize("closed", [True, False])
def test_cut_at_each_byte(tmp_path: Path, checksums: bool, closed: bool) -> None:
    path = tmp_path / "m-bin.000001"
    offsets = binlog_files.write(path, GROUPS, checksums=checksums, closed=closed)
    data = path.read_bytes()
    for size in range(len(data) + 1):
        path.write_bytes(data[:size])
        whole = sum(end <= size for end in offsets[1:])
        if size < 4:
            with pytest.raises(UnreadableBinlog):
                binlog_files.read(path)
            continue
        for runs in (True, False):
            found, reader = binlog_files.read(path, runs=runs)
            assert found == GROUPS[:whole], size
            assert reader.size == size
            assert reader.end <= size
        if size < offsets[0]:
            try:
                head = read_head(path)
            except UnreadableBinlog:
                continue
            assert head.gtids == ()


@CHANGES
@given(data=st.data())
def test_changed_bytes(tmp_path: Path, data: st.DataObject) -> None:
    """With checksums: every group that is given is one of the file, by either way to read it.

    Where whole events were moved no checksum tells, so events of the file may then be grouped otherwise.
    """
    path = tmp_path / "m-bin.000001"
    offsets = binlog_files.write(path, GROUPS)
    broken = bytearray(path.read_bytes())
    written = list(_events(bytes(broken)))  # no two are equal: each has its position
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(offsets[0], len(broken) - 1))
        match data.draw(st.sampled_from(["change", "drop", "double"])):
            case "change":
                broken[at] ^= data.draw(st.integers(1, 255))
            case "drop":
                del broken[at : at + data.draw(st.integers(1, 200))]
            case "double":
                broken[at:at] = broken[at : at + data.draw(st.integers(1, 200))]
    left = list(itertools.takewhile(written.__contains__, _events(bytes(broken))))
    was_moved = left != written[: len(left)]
    path.write_bytes(broken)
    outcomes = [_outcome(path, runs=runs) for runs in (True, False)]
    assert outcomes[0] == outcomes[1]
    if isinstance(outcomes[0], int):
        assert 0 <= outcomes[0] <= len(broken)
    elif was_moved:
        assert _events_of(outcomes[0]) <= _events_of(GROUPS)
    else:
        assert all(group in GROUPS for group in outcomes[0])


def _events(data: bytes) -> Iterator[bytes]:
    """What stands behind the magic, event by event, up to where a length is impossible."""
    with contextlib.suppress(ProtocolError):
        yield from split_events(data[len(CLASSIC_MAGIC) :])


def _events_of(groups: list[Group]) -> set[bytes]:
    return {event for group in groups for event in split_events(group.payload)}


def _outcome(path: Path, *, runs: bool) -> list[Group] | int:
    """The groups, or the offset of the damage."""
    try:
        return binlog_files.read(path, runs=runs)[0]
    except DamagedBinlog as error:
        return error.offset


@CHANGES
@given(noise=st.binary(max_size=300), at=st.integers(0, 400))
def test_noise(tmp_path: Path, noise: bytes, at: int) -> None:
    """Whatever it is: read, or refused by an error of ours."""
    path = tmp_path / "m-bin.000001"
    binlog_files.write(path, GROUPS[:3], checksums=False)
    data = path.read_bytes()
    path.write_bytes(data[:at] + noise + data[at + len(noise) :])
    for read in (binlog_files.read, read_head):
        assert str(path) in _said(read, path)


def _said(read: Callable[[Path], object], path: Path) -> str:
    try:
        read(path)
    except StorageError as error:
        return str(error)
    return str(path)
