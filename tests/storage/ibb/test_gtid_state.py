"""GTID state records: the examples of spec 4.1, and malformed bodies."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from binlog_protocol.gtid import BinlogState, Gtid
from binlog_protocol.limits import STATE_ENTRIES_MAX
from binlog_storage.ibb import gtid_state
from binlog_storage.ibb.gtid_state import GtidStateRecord
from hypothesis import example, given
from hypothesis import strategies as st

HAS_C = gtid_state.entries_encoded is not gtid_state.entries_encoded_plainly
EXAMPLES = [
    ([], None, "00 00"),
    ([Gtid(0, 1, 100), Gtid(1, 3, 7)], None, "10 00 00 08 21 03 08 18 38"),
    ([Gtid(0, 1, 100)], 5, "08 30 00 08 21 03"),
    (
        [Gtid(0, 1, 1000), Gtid(1, 4294967295, 70000)],
        None,
        "10 00 00 08 41 1f 08 fc ff ff ff 07 82 8b 08",
    ),
]

gtids = st.builds(
    Gtid, st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)
)


@pytest.mark.parametrize(("entries", "xa_ref", "text"), EXAMPLES)
def test_examples(entries: list[Gtid], xa_ref: int | None, text: str) -> None:
    body = bytes.fromhex(text)
    assert gtid_state.encode(BinlogState(entries), xa_ref) == body
    assert gtid_state.decode(body) == GtidStateRecord(entries, xa_ref)
    assert gtid_state.decode(body + b"room for more") == GtidStateRecord(entries, xa_ref)


@given(st.lists(gtids, max_size=40), st.none() | st.integers(0, 2**64 - 2))
def test_round_trip(entries: list[Gtid], xa_ref: int | None) -> None:
    state = BinlogState(entries)
    body = gtid_state.encode(state, xa_ref)
    assert gtid_state.decode(body) == GtidStateRecord(state.entries(), xa_ref)


@pytest.mark.parametrize("size", range(9))
def test_every_cut_is_short(size: int) -> None:
    body = bytes.fromhex("10 00 00 08 21 03 08 18 38")
    with pytest.raises(ValueError, match="Short chunk"):
        gtid_state.decode(body[:size])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("07 00 00 00 00 00 00 00 01 00", "counts .* entries in 10 bytes"),
        ("08 00 04 00 00 00 08 08 08", "impossible GTID 4294967296-1-1"),
        ("08 00 08 04 00 00 00 08 08", "impossible GTID 1-4294967296-1"),
    ],
)
def test_malformed(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        gtid_state.decode(bytes.fromhex(text))


@given(st.binary(max_size=60))
def test_any_bytes(data: bytes) -> None:
    try:
        record = gtid_state.decode(data)
    except ValueError:
        return
    assert len(record.entries) <= len(data)


@pytest.mark.skipif(not HAS_C, reason="the C part is not built")
@given(st.lists(gtids, max_size=40))
@example([Gtid(0, 1, 1 << bits) for bits in range(64)])
@example([Gtid(0, number, (1 << bits) - 1) for number, bits in enumerate(range(1, 65))])
def test_in_c_and_in_python(entries: list[Gtid]) -> None:
    seq_nos = BinlogState(entries).seq_nos
    assert gtid_state.entries_encoded(seq_nos) == gtid_state.entries_encoded_plainly(seq_nos)


@pytest.mark.skipif(not HAS_C, reason="the C part is not built")
@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ([], TypeError),
        ({1: []}, TypeError),
        ({1: {1: -1}}, OverflowError),
        ({1: {"1": 1}}, TypeError),
    ],
)
def test_what_is_no_state(wrong: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        gtid_state.entries_encoded(wrong)


@pytest.mark.skipif(not HAS_C, reason="the C part is not built")
def test_a_large_state_is_encoded_in_a_moment() -> None:
    """On the thread that appends, which may be the event loop's."""
    state = BinlogState(Gtid(number, 1, 5) for number in range(STATE_ENTRIES_MAX))

    def taken(by: Callable[[], object]) -> float:
        began = time.thread_time()
        by()
        return time.thread_time() - began

    # 1.5 and 29 ms on a machine of 2026 that does nothing else.
    both = [
        (
            taken(lambda: gtid_state.encode(state)),
            taken(lambda: gtid_state.entries_encoded_plainly(state.seq_nos)),
        )
        for _ in range(8)
    ]
    quick, plain = map(min, zip(*both, strict=True))
    assert 6 * quick <= plain
