"""Binlog files of real servers, and the rows that MariaDB's own tool shows of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from binlog_protocol.events.header import EventHeader
from binlog_protocol.groups.event_group import EventGroup, EventGroupAssembler

FOLDER = Path(__file__).parent / "samples"
NAMES = sorted(path.stem for path in FOLDER.glob("*.bin"))

_HEAD = re.compile(rb"### (INSERT INTO|UPDATE|DELETE FROM) `(.*)`\.`(.*)`")
_VALUE = re.compile(rb"###   @(\d+)=(.*) /\* .* \*/", re.DOTALL)
_ESCAPE = re.compile(rb"\\x([0-9A-F]{2})")


def groups(name: str) -> list[EventGroup]:
    """In normal form."""
    data = (FOLDER / f"{name}.bin").read_bytes()
    assembler = EventGroupAssembler()
    at, found = 4, []
    while at < len(data):
        length = EventHeader.parse(data, at).length
        found.append(assembler.feed(data[at : at + length]))
        at += length
    return [group for group in found if isinstance(group, EventGroup)]


Shown = tuple[str, str, list[tuple[int, bytes | None]]]
"""Head, section (WHERE or SET), column numbers and values: bytes of strings, else what is printed; None for NULL."""


def shown_rows(name: str) -> Iterator[Shown]:
    """Each image that mariadb-binlog printed, in order."""
    head = ""
    image: Shown | None = None
    for line in (FOLDER / f"{name}.sql").read_bytes().split(b"\n"):
        if match := _HEAD.fullmatch(line):
            head = (b"%s %s.%s" % match.groups()).decode()
        elif line in (b"### WHERE", b"### SET"):
            if image is not None:
                yield image
            image = head, line[4:].decode(), []
        elif match := _VALUE.match(line):
            assert image is not None
            image[2].append((int(match[1]), _value(match[2])))
    if image is not None:
        yield image


def _value(text: bytes) -> bytes | None:
    if text == b"NULL":
        return None
    if not text.startswith(b"'"):
        return text
    return _ESCAPE.sub(lambda match: bytes.fromhex(match[1].decode()), text[1:-1])


def shown_statements(script: bytes) -> list[bytes]:
    """What a script executes, in order: without comments, session settings and the base64 of BINLOG."""
    found = []
    for statement in script.split(b"/*!*/;"):
        lines = [
            line for line in statement.split(b"\n") if not line.startswith((b"#", b"DELIMITER"))
        ]
        text = b"\n".join(lines).strip()
        while text.startswith(b"/*") and b";\n" in text:  # the beginning has another delimiter
            text = text.partition(b";\n")[2].strip()
        if text and not text.startswith((b"/*", b"SET ", b"use ")):
            found.append(b"BINLOG" if text.startswith(b"BINLOG") else text)
    return found
