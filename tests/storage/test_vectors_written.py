"""The files of the vectors, written again: the same sequence of records must give the same bytes.

The independent writer of the vectors had the same specification. What a record implies is done here as the engine does
it: an open group holds the file of its first node until it ends, a prepared transaction until it is completed, a DUMMY
record is a FLUSH. Header fields 48 and 56 and the XA field of state records must come out by themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from binlog_protocol.groups.stored_group import group_gtid
from binlog_storage.binlog.options import StoreOptions
from binlog_storage.binlog.page_store import PageStore
from binlog_storage.binlog.prepared import PreparedTransactions
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.engine.references import Pin, Reason
from binlog_storage.ibb import commit, oob, xa
from binlog_storage.ibb.chunk import Position, Record, RecordType
from binlog_storage.ibb.file_header import FileHeader
from binlog_storage.ibb.page import PAGE_SIZE
from binlog_storage.ibb.records import RecordReader
from binlog_storage.log.group_reader import group_head
from binlog_storage.log.log_file import read_state
from binlog_storage.testing.memory_disk import MemoryDisk

from tests.storage import vectors
from tests.storage.groups import gtid_of
from tests.storage.writing import NoRedo, Writing

AGAIN = [v for v in vectors.sets() if not v["read_tolerance_only"]]
# Groups without out-of-band data, but between them nodes that nobody refers to: not made by appending groups.
WITH_GARBAGE = {"file_ends", "last_0", "last_1", "last_2", "last_3", "last_4", "corrupt_base"}
WITH_FLUSH = {"flush", "restarts"}
PLAIN = [
    v
    for v in AGAIN
    if v["name"] not in WITH_GARBAGE | WITH_FLUSH
    and v["start_state"] == []
    and not any(g.nodes for g in vectors.groups_of(v))
]


def start_lsns(vector: dict[str, Any]) -> dict[int, int]:
    """Where each file of the set begins in the redo log is given, as the sizes are."""
    return {
        e["header"]["file_no"]: e["header"]["start_lsn"] for e in vector["files"] if e["header"]
    }


class GivenLsns(NoRedo):
    """A redo log whose LSN is what the file that was entered last is to begin with."""

    def __init__(self, lsns: dict[int, int], file_no: Callable[[], int]) -> None:
        self._lsns = lsns
        self._file_no = file_no

    @property
    def lsn(self) -> int:
        return self._lsns.get(self._file_no(), 0)


def compare(disk: MemoryDisk, vector: dict[str, Any]) -> None:
    reference = vectors.unpack(vector)
    for entry in vector["files"]:
        if entry["header"] is None:
            continue
        ours = vectors.file_bytes(disk, entry["name"])
        theirs = vectors.file_bytes(reference, entry["name"])
        if ours != theirs:
            at = next(i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b)
            raise AssertionError(
                f"{entry['name']} differs at page {at // PAGE_SIZE}, byte {at % PAGE_SIZE}: "
                f"ours {ours[at : at + 16].hex(' ')}, theirs {theirs[at : at + 16].hex(' ')}"
            )


class AnySize(StoreOptions):
    """Of any sizes: an interval of one page, too, which no server may be given."""

    def __post_init__(self) -> None:
        pass


def options_of(vector: dict[str, Any]) -> StoreOptions:
    return AnySize(vector["pages"] * PAGE_SIZE, vector["interval"] * PAGE_SIZE)


@pytest.mark.parametrize("vector", [pytest.param(v, id=v["name"]) for v in PLAIN])
def test_engine_writes_the_same_files(
    vector: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    lsns = start_lsns(vector)
    monkeypatch.setattr(
        "binlog_storage.binlog.log_writer.FileHeader",
        lambda **fields: FileHeader(**{**fields, "start_lsn": lsns.get(fields["file_no"], 0)}),
    )
    disk = MemoryDisk()
    engine = IbbEngine(disk, options_of(vector))
    for number, (_, payload) in enumerate(vectors.walk(vectors.unpack(vector)).groups):
        with engine._append_lock:
            engine._appender.admit(len(payload))
            engine._writer.write(RecordType.COMMIT, commit.encode(payload), gtid_of(payload))
            engine._appender.ended(committed=True)
        if number % 7 == 0:
            engine.sync()
    engine.close()
    compare(disk, vector)


def records_of(pages: PageStore, first: int) -> Iterator[Record]:
    reader = RecordReader(pages, Position(first, PAGE_SIZE))
    while (record := reader.next()) is not None:
        yield record


def groups_ended_by(record: Record) -> list[Position]:
    """The first nodes of the out-of-band lists that end with this record."""
    if record.type == RecordType.COMMIT:
        return [entry.first for entry in commit.decode(record.data).lists]
    if record.type == RecordType.XA_PREPARE:
        prepare = xa.decode_prepare(record.data)
        return [] if prepare.oob is None else [prepare.oob.first]
    return []


class Replay:
    """Does to a `LogWriter` what an engine would have done to write these records."""

    def __init__(self, vector: dict[str, Any]) -> None:
        self.writing = Writing(
            options_of(vector), GivenLsns(start_lsns(vector), lambda: self.writing.writer.file_no)
        )
        self._pages = PageStore(vectors.unpack(vector), 64)
        self._first = int(vector["files"][0]["name"][7:-4])
        self._records = list(records_of(self._pages, self._first))
        self._prepared = PreparedTransactions(self.writing.references)
        self._completing: Record | None = None
        self._open: dict[Position, Pin] = {}
        self._left_open: Pin | None = None
        self._finished = {p for record in self._records for p in groups_ended_by(record)}

    def run(self) -> None:
        writer = self.writing.writer
        writer.state.overlay(read_state(self._pages, self._first, 1) or [])
        writer.start_new(self._first)
        for record in self._records:
            if record.type == RecordType.DUMMY:
                while writer.end.file_no <= record.start.file_no:
                    writer.flush()  # twice, when the first one met a file that was just full
            elif record.type != RecordType.GTID_STATE:
                self._write(record)
        self.writing.flush()

    def _write(self, record: Record) -> None:
        self._before(record)
        is_commit = record.type == RecordType.COMMIT
        gtid = group_gtid(group_head(self._pages, record)) if is_commit else None
        kind = RecordType(record.type)
        assert self.writing.writer.write(kind, record.data, gtid) == record.start
        self._after(record)

    def _before(self, record: Record) -> None:
        if record.type == RecordType.OOB_DATA and oob.decode(record.data).number == 0:
            file_no = self.writing.writer.end.file_no
            if record.start in self._finished or self._left_open is None:
                hold = self.writing.references.hold(Reason.ACTIVE_TRANSACTION, "", file_no)
                if record.start in self._finished:
                    self._open[record.start] = hold
                else:
                    self._left_open = hold
        if record.type == RecordType.XA_PREPARE:
            self._prepared.replay(record)
        # Nothing says when a group was rolled back: as long as the next header is still to tell of it.
        header = self._pages.header(self.writing.writer.end.file_no + 1)
        if self._left_open and (header is None or header.oob_ref > self._left_open.file_no):
            self._left_open.release()
            self._left_open = None

    def _after(self, record: Record) -> None:
        if record.type == RecordType.XA_COMPLETE:
            if xa.decode_complete(record.data).rolled_back:
                self._prepared.replay(record)
            else:
                self._completing = record  # until its commit record is there
        if record.type == RecordType.COMMIT and self._completing is not None:
            self._prepared.replay(self._completing)
            self._completing = None
        for first in groups_ended_by(record):
            if first in self._open:  # a prepared one has ended already
                self._open.pop(first).release()


@pytest.mark.parametrize("vector", [pytest.param(v, id=v["name"]) for v in AGAIN])
def test_writer_writes_the_same_files(vector: dict[str, Any]) -> None:
    """Record by record, from the state that the set begins with."""
    replay = Replay(vector)
    replay.run()
    compare(replay.writing.disk, vector)


def test_all_sets_are_written() -> None:
    assert len(AGAIN) == len(vectors.sets()) - 9
