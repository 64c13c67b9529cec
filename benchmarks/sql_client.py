"""The cheap half of a MariaDB client: statements are ready-made packets, answers are told apart and no more.

pymysql logs in; from then on the socket is ours. A statement has one answer, which is an OK or an ERR packet
(INSERT, BEGIN, COMMIT, DDL; never a result set):

    3 bytes length, 1 byte sequence number 1, then
    00 ...                                  OK
    ff, 2 bytes error number, '#', 5 bytes SQLSTATE, text    ERR
"""

from __future__ import annotations

import socket
from struct import Struct
from typing import Any, Final

import pymysql
from binlog_protocol.limits import PACKET_PAYLOAD_MAX
from binlog_protocol.wire.packets import PACKET_HEADER_SIZE

from benchmarks.registry import BenchmarkError

READ_BYTES: Final = 4096
_COM_QUERY: Final = b"\x03"
_COM_STMT_PREPARE: Final = b"\x16"
_COM_STMT_EXECUTE: Final = 0x17
_EXECUTE: Final = Struct("<BIBI")  # command, statement, no cursor, one execution
_PREPARED: Final = Struct("<xIHH")  # OK, statement, columns, parameters
_OK: Final = 0x00
_ERR: Final = 0xFF
_ERR_TEXT_AT: Final = 3  # behind the kind and the error number


class StatementFailed(BenchmarkError):
    """The server refused a statement, answered something else, or has gone; the text says which."""


def query_packet(sql: bytes) -> bytes:
    """The statement, ready to be sent. Raises `ValueError` if it does not fit into one packet."""
    if len(sql) + len(_COM_QUERY) >= PACKET_PAYLOAD_MAX:
        raise ValueError(f"a statement of {len(sql)} bytes")
    return (len(sql) + len(_COM_QUERY)).to_bytes(3, "little") + b"\0" + _COM_QUERY + sql


def prepare(sock: socket.socket, sql: bytes) -> int:
    """Prepare a statement that has no result; `sock` blocks. Returns its number. Raises as `execute`."""
    payload = _COM_STMT_PREPARE + sql
    sock.sendall(len(payload).to_bytes(3, "little") + b"\0" + payload)
    buffer = b""
    packets: list[bytes] = []
    wanted = 1
    while len(packets) < wanted:
        data = sock.recv(READ_BYTES)
        if not data:
            raise StatementFailed("the server has closed the connection")
        buffer += data
        while (end := PACKET_HEADER_SIZE + int.from_bytes(buffer[:3], "little")) <= len(buffer):
            packets.append(buffer[PACKET_HEADER_SIZE:end])
            buffer = buffer[end:]
        if packets:
            _require_ok(packets[0])
            parameters = _PREPARED.unpack_from(packets[0])[2]
            wanted = 1 + bool(parameters) * (parameters + 1)  # EOF is behind them
    return int(_PREPARED.unpack_from(packets[0])[0])


def execute_packet(statement: int, parameters: Struct, types: bytes, *values: int | bytes) -> bytes:
    """An execution, ready to be sent. `types`: two bytes for each of the values, none of which is NULL."""
    nulls = bytes((len(values) + 7) // 8)
    payload = b"".join(
        (
            _EXECUTE.pack(_COM_STMT_EXECUTE, statement, 0, 1),
            nulls,
            b"\1",
            types,
            parameters.pack(*values),
        )
    )
    return len(payload).to_bytes(3, "little") + b"\0" + payload


def log_in(host: str, port: int, user: str, password: str) -> socket.socket:
    """A connection that is ready for statements: blocking, TCP_NODELAY, no default database.

    Raises `StatementFailed`.
    """
    try:
        connection: Any = pymysql.connect(
            host=host,
            port=port,
            user=user,
            password=password,
            autocommit=None,  # says nothing of its own after the login
            ssl_disabled=True,
            connect_timeout=30,
        )
    except pymysql.Error as error:
        raise StatementFailed(f"the login: {error}") from None
    found: socket.socket = connection._sock
    # Of our own: the one inside is closed when the connection object goes.
    sock = found.dup()
    connection._force_close()
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.settimeout(None)
    return sock


class Answers:
    """The answers on one connection, put together from whatever pieces they come in."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> int:
        """How many statements `data`, with what was left before it, says are done.

        Raises `StatementFailed` for an answer that is not OK, and for none (`data` is empty).
        """
        if not data:
            raise StatementFailed("the server has closed the connection")
        buffer = self._rest + data
        at = done = 0
        while (start := at + PACKET_HEADER_SIZE) < len(buffer):
            end = start + int.from_bytes(buffer[at : at + 3], "little")
            if end > len(buffer):
                break
            _require_ok(buffer[start:end])
            done += 1
            at = end
        self._rest = buffer[at:]
        return done

    @property
    def is_between(self) -> bool:
        """Whether nothing of an answer is left over."""
        return not self._rest


def _require_ok(payload: bytes) -> None:
    if payload[:1] == bytes([_OK]):
        return
    if payload[:1] == bytes([_ERR]):
        number = int.from_bytes(payload[1:_ERR_TEXT_AT], "little")
        raise StatementFailed(f"error {number}: {payload[_ERR_TEXT_AT:].decode(errors='replace')}")
    raise StatementFailed(f"neither OK nor an error: {payload[:40]!r}")


def execute(sock: socket.socket, packet: bytes) -> None:
    """Send one statement and wait for its OK; `sock` blocks. Raises `StatementFailed`, `OSError`."""
    sock.sendall(packet)
    answers = Answers()
    while not answers.feed(sock.recv(READ_BYTES)):
        pass
    if not answers.is_between:
        raise StatementFailed("more than one answer to one statement")
