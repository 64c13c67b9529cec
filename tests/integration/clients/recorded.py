"""Conversations of programs with a real 11.8, and what another server answers to the same packets.

    python -m tests.integration.clients.recorded FOLDER     # packs transcripts into tests/data/clients

What is kept of a transcript are the packets of the program, and of each answer its kind, the number of an error, the
definitions of columns, and rows where they are few. A replay logs in anew, as the salt is another; statement numbers
are those that the server gives, mapped by what PREPARE answered; 0xffffffff stays what it is.
"""

from __future__ import annotations

import json
import lzma
import socket
import struct
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from binlog_protocol.connection.auth import native_password_scramble
from binlog_protocol.connection.handshake import Greeting
from binlog_protocol.wire.packets import Packet, PacketReader, frame_packet

from binlog_server.testing.sql_server import Followed

DATA: Final = Path(__file__).parents[2] / "data" / "clients" / "programs.jsonl.xz"
LAST_PREPARED: Final = 0xFFFFFFFF
CONNECT_WITH_DB, CONNECT_ATTRS, DEPRECATE_EOF = 8, 1 << 20, 1 << 24
EXTENDED_METADATA, CACHE_METADATA = 8, 16
MORE_RESULTS, CURSOR_EXISTS = 8, 0x40
NO_ANSWER = ("COM_QUIT", "COM_STMT_CLOSE", "COM_STMT_SEND_LONG_DATA")
WITH_RESULTS = ("COM_QUERY", "COM_STMT_EXECUTE", "COM_STMT_BULK_EXECUTE")
ROWS_MAX = 4
_COLUMN = (
    *("name", "type", "length", "charset", "flags", "decimals"),
    *("schema", "table", "org_table", "org_name"),
)


@dataclass(frozen=True)
class Answer:
    """kind: OK, ERR, EOF, rows, prepared, text, stream, fields, infile. `columns` as in `_COLUMN`."""

    kind: str
    errno: int = 0
    text: str = ""
    columns: tuple[tuple[Any, ...], ...] = ()
    rows: tuple[tuple[str | None, ...], ...] | None = None
    statement: int = 0
    parameters: int = 0

    def __str__(self) -> str:
        return f"{self.kind} {self.errno or ''} {self.text}".strip()


@dataclass(frozen=True)
class Command:
    """One packet of a program, and the answers to it. `statement` is the number in it.

    awaited: the program had the answer before it sent the next one.
    more: further packets of it (of LOAD DATA LOCAL).
    """

    name: str
    payload: bytes
    answers: tuple[Answer, ...]
    statement: int = 0
    awaited: bool = True
    more: tuple[bytes, ...] = ()

    @property
    def sql(self) -> str:
        """Of COM_QUERY and COM_STMT_PREPARE, in one line; for others what is sent."""
        if self.name in ("COM_QUERY", "COM_STMT_PREPARE", "COM_INIT_DB"):
            return " ".join(self.payload[1:].decode("utf-8", "replace").split())
        return self.name


@dataclass(frozen=True)
class Conversation:
    """One connection of a program."""

    login: bytes
    commands: tuple[Command, ...]


@dataclass(frozen=True)
class Program:
    name: str
    conversations: tuple[Conversation, ...]


def programs() -> list[Program]:
    """All that were recorded."""
    with lzma.open(DATA, "rt", encoding="utf-8") as lines:
        return [_program(json.loads(line)) for line in lines]


def _program(kept: dict[str, Any]) -> Program:
    return Program(
        kept["program"],
        tuple(
            Conversation(bytes.fromhex(login), tuple(map(_command, commands)))
            for login, commands in kept["connections"]
        ),
    )


def _command(kept: dict[str, Any]) -> Command:
    return Command(
        kept["name"],
        bytes.fromhex(kept["payload"]),
        tuple(map(_answer, kept["answers"])),
        kept.get("statement", 0),
        kept.get("awaited", True),
        tuple(map(bytes.fromhex, kept.get("more", ()))),
    )


def _answer(kept: dict[str, Any]) -> Answer:
    rows = kept.pop("rows", None)
    columns = tuple(map(tuple, kept.pop("columns", ())))
    return Answer(**kept, columns=columns, rows=None if rows is None else tuple(map(tuple, rows)))


# -- of a real server ---------------------------------------------------------------------------------


