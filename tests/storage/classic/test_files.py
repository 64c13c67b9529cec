"""One traditional binlog file: its groups, with and without the C part; its head; its end; what is none."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.format_description import FormatDescription
from binlog_protocol.events.gtid import GtidEvent
from binlog_protocol.events.header import (
    FLAG_IGNORABLE,
    TYPE_OFFSET,
    build_event,
    split_events,
)
from binlog_protocol.events.incident import IncidentEvent
from binlog_protocol.events.query import QueryEvent
from binlog_protocol.events.xid import XidEvent
from binlog_protocol.groups import group_runs
from binlog_protocol.groups.group_stream import PIECE_BYTES
from binlog_protocol.groups.vocabulary import type_name
from binlog_protocol.gtid import BinlogState, Gtid
from binlog_storage.classic.binlog import ClassicBinlog, read_head
from binlog_storage.classic.errors import DamagedBinlog, UnreadableBinlog
from binlog_storage.classic.event_reader import CLASSIC_MAGIC
from binlog_storage.classic.file_list import in_order, of_index
from binlog_storage.classic.offline_groups import classic_groups
from binlog_storage.intake.source import SourceGroup

from tests.storage.classic import binlog_files
from tests.storage.groups import Group


@pytest.fixture(params=["with C", "pure"])
def runs(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Both ways to read."""
    if request.param == "pure":
        monkeypatch.setattr(group_runs, "HAS_C", False)
    return bool(request.param == "with C")


