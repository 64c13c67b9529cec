"""Our reading of real binlogs against that of MariaDB's own tool.

Differences, each of one kind and none of them in the data:

* mariadb-binlog prints the bytes of a string as they are, some as \\xNN; our literals are ASCII-safe, or X'..'
* it shows a session variable more (autocommit) or puts several into one SET; it prints local times
* it sends both halves of a two-phase ALTER as BINLOG; ours shows the second as the statement it is
* it begins a file with its format description; our script says one when it is first needed
* before the first file it prints a ROLLBACK, and so do we for a start marker, which is not part of the groups here
"""

from __future__ import annotations

from decimal import Decimal

import pytest
from binlog_protocol.event_text.choice import Choice
from binlog_protocol.event_text.literals import sql_literal
from binlog_protocol.event_text.sql_form import SqlForm
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.header import split_events
from binlog_protocol.events.rows import ROWS_TYPES, Absent, ChangeKind, Image, RowsEvent, Value
from binlog_protocol.events.table_map import TableColumn, TableMap

from tests.protocol.events.rows import samples
from tests.protocol.events.rows.samples import Shown

HEADS = {
    ChangeKind.INSERT: "INSERT INTO",
    ChangeKind.UPDATE: "UPDATE",
    ChangeKind.DELETE: "DELETE FROM",
}
TWO_PHASE = "118-alter-two-phase"


def as_printed(value: Value, column: TableColumn) -> bytes | None:
    if isinstance(value, bytes):
        # The samples were kept as text, with U+FFFD for what is not UTF-8.
        return value.decode("utf-8", "replace").encode()
    if value is None:
        return None
    if isinstance(value, (int, Decimal)):
        return str(value).encode()
    if isinstance(value, str):
        return value.encode()
    return sql_literal(value, column).strip("'").encode()


def image(rows: RowsEvent, table: TableMap, section: str, values: Image) -> Shown:
    return (
        f"{HEADS[rows.kind]} {table.database}.{table.table}",
        section,
        [
            (number, as_printed(value, column))
            for number, (value, column) in enumerate(zip(values, table.columns, strict=True), 1)
            if not isinstance(value, Absent)
        ],
    )


def decoded_rows(name: str) -> list[Shown]:
    found: list[Shown] = []
    tables: dict[int, TableMap] = {}
    for group in samples.groups(name):
        for event in split_events(group.payload):
            if event[4] == EventType.TABLE_MAP:
                table = TableMap.parse(event)
                tables[table.table_id] = table
            elif event[4] in ROWS_TYPES:
                rows = RowsEvent.parse(event)
                table = tables[rows.table_id]
                for change in rows.rows(table):
                    if change.before is not None:
                        found.append(image(rows, table, "WHERE", change.before))
                    if change.after is not None:
                        found.append(image(rows, table, "SET", change.after))
    return found


@pytest.mark.parametrize("name", samples.NAMES)
def test_rows_as_mariadb_binlog_shows_them(name: str) -> None:
    assert decoded_rows(name) == list(samples.shown_rows(name))


def test_samples_have_rows() -> None:
    assert sum(len(decoded_rows(name)) for name in samples.NAMES) > 90


@pytest.mark.parametrize("name", [name for name in samples.NAMES if name != TWO_PHASE])
def test_statements_as_mariadb_binlog_shows_them(name: str) -> None:
    form = SqlForm(Choice(), verbose=2)
    script = b"".join(
        piece
        for group in samples.groups(name)
        for piece in form.group(split_events(group.payload), "here")
    )
    theirs = samples.shown_statements((samples.FOLDER / f"{name}.sql").read_bytes())
    assert theirs[0] == b"ROLLBACK"  # of the server start
    theirs = [text for text in theirs[1:] if not text.startswith(b"ROLLBACK /* added")]
    ours = samples.shown_statements(script)
    # The one BINLOG that is no rows: the format description, in their case first.
    assert theirs.pop(0) == b"BINLOG"
    if b"BINLOG" in ours:
        ours.remove(b"BINLOG")
    assert [text for text in ours if text != b"BINLOG"] == [
        text for text in theirs if text != b"BINLOG"
    ]
    assert ours.count(b"BINLOG") == theirs.count(b"BINLOG")


def test_two_phase_alter_is_one_statement() -> None:
    form = SqlForm(Choice(), comments=False)
    script = b"".join(
        piece
        for group in samples.groups(TWO_PHASE)
        for piece in form.group(split_events(group.payload), "here")
    )
    assert script.count(b"ALTER TABLE d1.a ADD y int") == 1
    assert b"START ALTER" not in script
