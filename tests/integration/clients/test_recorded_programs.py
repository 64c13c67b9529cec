"""What fifty programs said to a real 11.8 is said to ours: its answers are of the same kind, with the same columns.

Where it is not, `REASONS` says why. A reason that nothing needs any more fails, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.integration.clients.recorded import (
    LAST_PREPARED,
    NO_ANSWER,
    Answer,
    Command,
    Conversation,
    Replay,
    programs,
)
from tests.kit.fixtures import MakeBinlogServer
from tests.kit.server import BinlogServer


@dataclass(frozen=True)
class Reason:
    """Why answers to statements that match differ so: `seen` is a pattern of `difference`."""

    statement: str
    seen: str
    why: str

    def explains(self, statement: str, seen: str) -> bool:
        found = re.match(self.statement, statement, re.IGNORECASE | re.DOTALL)
        return bool(found and re.match(self.seen, seen, re.DOTALL))


REASONS = (
    Reason(
        r"(COM_STMT_EXECUTE |SET STATEMENT .* FOR )?(/\*.*?\*/)?"
        r"(SELECT|SHOW|DESCRIBE|COM_FIELD_LIST|WITH|CHECK TABLE)",
        r"(rows|prepared|fields|1146) -> (1235 .*(holds no tables|CHECKSUM TABLE|use DESCRIBE)|1146 )",
        "no table of `app` is here, and no CREATE TABLE of `mysql`: an error says so, where a list would be a dump too",
    ),
    Reason(
        r"WITH RECURSIVE",
        r"rows -> 1235 .*WITH RECURSIVE",
        "mariadb-dump --system looks for roles of roles: there are no roles here, and such a query is not computed",
    ),
    Reason(
        r"(COM_STMT_EXECUTE )?CALL|LOAD DATA|SHOW CREATE (FUNCTION|PROCEDURE)",
        r".* -> (1235|1305) ",
        "there are no procedures, and no table to load data into",
    ),
    Reason(
        r"COM_STMT_(EXECUTE|FETCH|RESET) (SELECT .* FROM|SHOW TABLES|SHOW /|CALL|DESC|SHOW KEYS)",
        r"not prepared here|.* -> 1243 ",
        "PREPARE of it was refused",
    ),
    Reason(
        r"(COM_STMT_EXECUTE )?INSERT",
        r"(1062|1264|1366) -> OK",
        "a statement goes into the log; what a table would say to it is seen by a replica",
    ),
    Reason(
        r"ANALYZE|OPTIMIZE",
        r"rows -> OK",
        "a statement goes into the log; there is no table to tell of",
    ),
    Reason(
        r"(COM_STMT_(PREPARE|EXECUTE) )?INSERT .* RETURNING",
        r".* -> (1235|1243)",
        "there is no table whose rows it could give",
    ),
    Reason(r"(COM_STMT_EXECUTE )?SHOW MASTER STATUS", r"4 columns -> 5", "with the GTID position"),
    Reason(
        r"SHOW CREATE DATABASE", r"rows -> 1049", "what CREATE DATABASE made is with the replicas"
    ),
    Reason(r"SHOW (GRANTS FOR|CREATE USER)", r"rows -> (1133|1141)", "other accounts"),
    Reason(r"KILL", r"OK -> 1094", "the connection it means belongs to the recording"),
    Reason(
        r"COM_BINLOG_DUMP",
        r"stream -> 4246",
        "by file and offset only for accounts with the classic style of stream",
    ),
    Reason(r"SELECT BINLOG_GTID_POS", r"rows -> 4247", "offsets are no positions here"),
    # -- definitions of columns ------------------------------------------------------------------
    Reason(
        r"SELECT .* UNION|(COM_STMT_EXECUTE )?SELECT (KCU|A)\.|SELECT ifnull\(SCHEMA_NAME",
        r"columns: (charset utf8mb4 -> utf8mb3, )?(column \w+ -> ,? ?)+",
        "MariaDB names the column of the temporary table that it needs for it",
    ),
    Reason(
        r"(COM_STMT_EXECUTE )?SELECT .*(@dt:=|PARAMETER_MODE)",
        r"columns: .*type",
        "the width of a CASE over assignments is that of its branches",
    ),
    Reason(
        r"SELECT user, host, Select_priv", r"columns: ", "of a view over mysql.global_priv there"
    ),
)

# Of a result column. Charset: one of the character set's collations (224, 255 and 45 are utf8mb4's).
FIELDS = (
    "name",
    "type",
    "length",
    "charset",
    "flags",
    "decimals",
    "schema",
    "table",
    "origin",
    "column",
)
CHARSETS = {
    **dict.fromkeys((33, 192, 83), "utf8mb3"),
    **dict.fromkeys((45, 46, 224, 246, 255), "utf8mb4"),
}
TABLE = 8
"""Where the table of a column is: a computed one has none, and its length is that of its value."""
FLAGS = 0x10 | 0x20 | 0x100 | 0x200 | 0x800
"""BLOB, UNSIGNED, ENUM, AUTO_INCREMENT, SET: what a program reads values by."""
CONSTANT = re.compile(
    r"SELECT (?!.*\bFROM (?!DUAL))(?!.*(@|VERSION|USER|CONNECTION_ID|NOW\())", re.I
)
"""Statements whose rows are the same everywhere."""


def seen_columns(answer: Answer) -> list[tuple[object, ...]]:
    return [
        (
            *(c[0], c[1], c[2] if c[TABLE] else None, CHARSETS.get(c[3], c[3])),
            *(c[4] & FLAGS, c[5] if c[TABLE] else None, *c[6:]),
        )
        for c in answer.columns
    ]


def difference(statement: str, expected: list[Answer], found: list[Answer]) -> str:
    """Nothing, kinds and errors, or what differs in the definitions of the columns."""
    if [(a.kind, a.errno) for a in expected] != [(a.kind, a.errno) for a in found]:
        was = ", ".join(str(a.errno or a.kind) for a in expected)
        now = ", ".join(f"{a.errno} {a.text}" if a.errno else a.kind for a in found)
        return f"{was} -> {now}"
    for theirs, ours in zip(expected, found, strict=True):
        if not theirs.columns:
            continue
        if len(theirs.columns) != len(ours.columns):
            return f"{len(theirs.columns)} columns -> {len(ours.columns)}"
        fields = sorted(
            {
                (name, was, now)
                for a, b in zip(seen_columns(theirs), seen_columns(ours), strict=True)
                for name, was, now in zip(FIELDS, a, b, strict=True)
                if was != now
            },
            key=str,
        )
        if fields:
            return "columns: " + ", ".join(f"{name} {was} -> {now}" for name, was, now in fields)
        if CONSTANT.match(statement) and theirs.rows is not None and theirs.rows != ours.rows:
            return f"rows {theirs.rows} -> {ours.rows}"
    return ""


def statements(conversation: Conversation) -> Iterator[tuple[Command, str]]:
    """Each command with its statement; of EXECUTE, what was prepared, behind its name."""
    prepared, last = {}, ""
    for command in conversation.commands:
        if command.name == "COM_STMT_PREPARE":
            last = command.sql
            if command.answers[0].kind == "prepared":
                prepared[command.answers[0].statement] = last
        number = command.statement
        of = last if number == LAST_PREPARED else prepared.get(number, "")
        yield command, f"{command.name} {of}" if number else command.sql


def differences(server: BinlogServer, conversation: Conversation) -> Iterator[tuple[str, str]]:
    """Statement and what differs."""
    said = {id(command): sql for command, sql in statements(conversation)}
    with Replay(server, conversation) as replay:
        for command, found in replay.answers():
            statement = said.get(id(command), command.name)
            if command.name in NO_ANSWER:
                continue
            if found is None:
                yield statement, "not prepared here"
            else:
                seen = difference(statement, list(command.answers), found)
                if seen:
                    yield statement, seen


@pytest.fixture
def server(binlog_server: MakeBinlogServer) -> BinlogServer:
    users = {"tester": {"password": "a secret", "grants": ["ALL PRIVILEGES"]}}
    server = binlog_server(users=users, server_id=1)
    server.q("CREATE DATABASE app")
    return server


@pytest.mark.timeout(300)
def test_recorded_programs(server: BinlogServer) -> None:
    """All, in their order: one asks for what another has written."""
    unexplained, used = [], set()
    for program in programs():
        for conversation in program.conversations:
            for statement, seen in differences(server, conversation):
                why = next((r for r in REASONS if r.explains(statement, seen)), None)
                if why is None:
                    unexplained.append(f"{program.name}: {statement[:300]}\n    {seen[:300]}")
                else:
                    used.add(why)
    assert not unexplained, "\n".join(unexplained)
    assert [r for r in REASONS if r not in used] == []
