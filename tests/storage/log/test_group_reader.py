"""Groups from their commit records."""

from __future__ import annotations

import pytest
from binlog_storage.errors import CorruptBinlog
from binlog_storage.ibb.chunk import Position, Record, RecordType
from binlog_storage.log.group_reader import began_in, group_head, payload_up_to

from tests.storage.plain_pages import PlainPages

PAYLOAD = bytes(range(100, 160))


def commit_record(body: bytes) -> Record:
    return Record(RecordType.COMMIT, Position(0, 16384), Position(0, 17000), body)


@pytest.mark.parametrize("length", [1, 2, 3, 7, 9])
def test_no_list_in_any_form(length: int) -> None:
    """Writers use the shortest form of the number, readers take any."""
    record = commit_record(bytes([min(length - 1, 7)]).ljust(length, b"\0") + PAYLOAD)
    pages = PlainPages({})
    assert began_in(record) is None
    assert payload_up_to(pages, record, 1000) == PAYLOAD
    assert payload_up_to(pages, record, 10) is None
    assert group_head(pages, record) == PAYLOAD


def test_lists_that_are_cut_off() -> None:
    with pytest.raises(CorruptBinlog):
        began_in(commit_record(b"\x08\x08"))
