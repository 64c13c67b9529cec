"""Every format vector reads as MariaDB's readers read it."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from binlog_protocol.groups.stored_group import group_gtid, is_start_marker
from binlog_protocol.gtid import Gtid
from binlog_storage.binlog.page_store import PageStore
from binlog_storage.ibb import commit, gtid_state, xa
from binlog_storage.ibb.chunk import Position, RecordType
from binlog_storage.ibb.page import PAGE_SIZE
from binlog_storage.ibb.records import RecordReader
from binlog_storage.log.log_file import read_state
from binlog_storage.testing.memory_disk import MemoryDisk

from tests.storage import vectors
from tests.storage.groups import group_payload

ALL = [pytest.param(v, id=v["name"]) for v in vectors.sets()]


@pytest.mark.parametrize("vector", ALL)
def test_groups_and_stream(vector: dict[str, Any]) -> None:
    outcome = vectors.walk(vectors.unpack(vector))
    assert outcome.error is None
    expected = vectors.groups_of(vector)
    assert [(*g.place, len(g.payload), vectors.sha(g.payload)[:32]) for g in outcome.groups] == [
        (e.file_no, e.offset, e.size, e.sha) for e in expected
    ]
    stream = hashlib.sha256()
    for group in outcome.groups:
        stream.update(group.payload)
    assert sum(len(g.payload) for g in outcome.groups) == vector["stream"]["bytes"]
    assert stream.hexdigest() == vector["stream"]["sha256"]


@pytest.mark.parametrize("vector", ALL)
def test_gtids_and_node_counts(vector: dict[str, Any]) -> None:
    pages = PageStore(vectors.unpack(vector), 64)
    for expected in vectors.groups_of(vector):
        place = Position(expected.file_no, expected.offset)
        record = RecordReader(pages, place).next()
        assert record is not None
        assert record.type == RecordType.COMMIT
        payload = group_payload(pages, record)
        gtid = group_gtid(payload)
        assert (None if gtid is None else str(gtid)) == expected.gtid
        assert is_start_marker(payload) == (expected.gtid is None)
        if vector["name"] != "tol_wrong_n_first":  # there the count on disk is what is wrong
            lists = commit.decode(record.data).lists
            assert [entry.nodes for entry in lists] == expected.nodes


@pytest.mark.parametrize(
    "vector", [pytest.param(v, id=v["name"]) for v in vectors.sets() if "states" in v]
)
def test_states(vector: dict[str, Any]) -> None:
    pages = PageStore(vectors.unpack(vector), 64)
    for file_no, page_no, xa_ref, count, expected in vector["states"]:
        entries = read_state(pages, file_no, page_no)
        assert entries is not None
        assert len(entries) == count
        texts = [str(gtid) for gtid in entries]
        if isinstance(expected, str):
            assert vectors.sha(",".join(texts).encode()) == expected
        else:
            assert texts == expected
        record = RecordReader(pages, Position(file_no, page_no * PAGE_SIZE)).next()
        assert record is not None
        assert gtid_state.decode(record.data).xa_ref == xa_ref


@pytest.mark.parametrize("vector", ALL)
def test_headers(vector: dict[str, Any]) -> None:
    disk = vectors.unpack(vector)
    pages = PageStore(disk, 64)
    for entry in vector["files"]:
        if entry["name"] in vector["preallocated"]:
            assert not pages.has_data(int(entry["name"][7:-4]))
            continue
        wanted = entry["header"]
        header = pages.header(wanted["file_no"])
        assert header is not None
        assert header.pages == wanted["pages"]
        assert header.start_lsn == wanted["start_lsn"]
        assert header.state_interval_pages == wanted["interval"]
        assert header.oob_ref == wanted["oob_ref"]
        assert header.xa_ref == wanted["xa_ref"]
        assert header.build() == vectors.file_bytes(disk, entry["name"])[:PAGE_SIZE]


def test_container_vector() -> None:
    """The vector whose payloads are no events."""
    disk = MemoryDisk()
    data = (vectors.DATA / "ibb-vector-000000.ibb").read_bytes()
    assert vectors.sha(data) == "4c2c404d12693eeecdf4732875b3eef5bb3d533482f9766044d3c0f6ca1dd7b6"
    vectors.write_file(disk, "binlog-000000.ibb", data)
    outcome = vectors.walk(disk)
    assert outcome.error is None
    first, second, third, fourth = outcome.groups
    assert first == (Position(0, 16389), bytes(i & 255 for i in range(20000)))
    assert second == (Position(0, 36449), b"GTID-B" + b"one" + b"two" + b"three")
    assert third.place == Position(0, 36468)
    assert len(third.payload) == 12674
    assert fourth == (Position(0, 49152), b"dddd")
    pages = PageStore(disk, 64)
    assert read_state(pages, 0, 1) == []
    assert read_state(pages, 0, 2) == [Gtid(0, 1, 1)]
    assert read_state(pages, 0, 3) is None


@pytest.mark.parametrize("vector", ALL)
def test_xa_records(vector: dict[str, Any]) -> None:
    """Exactly those of the manifest; and each encodes to the bytes it was read from."""
    first = int(vector["files"][0]["name"][7:-4])
    pages = PageStore(vectors.unpack(vector), 64)
    reader = RecordReader(pages, Position(first, PAGE_SIZE), skip_partial=True)
    found = []
    while (record := reader.next()) is not None:
        entry: dict[str, Any] = {"file": record.start.file_no, "offset": record.start.offset}
        if record.type == RecordType.XA_PREPARE:
            prepare = xa.decode_prepare(record.data)
            assert prepare.oob is not None
            assert xa.encode_prepare(prepare) == record.data
            nodes, head, last = prepare.oob
            entry |= {"kind": "prepare", "engines": prepare.engines, "n": nodes}
            entry |= {"first": list(head), "last": list(last)}
            xid = prepare.xid
        elif record.type == RecordType.XA_COMPLETE:
            complete = xa.decode_complete(record.data)
            assert xa.encode_complete(complete) == record.data
            entry["kind"] = "rollback" if complete.rolled_back else "commit"
            xid = complete.xid
        else:
            continue
        entry |= {"formatID": xid.format_id, "gtrid": xid.gtrid.decode()}
        found.append(entry | {"bqual": xid.bqual.decode()})
    assert found == vector.get("xa", [])
