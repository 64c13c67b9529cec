"""Writes docs/rights.md from the server's tables and from MariaDB's answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from .examples import SECTIONS, Example
from .mariadb import NOTHING, UNKNOWN, VERSIONS, recorded

PAGE: Final = Path(__file__).parents[3] / "docs" / "rights.md"
COMMAND: Final = "python -m tests.binlog_server.rights"

_HEAD: Final = f"""# What an account may do

Written by `{COMMAND}` from what the server's statements say (`needs`; `binlog_server/sql/`), never by hand. A
test says each line with each privilege alone and without any; another one asks a real MariaDB.

Any one of the privileges named will do; **nothing** is what everybody may who has logged in: `USAGE` is enough. `ALL
PRIVILEGES` is each of them. `SUPER` stands for what it stood for in MariaDB 10.11. `BINLOG REPLAY` stands for all but
`CREATE USER`, `REPLICATION SLAVE`, `SHUTDOWN` and `BINLOG FAULT`: who may put any group under any GTID into the history
has it in his hands; without `CREATE USER` such an account commits SQL about accounts, for the replicas. An account of
`[users]` or of `binlog-server user add` that was granted nothing has `REPLICATION SLAVE`.

MariaDB: what its error 1227 names to an account without privileges; that of 11.8, and that of 10.11 where it is
another one even without `SUPER`. **-**: it has no such statement or variable. Where we differ the last column says
why.

Variables without a line are kept and shown, and mean nothing here. They need what they need in 11.8: most of them
nothing in a session, and `SUPER` or the privilege of their part of the server for `SET GLOBAL`
(`binlog_server/sql/mariadb_variables.tsv`).
"""

# Where an account without a privilege hears something else than in MariaDB: why.
REASONS: Final = {
    "SHOW SLAVE HOSTS": "who only looks need not get the right to set semi-sync",
    "SHOW CREATE DATABASE information_schema": "there is nothing in it that not everybody may see",
    "BACKUP LOCK d.t": "there is no privilege `LOCK TABLES` here",
    "BACKUP UNLOCK": "there is no privilege `LOCK TABLES` here",
    "CHECKSUM TABLE d.t": "of a table that is here it needs `SELECT`; others are 1235",
    "CHECK TABLE d.t": "of a table that is here it needs `SELECT`; others are 1235",
    "SET PASSWORD FOR victim = PASSWORD('x')": "there is no table of accounts to have rights on",
    "SHOW GRANTS FOR victim": "there is no table of accounts to have rights on",
    "SHOW CREATE USER victim": "there is no table of accounts to have rights on",
    "GRANT RELOAD ON *.* TO victim": "who makes accounts gives them their privileges",
    "REVOKE RELOAD ON *.* FROM victim": "who makes accounts gives them their privileges",
    "INSERT INTO test.t VALUES (1)": "there are no tables to have rights on",
    "CREATE TABLE test.t (a INT)": "there are no tables to have rights on",
    "LOCK TABLES test.t READ": "there are no tables to have rights on",
    "USE test": "there are no databases: it is a name for what is committed",
    "COM_INIT_DB": "there are no databases: it is a name for what is committed",
    "GLOBAL innodb_flush_log_at_trx_commit": "here it is what `sync_binlog` is there",
}

# MariaDB refuses these without a name, or does nothing; a live test grants ours, and then they work.
SAME: Final = frozenset(
    {
        "SHOW PROCESSLIST: connections of others",
        "SHOW FULL PROCESSLIST: connections of others",
        "KILL n, of others",
        "KILL USER name, of others",
        "COM_REGISTER_SLAVE",
    }
)


def differs(example: Example) -> bool:
    """Whether MariaDB asks for something else in each version that has it."""
    if example.shown in SAME:
        return False
    ours = set(example.needed)
    said = [recorded()[version][example.shown] for version in VERSIONS]
    theirs = [set(text.split(", ")) - {NOTHING} for text in said if text != UNKNOWN]
    return bool(theirs) and not any(ours in (one, one | {"SUPER"}) for one in theirs)


def text() -> str:
    """The whole page."""
    return "\n".join([_HEAD, *_sections()]) + "\n"


def _sections() -> Iterator[str]:
    for name, examples in SECTIONS.items():
        yield f"## {name}\n"
        yield "| | here | MariaDB | |\n|---|---|---|---|"
        for example in examples:
            yield _row(example)
        yield ""


def _row(example: Example) -> str:
    shown, colon, of = example.shown.partition(", of ")
    shown, colon, of = (shown, colon, of) if colon else example.shown.partition(": ")
    label = f"`{shown}`{colon}{of}"
    ours = ", ".join(example.needed) or "nothing"
    return f"| {label} | {ours} | {_theirs(example)} | {REASONS.get(example.shown, '')} |"


def _theirs(example: Example) -> str:
    if example.shown in SAME:
        return example.needed[-1]
    old, new = (recorded()[version][example.shown] for version in VERSIONS)
    shown = new or "nothing"
    if old not in (new, f"SUPER, {new}"):
        shown += f"; 10.11: {old or 'nothing'}"
    return shown
