"""A master to follow, that does what a test has planned for each connection."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Self

from binlog_protocol.connection.commands import BinlogDump, Query, RegisterSlave
from binlog_protocol.connection.server import LoginReceived, ServerConnection
from binlog_protocol.errors import AccessDenied, ServerError, UnknownSystemVariable
from binlog_protocol.events.checksum import ChecksumAlgorithm, append_checksum
from binlog_protocol.events.format_description import FormatDescription
from binlog_protocol.events.header import split_events
from binlog_protocol.events.rotate import RotateEvent
from binlog_protocol.gtid import Gtid
from binlog_protocol.wire.results import Column

from .lab import transaction

SALT = b"s" * 20
VERSION = "10.11.19-MariaDB-log"
PASSWORD = "top-secret%pw"


def description(created: int = 0, algorithm: int = ChecksumAlgorithm.CRC32) -> bytes:
    return FormatDescription(VERSION, 1, created=created, checksum_algorithm=algorithm).build()


def rotate() -> bytes:
    return append_checksum(RotateEvent.fake("m-bin.000001", 1).build())


def group(gtid: Gtid) -> list[bytes]:
    """Its events as a master sends them, with checksums."""
    return [append_checksum(event) for event in split_events(transaction(gtid))]


def groups(*texts: str) -> list[bytes]:
    return [event for text in texts for event in group(Gtid.parse(text))]


OPENING = [rotate(), description()]


@dataclass
class Visit:
    """One connection: what is sent after the dump command, and how it ends."""

    events: list[bytes] = field(default_factory=list)
    end: ServerError | str = "hold"  # an error to send, or: hold, cut, eof
    server_id: int = 1
    refuse: ServerError | None = None  # to SET @slave_connect_state
    deny: bool = False


class FakeUpstream:
    """`async with FakeUpstream([visits]) as upstream`; one connection after the last is held."""

    def __init__(self, visits: Iterable[Visit] = ()) -> None:
        self._visits = list(visits)
        self.port = 0
        self.visits = 0
        self.first_connection = 9
        """The number of its first connection."""
        self.positions: list[str] = []
        self.dumps: list[BinlogDump] = []
        self.registered: list[RegisterSlave] = []
        self.statements: list[str] = []
        self.rows: dict[str, tuple[str, ...]] = {}  # answers to further statements
        self._server: asyncio.Server
        self._streams: list[Callable[[list[bytes]], None]] = []
        self._writers: list[asyncio.StreamWriter] = []

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for writer in self._writers:
            writer.close()

    def send(self, events: list[bytes]) -> None:
        """Into the stream that is held."""
        self._streams[-1](events)

    def cut(self) -> None:
        """All connections."""
        for writer in self._writers:
            writer.close()

    @property
    def streaming(self) -> int:
        return len(self._streams)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        visit = self._visits[self.visits] if self.visits < len(self._visits) else Visit(OPENING)
        self.visits += 1
        number = self.first_connection + self.visits - 1
        machine = ServerConnection(
            connection_id=number, server_version=f"5.5.5-{VERSION}", salt=SALT
        )
        writer.write(machine.greeting())
        while not machine.is_closed:
            event = machine.next_event()
            if event is None:
                data = await reader.read(1 << 16)
                if not data:
                    break
                machine.receive_data(data)
            elif isinstance(event, LoginReceived):
                if visit.deny:
                    writer.write(machine.reject_login(AccessDenied("u", "h", "YES")))
                else:
                    writer.write(machine.accept_login())
            elif isinstance(event, Query):
                self.statements.append(event.sql)
                writer.write(self.answer(machine, event.sql, visit))
            elif isinstance(event, BinlogDump):
                self.dumps.append(event)
                machine.start_dump()
                if self._stream(machine, writer, visit):
                    return
            elif isinstance(event, RegisterSlave):
                self.registered.append(event)
                writer.write(machine.send_ok())
        writer.close()

    def answer(self, machine: ServerConnection, sql: str, visit: Visit) -> bytes:
        """What a statement is answered."""
        if sql.startswith("SET @slave_connect_state"):
            self.positions.append(sql.split("'")[1])
            if visit.refuse is not None:
                return machine.send_error(visit.refuse)
        if sql.startswith("SET"):
            return machine.send_ok()
        if "binlog_storage_engine" in sql:
            return machine.send_error(UnknownSystemVariable("binlog_storage_engine"))
        row = {
            "SHOW VARIABLES LIKE 'SERVER_ID'": ("server_id", str(visit.server_id)),
            "SELECT @master_binlog_checksum": ("CRC32",),
            "SELECT @@GLOBAL.gtid_binlog_state": ("",),
            **self.rows,
        }.get(sql, ("0",))
        columns = [Column.text(f"c{number}") for number in range(len(row))]
        return machine.send_result_set(columns, [row])

    def _stream(
        self, machine: ServerConnection, writer: asyncio.StreamWriter, visit: Visit
    ) -> bool:
        """Everything in one write; returns whether the connection is held."""

        def send(events: list[bytes], last: bytes = b"") -> None:
            writer.write(b"".join([*map(machine.dump_event, events), last]))

        sent = b"".join(map(machine.dump_event, visit.events))
        if isinstance(visit.end, ServerError):
            writer.write(sent + machine.dump_error(visit.end))
        elif visit.end == "eof":
            writer.write(sent + machine.dump_end_eof())
        else:
            writer.write(sent)
        if visit.end == "hold":
            self._streams.append(send)
            return True
        writer.close()
        return True
