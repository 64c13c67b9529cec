from __future__ import annotations

import pytest
from binlog_protocol.errors import AccessDenied, ProtocolError, UnknownServerError
from binlog_protocol.wire.results import (
    Column,
    Eof,
    Ok,
    eof_payload,
    error_payload,
    is_eof,
    ok_payload,
    parse_column_count,
    parse_eof,
    parse_error,
    parse_ok,
    parse_row,
    result_set_payloads,
    row_payload,
)
from hypothesis import given
from hypothesis import strategies as st


def test_payloads_of_a_real_server() -> None:
    assert ok_payload().hex() == "00000002000000"
    assert eof_payload().hex() == "fe00000200"
    denied = AccessDenied("repl", "127.0.0.1", "YES")
    assert error_payload(denied)[:9].hex() == "ff1504233238303030"
    # SHOW VARIABLES LIKE 'SERVER_ID' of 10.11.
    column = Column(
        "Variable_name",
        charset=8,
        length=64,
        flags=0x1001,
        table="SESSION_VARIABLES",
        original_table="SESSION_VARIABLES",
        original_name="VARIABLE_NAME",
        schema="information_schema",
    )
    expected = (
        "0364656612696e666f726d6174696f6e5f736368656d611153455353494f4e5f5641524941424c4553"
        "1153455353494f4e5f5641524941424c45530d5661726961626c655f6e616d650d5641524941424c45"
        "5f4e414d450c080040000000fd0110000000"
    )
    assert column.build().hex() == expected
    assert Column.parse(column.build()) == column


@pytest.mark.parametrize(
    ("column", "kind"),
    [(Column.text("a"), 253), (Column.bigint("a"), 8), (Column.integer("a"), 3)],
)
def test_column_kinds(column: Column, kind: int) -> None:
    assert column.type == kind
    assert Column.parse(column.build()) == column


U64 = st.integers(0, 2**64 - 1)
U16 = st.integers(0, 2**16 - 1)


@given(st.builds(Ok, U64, U64, U16, U16, st.binary(max_size=300)))
def test_ok_round_trip(ok: Ok) -> None:
    payload = ok_payload(
        affected_rows=ok.affected_rows,
        insert_id=ok.insert_id,
        status=ok.status,
        warnings=ok.warnings,
        info=ok.info,
    )
    assert parse_ok(payload) == ok


@given(U16, U16)
def test_eof_round_trip(warnings: int, status: int) -> None:
    payload = eof_payload(status=status, warnings=warnings)
    assert is_eof(payload)
    assert parse_eof(payload) == Eof(warnings, status)


def test_error_round_trip() -> None:
    remote = parse_error(error_payload(UnknownServerError("oh nö")))
    assert (remote.errno, remote.sqlstate, remote.message) == (1105, "HY000", "oh nö")


def test_error_without_state() -> None:
    long = parse_error(b"\xff\x10\x04#HY000" + b"x" * (1 << 24))
    assert (
        len(long.message) == 512
    )  # it is logged, and shown to whoever asks for the state of an upstream
    remote = parse_error(b"\xff\x10\x04Too many connections")
    assert (remote.errno, remote.sqlstate) == (1040, "HY000")
    assert remote.message == "Too many connections"


def test_long_error_text_is_cut_between_characters() -> None:
    remote = parse_error(error_payload(UnknownServerError("ö" * 400)))
    assert remote.message == "ö" * 256
    remote = parse_error(error_payload(UnknownServerError("x" + "ö" * 400)))
    assert remote.message == "x" + "ö" * 255


@given(st.lists(st.one_of(st.none(), st.text(max_size=20)), min_size=1, max_size=8))
def test_row_round_trip(row: list[str | None]) -> None:
    try:
        payload = row_payload(row)
    except UnicodeEncodeError:
        return
    assert parse_row(payload, len(row)) == row


def test_result_set() -> None:
    payloads = result_set_payloads(
        [Column.text("Log_name"), Column.bigint("File_size")],
        [("a.000001", 377), (b"raw", None)],
    )
    assert [payload[:1] for payload in payloads] == [
        b"\x02",
        b"\x03",
        b"\x03",
        b"\xfe",
        b"\x08",
        b"\x03",
        b"\xfe",
    ]
    assert parse_column_count(payloads[0]) == 2
    assert parse_row(payloads[4], 2) == ["a.000001", "377"]
    assert parse_row(payloads[5], 2) == ["raw", None]


def test_result_set_with_a_wrong_row() -> None:
    with pytest.raises(ValueError):
        result_set_payloads([Column.text("a")], [("x", "y")])


@pytest.mark.parametrize("payload", [b"", b"\x00", b"\x01x", b"\xfc\x01\x10", b"\xff"])
def test_column_count_refused(payload: bytes) -> None:
    with pytest.raises(ProtocolError):
        parse_column_count(payload)


@pytest.mark.parametrize("payload", [b"", b"\x02a", b"\x01ab", b"\xff"])
def test_row_refused(payload: bytes) -> None:
    with pytest.raises(ProtocolError):
        parse_row(payload, 1)