def mixed(rng: random.Random, count: int) -> list[Group]:
    """Several domains and servers, small and large, some of them larger than what is in memory."""
    seq_nos = dict.fromkeys(range(3), 0)
    made = []
    for number in range(count):
        domain = rng.choice([0, 0, 0, 0, 1, 2])
        seq_nos[domain] += rng.choice([1, 1, 1, 5])
        gtid = Gtid(domain, rng.choice([1, 1, 1, 7]), seq_nos[domain])
        size = rng.choice([0, 30, 500, 9000, 300_000])
        if number in (count // 3, count - 1):
            size = 3 * PIECE_BYTES
        made.append(
            binlog_files.standalone(gtid)
            if rng.random() < 0.2
            else binlog_files.group(gtid, size, rng.choice([300, 8192, 2 << 20]))
        )
    return made


@pytest.mark.parametrize("checksums", [True, False])
def test_groups(tmp_path: Path, rng: random.Random, runs: bool, checksums: bool) -> None:
    wanted = mixed(rng, 60)
    path = tmp_path / "m-bin.000001"
    binlog_files.write(path, wanted, checksums=checksums)
    found, reader = binlog_files.read(path)
    assert found == wanted
    assert reader.end == reader.size == path.stat().st_size
    assert reader.unfinished is None


def test_groups_that_are_not_taken_are_passed(tmp_path: Path, rng: random.Random) -> None:
    """Of a large group nothing need be read by who asks for the next."""
    wanted = mixed(rng, 40)
    path = tmp_path / "m-bin.000001"
    binlog_files.write(path, wanted)
    found = list(classic_groups([path]))
    assert [group.gtid for group in found] == [group.gtid for group in wanted]
    # Read once more when they are asked for; that of the large ones after the file was closed.
    assert [b"".join(group.pieces()) for group in found] == [group.payload for group in wanted]


def test_a_start_of_the_server(tmp_path: Path) -> None:
    path = tmp_path / "m-bin.000001"
    binlog_files.write(path, binlog_files.simple(3), created=binlog_files.CREATED)
    found, _ = binlog_files.read(path)
    assert found[0].gtid is None
    marker = FormatDescription.parse(found[0].payload)
    assert (marker.created, marker.checksum_algorithm) == (binlog_files.CREATED, 0)
    assert found[1:] == binlog_files.simple(3)


def test_head(tmp_path: Path) -> None:
    path = tmp_path / "m-bin.000007"
    before = BinlogState([Gtid(0, 2, 5), Gtid(0, 1, 9), Gtid(4, 1, 1)])
    for checksums in (True, False):
        binlog_files.write(path, [], before=before, closed=False, checksums=checksums)
        head = read_head(path)
        assert head.state == before
        assert head.state.last(0) == Gtid(0, 1, 9)
        assert head.in_use
        assert head.description.server_version == binlog_files.VERSION
    binlog_files.write(path, [], before=before)
    assert not read_head(path).in_use


def test_the_end_of_a_file_that_was_not_closed(tmp_path: Path, runs: bool) -> None:
    path = tmp_path / "m-bin.000001"
    groups = binlog_files.simple(20)
    *_, last, end = binlog_files.write(path, groups, closed=False)
    data = path.read_bytes()
    for cut in (last + 1, last + 30, end - 1):
        path.write_bytes(data[:cut])
        found, reader = binlog_files.read(path)
        assert found == groups[:-1]
        assert reader.end == last
    assert reader.unfinished == groups[-1].gtid
    path.write_bytes(data[: end - 1] + bytes(70_000))  # the page was never written
    with pytest.raises(DamagedBinlog, match="CRC-32"):
        binlog_files.read(path)
    path.write_bytes(data + bytes(700_000))
    found, reader = binlog_files.read(path)
    assert found == groups
    assert reader.end == end


def test_damage_is_named(tmp_path: Path, runs: bool) -> None:
    path = tmp_path / "m-bin.000001"
    offsets = binlog_files.write(path, binlog_files.simple(20))
    data = path.read_bytes()
    for at, reason in (
        (offsets[9] + 25, "CRC-32"),
        (offsets[9] + 9, "CRC-32"),  # the length: smaller or larger
        (offsets[9] + 12, "no event of type 162 has"),  # of more than a gibibyte
        (offsets[9] + 11, "that says it ends at"),  # of more than the file
    ):
        broken = bytearray(data)
        broken[at] ^= 0x7F if at != offsets[9] + 9 else 0x04
        path.write_bytes(broken)
        with pytest.raises(DamagedBinlog, match=reason) as caught:
            binlog_files.read(path)
        assert (caught.value.path, caught.value.offset) == (path, offsets[9])
        assert f"{path} is damaged at offset {offsets[9]}" in str(caught.value)
    path.write_bytes(data[: offsets[9]] + bytes(40) + data[offsets[9] :])
    with pytest.raises(DamagedBinlog, match="event length 0"):
        binlog_files.read(path)
    path.write_bytes(data[: offsets[9]] + b"\xff" * 40)
    with pytest.raises(DamagedBinlog, match="bytes there: ff ff"):
        binlog_files.read(path)


def test_what_is_no_binlog_for_us(tmp_path: Path) -> None:
    path = tmp_path / "m-bin.000001"
    for data, why in (
        (b"", "it is empty"),
        (b"\x1f\x8b\x08\x00", "compressed by gzip"),
        (b"INSERT", "it begins 49 4e 53 45"),
        (CLASSIC_MAGIC, "no format description"),
    ):
        path.write_bytes(data)
        with pytest.raises(UnreadableBinlog, match=why):
            read_head(path)
    description = FormatDescription("x", 1)
    for events, why in (
        ([description.build()], "ends behind its format description"),
        (
            [description.build(), build_event(EventType.QUERY, b"", server_id=1)],
            "not written by MariaDB 10.0 or later",
        ),
        (
            [
                description.build(),
                build_event(EventType.MYSQL_PREVIOUS_GTIDS, bytes(8), server_id=1),
            ],
            "is MySQL's",
        ),
        (
            [description.build(), build_event(EventType.START_ENCRYPTION, bytes(17), server_id=1)],
            r"is encrypted.*mariadb-binlog --read-from-remote-server --raw .* m-bin.000001",
        ),
        ([FormatDescription("x", 1, flags=0x40).build()], "is a relay log"),
    ):
        path.write_bytes(CLASSIC_MAGIC + b"".join(events))
        with pytest.raises(UnreadableBinlog, match=why):
            read_head(path)
    binlog_files.write(path, binlog_files.simple(2), list_event=False)
    with pytest.raises(UnreadableBinlog, match="which GTIDs came before"):
        read_head(path)
    assert binlog_files.read(path)[0] == binlog_files.simple(2)


def test_what_a_master_has_decrypted(tmp_path: Path) -> None:
    """mariadb-binlog --raw keeps the event that tells of the encryption, with a flag."""
    path = tmp_path / "m-bin.000001"
    binlog_files.write(path, binlog_files.simple(4), checksums=False)
    data = path.read_bytes()
    size = 4 + len(FormatDescription("x", 1).build())
    event = build_event(EventType.START_ENCRYPTION, bytes(17), server_id=1, flags=FLAG_IGNORABLE)
    path.write_bytes(data[:size] + event + data[size:])
    assert read_head(path).gtids == ()
    assert binlog_files.read(path)[0] == binlog_files.simple(4)


@pytest.mark.parametrize("kind", [EventType.START_ENCRYPTION, EventType.MYSQL_PREVIOUS_GTIDS])
def test_a_flipped_type_is_damage(tmp_path: Path, kind: EventType) -> None:
    """Not a file of another kind: nobody is told to look for its key file."""
    path = tmp_path / "m-bin.000001"
    offsets = binlog_files.write(path, binlog_files.simple(3))
    whole = path.read_bytes()
    behind_description = 4 + len(next(split_events(whole[4:])))
    for at, read in ((behind_description, read_head), (offsets[1], binlog_files.read)):
        changed = bytearray(whole)
        changed[at + TYPE_OFFSET] = kind
        path.write_bytes(changed)
        with pytest.raises(DamagedBinlog, match=f"at offset {at}: .*CRC-32"):
            read(path)


def test_the_order_of_files(tmp_path: Path) -> None:
    names = ["m-bin.000010", "m-bin.000009", "m-bin.000009.idx", "m-bin.index", "m-bin.1000001"]
    found = in_order([*map(Path, names), Path("m-bin.state"), Path("m-bin.000010")])
    assert found == [Path("m-bin.000009"), Path("m-bin.000010"), Path("m-bin.1000001")]
    # The binlog was renamed: the order that was given.
    given = [Path("old-bin.000007"), Path("m-bin.000001")]
    assert in_order(given) == given
    assert in_order([Path("b"), Path("a")]) == [Path("b"), Path("a")]


def test_the_files_of_an_index(tmp_path: Path) -> None:
    index = tmp_path / "m-bin.index"
    for name in ("m-bin.000002", "m-bin.000001"):
        (tmp_path / name).write_bytes(b"")
    index.write_text("./m-bin.000002\n/var/lib/mysql/m-bin.000001\n\n")
    assert of_index(index) == [tmp_path / "m-bin.000002", tmp_path / "m-bin.000001"]
    index.write_text("./m-bin.000003\n")
    with pytest.raises(UnreadableBinlog, match=r"names \./m-bin.000003, which is not there"):
        of_index(index)
    index.write_text("\n")
    with pytest.raises(UnreadableBinlog, match="names no files"):
        of_index(index)


INCIDENT = Group(IncidentEvent("error writing to the binary log", 1, timestamp=5).build(), None)


@pytest.mark.parametrize("checksums", [True, False])
@pytest.mark.parametrize("runs", [True, False])
def test_incidents_stand_between_groups_and_are_told(
    tmp_path: Path, runs: bool, checksums: bool
) -> None:
    path = tmp_path / "m-bin.000001"
    first, second, third = binlog_files.simple(3)
    given = [INCIDENT, first, INCIDENT, second, third]
    offsets = binlog_files.write(path, given, checksums=checksums)
    assert binlog_files.read(path, runs=runs)[0] == [first, second, third]
    source = ClassicBinlog([path])
    try:
        items = list(source.items(0))
    finally:
        source.close()
    assert not [i for i in items if isinstance(i, SourceGroup) and i.gtid is None]
    assert source.notes == [
        f"{path}:{offset}: the server that wrote this has lost changes here: The incident LOST_EVENTS occurred on "
        "the master. Message: error writing to the binary log"
        for offset in (offsets[0], offsets[2])
    ]


MYSQL_55 = bytes(
    (56, 13, 0, 8, 0, 18, 0, 4, 4, 4, 4, 18, 0, 0, 84, 0, 4, 26, 8, 0, 0, 0, 8, 8, 8, 2, 0)
)


def test_mysql_before_checksums(tmp_path: Path) -> None:
    """Its format description ends with the lengths: what would be the algorithm is 8."""
    path = tmp_path / "mysql-bin.000001"
    body = b"\4\0" + b"5.5.62-log".ljust(50, b"\0") + bytes(4) + b"\x13" + MYSQL_55
    begin = build_event(EventType.FORMAT_DESCRIPTION, body, server_id=1)
    path.write_bytes(
        CLASSIC_MAGIC + begin + QueryEvent(b"BEGIN", 1).build() + XidEvent(1, 1).build()
    )
    for read in (read_head, binlog_files.read):
        with pytest.raises(UnreadableBinlog, match=r"was not written by MariaDB 10\.0 or later"):
            read(path)


@pytest.mark.parametrize("checksums", [True, False])
@pytest.mark.parametrize("type_", [1, 6, 20, 29, 30, 33, 39, 40, 41, 42, 169])
def test_what_no_mariadb_writes_is_refused_by_name(
    tmp_path: Path, type_: int, checksums: bool
) -> None:
    path = tmp_path / "m-bin.000001"
    odd = Group(build_event(type_, bytes(20), server_id=1), None)
    binlog_files.write(path, [*binlog_files.simple(2), odd], checksums=checksums)
    name = re.escape(type_name(type_))
    with pytest.raises(
        UnreadableBinlog, match=rf"{path}, offset [0-9]+: an event of type {name}, "
    ):
        binlog_files.read(path)


@pytest.mark.parametrize("type_", [43, 100, 159])
def test_a_number_that_nobody_uses_is_damage(tmp_path: Path, type_: int) -> None:
    path = tmp_path / "m-bin.000001"
    binlog_files.write(path, [Group(build_event(type_, bytes(20), server_id=1), None)])
    with pytest.raises(DamagedBinlog, match=f"no event of type {type_} has 43 bytes"):
        binlog_files.read(path)


def test_types_of_a_newer_mariadb_are_taken(tmp_path: Path) -> None:
    path = tmp_path / "m-bin.000001"
    begin, end = GtidEvent(Gtid(0, 1, 1)).build(), XidEvent(1, 1).build()
    newer = build_event(180, b"who knows", server_id=1)
    group = Group(begin + newer + end, Gtid(0, 1, 1))
    binlog_files.write(path, [group])
    assert binlog_files.read(path)[0] == [group]


def test_a_gtid_event_that_is_cut_short_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "m-bin.000001"
    body = (3).to_bytes(8, "little") + bytes(4) + b"\x02" + bytes(6)
    cut = Group(build_event(EventType.GTID, body, server_id=1) + XidEvent(1, 1).build(), None)
    *_, offset, _ = binlog_files.write(path, [*binlog_files.simple(2), cut])
    for runs in (True, False):
        with pytest.raises(DamagedBinlog, match="GTID event is cut short") as error:
            binlog_files.read(path, runs=runs)
        assert error.value.offset == offset
