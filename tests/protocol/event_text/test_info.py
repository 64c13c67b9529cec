"""SHOW BINLOG EVENTS: the column Info, in the words that 10.11 and 11.8 were seen to use."""

from __future__ import annotations

import struct
from decimal import Decimal

import pytest
from binlog_protocol.event_text.info import event_info, event_type_name
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.gtid import GtidEvent, GtidFlags, XaId
from binlog_protocol.events.header import build_event
from binlog_protocol.events.statement_context import RandEvent, UserVarEvent
from binlog_protocol.events.xa_prepare import XaPrepareEvent
from binlog_protocol.gtid import Gtid

VARIABLES = {
    (b"a", 5, 8): "@`a`=5",
    (b"b", b'it\'s \\ "x"', 45): "@`b`=_utf8mb4 X'69742773205C20227822' COLLATE utf8mb4_general_ci",
    (b"c", None, 0): "@`c`=NULL",
    (b"d", Decimal("1.50"), 8): "@`d`=1.50",
    (b"e", 2**64 - 1, 8): "@`e`=18446744073709551615",
    (b"f", -3, 8): "@`f`=-3",
    (b"h", b"\0\xff", 63): "@`h`=_binary X'00FF' COLLATE binary",
    ("we`ird é".encode(), "é".encode(), 45): (
        "@`we``ird é`=_utf8mb4 X'C3A9' COLLATE utf8mb4_general_ci"
    ),
    (b"z", b"", 45): '@`z`=_utf8mb4 "" COLLATE utf8mb4_general_ci',
    (b"x", b"e", 8): "@`x`=_latin1 X'65' COLLATE latin1_swedish_ci",
    (b"y", b"e", 9999): "@`y`=???",
}


@pytest.mark.parametrize("said", VARIABLES, ids=str)
def test_user_variables(said: tuple[bytes, bytes | int | Decimal | None, int]) -> None:
    name, value, collation = said
    event = UserVarEvent(name, value, collation).build(server_id=1)
    assert (event_type_name(event), event_info(event)) == ("User var", VARIABLES[said])


DOUBLES = {
    1e100: "1e100",
    -1.5e-7: "-0.00000015",
    123456789012345678e0: "1.2345678901234568e17",
    1e15: "1e15",
    1e14: "100000000000000",
    1e14 * 1.1: "110000000000000.02",
    0.1 + 0.2: "0.30000000000000004",
    0.0: "0",
    3.14159265358979: "3.14159265358979",
    123456.789: "123456.789",
    1234567e3: "1234567000",
    2 / 3: "0.6666666666666666",
    1e-5: "0.00001",
    1e-15: "0.000000000000001",
    1e-16: "1e-16",
    -2.5e-20: "-2.5e-20",
}


@pytest.mark.parametrize("number", DOUBLES)
def test_doubles(number: float) -> None:
    body = b"\1\0\0\0v\0\1" + (8).to_bytes(4, "little") + (8).to_bytes(4, "little")
    body += struct.pack("<d", number) + b"\0"
    event = build_event(EventType.USER_VAR, body, server_id=1)
    assert event_info(event) == f"@`v`={DOUBLES[number]}"


def test_rand() -> None:
    event = RandEvent(632712152, 321579943).build(server_id=1)
    assert (event_type_name(event), event_info(event)) == (
        "RAND",
        "rand_seed1=632712152,rand_seed2=321579943",
    )


def test_xa() -> None:
    xa_id = XaId(7, b"g2", b"\0\xff")
    gtid = GtidEvent(Gtid(0, 1, 8), GtidFlags.PREPARED_XA, xa_id=xa_id).build()
    assert event_info(gtid) == "XA START X'6732',X'00ff',7 GTID 0-1-8"
    prepare = XaPrepareEvent(xa_id, 1).build()
    assert (event_type_name(prepare), event_info(prepare)) == (
        "XA_prepare",
        "XA PREPARE X'6732',X'00ff',7",
    )


def test_load_data() -> None:
    """As MariaDB numbers files; the statement is that of a QUERY event."""
    piece = build_event(EventType.BEGIN_LOAD_QUERY, b"\1\0\0\0a\t1\nb\t2\n", server_id=1)
    assert (event_type_name(piece), event_info(piece)) == (
        "Begin_load_query",
        ";file_id=1;block_len=8",
    )
    end = build_event(EventType.DELETE_FILE, b"\1\0\0\0", server_id=1)
    assert event_info(end) == ";file_id=1"
    text = b"LOAD DATA INFILE 'x' INTO TABLE `t`"
    fixed = (
        bytes(8) + b"\1" + bytes(4)
    )  # thread, seconds, one byte of database name, error, no status
    own = (3).to_bytes(4, "little") + bytes(9)
    load = build_event(EventType.EXECUTE_LOAD_QUERY, fixed + own + b"e\0" + text, server_id=1)
    assert (event_type_name(load), event_info(load)) == (
        "Execute_load_query",
        "use `e`; LOAD DATA INFILE 'x' INTO TABLE `t` ;file_id=3",
    )
