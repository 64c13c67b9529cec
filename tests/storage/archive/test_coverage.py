"""Which files an archive has, all of each."""

from __future__ import annotations

import pytest
from binlog_protocol.gtid import BinlogState
from binlog_storage.archive.coverage import first_missing, is_within

# In front of files 3 to 7; the last is being written.
STATES = {3: "", 4: "0-1-10", 5: "0-1-20,1-1-5", 6: "0-1-20,0-2-25,1-1-5", 7: "0-1-20,0-2-25,1-1-9"}


def test_within() -> None:
    def within(state: str, other: str) -> bool:
        return is_within(BinlogState.parse(state), BinlogState.parse(other))

    assert within("", "")
    assert within("", "0-1-1")
    assert within("0-1-10", "0-1-10")
    assert within("0-1-10,1-1-1", "1-1-1,0-2-30,0-1-11")
    assert not within("0-1-10", "")
    assert not within("0-1-10", "0-1-9")
    # Numbers of different servers are never compared.
    assert not within("0-1-10", "0-2-30")


@pytest.mark.parametrize(
    ("begin", "end", "first"),
    [
        ("", "", 3),
        ("", "0-1-9", 3),
        ("", "0-1-10", 4),
        ("", "0-1-20", 4),
        ("", "0-1-20,1-1-5", 5),
        ("", "0-1-20,0-2-25,1-1-5", 6),
        ("", "0-1-20,0-2-25,1-1-9", 7),
        ("", "0-1-20,0-2-90,1-1-90", 7),
        # It begins behind the oldest file: what that has is not archived.
        ("0-1-3", "0-1-20,0-2-90,1-1-90", 3),
    ],
)
def test_the_first_file_that_is_missing(begin: str, end: str, first: int) -> None:
    found = first_missing(
        BinlogState.parse(begin),
        BinlogState.parse(end),
        sorted(STATES),
        lambda file_no: BinlogState.parse(STATES[file_no]),
    )
    assert found == first


def test_an_archive_may_begin_before_the_store() -> None:
    end = BinlogState.parse("0-1-20,0-2-25,1-1-9")
    found = first_missing(
        BinlogState(), end, [5, 6, 7], lambda file_no: BinlogState.parse(STATES[file_no])
    )
    assert found == 7


def test_one_file() -> None:
    assert first_missing(BinlogState(), BinlogState(), [0], lambda _: BinlogState()) == 0