def pack(folder: Path) -> None:
    """Keep what a replay needs of the transcripts in a folder."""
    with lzma.open(DATA, "wt", encoding="utf-8", preset=9) as out:
        for path in sorted(folder.glob("*.json")):
            transcript = json.loads(path.read_text())
            connections = [list(_packed(c["packets"])) for c in transcript["connections"]]
            kept = {"program": path.stem, "connections": [(c[0], c[1:]) for c in connections if c]}
            out.write(json.dumps(kept, ensure_ascii=False, separators=(",", ":")) + "\n")


def _packed(packets: Iterable[dict[str, Any]]) -> Iterator[Any]:
    """The login, then each command with its answers."""
    commands: list[dict[str, Any]] = []
    open_: deque[dict[str, Any]] = deque()
    login = ""
    cut = False  # a statement by the recorder, so that nothing can be said of what was prepared
    for packet in packets:
        name = packet.get("command", "")
        if name == "(login)":
            login = packet["hex"]
        elif packet["direction"] == "client" and name == "(more data)":
            open_[0].setdefault("more", []).append(packet["hex"])
        elif packet["direction"] == "client" and name.startswith("COM_"):
            payload = packet.get("hex") or (b"\x03" + packet["sql"].encode()).hex()
            if open_:
                open_[-1]["awaited"] = False
            kept = {"name": name, "payload": payload, "answers": []}
            if "statement" in packet:
                kept["statement"] = packet["statement"]
            cut = "..." in payload or (cut and kept.get("statement") == LAST_PREPARED)
            if not cut:
                commands.append(kept)
            if name not in NO_ANSWER:
                open_.append(kept)
        elif packet["direction"] == "server" and open_:
            if (answer := _packed_answer(packet)) is not None:
                open_[0]["answers"].append(answer)
            status = packet.get("end", packet).get("status", 0)
            ends = packet["kind"] not in ("PROGRESS", "LOCAL INFILE", "auth switch")
            if ends and not (status or 0) & MORE_RESULTS:
                open_.popleft()
    yield from (login, *commands) if login else ()


def _packed_answer(packet: dict[str, Any]) -> dict[str, Any] | None:
    kind = packet["kind"]
    if kind in ("PROGRESS", "auth switch"):
        return None
    if kind == "ERR":
        return {"kind": "ERR", "errno": packet["code"], "text": packet["text"]}
    if kind == "PREPARE_OK":
        return {
            "kind": "prepared",
            "statement": packet["statement"],
            "parameters": packet["params"],
            "columns": [[c[k] for k in _COLUMN] for c in packet["column_definitions"]],
        }
    if kind in ("result set", "binary result set"):
        kept: dict[str, Any] = {"kind": "rows"}
        kept["columns"] = [[c[k] for k in _COLUMN] for c in packet["columns"]]
        if kind == "result set" and packet["row_count"] <= ROWS_MAX:
            kept["rows"] = packet["rows"]
        return kept
    names = {
        "rows of a cursor": "rows",
        "binlog stream": "stream",
        "field list": "fields",
        "LOCAL INFILE": "infile",
    }
    return {"kind": names.get(kind, kind)}


# -- of ours ------------------------------------------------------------------------------------------


