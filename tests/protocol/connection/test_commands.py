from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest
from binlog_protocol.connection.commands import (
    BinlogDump,
    BinlogDumpGtid,
    ChangeUser,
    Command,
    InitDatabase,
    Ping,
    ProcessInfo,
    Query,
    Quit,
    Refresh,
    RegisterSlave,
    ResetConnection,
    SetOption,
    ShutdownCommand,
    StatisticsCommand,
    StmtPrepare,
    UnknownCommand,
    parse_command,
)
from binlog_protocol.errors import ServerError
from hypothesis import given
from hypothesis import strategies as st

COMMANDS: list[tuple[str, Command]] = [
    ("01", Quit()),
    ("02" + b"d1".hex(), InitDatabase("d1")),
    ("03" + b"SELECT UNIX_TIMESTAMP()".hex(), Query("SELECT UNIX_TIMESTAMP()")),
    ("0702", Refresh(2)),
    ("0800", ShutdownCommand()),
    ("09", StatisticsCommand()),
    ("0a", ProcessInfo()),
    ("0e", Ping()),
    ("1204000000020002000000000"[:22], BinlogDump(2, 2, "", 4)),
    (
        "12370700000200020000006d2d62696e2e303030303031",
        BinlogDump(2, 2, "m-bin.000001", 1847),
    ),
    (
        "15020000000c7265702d6372657031303131" + "0000" + "f00c" + "0000000000000000",
        RegisterSlave(2, "rep-crep1011", port=3312),
    ),
    ("1b0000", SetOption(0)),
    ("1f", ResetConnection()),
    (
        "1e" + "0200" + "07000000" + "00000000" + "0400000000000000" + "05000000" + "302d312d38",
        BinlogDumpGtid(7, 2, "", 4, "0-1-8"),
    ),
]


@pytest.mark.parametrize(("payload", "command"), COMMANDS)
def test_parse_and_build(payload: str, command: Command) -> None:
    assert parse_command(bytes.fromhex(payload)) == command
    assert not isinstance(command, UnknownCommand)
    assert command.build().hex() == payload


@pytest.mark.parametrize("code", [0x00, 0x05, 0x06, 0x0B, 0x1D, 0x20, 0xFE, 0xFF])
def test_unknown_command(code: int) -> None:
    assert parse_command(bytes((code,)) + b"whatever") == UnknownCommand(code)


@pytest.mark.parametrize(
    ("payload", "errno"),
    [
        ("07", 1835),
        ("12", 1835),
        ("12040000000200020000", 1835),
        ("15", 1105),
        ("15020000000c7265702d", 1105),
        ("1502000000" + "3d" + "61" * 61 + "0000" + "f00c" + "0000000000000000", 1105),
        ("1b00", 1835),
        ("1e", 1835),
        ("1e0200070000000000000004000000000000000500000030", 1835),
        ("1e02000700000000000000040000000000000003000000302d31", 1941),
        ("1e02000700000000000000040000000000000002000000302d", 1941),
        # MySQL: an empty set is the count 0 in eight bytes.
        ("1e020007000000000000000400000000000000080000000000000000000000", 1236),
        ("1e0200070000000000000004000000000000000100000080", 1236),
        ("1e0200070000000000000004000000000000000b000000302d312d312c302d312d32", 1943),
    ],
)
def test_malformed(payload: str, errno: int) -> None:
    with pytest.raises(ServerError) as caught:
        _parse_all(bytes.fromhex(payload))
    assert caught.value.errno == errno


def _parse_all(payload: bytes) -> None:
    command = parse_command(payload)
    if isinstance(command, BinlogDumpGtid):  # as is done once it is known that the client may ask
        command.position_of()


def test_empty_payload() -> None:
    assert parse_command(b"") == UnknownCommand(0)


@pytest.mark.parametrize("make", [bytes, bytearray])
@pytest.mark.parametrize(("code", "kind"), [(0x03, Query), (0x16, StmtPrepare)])
def test_nul_behind_a_statement(
    make: Callable[[bytes], bytes], code: int, kind: type[Query | StmtPrepare]
) -> None:
    """mariadb-slap sends the end of C's strings as well. Inside it is part of the text."""
    parsed = parse_command(make(bytes((code,)) + b"SELECT a\0b\0"))
    assert isinstance(parsed, kind)
    assert bytes(parsed.text) == b"SELECT a\0b"


def test_change_user_of_a_client_without_plugins() -> None:
    """As Node's `mysql` sends it: it ends behind the character set."""
    parsed = parse_command(b"\x11repl\0\x02ab" + b"shop\0" + b"\x21\0")
    assert isinstance(parsed, ChangeUser)
    request = parsed.request
    assert (request.user, request.auth_response, request.database) == ("repl", b"ab", "shop")
    assert (request.charset, request.plugin, request.attributes) == (33, None, {})


def test_file_name_ends_at_the_first_nul() -> None:
    dump = parse_command(bytes.fromhex("1204000000010002000000" + "000000"))
    assert dump == BinlogDump(2, 1, "", 4)
    dump = parse_command(bytes.fromhex("1204000000010002000000") + b"m-bin.000001\0rest")
    assert dump == BinlogDump(2, 1, "m-bin.000001", 4)


@pytest.mark.parametrize(
    ("flags", "server_id", "non_block", "annotate"),
    [
        (0, 2, False, False),
        (1, 2, True, False),
        (2, 2, False, True),
        (3, 0, True, True),
        (0, 0, True, False),
    ],
)
def test_dump_flags(flags: int, server_id: int, non_block: bool, annotate: bool) -> None:
    dump = BinlogDump(server_id, flags)
    assert (dump.non_block, dump.annotate) == (non_block, annotate)


@given(st.binary(min_size=1, max_size=80))
def test_any_bytes(payload: bytes) -> None:
    with contextlib.suppress(ServerError):
        parse_command(payload)
