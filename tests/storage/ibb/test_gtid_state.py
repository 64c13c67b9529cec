"""GTID state records: the examples of spec 4.1, and malformed bodies."""

from __future__ import annotations

import pytest
from binlog_protocol.gtid import BinlogState, Gtid
from binlog_storage.ibb import compressed_int, gtid_state
from binlog_storage.ibb.gtid_state import GtidStateRecord
from hypothesis import given
from hypothesis import strategies as st

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
    assert gtid_state.encode(entries, xa_ref) == body
    assert gtid_state.decode(body) == GtidStateRecord(entries, xa_ref)
    assert gtid_state.decode(body + b"room for more") == GtidStateRecord(entries, xa_ref)


@given(st.lists(gtids, max_size=40), st.none() | st.integers(0, 2**64 - 2))
def test_round_trip(entries: list[Gtid], xa_ref: int | None) -> None:
    body = gtid_state.encode(entries, xa_ref)
    assert gtid_state.decode(body) == GtidStateRecord(entries, xa_ref)


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


few = st.builds(Gtid, st.integers(0, 3), st.integers(1, 3), st.integers(1, 2**40))


@given(st.lists(st.lists(few, max_size=5), max_size=8), st.none() | st.integers(0, 9))
def test_a_state_that_grows(steps: list[list[Gtid]], xa_ref: int | None) -> None:
    """What was made before is taken again only where it still holds; others may have taken copies."""
    state, encoder = BinlogState(), gtid_state.StateEncoder()
    for step in steps:
        for gtid in step:
            state.update(gtid)
        state.copy().update(Gtid(0, 9, 9))
        assert encoder.encode(state, xa_ref) == gtid_state.encode(state.entries(), xa_ref)


def test_of_a_state_only_what_changed_is_encoded(monkeypatch: pytest.MonkeyPatch) -> None:
    state = BinlogState([Gtid(domain_id, 1, 5) for domain_id in range(1000)])
    encoder = gtid_state.StateEncoder()
    encoder.encode(state)
    numbers: list[int] = []
    encode = compressed_int.encode

    def noted(number: int) -> bytes:
        numbers.append(number)
        return encode(number)

    monkeypatch.setattr(compressed_int, "encode", noted)
    state.update(Gtid(7, 1, 6))
    assert encoder.encode(state)[:2] == encode(1000)
    assert numbers == [7, 1, 6, 1000, 0]