@dataclass
class Replay:
    """One connection anew, to the account of `source`. Answers come from `answers` in order of the commands."""

    source: Followed
    conversation: Conversation
    numbers: dict[int, int] = field(default_factory=dict)
    """Of the recording: ours."""
    definitions: dict[int, tuple[tuple[Any, ...], ...]] = field(default_factory=dict)
    """By our number."""
    last: int = 0

    def __post_init__(self) -> None:
        self.socket = socket.create_connection((self.source.host, self.source.port), 20)
        self.reader = PacketReader(1 << 25)
        greeting = Greeting.parse(self._packet().payload)
        caps = struct.unpack_from("<I", self.conversation.login)[0]
        extended = struct.unpack_from("<I", self.conversation.login, 28)[0]
        self.caps = caps & int(greeting.capabilities)
        self.extended = extended & greeting.mariadb_capabilities
        self.salt = greeting.salt
        self.socket.sendall(frame_packet(self._login(), 1)[0])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def answers(self) -> Iterator[tuple[Command, list[Answer] | None]]:
        """Of the login first, as the answers to a command of that name. None for what nothing could be said to."""
        yield Command("(login)", b"", (Answer("OK"),)), [self._simple(self._packet())]
        waiting: list[Command] = []
        for command in self.conversation.commands:
            payload = self._mapped(command)
            if payload is None:
                yield command, None
                continue
            self.socket.sendall(frame_packet(payload, 0)[0])
            if command.name in NO_ANSWER:
                yield command, []
                continue
            waiting.append(command)
            if command.awaited:
                for asked in waiting:
                    found = list(self._answers(asked))
                    yield asked, found
                    if found[-1].kind == "stream":
                        return
                waiting.clear()

    def _mapped(self, command: Command) -> bytes | None:
        """With the number that this server gave; None where it gave none."""
        if command.name == "COM_CHANGE_USER":
            return self._change_user(command.payload)
        if not command.statement or command.statement == LAST_PREPARED:
            return command.payload
        # One that is not awaited yet has the next number in both.
        ours = self.numbers.get(command.statement)
        if ours is None:
            return None
        return command.payload[:1] + struct.pack("<I", ours) + command.payload[5:]

    def _login(self) -> bytes:
        """The recorded one, with account and answer to the salt of today."""
        recorded = self.conversation.login
        account = self.source.account
        rest = recorded[recorded.index(0, 32) + 1 :]
        rest = rest[1 + rest[0] :]
        scramble = native_password_scramble(account.password, self.salt)
        secret = bytes([len(scramble)]) + scramble
        return recorded[:32] + account.user.encode() + b"\0" + secret + rest

    def _change_user(self, recorded: bytes) -> bytes:
        rest = recorded[recorded.index(0, 1) + 1 :]
        account = self.source.account
        return b"\x11" + account.user.encode() + b"\0" + b"\0" + rest[1 + rest[0] :]

    def _packet(self) -> Packet:
        while (packet := self.reader.next_packet()) is None:
            data = self.socket.recv(1 << 18)
            if not data:
                raise ConnectionError("closed by the server")
            self.reader.feed(data)
        return packet._replace(payload=bytes(packet.payload))

    def _simple(self, packet: Packet) -> Answer:
        """OK, EOF, ERR."""
        payload = packet.payload
        if payload[0] == 0xFF:
            at = 9 if payload[3:4] == b"#" else 3
            text = payload[at:].decode("utf-8", "replace")
            return Answer("ERR", int.from_bytes(payload[1:3], "little"), text)
        return Answer("EOF" if payload[0] == 0xFE else "OK")

    def _answers(self, command: Command) -> Iterator[Answer]:
        if command.name in WITH_RESULTS:
            more = True
            while more:
                answer, status = self._result(command)
                yield answer
                more = bool(status & MORE_RESULTS) or answer.kind == "infile"
        elif command.name == "COM_STMT_PREPARE":
            yield self._prepared(command)
        elif command.name == "COM_STMT_FETCH":
            first = self._packet()
            if first.payload[0] == 0xFF:
                yield self._simple(first)
            else:
                self._rows(first, binary=True, count=0)
                yield Answer("rows")
        elif command.name == "COM_FIELD_LIST":
            first = packet = self._packet()
            while packet.payload[0] not in (0xFE, 0xFF):
                packet = self._packet()
            yield self._simple(first) if packet.payload[0] == 0xFF else Answer("fields")
        elif command.name == "COM_STATISTICS":
            yield Answer("text", text=self._packet().payload.decode())
        elif command.name == "COM_BINLOG_DUMP":
            first = self._packet()
            yield self._simple(first) if first.payload[0] == 0xFF else Answer("stream")
        elif command.name == "COM_CHANGE_USER":
            packet = self._packet()
            if packet.payload[0] == 0xFE:
                # As Connector/C: to the salt of the greeting, whatever it is asked for.
                scramble = native_password_scramble(self.source.account.password, self.salt)
                self.socket.sendall(frame_packet(scramble, packet.seq + 1)[0])
                packet = self._packet()
            yield self._simple(packet)
        else:
            yield self._simple(self._packet())

    def _prepared(self, command: Command) -> Answer:
        packet = self._packet()
        if packet.payload[0] == 0xFF:
            return self._simple(packet)
        number, columns, parameters = struct.unpack_from("<IHH", packet.payload, 1)
        theirs = command.answers[0]
        if theirs.kind == "prepared":
            self.numbers[theirs.statement] = number
        for _ in range(parameters):
            self._packet()
        if parameters and not self.caps & DEPRECATE_EOF:
            self._packet()
        found = tuple(self._column(self._packet().payload) for _ in range(columns))
        if columns and not self.caps & DEPRECATE_EOF:
            self._packet()
        self.definitions[number] = found
        self.last = number
        return Answer("prepared", columns=found, statement=number, parameters=parameters)

    def _result(self, command: Command) -> tuple[Answer, int]:
        """And the status at its end."""
        packet = self._packet()
        payload = packet.payload
        while payload[:3] == b"\xff\xff\xff":  # progress
            packet = self._packet()
            payload = packet.payload
        if payload[0] == 0xFF:
            return self._simple(packet), 0
        if payload[0] == 0:
            _, at = _number(payload, 1)
            _, at = _number(payload, at)
            return Answer("OK"), int.from_bytes(payload[at : at + 2], "little")
        if payload[0] == 0xFB:
            seq = packet.seq + 1
            for data in (*command.more, *(() if command.more[-1:] == (b"",) else (b"",))):
                framed, seq = frame_packet(data, seq)
                self.socket.sendall(framed)
            return Answer("infile"), 0
        count, at = _number(payload, 0)
        binary = command.name != "COM_QUERY"
        if self.extended & CACHE_METADATA and payload[at : at + 1] == b"\0":
            columns = self.definitions[self._number_of(command)]
        else:
            columns = tuple(self._column(self._packet().payload) for _ in range(count or 0))
            if binary and command.name == "COM_STMT_EXECUTE":
                self.definitions[self._number_of(command)] = columns
        if not self.caps & DEPRECATE_EOF:
            status = struct.unpack_from("<H", self._packet().payload, 3)[0]
            if status & CURSOR_EXISTS:
                return Answer("rows", columns=columns), 0
        rows, status = self._rows(self._packet(), binary=binary, count=count or 0)
        few = rows if not binary and len(rows) <= ROWS_MAX else None
        return Answer("rows", columns=columns, rows=None if few is None else tuple(few)), status

    def _number_of(self, command: Command) -> int:
        if command.statement == LAST_PREPARED:
            return self.last
        return self.numbers.get(command.statement, 0)

    def _rows(
        self, packet: Packet, *, binary: bool, count: int
    ) -> tuple[list[tuple[str | None, ...]], int]:
        rows: list[tuple[str | None, ...]] = []
        limit = 0xFFFFFF if self.caps & DEPRECATE_EOF else 9
        while packet.payload[0] != 0xFE or len(packet.payload) >= limit:
            if packet.payload[0] == 0xFF and not binary:
                raise AssertionError(self._simple(packet))
            rows.append(() if binary else tuple(_text_row(packet.payload, count)))
            packet = self._packet()
        at = 3
        if self.caps & DEPRECATE_EOF:
            _, at = _number(packet.payload, 1)
            _, at = _number(packet.payload, at)
        return rows, int.from_bytes(packet.payload[at : at + 2], "little")

    def _column(self, payload: bytes) -> tuple[Any, ...]:
        at, texts = 0, []
        for _ in range(6):
            value, at = _string(payload, at)
            texts.append((value or b"").decode())
        if self.extended & EXTENDED_METADATA:
            _, at = _string(payload, at)
        charset, length, kind, flags, decimals = struct.unpack_from("<HIBHB", payload, at + 1)
        _, schema, table, org_table, name, org_name = texts
        return name, kind, length, charset, flags, decimals, schema, table, org_table, org_name


def _number(data: bytes, at: int) -> tuple[int | None, int]:
    first = data[at]
    if first < 0xFB:
        return first, at + 1
    if first == 0xFB:
        return None, at + 1
    size = {0xFC: 2, 0xFD: 3, 0xFE: 8}[first]
    return int.from_bytes(data[at + 1 : at + 1 + size], "little"), at + 1 + size


def _string(data: bytes, at: int) -> tuple[bytes | None, int]:
    size, at = _number(data, at)
    return (None, at) if size is None else (data[at : at + size], at + size)


def _text_row(data: bytes, count: int) -> Iterator[str | None]:
    """As the recorder wrote them: cut at 200 bytes, hexadecimal where it is no text."""
    at = 0
    for _ in range(count):
        value, at = _string(data, at)
        if value is None:
            yield None
            continue
        try:
            text = value[:200].decode()
        except UnicodeDecodeError:
            text = "\0"
        printable = all(c >= " " or c in "\t\r\n" for c in text)
        yield text if printable else "0x" + value[:200].hex()


if __name__ == "__main__":
    pack(Path(sys.argv[1]))
